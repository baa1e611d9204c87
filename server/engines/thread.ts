import type { NativeModel } from "../../gpu/native/open.ts";
import type { EngineId } from "../../scheduler/core.ts";
import type { OnlineState } from "../../scheduler/cost/online.ts";
import type { EngineLink } from "../../scheduler/fleet/fleet.ts";
import type { EngineMessage, EngineReport } from "../../scheduler/messages.ts";
import type { FlightEntry } from "../../scheduler/recording/flight.ts";
import {
  type EngineSetup,
  type EngineStart,
  type LoadProgress,
  RINGS,
  STOPPED,
  type WorkerMessage,
} from "./protocol.ts";

/** What a thread tells; nothing more once `onLost` was called or the thread was stopped. */
export interface ThreadEvents {
  readonly onProgress: (progress: LoadProgress) => void;
  readonly onReport: (report: EngineReport, costs: OnlineState | null) => void;
  readonly onFlight: (entries: readonly FlightEntry[]) => void;
  /** After it was ready; before, `ready` rejects. */
  readonly onLost: (reason: string) => void;
}

/** An engine's thread is ready for work. */
export type Ready = Extract<WorkerMessage, { kind: "ready" }>;

/** Main's end of an engine's thread. */
export class EngineThread implements EngineLink {
  readonly ready: Promise<Ready>;
  readonly #worker: Worker;
  readonly #port: MessagePort;
  readonly #bell: Int32Array<SharedArrayBuffer>;
  readonly #events: ThreadEvents;
  readonly #ended = Promise.withResolvers<void>();
  readonly #started = Promise.withResolvers<Ready>();
  #state: "starting" | "running" | "ended" = "starting";

  /** `epoch` counts the lives of an engine. `model`: another engine's, to be shared; null: load it. */
  constructor(
    workerUrl: string,
    setup: EngineSetup,
    engine: EngineId,
    epoch: number,
    model: NativeModel | null,
    events: ThreadEvents,
  ) {
    const { port1, port2 } = new MessageChannel();
    const doorbell = new SharedArrayBuffer(8);
    this.#port = port1;
    this.#bell = new Int32Array(doorbell);
    this.#events = events;
    this.ready = this.#started.promise;
    this.#worker = new Worker(workerUrl, { name: `engine ${engine}` });
    this.#worker.onmessage = (event: MessageEvent<WorkerMessage>) => this.#receive(event.data);
    this.#worker.onerror = (event) => this.#end(event.message || "the engine's thread failed");
    this.#worker.addEventListener("close", () => this.#end("the engine's thread ended"));
    const start: EngineStart = { kind: "start", engine, epoch, setup, model, inbox: port2, doorbell };
    this.#worker.postMessage(start, [port2]);
  }

  send(message: EngineMessage): void {
    if (this.#state === "ended") return;
    this.#port.postMessage(message);
    this.#ring();
  }

  /** Resolves when the thread has ended, after the step it is in. */
  stop(): Promise<void> {
    Atomics.store(this.#bell, STOPPED, 1);
    this.#ring();
    return this.#ended.promise;
  }

  #ring(): void {
    Atomics.add(this.#bell, RINGS, 1);
    Atomics.notify(this.#bell, RINGS);
  }

  #receive(message: WorkerMessage): void {
    if (this.#state === "ended") return;
    switch (message.kind) {
      case "progress":
        this.#events.onProgress(message.progress);
        return;
      case "ready":
        this.#state = "running";
        this.#started.resolve(message);
        return;
      case "report":
        this.#events.onReport(message.report, message.costs);
        return;
      case "flight":
        this.#events.onFlight(message.entries);
        return;
      case "failed":
        this.#end(message.reason);
        return;
      case "stopped":
        this.#end(null);
        return;
    }
  }

  /** `reason` is null for an orderly stop. Only the first call counts. */
  #end(reason: string | null): void {
    if (this.#state === "ended") return;
    const wasRunning = this.#state === "running";
    this.#state = "ended";
    this.#port.close();
    if (!wasRunning) this.#started.reject(new Error(reason ?? "the engine was stopped while it started"));
    else if (reason !== null) this.#events.onLost(reason);
    this.#ended.resolve();
  }
}
