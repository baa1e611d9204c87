/** From a checked model folder to a device: load the weights once, then open as many engines on them as wanted, on the
 *  CPU or each with a copy of them on a GPU. */
import { existsSync } from "node:fs";
import type { ModelShape } from "../../model/shape.ts";
import type { ModelTensor } from "../../model/weights.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import {
  type ComputeOptions,
  type EngineLimits,
  type Isa,
  isaNames,
  type ModelHandle,
  NativeError,
  type NativeLibrary,
  type NativeProgress,
} from "../native.ts";
import { NativeDevice } from "./device.ts";
import { type PackedPlace, packedPlace } from "./packed-cache.ts";

/** What is loaded of a model folder. */
export interface ModelSource {
  readonly config: { readonly shape: ModelShape };
  readonly tensors: readonly ModelTensor[];
}

export interface NativeModelOptions extends ComputeOptions {
  /** Longest sequence to serve, in tokens; at most the model's own, which null takes. */
  readonly contextMax: number | null;
  /** Folders for packed weights, best first; left out or empty: they are packed at every start. */
  readonly packedFolders?: readonly string[];
}

/** A loaded model, read-only. Plain data: it may be posted to the threads whose engines share it. */
export interface NativeModel {
  readonly handle: ModelHandle;
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly contextMax: number;
  readonly layers: number;
  readonly compute: "bf16" | "f32";
  /** The instruction set in use, never "auto". */
  readonly isa: Isa;
  /** Packed weights and tables in memory. */
  readonly weightBytes: number;
  /** One KV page over all layers. */
  readonly pageBytes: number;
  /** Where its packed weights may be kept, whether they are or not; null: nowhere. */
  readonly place: PackedPlace | null;
  /** What became of packed weights on disk, in a sentence; null when there was nothing to do with any. */
  readonly packedNote: string | null;
}

/** The only page size of the kernels, in tokens. */
export const PAGE_TOKENS = 16;

/** The shape an engine is asked for: the model's, with the context that is to be served. */
export function servedShape(shape: ModelShape, contextMax: number | null): ModelShape {
  return contextMax === null || contextMax >= shape.contextMax ? shape : { ...shape, contextMax };
}

/** What is done with the bytes: packed weights are read, or tensors are loaded and packed, and then kept packed. */
export type LoadStage = "reading" | "loading" | "keeping";

/** Bytes of a stage that are done, and in all. */
export type LoadListener = (doneBytes: number, totalBytes: number, stage: LoadStage) => void;

/** Reads packed weights, or loads and packs all tensors and keeps them packed. `onProgress` is told after every tensor,
 *  and every few MiB of packed weights. Throws NativeError naming file and tensor; nothing stays allocated then. */
export function openNativeModel(
  library: NativeLibrary,
  folder: ModelSource,
  options: NativeModelOptions,
  onProgress: LoadListener,
): NativeModel {
  const shape = servedShape(folder.config.shape, options.contextMax);
  const plan = library.modelPlan(shape, options, PAGE_TOKENS);
  const handle = library.modelOpen(shape, options);
  try {
    const place = placeOf(shape, folder, options);
    const packedNote = fillModel(library, handle, folder.tensors, place, onProgress);
    return {
      handle,
      vocabSize: shape.vocab,
      hiddenSize: shape.hidden,
      contextMax: shape.contextMax,
      layers: shape.layers.length,
      compute: options.compute,
      isa: options.isa === "auto" ? bestIsa(library) : options.isa,
      place,
      packedNote,
      ...plan,
    };
  } catch (error) {
    library.modelClose(handle);
    throw error;
  }
}

function placeOf(shape: ModelShape, folder: ModelSource, options: NativeModelOptions): PackedPlace | null {
  const { packedFolders = [] } = options;
  return packedFolders.length === 0 ? null : packedPlace(packedFolders, shape, folder.tensors, options);
}

/** Fills and seals an open model; returns what became of packed weights, if they were to be kept. */
function fillModel(
  library: NativeLibrary,
  model: ModelHandle,
  tensors: readonly ModelTensor[],
  place: PackedPlace | null,
  onProgress: LoadListener,
): string | null {
  const during =
    (stage: LoadStage): NativeProgress =>
    (doneBytes, totalBytes) =>
      onProgress(doneBytes, totalBytes, stage);
  const totalBytes = tensors.reduce((sum, tensor) => sum + tensor.bytes, 0);
  const hasFile = place !== null && existsSync(place.path);
  const refusal = hasFile
    ? refusalOf(() => library.modelRestore(model, place.path, place.key, during("reading")))
    : null;
  if (hasFile && refusal === null) {
    library.modelSeal(model);
    return `packed weights were read from ${place.path}`;
  }
  let doneBytes = 0;
  for (const tensor of tensors) {
    loadTensor(library, model, tensor);
    doneBytes += tensor.bytes;
    onProgress(doneBytes, totalBytes, "loading");
  }
  library.modelSeal(model);
  if (place === null) return null;
  const unsaved = refusalOf(() => library.modelSave(model, place.path, place.key, during("keeping")));
  const kept = unsaved === null ? `packed weights were written to ${place.path}` : `not kept: ${unsaved}`;
  return refusal === null ? kept : `packed anew, for ${refusal}; ${kept}`;
}

/** The sentence of a call that the library refused; null when it went well. */
function refusalOf(call: () => void): string | null {
  try {
    call();
    return null;
  } catch (error) {
    if (!(error instanceof NativeError)) throw error;
    return error.message;
  }
}

/** Frees the weights; every engine on them must be closed before. */
export function closeNativeModel(library: NativeLibrary, model: NativeModel): void {
  library.modelClose(model.handle);
}

export function openCpuDevice(
  library: NativeLibrary,
  model: NativeModel,
  limits: EngineLimits,
): NativeDevice {
  const threads = limits.threads === 1 ? "1 thread" : `${limits.threads} threads`;
  const name = `cpu (${isaTitles[model.isa]}, ${threads})`;
  return openNamedDevice(library, model, limits, { name, waysOut: model.layers });
}

/** Takes all the memory of the GPU that the engine will ever use. Throws NativeError. */
export function openGpuDevice(
  library: NativeLibrary,
  model: NativeModel,
  limits: EngineLimits,
  gpu: number,
): NativeDevice {
  const { name } = library.deviceProbe(gpu);
  return openNamedDevice(library, model, { ...limits, devices: [gpu] }, { name: `gpu ${gpu} (${name})` });
}

function openNamedDevice(
  library: NativeLibrary,
  model: NativeModel,
  limits: EngineLimits,
  own: Pick<DeviceSpec, "name" | "waysOut">,
): NativeDevice {
  const spec = {
    ...own,
    pages: limits.pages,
    pageTokens: limits.pageTokens,
    stepTokensMax: limits.stepTokensMax,
    stepChunksMax: limits.stepChunksMax,
    contextMax: model.contextMax,
    vocabSize: model.vocabSize,
    hidden: { size: model.hiddenSize, rowsMax: limits.stepHiddenMax ?? limits.stepChunksMax },
  };
  return new NativeDevice(library, library.engineOpen(model.handle, limits), spec, limits);
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
