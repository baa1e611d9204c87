import type { LoadStage, NativeModel, NativeModelOptions } from "../../gpu/native/open.ts";
import type { EngineLimits } from "../../gpu/native.ts";
import type { Vocabulary } from "../../grammar/mask/vocabulary.ts";
import type { EngineId } from "../../scheduler/core.ts";
import type { OnlineState, PriorState } from "../../scheduler/cost/online.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import type { EngineSettings } from "../../scheduler/engine/engine-options.ts";
import type { EngineReport } from "../../scheduler/messages.ts";
import type { RecordingEntry } from "../../scheduler/recording/recording.ts";

/** What crosses between the main thread and an engine's thread. Plain data, but for the port. */

/** What a device that computes a model is opened with. */
interface NativeSetup {
  /** Path of libbunting_cpu.so, libbunting_cuda.so or libbunting_emu.so. */
  readonly library: string;
  /** Model folder. */
  readonly folder: string;
  readonly model: NativeModelOptions;
  readonly limits: EngineLimits;
}

interface GpuSetup extends NativeSetup {
  /** By engine, the GPU that it computes on, and what that is called. */
  readonly gpus: readonly number[];
  readonly gpuNames: readonly string[];
  /** The times of its steps say nothing, and are not measured before the first request. */
  readonly isEmulated: boolean;
}

interface SimulatedSetup {
  readonly spec: DeviceSpec;
  /** Milliseconds that a step takes, and each of its tokens; by default those of a small model. */
  readonly cost?: { readonly stepMs: number; readonly tokenMs: number };
}

/** The device an engine runs on; every engine of a fleet has one of the same kind. */
export type DeviceSetup =
  | ({ readonly kind: "simulated" } & SimulatedSetup)
  | ({ readonly kind: "cpu" } & NativeSetup)
  | ({ readonly kind: "gpu" } & GpuSetup);

/** Everything that can be chosen of an engine, but for what cannot cross threads. */
export type PlainEngineOptions = Omit<EngineSettings, "trace" | "epoch">;

/** A device that is lost before it computes step `step` of its engine's first life: losses can be rehearsed. */
export interface RehearsedLoss {
  readonly engine: EngineId;
  readonly step: number;
}

/** How every engine of a fleet is made. */
export interface EngineSetup {
  readonly device: DeviceSetup;
  readonly options: PlainEngineOptions;
  readonly rehearsedLoss: RehearsedLoss | null;
  /** What tokens stand for, in memory that threads share; null: no sequence is constrained. */
  readonly vocabulary: Vocabulary | null;
  /** Whether the threads write down what they are told and do (scheduler/recording/recorder.ts). */
  readonly isRecorded: boolean;
}

/** The only message to a worker. */
export interface EngineStart {
  readonly engine: EngineId;
  /** Which life of the engine this is: 0, and one more each time it is replaced. */
  readonly epoch: number;
  readonly setup: EngineSetup;
  /** A model that another engine loaded; null: load it. */
  readonly model: NativeModel | null;
  /** What steps cost on the first engine; null: it is the first. */
  readonly costs: PriorState | null;
  /** `PackedMessage`s for the engine. */
  readonly inbox: MessagePort;
  /** Three 32-bit words: `RINGS` goes up with every message and is what an idle engine sleeps on; `STOPPED` is 1 when the
   *  thread is to end; `AWAITED` is 1 when a message has come for which bulk gives way. */
  readonly doorbell: SharedArrayBuffer;
}

/** Words of the doorbell. */
export const RINGS = 0;
export const STOPPED = 1;
export const AWAITED = 2;

/** Loading, told as often as there is something to show. */
export interface LoadProgress {
  readonly stage: LoadStage;
  readonly bytesDone: number;
  readonly bytesTotal: number;
}

/** From a worker. */
export type WorkerMessage =
  | { readonly kind: "progress"; readonly progress: LoadProgress }
  | {
      readonly kind: "ready";
      readonly spec: DeviceSpec;
      readonly model: NativeModel | null;
      readonly costs: OnlineState;
    }
  /** `costs`: what the engine has learnt of its steps, told once a second. */
  | { readonly kind: "report"; readonly report: EngineReport; readonly costs: OnlineState | null }
  /** Of the recording. */
  | { readonly kind: "recorded"; readonly entries: readonly RecordingEntry[] }
  /** The engine ended: it could not start, or its device or an invariant failed. */
  | { readonly kind: "failed"; readonly reason: string }
  | { readonly kind: "stopped" };
