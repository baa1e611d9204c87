/**
 * TypeScript binding of csrc/include/engine.h; the only file that loads native code. Each function is one
 * call of the library; a failed status becomes a NativeError.
 *
 * Data for native code is passed as views over an ArrayBuffer or SharedArrayBuffer, whose storage never
 * moves; the storage of a small typed array may. Structs are written at the byte offsets that
 * csrc/boundary/engine.cpp asserts.
 */
import { CString, dlopen, JSCallback, type Pointer, ptr, toArrayBuffer } from "bun:ffi";
import { partsOf, type QuantisedSource } from "../model/quantisation.ts";
import { rotationOf } from "../model/rope.ts";
import { type LayerShape, layersWithHead, type ModelShape, type Router } from "../model/shape.ts";
import type { ModelTensor } from "../model/weights.ts";
import {
  decodeGpu,
  decodeMachine,
  decodeText,
  type Gpu,
  gpuBytes,
  type Isa,
  isaNames,
  type Machine,
  machineBytes,
} from "./native/probes.ts";

/** Values of bunting_status other than OK. */
export type NativeStatus = "invalid" | "noMemory" | "io" | "retry" | "lost" | "gaveWay";

/** Failed call of the library, with its error message. */
export class NativeError extends Error {
  override readonly name = "NativeError";
  readonly status: NativeStatus;

  constructor(status: NativeStatus, message: string) {
    super(message);
    this.status = status;
  }
}

export { type Gpu, type Isa, isaNames, type Machine } from "./native/probes.ts";

declare const brand: unique symbol;
/**
 * Handle of a model, open or sealed: a plain number that any thread may use, one thread at a time until the
 * model is sealed.
 */
export type ModelHandle = Pointer & { readonly [brand]: "model" };
export type EngineHandle = Pointer & { readonly [brand]: "engine" };
export type MeterHandle = Pointer & { readonly [brand]: "meter" };

/** BUNTING_CEILING_* names in order. */
export const ceilingNames = ["read", "f32", "bf16", "int8"] as const;
export type CeilingName = (typeof ceilingNames)[number];

/** Rates of a kernel on all threads of a meter. A multiply-add counts as two operations. */
export interface KernelRates {
  readonly operationsPerSecond: number;
  readonly bytesPerSecond: number;
}

/** Computation settings of a model; with a ModelShape they make a bunting_model_shape. */
export interface ComputeOptions {
  /** bf16: weights, operands and KV in bf16 with f32 sums; f32: everything in f32. */
  readonly compute: "bf16" | "f32";
  readonly isa: Isa | "auto";
  /** Number of threads that pack weights during loading, ≥ 1. */
  readonly threads: number;
  /**
   * Formats of matrices, values of `matrixFormats` in the order of engine.h: embedding, vocabulary
   * projection, seven per layer (a head's last), the table of layer inputs, then three per layer if any is recurrent. Absent: all
   * plain.
   */
  readonly formats?: readonly number[];
  /**
   * KV cache type: plain (as `compute`), or with bf16 also int8 and int4 (CPU engines) or fp8 (GPUs). Absent: plain.
   */
  readonly kv?: KvFormat;
}

/** BUNTING_KV_* names in order. */
export const kvFormats = ["plain", "int8", "fp8", "int4"] as const;
export type KvFormat = (typeof kvFormats)[number];

/** BUNTING_GEMM_* names in order. */
export const gemmNames = ["own", "cublaslt"] as const;
export type GemmChoice = (typeof gemmNames)[number];

/** Fields of bunting_engine_limits; engine.h explains them. */
export interface EngineLimits {
  readonly threads: number;
  readonly pages: number;
  readonly pageTokens: number;
  readonly stepTokensMax: number;
  readonly stepChunksMax: number;
  /** Absent: one for each chunk. */
  readonly stepDrawsMax?: number;
  /** Absent: one for each chunk. */
  readonly stepHiddenMax?: number;
  readonly topLogprobsMax: number;
  /** Slots for recurrent states; absent: none. */
  readonly states?: number;
  /** Maximum draft tokens after a chunk, from the model's own head or a draft model; ≤ 8. Absent: none. */
  readonly draftsMax?: number;
  /** GPUs that compute one step together: exactly one today. Absent for CPU engines. */
  readonly devices?: readonly number[];
  /** Library for unquantized matrix products on a GPU; absent: own. */
  readonly gemm?: GemmChoice;
}

/** Progress callback of a long call. */
export type NativeProgress = (doneBytes: number, totalBytes: number) => void;

