/** Serving plan of a server: model, limits and memory, computed before anything is allocated. */

import { dirname, join } from "node:path";
import { formatBytes, type MemoryPlan, planMemory, STATES_MIN } from "../../gpu/memory.ts";
import { adapterLimits, PAGE_TOKENS } from "../../gpu/native/open.ts";
import {
  type ComputeOptions,
  type EngineLimits,
  type GemmChoice,
  type Gpu,
  type KvFormat,
  type Machine,
  NativeError,
  type NativeLibrary,
} from "../../gpu/native.ts";
import { openModelFolder } from "../../model/folder.ts";
import { formatsOf, isRounded, type Quant } from "../../model/formats.ts";
import { matrixFormats } from "../../model/matrix-formats.ts";
import { ModelError } from "../../model/model-error.ts";
import type { ModelFolder } from "../../model/model-folder.ts";
import { contextLimit } from "../../model/rope.ts";
import { layersWithHead } from "../../model/shape.ts";
import { type Adapters, distinctAdapters, openAdapters } from "../adapters.ts";
import { type Config, ConfigError } from "../config.ts";
import { type DiskPlan, diskMemory, planDisk } from "../kv-disk/plan.ts";
import { type HostPlan, planHost } from "../kv-host/plan.ts";
import type { Backend } from "./backend.ts";
import { type DraftPlan, draftWorkspace, openDraftModel, planDraft } from "./draft-plan.ts";

/** Maximum alternatives per token (`top_logprobs`) of a request. */
export const TOP_LOGPROBS_MAX = 20;

export interface ServingPlan {
  /** Model names for clients; responses show the first. */
  readonly names: readonly string[];
  readonly folder: ModelFolder;
  readonly machine: Machine;
  readonly backend: Backend;
  /** GPU of each engine; empty on the CPU. */
  readonly gpus: readonly Gpu[];
  readonly compute: ComputeOptions;
  /** Draft model; null: none. */
  readonly draft: DraftPlan | null;
  /** LoRA adapters by name. */
  readonly adapters: Adapters;
  /** Folders for packed weights, best first; empty if they are not kept. */
  readonly packedFolders: readonly string[];
  /** Folders for the costs of steps, best first; empty if they are not kept. */
  readonly costsFolders: readonly string[];
  /** Name and version of cuBLASLt; null if the engine's own kernels multiply. */
  readonly cublaslt: string | null;
  /** Limits of each engine. */
  readonly limits: EngineLimits;
  /** Longest sequence in tokens. */
  readonly contextMax: number;
  readonly memory: MemoryPlan;
  readonly disk: DiskPlan;
  readonly host: HostPlan;
}

/** Memory of one of several models. */
export interface MemoryShare {
  /** Limit besides free memory. */
  readonly limitBytes: number;
  /** True if its KV cache holds one full context by default, and not a share of the free memory. */
  readonly isLean: boolean;
}

/**
 * Plans a server. Throws ConfigError and ModelError. A plan that does not fit is a value: `memory.kind` is
 * "refused".
 */
