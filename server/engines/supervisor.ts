import type { EngineThread, Ready } from "./thread.ts";

const DELAYS_MS = [1000, 2000, 4000] as const;
const WINDOW_MS = 10 * 60 * 1000;

/** When an engine that was lost is started again: after 1, 2 and 4 s; never after a fourth loss within ten minutes,
 *  since by then starting it again does not help. */
export class RestartRule {
  #lossesMs: number[] = [];

  /** Takes note of a loss. Milliseconds until the next start; null: there is none. */
  lost(nowMs: number): number | null {
    this.#lossesMs = this.#lossesMs.filter((lossMs) => nowMs - lossMs < WINDOW_MS);
    const delayMs = DELAYS_MS[this.#lossesMs.length] ?? null;
    this.#lossesMs.push(nowMs);
    return delayMs;
  }
}

/** What becomes of a supervised engine after its first start. */
export interface SupervisorEvents {
  /** Nothing runs there now. `isComing`: it will be started again. May be told again when a new start fails. */
  onLost(reason: string, isComing: boolean): void;
  onReplaced(started: Started, epoch: number): void;
}

/** An engine that is ready for work, and its thread. */
export interface Started {
  readonly thread: EngineThread;
  readonly ready: Ready;
}

/** Keeps one engine alive: starts it, and starts it again when it is lost. */
export class EngineSupervisor {
  readonly #open: (epoch: number) => EngineThread;
  readonly #events: SupervisorEvents;
  readonly #rule = new RestartRule();
  #thread: EngineThread | null = null;
  #restart: ReturnType<typeof setTimeout> | undefined;
  #isStopped = false;

  /** `open` begins to open the engine's next life, on a thread of its own. */
  constructor(open: (epoch: number) => EngineThread, events: SupervisorEvents) {
    this.#open = open;
    this.#events = events;
  }

  /** The first start. Rejects with the reason when it fails: a server that cannot start is not started again. */
  start(): Promise<Started> {
    return this.#live(0);
  }

  /** Resolves when nothing runs any more and nothing will. */
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
