import type { CpuModel, CpuModelOptions } from "../gpu/cpu/open.ts";
import type { EngineLimits } from "../gpu/native.ts";
import type { EngineId } from "../scheduler/core.ts";
import type { DeviceSpec } from "../scheduler/device.ts";
import type { EngineOptions } from "../scheduler/engine-options.ts";
import type { EngineMessage, EngineReport } from "../scheduler/messages.ts";

/** What crosses between the main thread and an engine's thread. Plain data, but for the port. */

/** The device an engine runs on; every engine of a fleet has the same. */
export type DeviceSetup =
  | {
      readonly kind: "simulated";
      readonly spec: DeviceSpec;
      /** Milliseconds that a step takes, and each of its tokens; by default those of a small model. */
      readonly cost?: { readonly stepMs: number; readonly tokenMs: number };
    }
  | {
      readonly kind: "cpu";
      /** Path of libbunting_cpu.so. */
      readonly library: string;
      /** Model folder. */
      readonly folder: string;
      readonly model: CpuModelOptions;
      readonly limits: EngineLimits;
    };

/** Everything that can be chosen of an engine, but for what cannot cross threads. */
export type PlainEngineOptions = Partial<Omit<EngineOptions, "trace">>;

/** First message to a worker. */
export interface EngineStart {
  readonly kind: "start";
  readonly engine: EngineId;
  readonly device: DeviceSetup;
  readonly options: PlainEngineOptions;
  /** A model that another engine loaded; null: load it. */
  readonly model: CpuModel | null;
  /** Messages for the engine. */
  readonly inbox: MessagePort;
  /** One 32-bit word: goes up with every message, and is what an idle engine sleeps on. */
  readonly doorbell: SharedArrayBuffer;
}

/** Through the inbox. */
export type InboxMessage = EngineMessage | { readonly kind: "stop" };

/** Loading, told as often as there is something to show. */
export interface LoadProgress {
  readonly bytesDone: number;
  readonly bytesTotal: number;
}

/** From a worker. */
export type WorkerMessage =
  | { readonly kind: "progress"; readonly progress: LoadProgress }
  | { readonly kind: "ready"; readonly spec: DeviceSpec; readonly model: CpuModel | null }
  | { readonly kind: "report"; readonly report: EngineReport }
  /** The engine ended: it could not start, or its device or an invariant failed. */
  | { readonly kind: "failed"; readonly reason: string }
  | { readonly kind: "stopped" };