export function planServing(
  config: Config,
  backend: Backend,
  library: NativeLibrary,
  dir: string,
  { limitBytes, isLean }: MemoryShare = { limitBytes: Number.POSITIVE_INFINITY, isLean: false },
): ServingPlan {
  const machine = library.machineProbe();
  const gpus = (backend.gpus ?? []).map((gpu) => library.deviceProbe(gpu));
  const folder = openWithHead(config, dir, backend.gpus !== null);
  const names = modelNames(config, folder);
  const adapters = openAdapters(config.lora, folder, names, backend.gpus !== null);
  const contextMax = chooseContext(config, folder);
  const compute = planCompute(config, backend, folder, machine);
  const draft = draftOf(config, backend, library, folder, machine, contextMax);
  const shape = { ...folder.config.shape, contextMax };
  const engineBytes = gpus.map(({ memoryFreeBytes }) => memoryFreeBytes);
  if (backend.gpus === null) engineBytes.push(machine.memoryFreeBytes / backend.engines);
  const meansAll = "pooling" in folder.embedding && folder.embedding.pooling === "mean";
  const stepTokens = stepTokensFor(config, folder, contextMax);
  const sizes = planSizes(
    { ...config, stepTokens },
    backend,
    library,
    shape,
    compute,
    draft,
    adapterLimits(distinctAdapters(adapters)),
    meansAll,
    Math.min(...engineBytes),
  );
  const { stateBytes, perEngine } = sizes;
  const pageBytes = sizes.pageBytes + (draft?.pageBytes ?? 0);
  const disk = planDisk(config, library, {
    name: names[0]!,
    ...{ folder, draft, contextMax, compute, gpus, pageBytes, stateBytes },
    limits: perEngine,
    engines: backend.engines,
    weightBytes: sizes.weightBytes,
  });
  const diskBytes = diskMemory(disk);
  const hostBytes = (sizes.hostBytes + diskBytes) * gpus.length;
  checkHost(hostBytes, machine);
  const host = planHost(config, {
    isGpu: backend.gpus !== null,
    isEncoder: shape.encoder !== undefined,
    engines: backend.engines,
    ...{ pageBytes, stateBytes },
    freeBytes: machine.memoryFreeBytes - hostBytes,
  });
  // Probes again, because cuBLASLt has allocated GPU memory since.
  const leftBytes = backend.gpus?.map((gpu) => library.deviceProbe(gpu).memoryFreeBytes);
  const enginesEach = backend.gpus === null ? backend.engines : 1;
  const leanPages = Math.ceil(contextMax / PAGE_TOKENS) + Math.ceil((STATES_MIN * stateBytes) / pageBytes);
  const leanBytes = leanPages * pageBytes * enginesEach;
  const memory = planMemory({
    isGpu: backend.gpus !== null,
    compute: compute.compute,
    isRounded: (compute.formats ?? []).some((format) => format !== matrixFormats.plain),
    weightBytes: backend.gpus === null ? sizes.weightBytes : sizes.copyBytes,
    ...(draft === null ? {} : { draft: { weightBytes: draft.weightBytes, pageBytes: draft.pageBytes } }),
    ...(adapters.size === 0 ? {} : { adapters: memoryOf(adapters) }),
    pageBytes,
    pageTokens: PAGE_TOKENS,
    states: stateBytes > 0 ? { bytes: stateBytes, sequencesMax: perEngine.stepChunksMax } : null,
    workspaceBytes: sizes.workspaceBytes,
    diskBytes: backend.gpus === null ? diskBytes : 0,
    engines: enginesEach,
    contextMax,
    availableBytes: Math.min(limitBytes, ...(leftBytes ?? [machine.memoryFreeBytes])),
    kvBytes:
      config.kvCacheGib > 0
        ? (config.kvCacheGib * 2 ** 30) / Math.max(1, gpus.length)
        : isLean
          ? leanBytes
          : null,
  });
  return {
    names,
    folder,
    machine,
    backend,
    gpus,
    compute,
    draft,
    adapters,
    ...keptFolders(config, folder, compute, sizes.weightBytes),
    cublaslt: sizes.cublaslt,
    limits: { ...perEngine, ...(memory.kind === "fits" ? sizesOf(memory) : { pages: 0 }) },
    contextMax,
    memory,
    disk,
    host,
  };
}

/** Maximum tokens that a model's own head, or a draft model, drafts after a sampled token. */
const HEAD_DRAFTS_MAX = 4;
const MODEL_DRAFTS_MAX = 8;

/**
 * Opens a model with its own draft (MTP) head: required for `--speculate mtp`, used if present for `auto`
 * without a draft model. Throws ConfigError if `mtp` was requested and there is no such head.
 */
