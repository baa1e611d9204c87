import type { LoadStage, NativeModel, NativeModelOptions } from "../../gpu/native/open.ts";
import type { EngineLimits } from "../../gpu/native.ts";
import type { Vocabulary } from "../../grammar/mask/vocabulary.ts";
import type { CacheSnapshot, SnapshotRequest } from "../../scheduler/cache/cache-snapshot.ts";
import type { HostCounts } from "../../scheduler/cache/host-tier.ts";
import type { EngineId } from "../../scheduler/core.ts";
import type { OnlineState, PriorState } from "../../scheduler/cost/online.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import type { EngineSettings } from "../../scheduler/engine/engine-options.ts";
import type { EngineReport } from "../../scheduler/messages.ts";
import type { RecordingEntry } from "../../scheduler/recording/recording.ts";
import type { KvDiskSetup } from "../kv-disk/protocol.ts";
import type { StoreCounts } from "../kv-disk/store-counts.ts";
import type { KvHostSetup } from "../kv-host/protocol.ts";

/** Messages between the main thread and an engine's thread. Plain data, except for the port. */

/** Settings with which a thread opens a device that computes a model. */
interface NativeSetup {
  /** Path of libbunting_cpu.so, libbunting_cuda.so or libbunting_emu.so. */
  readonly library: string;
  /** Path of the model folder. */
  readonly folder: string;
  /** RoPE scaling as JSON in place of the model's own; absent or null: the model's own. */
  readonly ropeScaling?: string | null;
  readonly model: NativeModelOptions;
  /** Draft model: path and options; absent or null: none. */
  readonly draft?: { readonly folder: string; readonly model: NativeModelOptions } | null;
  readonly limits: EngineLimits;
  /** KV pages on disk; absent or null: none. */
  readonly disk?: KvDiskSetup | null;
  /** KV pages in host memory; absent or null: none. */
  readonly host?: KvHostSetup | null;
}

interface GpuSetup extends NativeSetup {
  /** GPU index and name of each engine. */
  readonly gpus: readonly number[];
  readonly gpuNames: readonly string[];
  /** True for the GPU emulator, whose step times mean nothing and are not measured. */
  readonly isEmulated: boolean;
}

interface SimulatedSetup {
  readonly spec: DeviceSpec;
  /** Milliseconds per step and per token; by default those of a small model. */
  readonly cost?: { readonly stepMs: number; readonly tokenMs: number };
}

/** Device of an engine; all engines of a fleet have the same kind. */
export type DeviceSetup =
  | ({ readonly kind: "simulated" } & SimulatedSetup)
  | ({ readonly kind: "cpu" } & NativeSetup)
  | ({ readonly kind: "gpu" } & GpuSetup);

/** Engine options that can cross threads. */
export type PlainEngineOptions = Omit<EngineSettings, "trace" | "epoch">;

/**
 * Simulated loss for tests of recovery: the device of `engine` is lost before step `step` of its first life.
 */
export interface RehearsedLoss {
  readonly engine: EngineId;
  readonly step: number;
}

/** Settings that all engines of a fleet share. */
export interface EngineSetup {
  readonly device: DeviceSetup;
  readonly options: PlainEngineOptions;
  readonly rehearsedLoss: RehearsedLoss | null;
  /** True if the threads record their inputs and decisions (scheduler/recording/recorder.ts). */
  readonly isRecorded: boolean;
}

/**
 * First message of the inbox: token texts in shared memory; null if no sequence is constrained. They are sent
 * once they are made, since a thread loads weights before it needs them.
 */
export type VocabularyMessage = Vocabulary | null;

/** First and only message to a worker. */
export interface EngineStart {
  readonly engine: EngineId;
  /** Life of the engine: 0, plus one for each replacement. */
  readonly epoch: number;
  readonly setup: EngineSetup;
  /** Model that another engine loaded; null to load it. */
  readonly model: NativeModel | null;
  /** Step costs of the first engine; null for the first engine itself. */
  readonly costs: PriorState | null;
  /** Port of a `VocabularyMessage`, then `PackedMessage`s for the engine. */
  readonly inbox: MessagePort;
  /**
   * Three shared 32-bit words. `RINGS` rises with every message; an idle engine sleeps on it. `STOPPED` is 1
   * when the thread must end. `AWAITED` is 1 when a message has arrived for which offline work is aborted.
   */
  readonly doorbell: SharedArrayBuffer;
}

/** Indices of the doorbell's words. */
export const RINGS = 0;
export const STOPPED = 1;
export const AWAITED = 2;

/** Loading progress, reported while it changes. */
export interface LoadProgress {
  readonly stage: LoadStage;
  readonly bytesDone: number;
  readonly bytesTotal: number;
}

/** Parts of an engine's start in milliseconds. */
export interface StartTimes {
  readonly loadMs: number;
  readonly stepsMs: number;
}

/** Message to an engine's thread, beside those of the fleet: asks for a snapshot of the prefix cache. */
export interface InspectMessage {
  readonly kind: "inspect";
  readonly request: SnapshotRequest;
}

/** Messages from a worker. */
export type WorkerMessage =
  | { readonly kind: "progress"; readonly progress: LoadProgress }
  | {
      readonly kind: "ready";
      readonly spec: DeviceSpec;
      readonly model: NativeModel | null;
      readonly costs: OnlineState;
      readonly times: StartTimes;
    }
  /** `costs`: state of the cost model, sent once a second; null in between. */
  | { readonly kind: "report"; readonly report: EngineReport; readonly costs: OnlineState | null }
  /** Counts of the KV pages on disk since the last such message. */
  | { readonly kind: "disk"; readonly counts: Readonly<StoreCounts> }
  /** Counts of KV pages in host memory since the last such message. */
  | { readonly kind: "host"; readonly counts: Readonly<HostCounts> }
  /** Answer to an `InspectMessage`. */
  | { readonly kind: "cache"; readonly snapshot: CacheSnapshot; readonly owner: SnapshotRequest["owner"] }
  /** Entries of the recording. */
  | { readonly kind: "recorded"; readonly entries: readonly RecordingEntry[] }
  /** The engine ended: it could not start, or its device or an invariant failed. */
  | { readonly kind: "failed"; readonly reason: string }
  | { readonly kind: "stopped" };
