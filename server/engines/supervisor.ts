import type { SnapshotRequest } from "../../scheduler/cache/cache-snapshot.ts";
import type { EngineThread, Ready } from "./thread.ts";

const DELAYS_MS = [1000, 2000, 4000] as const;
const WINDOW_MS = 10 * 60 * 1000;

/**
 * Restart policy of a lost engine: after 1, 2 and 4 s; never after a fourth loss within ten minutes, when
 * restarts no longer help.
 */
export class RestartRule {
  #lossesMs: number[] = [];

  /** Records a loss. Returns milliseconds until the restart, or null if there is none. */
  lost(nowMs: number): number | null {
    this.#lossesMs = this.#lossesMs.filter((lossMs) => nowMs - lossMs < WINDOW_MS);
    const delayMs = DELAYS_MS[this.#lossesMs.length] ?? null;
    this.#lossesMs.push(nowMs);
    return delayMs;
  }
}

/** Events of a supervised engine after its first start. */
export interface SupervisorEvents {
  /** The engine runs nothing now. `isComing`: a restart follows. Called again if a restart fails. */
  onLost(reason: string, isComing: boolean): void;
  onReplaced(started: Started, epoch: number): void;
}

/** A ready engine and its thread. */
export interface Started {
  readonly thread: EngineThread;
  readonly ready: Ready;
}

/** Keeps one engine alive: starts it, and restarts it when it is lost. */
export class EngineSupervisor {
  readonly #open: (epoch: number) => EngineThread;
  readonly #events: SupervisorEvents;
  readonly #rule = new RestartRule();
  #thread: EngineThread | null = null;
  #restart: ReturnType<typeof setTimeout> | undefined;
  #isStopped = false;

  /** `open` begins the engine's next life on a thread of its own. */
  constructor(open: (epoch: number) => EngineThread, events: SupervisorEvents) {
    this.#open = open;
    this.#events = events;
  }

  /**
   * Starts the engine for the first time. Rejects with the reason if that fails; a server that cannot start
   * does not retry.
   */
  start(): Promise<Started> {
    return this.#live(0);
  }

  /** Asks the engine for a snapshot of its prefix cache. */
  inspect(request: SnapshotRequest): void {
    this.#thread?.inspect(request);
  }

  /** Stops the engine and prevents restarts; resolves when nothing runs. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#restart);
    await this.#thread?.stop();
  }

  async #live(epoch: number): Promise<Started> {
    const thread = this.#open(epoch);
    this.#thread = thread;
    const ready = await thread.ready;
    thread.lost.then((reason) => this.#lost(reason, epoch));
    return { thread, ready };
  }

  #lost(reason: string, epoch: number): void {
    if (this.#isStopped) return;
    const delayMs = this.#rule.lost(performance.now());
    if (delayMs !== null) this.#restart = setTimeout(() => this.#replace(epoch + 1), delayMs);
    this.#events.onLost(reason, delayMs !== null);
  }

  #replace(epoch: number): void {
    this.#live(epoch).then(
      (started) => {
        if (!this.#isStopped) this.#events.onReplaced(started, epoch);
      },
      (error: Error) => this.#lost(error.message, epoch),
    );
  }
}
