import type { Config } from "./config.ts";
import type { ServingPlan } from "./engines/plan.ts";
import type { LoadProgress, StartTimes } from "./engines/protocol.ts";
import type { EnginesEvents } from "./engines/start.ts";

/** Events of a model's engines while they start and run. */
export interface EngineEvents extends Pick<EnginesEvents, "onLost" | "onReplaced"> {
  onProgress(progress: LoadProgress): void;
}

/** Reason for which a stopping server ends its programs, for their clients. */
export const STOPPING = "the server is shutting down";

export interface StartEvents extends EngineEvents {
  /** Called before any allocation. Not called for a simulated device, which allocates next to nothing. */
  onPlan(plan: ServingPlan): void;
  /** Resolves a model's name to a path, and downloads it if necessary. Absent: `model` is the path. */
  modelPath?(model: string, config: Config): Promise<string>;
  /** Called in place of `onPlan` by a server of several models, before any allocation. */
  onModels?(models: readonly PlannedModel[], memoryBytes: number): void;
}

/** Plan of one of several models. */
export interface PlannedModel {
  readonly name: string;
  readonly family: string;
  readonly contextMax: number;
  readonly bytes: number;
  /** Names of its adapters. */
  readonly adapters: readonly string[];
  readonly isPinned: boolean;
}

export interface RunningServer {
  /** Base URL without a path: "http://127.0.0.1:8000". */
  readonly url: string;
  /** The model's name in answers. */
  readonly model: string;
  /** Durations of the first engine's start-up; null for several models, which are loaded on demand. */
  readonly startTimes: StartTimes | null;
  /** Messages about packed weights on disk, chat templates, and the folder of the batch jobs. */
  readonly notes: readonly string[];
  /** Requests in flight. */
  readonly active: number;
  /** Resolves with the reason when the last engine is lost for good: the server must then be restarted. */
  readonly lost: Promise<string>;
  /** Resolves when another process has taken over the address. Then `whenLeft` and `drain` end this one. */
  readonly handedOver: Promise<void>;
  /** Resolves when the connections that are left after a hand-over have ended. */
  whenLeft(): Promise<void>;
  /** Reloads the API key file; running requests continue. Returns a sentence about the result. */
  reloadKeys(): string;
  /**
   * Refuses new work and lets running requests finish for at most `timeoutMs`. Then cuts the rest and stops
   * everything. Resolves to the number of cut requests.
   */
  drain(timeoutMs: number): Promise<number>;
}
