/**
 * TypeScript binding of csrc/include/engine.h; the only file that loads native code. Each function is one
 * call of the library; a failed status becomes a NativeError.
 *
 * Data for native code is passed as views over an ArrayBuffer or SharedArrayBuffer, whose storage never
 * moves; the storage of a small typed array may. Structs are written at the byte offsets that
 * csrc/boundary/engine.cpp asserts.
 */
import { CString, dlopen, JSCallback, type Pointer, ptr, toArrayBuffer } from "bun:ffi";
import type { AdapterPart } from "../model/adapter.ts";
import { partsOf } from "../model/quantisation.ts";
import type { ModelShape } from "../model/shape.ts";
import type { ModelTensor } from "../model/weights.ts";
import { NativeError, type NativeStatus } from "./native/native-error.ts";
import {
  decodeGpu,
  decodeMachine,
  decodeText,
  type Gpu,
  gpuBytes,
  type Isa,
  type Machine,
  machineBytes,
} from "./native/probes.ts";
import {
  type ComputeOptions,
  type EngineLimits,
  encodeFactor,
  encodeLimits,
  encodePath,
  encodeQuantised,
  encodeShape,
  isaNumber,
  rowFlags,
} from "./native/structs.ts";

export { NativeError, type NativeStatus } from "./native/native-error.ts";
export { type Gpu, type Isa, isaNames, type Machine } from "./native/probes.ts";
export {
  type ComputeOptions,
  type EngineLimits,
  type GemmChoice,
  gemmNames,
  type KvFormat,
  kvFormats,
} from "./native/structs.ts";

declare const brand: unique symbol;
/**
 * Handle of a model, open or sealed: a plain number that any thread may use, one thread at a time until the
 * model is sealed.
 */
export type ModelHandle = Pointer & { readonly [brand]: "model" };
/** Handle of a LoRA adapter, open or sealed, likewise. */
export type AdapterHandle = Pointer & { readonly [brand]: "adapter" };
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
  /** Opens an adapter of a sealed model; then come its parts, and its seal, which returns its bytes in memory. */
  adapterOpen(model: ModelHandle): AdapterHandle;
  adapterLoad(adapter: AdapterHandle, part: AdapterPart): void;
  adapterSeal(adapter: AdapterHandle): number;
  /** Closes an adapter that is in no engine. */
  adapterClose(adapter: AdapterHandle): void;
  /** Puts an adapter into a slot, 1 to `adaptersMax`, which chunks name. No step may be in flight. */
  putAdapter(engine: EngineHandle, slot: number, adapter: AdapterHandle): void;
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

const abiVersion = 25;
const descriptionBytes = 256;
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
  bunting_adapter_open: { args: ["ptr", "buffer"], returns: "i32" },
  bunting_adapter_load: {
    args: ["ptr", "i32", "i32", "i32", "f32", "buffer", "buffer"],
    returns: "i32",
  },
  bunting_adapter_seal: { args: ["ptr", "buffer"], returns: "i32" },
  bunting_adapter_close: { args: ["ptr"], returns: "i32" },
  bunting_engine_put_adapter: { args: ["ptr", "i32", "ptr"], returns: "i32" },
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
      const struct = encodeShape(shape, options, ptr);
      const pageBytes = new BigUint64Array(new ArrayBuffer(8));
      const stateBytes = new BigUint64Array(new ArrayBuffer(8));
      const weightBytes = word((out) => c.bunting_model_plan(struct, pageTokens, out, pageBytes, stateBytes));
      return { weightBytes, pageBytes: Number(pageBytes[0]), stateBytes: Number(stateBytes[0]) };
    },
    modelOpen: (shape, options) => {
      const struct = encodeShape(shape, options, ptr);
      return word((out) => c.bunting_model_open(struct, out)) as ModelHandle;
    },
    modelLoad(model, { tensor, layer, path: file, offset, dtype, rows, cols, quantised, factor, ...stored }) {
      const name = encodePath(file);
      const kind = tensor + stored.expert * expertStep;
      const type = dtype + rowFlags(stored);
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
      const [model, engine] = [encodeShape(shape, options, ptr), encodeLimits(limits)];
      const workspaceBytes = word((out) => c.bunting_engine_plan(model, engine, out, copyBytes, hostBytes));
      return { workspaceBytes, copyBytes: Number(copyBytes[0]), hostBytes: Number(hostBytes[0]) };
    },
    draftPlan(shape, options, limits) {
      const [model, engine] = [encodeShape(shape, options, ptr), encodeLimits(limits)];
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
    adapterOpen: (model) => word((out) => c.bunting_adapter_open(model, out)) as AdapterHandle,
    adapterLoad(adapter, { a, b, rank, scale }) {
      const [pathA, pathB] = [encodePath(a.path), encodePath(b.path)];
      const factorA = encodeFactor(pathA, a.offset, a.dtype, ptr);
      const factorB = encodeFactor(pathB, b.offset, b.dtype + rowFlags(b), ptr);
      check(c.bunting_adapter_load(adapter, b.tensor, b.layer, rank, scale, factorA, factorB));
    },
    adapterSeal: (adapter) => word((out) => c.bunting_adapter_seal(adapter, out)),
    adapterClose: (adapter) => check(c.bunting_adapter_close(adapter)),
    putAdapter: (engine, slot, adapter) => check(c.bunting_engine_put_adapter(engine, slot, adapter)),
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

function encodeKey(key: Uint8Array): Uint8Array {
  if (key.length !== 32) throw new NativeError("invalid", `a key of ${key.length} bytes; wanted: 32`);
  const bytes = new Uint8Array(new ArrayBuffer(key.length));
  bytes.set(key);
  return bytes;
}
