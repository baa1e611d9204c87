/** Chooses whether, where and in how much space an engine's KV pages are kept on disk. */
import { mkdirSync, readFileSync, statfsSync } from "node:fs";
import { join } from "node:path";
import { bestIsa, PAGE_TOKENS } from "../../gpu/native/open.ts";
import { packedKey } from "../../gpu/native/packed-cache.ts";
import type { ComputeOptions, EngineLimits, Gpu, NativeLibrary } from "../../gpu/native.ts";
import { ioReason } from "../../model/model-error.ts";
import type { ModelFolder } from "../../model/model-folder.ts";
import { rotationOf } from "../../model/rope.ts";
import { type Config, ConfigError } from "../config.ts";
import { listStored } from "./folders.ts";
import { type KvDiskSetup, waitingPages } from "./protocol.ts";

/** Part of the free space that CPU engines take by default, its bounds, and the smallest weights for it. */
const FREE_SHARE = 1 / 20;
const DEFAULT_BYTES_MAX = 16 * 2 ** 30;
const DEFAULT_BYTES_MIN = 2 ** 30;
const WEIGHT_BYTES_MIN = 256 * 2 ** 20;

/** Facts of a model on which the contents and the place of its pages depend. */
export interface DiskPlanFacts {
  readonly name: string;
  readonly folder: ModelFolder;
  /** Draft model, whose keys and values are part of the pages; null for none. */
  readonly draft: { readonly folder: ModelFolder; readonly compute: ComputeOptions } | null;
  readonly contextMax: number;
  readonly compute: ComputeOptions;
  readonly limits: Pick<EngineLimits, "gemm">;
  readonly gpus: readonly Pick<Gpu, "name" | "capability">[];
  readonly engines: number;
  readonly weightBytes: number;
  readonly pageBytes: number;
  readonly stateBytes: number;
}

/** Pages on disk, or the reason for having none although they were requested. */
export interface DiskPlan {
  readonly setup: Omit<KvDiskSetup, "workerUrl"> | null;
  /** Sentence for the operator; null for none. */
  readonly note: string | null;
}

/** Plans the pages on disk. Throws ConfigError for a key file that cannot be used. */
export function planDisk(config: Config, library: NativeLibrary, facts: DiskPlanFacts): DiskPlan {
  const { kvDisk } = config;
  const isAsked = kvDisk !== "auto" && kvDisk > 0;
  const key = config.kvDiskKeyFile === null ? null : readKey(config.kvDiskKeyFile);
  const without = (reason: string): DiskPlan => ({
    setup: null,
    note: isAsked ? `--kv-disk: no KV pages are kept on disk: ${reason}` : null,
  });
  if (kvDisk === 0) return { setup: null, note: null };
  if (facts.folder.config.shape.encoder !== undefined) return without("an encoder has none that last");
  const isSmall = facts.weightBytes < WEIGHT_BYTES_MIN;
  if (!isAsked && (isSmall || facts.gpus.length > 0)) return { setup: null, note: null };
  const root = diskRoot(config);
  if (root === null) return without("there is no cache folder; --data names another");
  const bytesMax = isAsked ? kvDisk * 2 ** 30 : defaultBytes(root);
  if (bytesMax === null) return { setup: null, note: null };
  const { name, engines, pageBytes, stateBytes } = facts;
  const identity = identityOf(library, facts);
  const sizes = { engines, pageBytes, stateBytes, pageTokens: PAGE_TOKENS };
  const setup = { root, model: name, identity, bytesMax, ...sizes, key };
  return { setup, note: `KV pages are kept in ${root}, ${(bytesMax / 2 ** 30).toFixed(1)} GiB at most` };
}

/** Bytes of host memory per engine: the pages that wait to be written, and one that is being read. */
export function diskMemory({ setup }: DiskPlan): number {
  return setup === null ? 0 : (waitingPages(setup.pageBytes) + 1) * setup.pageBytes;
}

/** Folder of all models' pages; null if no place for it is known. */
export function diskRoot({ data }: Pick<Config, "data">): string | null {
  if (typeof data === "object") return join(data.folder, "kv");
  const { XDG_CACHE_HOME: cache, HOME: home } = process.env;
  const caches = cache?.startsWith("/") ? cache : home?.startsWith("/") ? join(home, ".cache") : null;
  return caches === null ? null : join(caches, "bunting", "kv");
}

/** Default size: a share of the free space plus the pages' own; null if that is too little or unknown. */
function defaultBytes(root: string): number | null {
  try {
    mkdirSync(root, { recursive: true, mode: 0o700 });
    const { bavail, bsize } = statfsSync(root);
    const stored = listStored(root).reduce((sum, { bytes }) => sum + bytes, 0);
    const bytes = Math.min(DEFAULT_BYTES_MAX, (bavail * bsize + stored) * FREE_SHARE);
    return bytes < DEFAULT_BYTES_MIN ? null : bytes;
  } catch {
    return null;
  }
}

/**
 * Identity of a page's contents: weights, RoPE, formats, the library with its kernels, its instruction set,
 * and the GPUs; weights, RoPE and formats of a draft model too.
 */
function identityOf(library: NativeLibrary, facts: DiskPlanFacts): string {
  const { folder, draft, contextMax, compute, limits, gpus } = facts;
  const isa = compute.isa === "auto" ? bestIsa(library) : compute.isa;
  const rotations = rotationsOf(folder, contextMax);
  const hasher = new Bun.CryptoHasher("sha256")
    .update(packedKey(folder.config.shape, folder.tensors, compute))
    .update(readFileSync(library.path))
    .update(JSON.stringify([numbersOf(compute), isa, rotations, gpus.length > 0 ? limits.gemm : null]))
    .update(JSON.stringify(gpus.map(({ name, capability }) => [name, capability])));
  if (draft !== null)
    hasher
      .update(packedKey(draft.folder.config.shape, draft.folder.tensors, draft.compute))
      .update(JSON.stringify([numbersOf(draft.compute), rotationsOf(draft.folder, contextMax)]));
  return hasher.digest("hex");
}

function numbersOf({ threads: _, ...numbers }: ComputeOptions): object {
  return numbers;
}

function rotationsOf({ config }: ModelFolder, contextMax: number): unknown {
  return config.shape.ropes.map((rope) => {
    const { frequencies, magnitude } = rotationOf(rope, contextMax);
    return [[...frequencies], magnitude];
  });
}

const KEY_BYTES = 32;

/** Reads a key file: 32 bytes, or 64 hexadecimal digits. */
function readKey(file: string): Uint8Array {
  let bytes: Buffer;
  try {
    bytes = readFileSync(file);
  } catch (error) {
    throw new ConfigError(`--kv-disk-key-file ${file} ${ioReason(error)}.`);
  }
  const text = bytes.toString("latin1").trim();
  if (/^[0-9a-f]{64}$/i.test(text)) return Buffer.from(text, "hex");
  if (bytes.length === KEY_BYTES) return bytes;
  throw new ConfigError(
    `--kv-disk-key-file ${file} has ${bytes.length} bytes; a key is ${KEY_BYTES} bytes, or 64 hexadecimal digits.`,
  );
}
