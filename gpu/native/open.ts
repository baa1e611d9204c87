/**
 * Opens devices for a checked model folder. Weights are loaded once; any number of engines then use them, on
 * the CPU or each with a copy of them on a GPU.
 */
import { existsSync } from "node:fs";
import type { LoraAdapter } from "../../model/adapter.ts";
import { contextLimit } from "../../model/rope.ts";
import { layersWithHead, type ModelShape } from "../../model/shape.ts";
import type { ModelTensor } from "../../model/weights.ts";
import type { AdapterId } from "../../scheduler/core.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import {
  type AdapterHandle,
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

/** Fields of a model folder that loading needs. */
export interface ModelSource {
  readonly config: { readonly shape: ModelShape };
  readonly tensors: readonly ModelTensor[];
}

export interface NativeModelOptions extends ComputeOptions {
  /** Longest sequence to serve, in tokens; null for the model's own. */
  readonly contextMax: number | null;
  /** LoRA adapters of its engines; CPUs only. Absent: none. */
  readonly adapters?: readonly LoraAdapter[];
  /** Folders for packed weights, best first. Absent or empty: the weights are packed at every start. */
  readonly packedFolders?: readonly string[];
  /** Folders for step costs, best first. Absent or empty: each start estimates them. */
  readonly costsFolders?: readonly string[];
}

/** A loaded, read-only model. Plain data: it may be posted to the threads whose engines share it. */
export interface NativeModel {
  readonly handle: ModelHandle;
  readonly vocabSize: number;
  readonly hiddenSize: number;
  readonly contextMax: number;
  readonly layers: number;
  readonly compute: "bf16" | "f32";
  /** Instruction set in use, never "auto". */
  readonly isa: Isa;
  /** Bytes of packed weights and tables; they are in memory for CPU engines alone. */
  readonly weightBytes: number;
  /** Bytes of one KV page over all layers. */
  readonly pageBytes: number;
  /** Bytes of one slot for the states of all recurrent layers; 0 without them. */
  readonly stateBytes: number;
  /** File beside which step costs are stored; null if there is no writable folder for them. */
  readonly costsPlace: PackedPlace | null;
  /** Outcome of reading or saving packed weights, in a sentence; null if neither was tried. */
  readonly packedNote: string | null;
  /** Loaded LoRA adapters of its engines. */
  readonly adapters: readonly NativeAdapter[];
  /** Draft model of its engines. Absent: none. */
  readonly draft?: NativeModel;
}

/** A loaded, read-only adapter. */
export interface NativeAdapter {
  readonly id: AdapterId;
  readonly handle: AdapterHandle;
  readonly rank: number;
  readonly bytes: number;
}

/** Page size of the kernels in tokens; they support no other. */
export const PAGE_TOKENS = 16;

/** The model's shape with the context to serve, at most what its positions allow. */
export function servedShape(shape: ModelShape, contextMax: number | null): ModelShape {
  return contextMax === null ? shape : { ...shape, contextMax: Math.min(contextMax, contextLimit(shape)) };
}

/**
 * Stage of loading: reading packed weights, loading and packing tensors, writing packed weights, or reading and
 * packing tensors piece by piece on their way to a GPU.
 */
export type LoadStage = "reading" | "loading" | "keeping" | "copying";

/** Progress of a stage in bytes. */
export type LoadListener = (doneBytes: number, totalBytes: number, stage: LoadStage) => void;

/**
 * Reads packed weights, or loads and packs all tensors and writes the packed weights. For a GPU it only checks
 * where the tensors are; each engine then reads them. Calls `onProgress` after every tensor and every few MiB of
 * packed weights. Throws NativeError with file and tensor; nothing stays allocated then.
 */
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
    const { packedFolders = [], costsFolders = packedFolders } = options;
    const placeIn = (folders: readonly string[]): PackedPlace | null =>
      folders.length === 0 ? null : packedPlace(folders, shape, folder.tensors, options);
    const place = placeIn(packedFolders);
    const packedNote = fillModel(library, handle, folder.tensors, place, onProgress);
    return {
      handle,
      vocabSize: shape.vocab,
      hiddenSize: shape.hidden,
      contextMax: shape.contextMax,
      layers: layersWithHead(shape).length,
      compute: options.compute,
      isa: options.isa === "auto" ? bestIsa(library) : options.isa,
      costsPlace: packedFolders === costsFolders ? place : placeIn(costsFolders),
      packedNote,
      adapters: openAdapters(library, handle, options.adapters ?? []),
      ...plan,
    };
  } catch (error) {
    library.modelClose(handle);
    throw error;
  }
}