/** Functions of engine.h, one by one. All throw NativeError. */
export interface NativeLibrary {
  readonly path: string;
  machineProbe(): Machine;
  /** Throws "invalid" with a reason if there is no such GPU; CPU libraries always do. */
  deviceProbe(index: number): Gpu;
  /**
   * Loads and checks cuBLASLt for a GPU and returns its name and version. Throws "invalid" with a reason if
   * it is unusable.
   */
  cublasltProbe(index: number): string;
  /** Opens a meter of the processor with some threads. Measurements block for about the given milliseconds. */
  meterOpen(isa: Isa | "auto", threads: number): MeterHandle;
  /** Bytes of a plain read, or operations in registers, per second. */
  meterCeiling(meter: MeterHandle, ceiling: CeilingName, ms: number): number;
  /** Rates of a matrix [columns, depth] times some rows. `format`: `matrixFormats`, or a stored type. */
  meterGemm(
    meter: MeterHandle,
    matrix: {
      readonly format: number;
      readonly rows: number;
      readonly columns: number;
      readonly depth: number;
    },
    ms: number,
  ): KernelRates;
  /** Rates of attention of some tokens over keys in bf16, with the heads of an 8B model. */
  meterAttention(
    meter: MeterHandle,
    chunk: { readonly tokens: number; readonly positions: number },
    ms: number,
  ): KernelRates;
  meterClose(meter: MeterHandle): void;
  modelPlan(
    shape: ModelShape,
    options: ComputeOptions,
    pageTokens: number,
  ): { readonly weightBytes: number; readonly pageBytes: number; readonly stateBytes: number };
  modelOpen(shape: ModelShape, options: ComputeOptions): ModelHandle;
  modelLoad(model: ModelHandle, tensor: ModelTensor): void;
  modelSeal(model: ModelHandle): void;
  /** Writes packed weights. `key` is 32 bytes that identify them. Calls `onProgress` before it returns. */
  modelSave(model: ModelHandle, path: string, key: Uint8Array, onProgress: NativeProgress): void;
  /**
   * Reads packed weights in place of all modelLoad calls. If it fails, the caller loads the tensors as usual.
   */
  modelRestore(model: ModelHandle, path: string, key: Uint8Array, onProgress: NativeProgress): void;
  modelClose(model: ModelHandle): void;
  /**
   * Maximum bytes that an engine takes besides its pages and states: its workspace. A GPU engine also takes its
   * copy of the weights, and host memory, most of it only while it opens.
   */
  enginePlan(
    shape: ModelShape,
    options: ComputeOptions,
    limits: EngineLimits,
  ): { readonly workspaceBytes: number; readonly copyBytes: number; readonly hostBytes: number };
  /** Maximum workspace bytes of a draft model, in addition to the engine's own. */
  draftPlan(shape: ModelShape, options: ComputeOptions, limits: EngineLimits): number;
  /**
   * Opens an engine, with a draft model if one is given. A GPU engine reads the weights here, and calls
   * `onProgress` before it returns.
   */
  engineOpen(
    model: ModelHandle,
    draft: ModelHandle | null,
    limits: EngineLimits,
    onProgress: NativeProgress,
  ): EngineHandle;
  engineClose(engine: EngineHandle): void;
  /**
   * Copy whole KV pages to `bytes`, or back: page after page, each of `pageBytes` of modelPlan plus those of
   * a draft model. A step in flight may neither write a page that is read nor use one that is written.
   */
  readPages(engine: EngineHandle, pages: Int32Array, bytes: Uint8Array): void;
  writePages(engine: EngineHandle, pages: Int32Array, bytes: Uint8Array): void;
  /** Copy a part of a state slot, from byte `offset` on. */
  readState(engine: EngineHandle, slot: number, offset: number, bytes: Uint8Array): void;
  writeState(engine: EngineHandle, slot: number, offset: number, bytes: Uint8Array): void;
  /** Allocates places: `count` buffers of a page's size in pinned host memory, for pages and states offloaded from a GPU. */
  openPlaces(engine: EngineHandle, count: number): void;
  /**
   * Queue copies to places, and return at once. A step that writes a page or slot waits for its copy.
   * `waitSent` returns when all copies are complete.
   */
  sendPages(engine: EngineHandle, pages: Int32Array, places: Int32Array): void;
  sendState(engine: EngineHandle, slot: number, offset: number, size: number, place: number): void;
  waitSent(engine: EngineHandle): void;
  /** Copy from places back to pages or a state slot. */
  fetchPages(engine: EngineHandle, pages: Int32Array, places: Int32Array): void;
  fetchState(engine: EngineHandle, slot: number, offset: number, size: number, place: number): void;
  /** Copy a place's contents to `bytes`, or back. */
  readPlace(engine: EngineHandle, place: number, bytes: Uint8Array): void;
  writePlace(engine: EngineHandle, place: number, bytes: Uint8Array): void;
  /**
   * Starts a step. The caller keeps both buffers referenced, and `block` unchanged, until stepWait returns.
   */
  stepStart(engine: EngineHandle, block: Uint8Array, result: Uint8Array): void;
  /**
   * Waits for the step. Throws "gaveWay" if the engine aborted it because `way`, a word of shared memory,
   * became non-zero; with null it never aborts.
   */
  stepWait(engine: EngineHandle, way: Int32Array<SharedArrayBuffer> | null): void;
  /** Returns a copy of the raw logits of the last step's sampled rows, [rows × vocab]. */
  logits(engine: EngineHandle, vocabSize: number): Float32Array;
}

