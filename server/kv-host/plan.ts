/** Chooses how many KV pages of each engine are kept in host memory. */
import { formatBytes } from "../../gpu/memory.ts";
import { PAGE_TOKENS } from "../../gpu/native/open.ts";
import { type Config, ConfigError } from "../config.ts";
import type { KvHostSetup } from "./protocol.ts";

/** Facts on which the size and number of the pages depend. */
export interface HostPlanFacts {
  readonly isGpu: boolean;
  readonly isEncoder: boolean;
  readonly engines: number;
  readonly pageBytes: number;
  readonly stateBytes: number;
  /** Free memory of the host, without the memory that the engines take. */
  readonly freeBytes: number;
}

/** Pages in host memory; null if none were requested. */
export interface HostPlan {
  readonly setup: Omit<KvHostSetup, "workerUrl"> | null;
  /** Sentence for the operator; null for none. */
  readonly note: string | null;
}

/** Plans the pages in host memory. Throws ConfigError if it can hold none. */
export function planHost({ kvHost }: Pick<Config, "kvHost">, facts: HostPlanFacts): HostPlan {
  if (kvHost === 0) return { setup: null, note: null };
  const refuse = (reason: string): never => {
    throw new ConfigError(`--kv-host ${kvHost}: ${reason}.`);
  };
  const { isGpu, isEncoder, engines, pageBytes, stateBytes, freeBytes } = facts;
  if (!isGpu)
    refuse("the pages of a CPU are in the host's memory already; --kv-cache-gib says how much they take");
  if (isEncoder) refuse("an encoder has no pages that last");
  const bytes = kvHost * 2 ** 30;
  const places = Math.floor(bytes / engines / pageBytes);
  if (places < 1) refuse(`a page takes ${formatBytes(pageBytes)}, more than an engine's share`);
  if (bytes > freeBytes)
    refuse(
      `${formatBytes(bytes)} are asked for, and ${formatBytes(freeBytes)} of the host's memory are free`,
    );
  const each = engines > 1 ? " for each engine" : "";
  return {
    setup: { places, pageBytes, stateBytes, pageTokens: PAGE_TOKENS },
    note: `KV pages that leave the GPU are kept in ${formatBytes(bytes)} of the host's memory, ${places} pages${each}`,
  };
}
