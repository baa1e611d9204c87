import type { CpuModel } from "../gpu/cpu/open.ts";
import type { EngineId } from "../scheduler/core.ts";
import type { DeviceSpec } from "../scheduler/device.ts";
import { type EngineLink, Fleet } from "../scheduler/fleet.ts";
import type { EngineReport } from "../scheduler/messages.ts";
import type {
  DeviceSetup,
  EngineStart,
  InboxMessage,
  LoadProgress,
  PlainEngineOptions,
  WorkerMessage,
} from "./engine-protocol.ts";

/** The fleet in production: one thread per engine, linked by messages. */

export interface EnginesConfig {
  /** URL of engine-worker.ts, made where the build's root is, so that it also works inside the executable. */
  readonly workerUrl: string;
  readonly engines: number;
  readonly device: DeviceSetup;
  readonly options: PlainEngineOptions;
}

export interface EnginesEvents {
  onProgress(progress: LoadProgress): void;
  /** After the fleet took it. */
  onReport?(engine: EngineId, report: EngineReport): void;
  /** The engine failed while it ran; its sequences are told right after. A server with a lost engine should
   *  be restarted. */
  onLost?(engine: EngineId, reason: string): void;
}

export interface RunningEngines {
  readonly fleet: Fleet;
  /** By engine. */
  readonly specs: readonly DeviceSpec[];
  /** Stops every engine after the step it is in; sequences that still run are dropped. Idempotent. */
  close(): Promise<void>;
}

/**
 * Starts the engines and resolves when all are ready. The first loads the model and shares it with the
 * others. Rejects with the reason when one cannot start; nothing keeps running then.
 */
export async function startEngines(config: EnginesConfig, events: EnginesEvents): Promise<RunningEngines> {
  const lostEarly = new Map<EngineId, string>();
  let fleet: Fleet | null = null;
  const threads: EngineThread[] = [];

  const start = async (index: number, model: CpuModel | null): Promise<CpuModel | null> => {
    const engine = index as EngineId;
    const thread = new EngineThread(config, engine, model, {
      onProgress: (progress) => events.onProgress(progress),
      onReport: (report) => {
        fleet?.report(engine, report);
        events.onReport?.(engine, report);
      },
      onLost: (reason) => {
        if (fleet === null) lostEarly.set(engine, reason);
        else lose(engine, reason);
      },
    });
    threads[index] = thread;
    return (await thread.ready).model;
  };

  const lose = (engine: EngineId, reason: string): void => {
    events.onLost?.(engine, reason); // first, so that who fails now can be told why
    fleet?.lost(engine, reason);
  };

  const close = async (): Promise<void> => {
    const [owner, ...others] = threads; // the first owns the model and goes last
    await Promise.all(others.map((thread) => thread.stop()));
    await owner?.stop();
  };

  try {
    const model = await start(0, null);
    await Promise.all(Array.from({ length: config.engines - 1 }, (_, i) => start(i + 1, model)));
    const specs = await Promise.all(threads.map(async (thread) => (await thread.ready).spec));
    fleet = new Fleet(threads.map((thread, i) => ({ link: thread, spec: specs[i]! })));
    for (const [engine, reason] of lostEarly) lose(engine, reason);
    return { fleet, specs, close };
  } catch (error) {
    await close();
    throw error;
  }
}

interface ThreadEvents {
  readonly onProgress: (progress: LoadProgress) => void;
  readonly onReport: (report: EngineReport) => void;
  /** After it was ready; before, `ready` rejects. */
  readonly onLost: (reason: string) => void;
}

type Ready = Extract<WorkerMessage, { kind: "ready" }>;

/** Main's end of an engine's thread. */
class EngineThread implements EngineLink {
  readonly ready: Promise<Ready>;
  readonly #worker: Worker;
  readonly #port: MessagePort;
  readonly #bell: Int32Array<SharedArrayBuffer>;
  readonly #events: ThreadEvents;
  readonly #ended = Promise.withResolvers<void>();
  readonly #started = Promise.withResolvers<Ready>();
  #state: "starting" | "running" | "ended" = "starting";

  constructor(config: EnginesConfig, engine: EngineId, model: CpuModel | null, events: ThreadEvents) {
    const { port1, port2 } = new MessageChannel();
    const doorbell = new SharedArrayBuffer(4);
    this.#port = port1;
    this.#bell = new Int32Array(doorbell);
    this.#events = events;
    this.ready = this.#started.promise;
    this.#worker = new Worker(config.workerUrl, { name: `engine ${engine}` });
    this.#worker.onmessage = (event: MessageEvent<WorkerMessage>) => this.#receive(event.data);
    this.#worker.onerror = (event) => this.#end(event.message || "the engine's thread failed");
    this.#worker.addEventListener("close", () => this.#end("the engine's thread ended"));
    const { device, options } = config;
    const start: EngineStart = { kind: "start", engine, device, options, model, inbox: port2, doorbell };
    this.#worker.postMessage(start, [port2]);
  }

  send(message: InboxMessage): void {
    if (this.#state === "ended") return;
    this.#port.postMessage(message);
    Atomics.add(this.#bell, 0, 1);
    Atomics.notify(this.#bell, 0);
  }

  /** Resolves when the thread has ended. */
  stop(): Promise<void> {
    this.send({ kind: "stop" });
    return this.#ended.promise;
  }

  #receive(message: WorkerMessage): void {
    switch (message.kind) {
      case "progress":
        this.#events.onProgress(message.progress);
        return;
      case "ready":
        this.#state = "running";
        this.#started.resolve(message);
        return;
      case "report":
        this.#events.onReport(message.report);
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
