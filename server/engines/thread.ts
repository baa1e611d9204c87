import type { SnapshotRequest } from "../../scheduler/cache/cache-snapshot.ts";
import type { EngineLink } from "../../scheduler/fleet/fleet.ts";
import type { EngineMessage } from "../../scheduler/messages.ts";
import { objectives } from "../../scheduler/objective.ts";
import { type PackedMessage, packed } from "./packed-message.ts";
import {
  AWAITED,
  type EngineStart,
  type InspectMessage,
  RINGS,
  STOPPED,
  type VocabularyMessage,
  type WorkerMessage,
} from "./protocol.ts";

/** Message that an engine's thread is ready for work. */
export type Ready = Extract<WorkerMessage, { kind: "ready" }>;

/** Messages of a thread while it starts and runs. */
export type ThreadNews = Extract<
  WorkerMessage,
  { kind: "progress" | "report" | "disk" | "host" | "cache" | "recorded" }
>;

/**
 * Longest time without a message from a thread that starts. Loading reports its progress; the longest silence
 * is the copy of the weights to a GPU. Driver calls have shorter deadlines of their own (csrc/cuda).
 */
export const START_SILENCE_MS = 5 * 60_000;

/** Main thread's handle of an engine's thread. */
export class EngineThread implements EngineLink {
  /** Rejects with the reason if the engine cannot start. */
  readonly ready: Promise<Ready>;
  /** Resolves with the reason when a ready engine is lost; never after a stop. */
  readonly lost: Promise<string>;
  readonly #worker: Worker;
  readonly #port: MessagePort;
  readonly #bell: Int32Array<SharedArrayBuffer>;
  readonly #onNews: (news: ThreadNews) => void;
  readonly #ready = Promise.withResolvers<Ready>();
  readonly #lost = Promise.withResolvers<string>();
  readonly #ended = Promise.withResolvers<void>();
  #state: "starting" | "running" | "ended" = "starting";
  #silence: ReturnType<typeof setTimeout> | undefined;

  /**
   * `vocabulary` may resolve while the thread loads; if it never does, the caller stops the thread. `onNews`
   * is not called after the engine is lost or the thread has ended. A start fails after `silenceMs` without a
   * message, and its thread is abandoned.
   */
  constructor(
    workerUrl: string,
    start: Omit<EngineStart, "inbox" | "doorbell">,
    vocabulary: Promise<VocabularyMessage>,
    onNews: (news: ThreadNews) => void,
    silenceMs: number = START_SILENCE_MS,
  ) {
    const { port1, port2 } = new MessageChannel();
    const doorbell = new SharedArrayBuffer(12);
    this.#port = port1;
    this.#bell = new Int32Array(doorbell);
    this.#onNews = onNews;
    this.ready = this.#ready.promise;
    this.lost = this.#lost.promise;
    this.#worker = new Worker(workerUrl, { name: `engine ${start.engine}` });
    this.#worker.onmessage = (event: MessageEvent<WorkerMessage>) => this.#receive(event.data);
    this.#worker.onerror = (event) => this.#end(event.message || "the engine's thread failed");
    this.#worker.addEventListener("close", () => this.#end("the engine's thread ended"));
    const message: EngineStart = { ...start, inbox: port2, doorbell };
    this.#worker.postMessage(message, [port2]);
    vocabulary.then(
      (known) => this.#post(known),
      () => {},
    );
    this.#silence = setTimeout(() => {
      const reason = `${deviceName(start)} has not started: nothing was heard of it for ${silenceMs / 1000} s`;
      this.#end(reason);
      void this.stop(); // ends the thread if it ever comes back
    }, silenceMs);
  }

  send(message: EngineMessage): void {
    if (isAwaited(message)) Atomics.store(this.#bell, AWAITED, 1);
    this.#post(packed(message));
  }

  /** Asks for a snapshot of the prefix cache, which comes as news after the step in flight. */
  inspect(request: SnapshotRequest): void {
    this.#post({ kind: "inspect", request });
  }

  /** Stops the thread after its current step; resolves when it has ended. */
  stop(): Promise<void> {
    Atomics.store(this.#bell, STOPPED, 1);
    this.#ring();
    return this.#ended.promise;
  }

  #post(message: PackedMessage | InspectMessage | VocabularyMessage): void {
    if (this.#state === "ended") return;
    this.#port.postMessage(message);
    this.#ring();
  }

  #quiet(): void {
    clearTimeout(this.#silence);
    this.#silence = undefined;
  }

  #ring(): void {
    Atomics.add(this.#bell, RINGS, 1);
    Atomics.notify(this.#bell, RINGS);
  }

  #receive(message: WorkerMessage): void {
    if (this.#state === "ended") return;
    this.#silence?.refresh();
    if (message.kind === "ready") {
      this.#state = "running";
      this.#quiet();
      this.#ready.resolve(message);
    } else if (message.kind === "failed") this.#end(message.reason);
    else if (message.kind === "stopped") this.#end(null);
    else this.#onNews(message);
  }

  /** Ends the thread's life. `reason` is null for an orderly stop. Only the first call counts. */
  #end(reason: string | null): void {
    if (this.#state === "ended") return;
    const wasRunning = this.#state === "running";
    this.#state = "ended";
    this.#quiet();
    this.#port.close();
    if (!wasRunning) this.#ready.reject(new Error(reason ?? "the engine was stopped while it started"));
    else if (reason !== null) this.#lost.resolve(reason);
    this.#ended.resolve();
  }
}

function deviceName({ engine, setup: { device } }: Pick<EngineStart, "engine" | "setup">): string {
  return device.kind === "gpu" ? `GPU ${device.gpus[engine]}` : "the engine";
}

/** True if the message concerns a sequence for which the engine aborts a step of offline work. */
function isAwaited(message: EngineMessage): boolean {
  if (message.kind === "submit") return !objectives[message.sequence.service.objective].isOffline;
  return message.kind === "raise" && !objectives[message.service.objective].isOffline;
}