const abiVersion = 24;
/** Flags BUNTING_PAIRED_ROWS and BUNTING_ONE_LESS. */
const pairedRows = 256;
const oneLess = 512;
/** Flags BUNTING_EVERY_SECOND, BUNTING_GROUPED_HEADS, BUNTING_TRANSPOSED and BUNTING_HALF_ROWS. */
const everySecond = 1024;
const groupedHeads = 4096;
const transposed = 2048;
const halfRows = 8192;
/** Flag BUNTING_KEYS_WITH_VALUES. */
const keysWithValues = 16384;
/** Flags BUNTING_GATED_HEADS, BUNTING_NEGATED_EXP and BUNTING_ROW_PER_HEAD. */
const gatedHeads = 32_768;
const negatedExp = 65_536;
const rowPerHead = 131_072;
/** Step of BUNTING_EXPERT. */
const expertStep = 128;
const statuses: readonly (NativeStatus | "ok")[] = [
  "ok",
  "invalid",
  "noMemory",
  "io",
  "retry",
  "lost",
  "gaveWay",
];

const abiSymbols = { bunting_abi_version: { args: [], returns: "i32" } } as const;
const symbols = {
  bunting_last_error: { args: [], returns: "ptr" },
  bunting_machine_probe: { args: ["buffer"], returns: "i32" },
  bunting_device_probe: { args: ["i32", "buffer"], returns: "i32" },
  bunting_cublaslt_probe: { args: ["i32", "buffer", "i32"], returns: "i32" },
  bunting_meter_open: { args: ["i32", "i32", "buffer"], returns: "i32" },
  bunting_meter_ceiling: { args: ["ptr", "i32", "i32", "buffer"], returns: "i32" },
  bunting_meter_gemm: { args: ["ptr", "i32", "i32", "i32", "i32", "i32", "buffer"], returns: "i32" },
  bunting_meter_attention: { args: ["ptr", "i32", "i32", "i32", "buffer"], returns: "i32" },
  bunting_meter_close: { args: ["ptr"], returns: "i32" },
  bunting_model_plan: { args: ["buffer", "i32", "buffer", "buffer", "buffer"], returns: "i32" },
  bunting_model_open: { args: ["buffer", "buffer"], returns: "i32" },
  bunting_model_factor: { args: ["ptr", "i32", "i32", "f32"], returns: "i32" },
  bunting_model_load: {
    args: ["ptr", "i32", "i32", "buffer", "u64", "i32", "i64", "i64"],
    returns: "i32",
  },
  bunting_model_load_quantised: {
    args: ["ptr", "i32", "i32", "buffer", "buffer", "buffer", "i32", "i64", "i64"],
    returns: "i32",
  },
  bunting_model_seal: { args: ["ptr"], returns: "i32" },
  bunting_model_save: { args: ["ptr", "buffer", "buffer", "ptr"], returns: "i32" },
  bunting_model_restore: { args: ["ptr", "buffer", "buffer", "ptr"], returns: "i32" },
  bunting_model_close: { args: ["ptr"], returns: "i32" },
  bunting_engine_plan: { args: ["buffer", "buffer", "buffer", "buffer", "buffer"], returns: "i32" },
  bunting_draft_plan: { args: ["buffer", "buffer", "buffer"], returns: "i32" },
  bunting_engine_open: { args: ["ptr", "ptr", "buffer", "ptr", "buffer"], returns: "i32" },
  bunting_engine_close: { args: ["ptr"], returns: "i32" },
  bunting_engine_read_pages: { args: ["ptr", "buffer", "i32", "buffer", "buffer_length"], returns: "i32" },
  bunting_engine_write_pages: { args: ["ptr", "buffer", "i32", "buffer", "buffer_length"], returns: "i32" },
  bunting_engine_read_state: { args: ["ptr", "i32", "u64", "buffer", "buffer_length"], returns: "i32" },
  bunting_engine_write_state: { args: ["ptr", "i32", "u64", "buffer", "buffer_length"], returns: "i32" },
  bunting_engine_open_places: { args: ["ptr", "i32"], returns: "i32" },
  bunting_engine_send_pages: { args: ["ptr", "buffer", "buffer", "i32"], returns: "i32" },
  bunting_engine_send_state: { args: ["ptr", "i32", "u64", "u64", "i32"], returns: "i32" },
  bunting_engine_wait_sent: { args: ["ptr"], returns: "i32" },
  bunting_engine_fetch_pages: { args: ["ptr", "buffer", "buffer", "i32"], returns: "i32" },
  bunting_engine_fetch_state: { args: ["ptr", "i32", "u64", "u64", "i32"], returns: "i32" },
  bunting_engine_read_place: { args: ["ptr", "i32", "buffer", "buffer_length"], returns: "i32" },
  bunting_engine_write_place: { args: ["ptr", "i32", "buffer", "buffer_length"], returns: "i32" },
  bunting_step_start: { args: ["ptr", "buffer", "buffer_length", "buffer", "buffer_length"], returns: "i32" },
  bunting_step_wait: { args: ["ptr", "ptr"], returns: "i32" },
  bunting_engine_logits: { args: ["ptr", "buffer", "buffer"], returns: "i32" },
} as const;