function openWithHead(
  { speculate, draftModel, ropeScaling }: Pick<Config, "speculate" | "draftModel" | "ropeScaling">,
  dir: string,
  isGpu: boolean,
): ModelFolder {
  const refuse = (reason: string): never => {
    throw new ConfigError(`--speculate mtp: ${reason}.`);
  };
  const isAsked = speculate === "mtp";
  if (isAsked && isGpu) refuse("a GPU computes no head that drafts; use --device cpu or --speculate suffix");
  if (isGpu || (!isAsked && (speculate !== "auto" || draftModel !== null)))
    return openModelFolder(dir, ropeScaling);
  try {
    return openModelFolder(dir, ropeScaling, isAsked ? "required" : "offered");
  } catch (error) {
    if (!isAsked || !(error instanceof ModelError)) throw error;
    return refuse(`the model has no whole head that drafts: ${error.message}; use --speculate auto`);
  }
}

/** Plans the draft model; null: there is none. */
function draftOf(
  config: Config,
  backend: Backend,
  library: NativeLibrary,
  target: ModelFolder,
  machine: Machine,
  contextMax: number,
): DraftPlan | null {
  const folder = openDraftModel(config, target, backend.gpus !== null);
  if (folder === null) return null;
  // Quantized keys and values need bf16; a draft model computed in f32 has plain ones.
  const kv = chooseCompute(config, folder) === "f32" ? "plain" : config.kv;
  const compute = planCompute({ ...config, kv }, backend, folder, machine);
  return planDraft(
    library,
    folder,
    compute,
    contextMax,
    (weightBytes) => keptFolders(config, folder, compute, weightBytes).packedFolders,
  );
}

function memoryOf(adapters: Adapters): { readonly bytes: number; readonly count: number } {
  const distinct = distinctAdapters(adapters);
  return { bytes: distinct.reduce((sum, { bytes }) => sum + bytes, 0), count: distinct.length };
}

/** Pages and state slots of a plan. */
function sizesOf({ pages, states }: { readonly pages: number; readonly states: number }) {
  return states === 0 ? { pages } : { pages, states };
}

/** Refuses a machine without the memory that GPU engines take of it while they open, all at once. */
export function checkHost(hostBytes: number, { memoryFreeBytes }: Pick<Machine, "memoryFreeBytes">): void {
  if (hostBytes <= memoryFreeBytes) return;
  throw new ConfigError(
    `On their way to the GPU the weights take ${formatBytes(hostBytes)} of the machine's memory, and ${formatBytes(memoryFreeBytes)} are free.`,
  );
}

/** Compute options: number types and threads of the model. */
function planCompute(
  config: Config,
  backend: Backend,
  folder: ModelFolder,
  machine: Machine,
): ComputeOptions {
  const isGpu = backend.gpus !== null;
  const threads = chooseThreads(config, machine);
  if (!isGpu && backend.engines > threads) {
    throw new ConfigError(
      `--device cpu:${backend.engines} asks for ${backend.engines} engines, but there are ${threads} threads to share; use fewer engines or more --threads.`,
    );
  }
  const numbers = isGpu ? chooseGpuCompute(config) : chooseCompute(config, folder);
  const formats = formatsOf(
    folder.tensors,
    layersWithHead(folder.config.shape).length,
    chooseQuant(config, isGpu),
    numbers,
    isGpu ? "gpu" : "cpu",
  );
  return { compute: numbers, isa: "auto", threads, formats, kv: chooseKv(config, isGpu, numbers) };
}

/** Sizes of a model and of an engine with chosen limits, from the library. */
interface Sizes extends ReturnType<NativeLibrary["modelPlan"]>, ReturnType<NativeLibrary["enginePlan"]> {
  /** Engine limits without pages. */
  readonly perEngine: Omit<EngineLimits, "pages">;
  /** Name and version of cuBLASLt; null if the engine's own kernels multiply. */
  readonly cublaslt: string | null;
}

/**
 * Chooses an engine's limits and gets its sizes. `meansAll`: the step returns the hidden state of each token,
 * for mean pooling. `freeBytes`: free memory per engine.
 */
