/**
 * Device backed by an engine of a native library (CPU or GPU). `start` only checks and stores the step.
 * `wait` computes it, or waits for the GPU, on the calling thread, so each device belongs on a thread of its
 * own.
 */
import { assert, InvariantError } from "../../base/assert.ts";
import type { AdapterId, StateSlot, Step, StepResult } from "../../scheduler/core.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import type { HostedDevice } from "../hosted-device.ts";
import { type EngineHandle, type EngineLimits, NativeError, type NativeLibrary } from "../native.ts";
import { StepBlock, StepResultBlock } from "../step-block.ts";

interface StartedStep {
  readonly step: Step;
  readonly done: (result: StepResult) => void;
  /** Set once the step is computed or has failed. */
  result: StepResult | null;
}

export class NativeDevice implements HostedDevice {
  readonly spec: DeviceSpec;
  readonly #library: NativeLibrary;
  readonly #engine: EngineHandle;
  readonly #block: StepBlock;
  readonly #result: StepResultBlock;
  #started: StartedStep | null = null;
  #isOpen = true;

  /** Takes ownership of `engine` and closes it. `adapters`: the slots of its adapters. */
  constructor(
    library: NativeLibrary,
    engine: EngineHandle,
    spec: DeviceSpec,
    limits: EngineLimits,
    adapters: ReadonlyMap<AdapterId, number> = new Map(),
  ) {
    this.spec = spec;
    this.#library = library;
    this.#engine = engine;
    this.#block = new StepBlock(spec.vocabSize, spec.pageTokens, adapters);
    this.#result = new StepResultBlock({
      drawsMax: limits.stepDrawsMax ?? limits.stepChunksMax,
      topLogprobsMax: limits.topLogprobsMax,
      hiddenMax: spec.hidden?.rowsMax ?? 0,
      hiddenSize: spec.hidden?.size ?? 0,
      draftsMax: limits.draftsMax ?? 0,
    });
  }

  get inFlight(): boolean {
    return this.#started !== null;
  }

  start(step: Step, done: (result: StepResult) => void): void {
    assert(this.#isOpen, "a step was started on a closed device");
    assert(this.#started === null, "a step was started while another is in flight");
    this.#block.encode(step);
    const started: StartedStep = { step, done, result: null };
    started.result = this.#attempt(() =>
      this.#library.stepStart(this.#engine, this.#block.bytes, this.#result.bytes),
    );
    this.#started = started;
  }

  wait(way: Int32Array<SharedArrayBuffer> | null = null): void {
    const started = this.#started;
    assert(started !== null, "there is no step to wait for");
    started.result ??= this.#attempt(() =>
      this.#library.stepWait(this.#engine, started.step.isAbortable === true ? way : null),
    );
    started.result ??= {
      kind: "done",
      sampled: this.#result.decode(started.step, this.#block),
      deviceMs: this.#result.deviceMs,
      ...(this.spec.draftsMax === undefined ? {} : { draftsMs: this.#result.draftsMs }),
    };
  }

  deliver(): void {
    const started = this.#started;
    assert(started !== null && started.result !== null, "there is no computed step to deliver");
    this.#started = null;
    started.done(started.result);
  }

  /**
   * Raw logits of the rows that the last step drew from, [rows × vocabSize], in the order of its chunks. For
   * tests and evaluations.
   */
  logits(): Float32Array {
    const { vocabSize } = this.spec;
    const ofBlock = this.#library.logits(this.#engine, vocabSize);
    const logits = new Float32Array(ofBlock.length);
    for (const [i, row] of this.#block.draws.entries()) {
      logits.set(ofBlock.subarray(row * vocabSize, (row + 1) * vocabSize), i * vocabSize);
    }
    return logits;
  }

  /** Path of the library and engine handle, for a side thread that copies pages (engine.h). */
  get native(): { readonly library: string; readonly engine: EngineHandle } {
    return { library: this.#library.path, engine: this.#engine };
  }

  /** Copies whole pages, which a step in flight does not write, to `bytes`. */
  readPages(pages: Int32Array, bytes: Uint8Array): void {
    this.#library.readPages(this.#engine, pages, bytes);
  }

  /** Copies a part of a state slot, which a step in flight does not write, from byte `offset` on to `bytes`. */
  readState(slot: StateSlot, offset: number, bytes: Uint8Array): void {
    this.#library.readState(this.#engine, slot, offset, bytes);
  }

  /** Allocates places of a page's size in host memory; GPUs only. */
  openPlaces(count: number): void {
    this.#library.openPlaces(this.#engine, count);
  }

  /** Begin copies to places in host memory. A later step that writes the pages, or the slot, first waits for them. */
  sendPages(pages: Int32Array, places: Int32Array): void {
    this.#library.sendPages(this.#engine, pages, places);
  }
  sendState(slot: StateSlot, offset: number, size: number, place: number): void {
    this.#library.sendState(this.#engine, slot, offset, size, place);
  }

  /** Closes the engine and drops a step in flight, whose `done` is never called. */
  close(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#started = null;
    this.#library.engineClose(this.#engine);
  }

  /**
   * Runs a native call. Returns null on success, or the step's result for an expected failure. A refused step
   * is a bug and throws.
   */
  #attempt(call: () => void): StepResult | null {
    try {
      call();
      return null;
    } catch (error) {
      if (!(error instanceof NativeError)) throw error;
      if (error.status === "gaveWay") return { kind: "aborted", reason: error.message };
      if (error.status === "retry") return { kind: "retry", reason: error.message };
      if (error.status === "invalid") throw new InvariantError(`the engine refused a step: ${error.message}`);
      return { kind: "lost", reason: error.message };
    }
  }
}