/** Opens a library that implements engine.h. Opening the same file again shares its code and its handles. */
export function openLibrary(path: string): NativeLibrary {
  checkVersion(path);
  const { symbols: c } = open(path, symbols);

  const check = (status: number): void => {
    if (status === 0) return;
    const text = c.bunting_last_error();
    const message = text === null ? "" : new CString(text).toString();
    const known = statuses[status];
    throw new NativeError(known === undefined || known === "ok" ? "lost" : known, message);
  };
  /** Runs a call that writes one 64-bit word and returns that word. */
  const word = (call: (out: BigUint64Array) => number): number => {
    const out = new BigUint64Array(new ArrayBuffer(8));
    check(call(out));
    return Number(out[0]);
  };

  /** Runs a call that writes `count` rates. */
  const rates = (count: number, call: (out: Float64Array) => number): Float64Array => {
    const out = new Float64Array(new ArrayBuffer(count * Float64Array.BYTES_PER_ELEMENT));
    check(call(out));
    return out;
  };
  const kernelRates = (call: (out: Float64Array) => number): KernelRates => {
    const [operationsPerSecond, bytesPerSecond] = rates(2, call) as unknown as [number, number];
    return { operationsPerSecond, bytesPerSecond };
  };

  return {
    path,
    machineProbe() {
      const out = new Uint8Array(new ArrayBuffer(machineBytes));
      check(c.bunting_machine_probe(out));
      return decodeMachine(out);
    },
    deviceProbe(index) {
      const out = new Uint8Array(new ArrayBuffer(gpuBytes));
      check(c.bunting_device_probe(index, out));
      return decodeGpu(out);
    },
    cublasltProbe(index) {
      const out = new Uint8Array(new ArrayBuffer(descriptionBytes));
      check(c.bunting_cublaslt_probe(index, out, descriptionBytes));
      return decodeText(out);
    },
    meterOpen: (isa, threads) =>
      word((out) => c.bunting_meter_open(isaNumber(isa), threads, out)) as MeterHandle,
    meterCeiling: (meter, ceiling, ms) =>
      rates(1, (out) => c.bunting_meter_ceiling(meter, ceilingNames.indexOf(ceiling), ms, out))[0]!,
    meterGemm: (meter, { format, rows, columns, depth }, ms) =>
      kernelRates((out) => c.bunting_meter_gemm(meter, format, rows, columns, depth, ms, out)),
    meterAttention: (meter, { tokens, positions }, ms) =>
      kernelRates((out) => c.bunting_meter_attention(meter, tokens, positions, ms, out)),
    meterClose: (meter) => check(c.bunting_meter_close(meter)),
    modelPlan(shape, options, pageTokens) {
      const struct = encodeShape(shape, options);
      const pageBytes = new BigUint64Array(new ArrayBuffer(8));
      const stateBytes = new BigUint64Array(new ArrayBuffer(8));
      const weightBytes = word((out) => c.bunting_model_plan(struct, pageTokens, out, pageBytes, stateBytes));
      return { weightBytes, pageBytes: Number(pageBytes[0]), stateBytes: Number(stateBytes[0]) };
    },
    modelOpen: (shape, options) => {
      const struct = encodeShape(shape, options);
      return word((out) => c.bunting_model_open(struct, out)) as ModelHandle;
    },
    modelLoad(model, { tensor, layer, path: file, offset, dtype, rows, cols, quantised, factor, ...stored }) {
      const name = encodePath(file);
      const flags =
        (stored.pairedRows ? pairedRows : 0) +
        (stored.oneLess ? oneLess : 0) +
        (stored.everySecond ? everySecond : 0) +
        (stored.transposed ? transposed : 0) +
        (stored.halfRows ? halfRows : 0) +
        (stored.keysWithValues ? keysWithValues : 0) +
        (stored.groupedHeads ? groupedHeads : 0) +
        (stored.gatedHeads ? gatedHeads : 0) +
        (stored.negatedExp ? negatedExp : 0) +
        (stored.rowPerHead ? rowPerHead : 0);
      const kind = tensor + stored.expert * expertStep;
      const type = dtype + flags;
      if (factor !== undefined) check(c.bunting_model_factor(model, kind, layer, factor));
      if (quantised === undefined) {
        check(c.bunting_model_load(model, kind, layer, name, offset, type, rows, cols));
        return;
      }
      const parts = [{ file, offset }, ...partsOf(quantised)].map((part) => part ?? { file: "", offset: 0 });
      const paths = Buffer.concat(parts.map((part) => encodePath(part.file)));
      const offsets = new BigUint64Array(parts.map((part) => BigInt(part.offset)));
      const how = encodeQuantised(quantised);
      check(c.bunting_model_load_quantised(model, kind, layer, paths, offsets, how, type, rows, cols));
    },
    modelSeal: (model) => check(c.bunting_model_seal(model)),
    modelSave: (model, file, key, onProgress) =>
      withProgress(onProgress, (progress) =>
        check(c.bunting_model_save(model, encodePath(file), encodeKey(key), progress)),
      ),
    modelRestore: (model, file, key, onProgress) =>
      withProgress(onProgress, (progress) =>
        check(c.bunting_model_restore(model, encodePath(file), encodeKey(key), progress)),
      ),
    modelClose: (model) => check(c.bunting_model_close(model)),
    enginePlan(shape, options, limits) {
      const copyBytes = new BigUint64Array(new ArrayBuffer(8));
      const hostBytes = new BigUint64Array(new ArrayBuffer(8));
      const [model, engine] = [encodeShape(shape, options), encodeLimits(limits)];
      const workspaceBytes = word((out) => c.bunting_engine_plan(model, engine, out, copyBytes, hostBytes));
      return { workspaceBytes, copyBytes: Number(copyBytes[0]), hostBytes: Number(hostBytes[0]) };
    },
    draftPlan(shape, options, limits) {
      const [model, engine] = [encodeShape(shape, options), encodeLimits(limits)];
      return word((out) => c.bunting_draft_plan(model, engine, out));
    },
    engineOpen(model, draft, limits, onProgress) {
      const struct = encodeLimits(limits);
      let engine = 0;
      withProgress(onProgress, (progress) => {
        engine = word((out) => c.bunting_engine_open(model, draft, struct, progress, out));
      });
      return engine as EngineHandle;
    },
    engineClose: (engine) => check(c.bunting_engine_close(engine)),
    readPages: (engine, pages, bytes) =>
      check(c.bunting_engine_read_pages(engine, pages, pages.length, bytes, bytes)),
    writePages: (engine, pages, bytes) =>
      check(c.bunting_engine_write_pages(engine, pages, pages.length, bytes, bytes)),
    readState: (engine, slot, offset, bytes) =>
      check(c.bunting_engine_read_state(engine, slot, offset, bytes, bytes)),
    writeState: (engine, slot, offset, bytes) =>
      check(c.bunting_engine_write_state(engine, slot, offset, bytes, bytes)),
    openPlaces: (engine, count) => check(c.bunting_engine_open_places(engine, count)),
    sendPages: (engine, pages, places) =>
      check(c.bunting_engine_send_pages(engine, pages, places, pages.length)),
    sendState: (engine, slot, offset, size, place) =>
      check(c.bunting_engine_send_state(engine, slot, offset, size, place)),
    waitSent: (engine) => check(c.bunting_engine_wait_sent(engine)),
    fetchPages: (engine, pages, places) =>
      check(c.bunting_engine_fetch_pages(engine, pages, places, pages.length)),
    fetchState: (engine, slot, offset, size, place) =>
      check(c.bunting_engine_fetch_state(engine, slot, offset, size, place)),
    readPlace: (engine, place, bytes) => check(c.bunting_engine_read_place(engine, place, bytes, bytes)),
    writePlace: (engine, place, bytes) => check(c.bunting_engine_write_place(engine, place, bytes, bytes)),
    stepStart: (engine, block, result) => check(c.bunting_step_start(engine, block, block, result, result)),
    stepWait: (engine, way) => check(c.bunting_step_wait(engine, way === null ? null : ptr(way))),
    logits(engine, vocabSize) {
      const rows = new Int32Array(new ArrayBuffer(4));
      const address = word((out) => c.bunting_engine_logits(engine, out, rows));
      const bytes = rows[0]! * vocabSize * Float32Array.BYTES_PER_ELEMENT;
      return bytes === 0
        ? new Float32Array(0)
        : new Float32Array(toArrayBuffer(address as Pointer, 0, bytes).slice(0));
    },
  };
}