function planSizes(
  config: Config,
  { kind, gpus, engines }: Backend,
  library: NativeLibrary,
  shape: Parameters<NativeLibrary["modelPlan"]>[0],
  compute: ComputeOptions,
  draft: DraftPlan | null,
  adapters: ReturnType<typeof adapterLimits>,
  meansAll: boolean,
  freeBytes: number,
): Sizes {
  const devices = gpus?.slice(0, 1) ?? [];
  const limits = limitsOf(
    config,
    meansAll,
    gpus !== null,
    draft !== null ? MODEL_DRAFTS_MAX : shape.head !== undefined ? HEAD_DRAFTS_MAX : 0,
    Math.max(1, Math.floor(compute.threads / engines)),
  );
  const cublaslt =
    limits.gemm === "cublaslt"
      ? onGpu("--gemm cublaslt: ", "", () => library.cublasltProbe(devices[0] ?? 0))
      : null;
  const rowsFor = (stepChunksMax: number) => {
    return { stepChunksMax, stepDrawsMax: Math.max(stepChunksMax, DRAWS_MIN) };
  };
  const enginePlan = (stepChunksMax: number) => {
    const all = { ...limits, ...rowsFor(stepChunksMax), pages: 1, devices };
    const own = library.enginePlan(shape, compute, { ...all, ...adapters });
    return { ...own, workspaceBytes: own.workspaceBytes + draftWorkspace(library, draft, all) };
  };
  const plan = () => {
    const stepChunksMax = chooseSequences(config, (count) => enginePlan(count).workspaceBytes, freeBytes);
    const model = library.modelPlan(shape, compute, PAGE_TOKENS);
    return { perEngine: { ...limits, ...rowsFor(stepChunksMax) }, ...model, ...enginePlan(stepChunksMax) };
  };
  return { cublaslt, ...(gpus === null ? plan() : onGpu(`--device ${kind}: `, "; use --device cpu", plan)) };
}

/** Minimum of sampled rows in a step, so that an engine of few sequences can verify several drafts. */
const DRAWS_MIN = 24;

/** Maximum tokens of a step: an encoder computes a whole text in one step. */
export function stepTokensFor(
  { stepTokens }: Pick<Config, "stepTokens">,
  { config }: Pick<ModelFolder, "config">,
  contextMax: number,
): number {
  return config.shape.encoder === undefined ? stepTokens : Math.max(stepTokens, contextMax);
}

/** Limits of an engine that shares the machine's threads, without pages and sequences. */
function limitsOf(
  config: Config,
  meansAll: boolean,
  isGpu: boolean,
  draftsMax: number,
  threads: number,
): Omit<EngineLimits, "pages" | "stepChunksMax"> {
  return {
    threads: isGpu ? 1 : threads,
    pageTokens: PAGE_TOKENS,
    stepTokensMax: config.stepTokens,
    ...(meansAll ? { stepHiddenMax: config.stepTokens } : {}),
    ...(draftsMax > 0 ? { draftsMax } : {}),
    topLogprobsMax: TOP_LOGPROBS_MAX,
    gemm: chooseGemm(config, isGpu),
  };
}

/** Smallest weights whose costs, and rounded weights, are worth keeping on disk. */
const KEPT_BYTES_MIN = 256 * 2 ** 20;

/**
 * Folders for packed weights and for costs. By default a second copy of the weights is kept only if loading
 * rounds them, which takes far longer than reading them.
 */
function keptFolders(
  { packedWeights }: Config,
  folder: ModelFolder,
  { formats = [] }: ComputeOptions,
  weightBytes: number,
): Pick<ServingPlan, "packedFolders" | "costsFolders"> {
  if (packedWeights === "off") return { packedFolders: [], costsFolders: [] };
  if (packedWeights !== "auto")
    return { packedFolders: [packedWeights.folder], costsFolders: [packedWeights.folder] };
  if (weightBytes < KEPT_BYTES_MIN) return { packedFolders: [], costsFolders: [] };
  const { XDG_CACHE_HOME: cache, HOME: home } = process.env;
  const caches = [cache, home === undefined ? undefined : join(home, ".cache")];
  const costsFolders = caches
    .filter((root) => root?.startsWith("/"))
    .map((root) => join(root!, "bunting", "packed"));
  const packedFolders = isRounded(folder.tensors, formats)
    ? [dirname(folder.tensors[0]!.path), ...costsFolders]
    : [];
  return { packedFolders, costsFolders };
}