/** Loads adapters of a sealed model. Throws NativeError; no adapter stays open then. */
function openAdapters(
  library: NativeLibrary,
  model: ModelHandle,
  adapters: readonly LoraAdapter[],
): NativeAdapter[] {
  const opened: NativeAdapter[] = [];
  try {
    for (const { id, rank, parts } of adapters) {
      const handle = library.adapterOpen(model);
      opened.push({ id, handle, rank, bytes: 0 });
      for (const part of parts) library.adapterLoad(handle, part);
      opened[opened.length - 1] = { id, handle, rank, bytes: library.adapterSeal(handle) };
    }
    return opened;
  } catch (error) {
    for (const { handle } of opened) library.adapterClose(handle);
    throw error;
  }
}

/** Fills and seals an open model. Returns the outcome for packed weights if there is a place for them. */
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

/** Error message of a failed native call; null on success. */
function refusalOf(call: () => void): string | null {
  try {
    call();
    return null;
  } catch (error) {
    if (!(error instanceof NativeError)) throw error;
    return error.message;
  }
}

/** Frees the weights, and those of a draft model; every engine that uses them must be closed before. */
export function closeNativeModel(library: NativeLibrary, { handle, adapters, draft }: NativeModel): void {
  for (const adapter of adapters) library.adapterClose(adapter.handle);
  library.modelClose(handle);
  if (draft !== undefined) closeNativeModel(library, draft);
}

export function openCpuDevice(
  library: NativeLibrary,
  model: NativeModel,
  limits: EngineLimits,
): NativeDevice {
  const threads = limits.threads === 1 ? "1 thread" : `${limits.threads} threads`;
  const name = `cpu (${isaTitles[model.isa]}, ${threads})`;
  // A step updates recurrent states in place, so an aborted one could not be repeated.
  const abortPoints = model.stateBytes > 0 ? {} : { abortPoints: model.layers };
  return openNamedDevice(library, model, limits, { name, ...abortPoints });
}

/**
 * Opens an engine on a GPU, allocates all the GPU memory it will ever use, and copies the weights there. Throws
 * NativeError.
 */
export function openGpuDevice(
  library: NativeLibrary,
  model: NativeModel,
  limits: EngineLimits,
  gpu: number,
  onProgress: LoadListener,
): NativeDevice {
  const { name } = library.deviceProbe(gpu);
  const own = { name: `gpu ${gpu} (${name})` };
  return openNamedDevice(library, model, { ...limits, devices: [gpu] }, own, (doneBytes, totalBytes) =>
    onProgress(doneBytes, totalBytes, "copying"),
  );
}

function openNamedDevice(
  library: NativeLibrary,
  model: NativeModel,
  limits: EngineLimits,
  own: Pick<DeviceSpec, "name" | "abortPoints">,
  onProgress: NativeProgress = () => {},
): NativeDevice {
  const { adapters, draft } = model;
  const withAdapters = { ...limits, ...adapterLimits(adapters) };
  const spec = {
    ...own,
    pages: limits.pages,
    pageTokens: limits.pageTokens,
    stepTokensMax: limits.stepTokensMax,
    stepChunksMax: limits.stepChunksMax,
    ...(limits.stepDrawsMax === undefined ? {} : { stepDrawsMax: limits.stepDrawsMax }),
    contextMax: model.contextMax,
    vocabSize: model.vocabSize,
    hidden: { size: model.hiddenSize, rowsMax: limits.stepHiddenMax ?? limits.stepChunksMax },
    ...(limits.draftsMax === undefined ? {} : { draftsMax: limits.draftsMax }),
    ...(draft === undefined ? {} : { draftModel: { share: draft.weightBytes / model.weightBytes } }),
    ...(model.stateBytes > 0 ? { states: { slots: limits.states ?? 0, bytes: model.stateBytes } } : {}),
  };
  const engine = library.engineOpen(model.handle, draft?.handle ?? null, withAdapters, onProgress);
  const slots = new Map(adapters.map(({ id }, index) => [id, index + 1]));
  for (const { id, handle } of adapters) library.putAdapter(engine, slots.get(id)!, handle);
  return new NativeDevice(library, engine, spec, limits, slots);
}

/** Limits of an engine with these adapters. */
export function adapterLimits(
  adapters: readonly Pick<LoraAdapter, "rank">[],
): Pick<EngineLimits, "adaptersMax" | "adapterRankMax"> {
  if (adapters.length === 0) return {};
  return { adaptersMax: adapters.length, adapterRankMax: Math.max(...adapters.map(({ rank }) => rank)) };
}

/** Instruction set that "auto" selects. */
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