/** Refuses a library with another interface version, before any other call. */
function checkVersion(path: string): void {
  const version = open(path, abiSymbols).symbols.bunting_abi_version();
  if (version === abiVersion) return;
  throw new NativeError(
    "invalid",
    `${path} speaks version ${version} of the engine interface, this program version ${abiVersion}: ` +
      "build the library again, or install both packages in one version",
  );
}

function open<Functions extends Parameters<typeof dlopen>[1]>(path: string, functions: Functions) {
  try {
    return dlopen(path, functions);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new NativeError("io", `the engine library ${path} cannot be loaded: ${reason}`);
  }
}

/** Runs a call that reports progress. Rethrows an error of `onProgress` after the call has returned. */
function withProgress(onProgress: NativeProgress, call: (progress: Pointer | null) => void): void {
  let thrown: { readonly error: unknown } | null = null;
  const progress = new JSCallback(
    (done: bigint, total: bigint) => {
      try {
        if (thrown === null) onProgress(Number(done), Number(total));
      } catch (error) {
        thrown = { error };
      }
    },
    { args: ["u64", "u64"], returns: "void" },
  );
  try {
    call(progress.ptr);
  } finally {
    progress.close();
  }
  const failure = thrown as { readonly error: unknown } | null; // assigned in the callback
  if (failure !== null) throw failure.error;
}