/** Maximum share of an engine's free memory for rows of sequences in its workspaces. */
const ROWS_SHARE = 1 / 32;

/**
 * Maximum running sequences of an engine, apart from their pages. The default is the number of step tokens,
 * halved until their rows, mostly logits, take a small share of the memory. `workspaceBytes` is a function of
 * the number of sequences.
 */
export function chooseSequences(
  { sequencesMax, stepTokens }: Pick<Config, "sequencesMax" | "stepTokens">,
  workspaceBytes: (sequences: number) => number,
  freeBytes: number,
): number {
  if (sequencesMax > 0) return Math.min(sequencesMax, stepTokens);
  const oneBytes = workspaceBytes(1);
  let sequences = stepTokens;
  while (sequences > 1 && workspaceBytes(sequences) - oneBytes > ROWS_SHARE * freeBytes) sequences >>= 1;
  return sequences;
}

/** Model names for clients. */
export function modelNames(config: Config, folder: ModelFolder): readonly string[] {
  return config.servedModelName.length > 0 ? config.servedModelName : [folder.name];
}

/** Context length: the configured one, else the model's own. */
export function chooseContext(config: Config, folder: ModelFolder): number {
  const limit = contextLimit(folder.config.shape);
  if (config.maxModelLen > limit) {
    throw new ConfigError(
      `--max-model-len ${config.maxModelLen} is more than the ${limit} tokens that the model was made for.`,
    );
  }
  return config.maxModelLen > 0 ? config.maxModelLen : folder.contextMax;
}

/** Compute threads: all cores; from four cores on, one is left for the HTTP thread. */
export function chooseThreads(config: Pick<Config, "threads">, { cores }: Machine): number {
  if (config.threads > 0) return config.threads;
  return cores >= 4 ? cores - 1 : cores;
}

const F32 = 0;

function chooseCompute(config: Config, folder: ModelFolder): "bf16" | "f32" {
  if (config.dtype !== "auto") return config.dtype;
  return folder.tensors.every(({ dtype }) => dtype === F32) ? "f32" : "bf16";
}

function chooseKv({ kv }: Config, isGpu: boolean, numbers: "bf16" | "f32"): KvFormat {
  const refuse = (reason: string): never => {
    throw new ConfigError(`--kv ${kv}: ${reason}; use --kv plain.`);
  };
  if (kv === "plain") return kv;
  if (isGpu && kv !== "fp8") return refuse("a GPU keeps keys and values in bf16 or, with --kv fp8, in fp8");
  if (!isGpu && kv === "fp8")
    return refuse("a CPU keeps them as --dtype says or, with --kv int8 or int4, in that");
  if (numbers === "f32") return refuse("it goes with bf16, and this model is computed in f32");
  return kv;
}

function chooseQuant({ quant }: Config, isGpu: boolean): Quant {
  if (isGpu || quant !== "fp8") return quant;
  throw new ConfigError(
    "--quant fp8: a CPU has weights in bf16, f32, int8, int6 and int4; use --quant int8.",
  );
}

function chooseGemm({ gemm }: Config, isGpu: boolean): GemmChoice {
  if (isGpu || gemm === "own") return gemm;
  throw new ConfigError(`--gemm ${gemm}: it is for GPUs; a CPU has its own kernels.`);
}

function chooseGpuCompute(config: Config): "bf16" {
  if (config.dtype !== "f32") return "bf16";
  throw new ConfigError("--dtype f32: GPUs compute in bf16; use --device cpu for f32.");
}

/** Runs a GPU query; turns a NativeError into a ConfigError that names the setting. */
function onGpu<Result>(before: string, after: string, ask: () => Result): Result {
  try {
    return ask();
  } catch (error) {
    if (error instanceof NativeError) throw new ConfigError(`${before}${error.message}${after}.`);
    throw error;
  }
}

/** Error text with advice if the model does not fit; null if it fits. */
export function planProblem(memory: MemoryPlan): string | null {
  if (memory.kind === "fits") return null;
  return [
    `The model does not fit: ${memory.reason}.`,
    ...memory.advice.map((advice) => `  - ${advice}`),
  ].join("\n");
}
