/** From a checked model folder to a CPU device: load the weights once, then open as many engines on them as
 *  wanted. */
import type { ModelShape } from "../model/config.ts";
import type { ModelTensor } from "../model/weights.ts";
import {
  type ComputeOptions,
  type EngineLimits,
  type Isa,
  isaNames,
  type ModelHandle,
  NativeError,
  type NativeLibrary,
} from "../native.ts";
import { CpuDevice } from "./device.ts";

/** What is loaded of a model folder. */
export interface ModelSource {
  readonly config: { readonly shape: ModelShape };
  readonly tensors: readonly ModelTensor[];
}

export interface CpuModelOptions extends ComputeOptions {
  /** Longest sequence to serve, in tokens; at most the model's own, which null takes. */
  readonly contextMax: number | null;
}

/** A loaded model, read-only. Plain data: it may be posted to the threads whose engines share it. */
export interface CpuModel {
  readonly handle: ModelHandle;
  readonly vocabSize: number;
  readonly contextMax: number;
  readonly compute: "bf16" | "f32";
  /** The instruction set in use, never "auto". */
  readonly isa: Isa;
  /** Packed weights and tables in memory. */
  readonly weightBytes: number;
  /** One KV page over all layers. */
  readonly pageBytes: number;
}

/** The only page size of the CPU kernels, in tokens. */
export const cpuPageTokens = 16;

/** The shape an engine is asked for: the model's, with the context that is to be served. */
export function servedShape(shape: ModelShape, contextMax: number | null): ModelShape {
  return contextMax === null || contextMax >= shape.contextMax ? shape : { ...shape, contextMax };
}

/** Loads and packs all tensors. `onProgress` gets the bytes read so far and in all, after every tensor.
 *  Throws NativeError naming file and tensor; nothing stays allocated then. */
export function openCpuModel(
  library: NativeLibrary,
  folder: ModelSource,
  options: CpuModelOptions,
  onProgress: (doneBytes: number, totalBytes: number) => void,
): CpuModel {
  const shape = servedShape(folder.config.shape, options.contextMax);
  const plan = library.modelPlan(shape, options, cpuPageTokens);
  const handle = library.modelOpen(shape, options);
  try {
    const totalBytes = folder.tensors.reduce((sum, tensor) => sum + tensor.bytes, 0);
    let doneBytes = 0;
    for (const tensor of folder.tensors) {
      loadTensor(library, handle, tensor);
      doneBytes += tensor.bytes;
      onProgress(doneBytes, totalBytes);
    }
    library.modelSeal(handle);
  } catch (error) {
    library.modelClose(handle);
    throw error;
  }
  return {
    handle,
    vocabSize: shape.vocab,
    contextMax: shape.contextMax,
    compute: options.compute,
    isa: options.isa === "auto" ? bestIsa(library) : options.isa,
    ...plan,
  };
}

/** Frees the weights; every engine on them must be closed before. */
export function closeCpuModel(library: NativeLibrary, model: CpuModel): void {
  library.modelClose(model.handle);
}

export function openCpuDevice(library: NativeLibrary, model: CpuModel, limits: EngineLimits): CpuDevice {
  const threads = limits.threads === 1 ? "1 thread" : `${limits.threads} threads`;
  const spec = {
    name: `cpu (${isaTitles[model.isa]}, ${threads})`,
    pages: limits.pages,
    pageTokens: limits.pageTokens,
    stepTokensMax: limits.stepTokensMax,
    stepChunksMax: limits.stepChunksMax,
    contextMax: model.contextMax,
    vocabSize: model.vocabSize,
  };
  return new CpuDevice(library, library.engineOpen(model.handle, limits), spec, limits);
}

/** The instruction set that "auto" takes. */
export function bestIsa(library: NativeLibrary): Isa {
  const { isaBest, isaBuilt } = library.machineProbe();
  return isaNames[Math.min(isaNames.indexOf(isaBest), isaNames.indexOf(isaBuilt))]!;
}

const isaTitles: Readonly<Record<Isa, string>> = {
  portable: "portable",
  avx2: "AVX2",
  avx512: "AVX-512",
  avx512_bf16: "AVX-512 BF16",
  amx_bf16: "AMX BF16",
};

function loadTensor(library: NativeLibrary, model: ModelHandle, tensor: ModelTensor): void {
  try {
    library.modelLoad(model, tensor);
  } catch (error) {
    if (!(error instanceof NativeError)) throw error;
    throw new NativeError(error.status, `${tensor.name}: ${error.message}`);
  }
}