/** BUNTING_ISA_* value. */
function isaNumber(isa: Isa | "auto"): number {
  return isa === "auto" ? -1 : isaNames.indexOf(isa);
}

function encodeKey(key: Uint8Array): Uint8Array {
  if (key.length !== 32) throw new NativeError("invalid", `a key of ${key.length} bytes; wanted: 32`);
  const bytes = new Uint8Array(new ArrayBuffer(key.length));
  bytes.set(key);
  return bytes;
}

/** Encodes NUL-terminated UTF-8, as the operating system expects. */
function encodePath(path: string): Uint8Array {
  if (path.includes("\0"))
    throw new NativeError("io", `a path must not contain NUL: ${JSON.stringify(path)}`);
  const text = new TextEncoder().encode(path);
  const bytes = new Uint8Array(new ArrayBuffer(text.length + 1));
  bytes.set(text);
  return bytes;
}

const descriptionBytes = 256;
const shapeBytes = 240;
/** BUNTING_ROUTER_* names of scores in order. */
const scores: readonly Router["score"][] = ["chosen", "all", "sigmoid"];
/** BUNTING_MLP_* names in order. */
const mlps: readonly LayerShape["mlp"][] = [
  ...(["gated", "experts", "both", "plain", "shared", "sharedGated", "none", "sharedPlain"] as const),
];
/** BUNTING_MIXER_* values. */
const mixers = { attention: 0, latent: 1, delta: 2, ssm: 3, conv: 4, attentionAndSsm: 5, none: 6 } as const;
/** BUNTING_STATE_NORM_* values. */
const stateNorms = { none: 0, heads: 2, groups: 4, wide: 8 } as const;
/** BUNTING_QK_NORM_* names in order. */
const qkNorms: readonly LayerShape["qkNorm"][] = ["none", "head", "wide", "rotated", "unit"];
/** BUNTING_ACTIVATION_* names in order. */
const activations: readonly ModelShape["activation"][] = [
  ...(["silu", "geluTanh", "clampedSwiglu", "gelu", "xielu", "reluSquared"] as const),
];
const layerBytes = 80;
const ropeBytes = 32;

