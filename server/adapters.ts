/** LoRA adapters of a server, from `--lora name=path`. */

import { type LoraAdapter, openAdapter } from "../model/adapter.ts";
import { ModelError } from "../model/model-error.ts";
import type { ModelFolder } from "../model/model-folder.ts";
import { ConfigError } from "./config.ts";

/** Most adapters of a server: as many slots as an engine may have. */
const ADAPTERS_MAX = 1024;

/** Adapters by the names that choose them. */
export type Adapters = ReadonlyMap<string, LoraAdapter>;

/** Name and path of an adapter, of which the name holds no `=`. */
export function adapterPlace(given: string): readonly [name: string, path: string] {
  const at = given.indexOf("=");
  return [given.slice(0, at), given.slice(at + 1)];
}

/**
 * Opens the adapters of a model that is served as `names`. `isGpu`: GPUs compute the model. Throws ConfigError,
 * which names the option.
 */
export function openAdapters(
  given: readonly string[],
  folder: ModelFolder,
  names: readonly string[],
  isGpu: boolean,
): Adapters {
  const adapters = new Map<string, LoraAdapter>();
  if (given.length > ADAPTERS_MAX)
    throw new ConfigError(
      `--lora: at most ${ADAPTERS_MAX} adapters are served, and ${given.length} are given.`,
    );
  for (const one of given) {
    const [name, path] = adapterPlace(one);
    const refuse = (reason: string): never => {
      throw new ConfigError(`--lora ${one}: ${reason}.`);
    };
    if (isGpu) refuse("adapters are computed on CPUs only yet; use --device cpu");
    if (folder.config.shape.encoder !== undefined) refuse("an encoder takes no adapters");
    if (names.includes(name)) refuse(`${name} is the name of the model itself`);
    if (adapters.has(name)) refuse(`another adapter has the name ${name}`);
    try {
      adapters.set(name, openAdapter(path, folder));
    } catch (error) {
      if (!(error instanceof ModelError)) throw error;
      refuse(error.message.replace(/\.$/, ""));
    }
  }
  return adapters;
}

/** The adapters, each once: two names may mean the same contents. */
export function distinctAdapters(adapters: Adapters): readonly LoraAdapter[] {
  return [...new Map([...adapters.values()].map((adapter) => [adapter.id, adapter])).values()];
}