/** Encodes a bunting_quantised. */
function encodeQuantised(source: QuantisedSource): Uint8Array {
  const bytes = new Uint8Array(new ArrayBuffer(48));
  const view = new DataView(bytes.buffer);
  const { layout, number, bits, zeroAdded, groupRows, groupCols, scaleType, isDivided, nested } = source;
  for (const [index, value] of [layout, number, bits, zeroAdded].entries())
    view.setInt32(index * 4, value, true);
  view.setBigInt64(16, BigInt(groupRows), true);
  view.setBigInt64(24, BigInt(groupCols), true);
  view.setInt32(32, scaleType, true);
  view.setInt32(36, isDivided ? 1 : 0, true);
  view.setBigInt64(40, BigInt(nested?.state.bytes ?? 0), true);
  return bytes;
}

/**
 * Encodes a bunting_model_shape: 16 int32, 7 float, 15 int32, a float, an int32, then the addresses of
 * layers, ropes and formats, 6 int32 and 2 float of recurrent layers, 4 int32 and a float of latent
 * attention, and an int32 of the draft head. Layers, ropes, the ropes' frequencies and formats follow it in
 * the same storage.
 */
function encodeShape(shape: ModelShape, options: ComputeOptions): Uint8Array {
  const { compute, isa, threads, formats = [], kv = "plain" } = options;
  const rotations = shape.ropes.map((rope) => rotationOf(rope, shape.contextMax));
  const layersAt = shapeBytes;
  const layers = layersWithHead(shape);
  const ropesAt = layersAt + layers.length * layerBytes;
  const frequenciesAt = ropesAt + rotations.length * ropeBytes;
  const formatsAt = rotations.reduce((at, { frequencies }) => at + frequencies.byteLength, frequenciesAt);
  const struct = new Uint8Array(new ArrayBuffer(formatsAt + formats.length));
  const view = new DataView(struct.buffer);
  const writeIntegers = (at: number, values: readonly number[]): void =>
    values.forEach((value, index) => {
      view.setInt32(at + index * 4, value, true);
    });
  const writeAddress = (at: number, target: number): void =>
    view.setBigUint64(at, BigInt(ptr(struct)) + BigInt(target), true);

  writeIntegers(0, [
    ...[layers.length, shape.hidden, shape.feedForward],
    ...[shape.queryHeads, shape.kvHeads, shape.headSize, shape.vocab, shape.contextMax],
    ...[Number(shape.tiedEmbeddings), shape.norm === "rms" ? 0 : 1, activations.indexOf(shape.activation)],
    ...[rotations.length, compute === "f32" ? 0 : 2, isaNumber(isa), threads],
    kvFormats.indexOf(kv),
  ]);
  const reals = [
    ...[shape.normEpsilon, shape.attentionScale, shape.attentionCap],
    ...[shape.embeddingScale, shape.residualScale, shape.logitScale, shape.logitCap],
  ];
  reals.forEach((value, index) => {
    view.setFloat32(64 + index * 4, value, true);
  });
  view.setInt32(92, shape.layerInputs, true);
  const { experts } = shape;
  if (experts !== null) {
    writeIntegers(96, [experts.count, experts.used, experts.feedForward, scores.indexOf(experts.score)]);
    writeIntegers(140, [
      Number(experts.biased) | (Number(experts.normalised) << 1) | (Number(experts.scalesInput) << 2),
      experts.groups,
      experts.groupsUsed,
    ]);
    view.setFloat32(152, experts.scale, true);
  }
  const { encoder } = shape;
  writeIntegers(112, [
    ...[Number(encoder !== undefined), Number(shape.norm === "biasedLayer")],
    ...[Number(encoder?.finalNorm === false), Number(encoder?.embeddingNorm ?? false)],
    ...[encoder?.positions ?? 0, encoder?.positionOffset ?? 0, encoder?.tokenTypes ?? 0],
  ]);
  const { states } = shape;
  if (states !== undefined) {
    const { convBias, norm, gateFirst, skip, tiledHeads } = states;
    writeIntegers(184, [
      ...[states.keyHeads, states.heads, states.keySize, states.valueSize, states.conv],
      Number(convBias) |
        stateNorms[norm] |
        (Number(gateFirst) << 4) |
        (Number(skip) << 5) |
        (Number(tiledHeads) << 6),
    ]);
    view.setFloat32(208, states.dtMin, true);
    view.setFloat32(212, states.dtMax, true);
  }
  const { latent } = shape;
  if (latent !== undefined) {
    writeIntegers(216, [latent.rank, latent.queryRank, latent.keySize, latent.valueSize]);
    view.setFloat32(232, latent.normEpsilon, true);
  }
  const { head } = shape;
  if (head !== undefined)
    view.setInt32(236, 1 | (Number(head.isNormed) << 1) | (Number(head.isHiddenFirst) << 2), true);
  writeAddress(160, layersAt);
  view.setInt32(156, shape.streams ?? 1, true);
  for (const [index, layer] of layers.entries()) {
    const at = layersAt + index * layerBytes;
    writeIntegers(at, layerWords(layer));
    view.setFloat32(at + 76, layer.gateCutoff ?? 0, true);
  }
  if (rotations.length > 0) writeAddress(168, ropesAt);
  let next = frequenciesAt;
  rotations.forEach(({ frequencies, magnitude }, index) => {
    const at = ropesAt + index * ropeBytes;
    const { queries } = shape.ropes[index]!;
    view.setInt32(at, 2 * frequencies.length, true);
    view.setFloat32(at + 4, magnitude, true);
    writeAddress(at + 8, next);
    view.setFloat32(at + 16, queries?.growth ?? 0, true);
    view.setInt32(at + 20, queries?.span ?? 0, true);
    view.setInt32(at + 24, queries?.offset ?? 0, true);
    for (const frequency of frequencies) {
      view.setFloat64(next, frequency, true);
      next += Float64Array.BYTES_PER_ELEMENT;
    }
  });
  if (formats.length > 0) {
    struct.set(formats, formatsAt);
    writeAddress(176, formatsAt);
  }
  return struct;
}

/** Words of a bunting_layer_shape. */
function layerWords(layer: LayerShape): number[] {
  const { biases } = layer;
  const before = layer.parallel ? 1 : 1 | 4;
  const parts = (layer.mixer === "none" ? 0 : 1 | 2 | 16) | (layer.mlp === "none" ? 0 : 4 | 8 | 32);
  const norms = { before, after: 2 | 8, around: 15, sums: 16 | 32, beforeMlp: 4 }[layer.norms] & parts;
  return [
    ...[mixers[layer.mixer], mlps.indexOf(layer.mlp), norms],
    [biases.qkv, biases.o, biases.gateUp, biases.down, biases.router].reduce(
      (set, has, bit) => set | (Number(has) << bit),
      0,
    ),
    qkNorms.indexOf(layer.qkNorm),
    layer.rope ?? -1,
    layer.slidingWindow,
    Number(layer.sinks),
    Number(layer.parallel),
    ...[layer.ownSizes.headSize ?? 0, layer.ownSizes.kvHeads ?? 0, layer.ownSizes.feedForward ?? 0],
    Number(layer.valuesAreKeys) | (Number(layer.valueNorm) << 1),
    layer.kvLayersBack,
    Number(layer.scaled),
    Number(layer.chunked),
    Number(layer.gatedOutput),
    ...[layer.laurelRank, Number(layer.gateCutoff !== null)],
  ];
}

/** BUNTING_DEVICES_MAX. */
const devicesMax = 8;

/** Encodes a bunting_engine_limits: 10 int32, the devices, then the number of state slots and drafts_max. */
function encodeLimits(limits: EngineLimits): Uint8Array {
  const { threads, pages, pageTokens, stepTokensMax, stepChunksMax, topLogprobsMax } = limits;
  const { stepDrawsMax = stepChunksMax, stepHiddenMax = stepChunksMax } = limits;
  const { devices = [], gemm = "own", states = 0, draftsMax = 0 } = limits;
  if (devices.length > devicesMax) {
    throw new NativeError("invalid", `${devices.length} devices for one engine; at most ${devicesMax}`);
  }
  const struct = new Int32Array(new ArrayBuffer((12 + devicesMax) * 4));
  struct.set([threads, pages, pageTokens, stepTokensMax, stepChunksMax]);
  struct.set([stepDrawsMax, stepHiddenMax, topLogprobsMax], 5);
  struct.set([gemmNames.indexOf(gemm), devices.length, ...devices], 8);
  struct.set([states, draftsMax], 10 + devicesMax);
  return new Uint8Array(struct.buffer);
}
