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
  onReplaced(thread: EngineThread, ready: Ready, epoch: number): void;
}

/** Keeps one engine alive: starts it, and starts it again when it is lost. */
export class EngineSupervisor {
  readonly #open: (epoch: number, onLost: (reason: string) => void) => EngineThread;
  readonly #events: SupervisorEvents;
  readonly #rule = new RestartRule();
  #thread: EngineThread | null = null;
  #epoch = 0;
  #restart: ReturnType<typeof setTimeout> | undefined;
  #isStopped = false;

  /** `open` begins to open the engine's next life, on a thread of its own. */
  constructor(
    open: (epoch: number, onLost: (reason: string) => void) => EngineThread,
    events: SupervisorEvents,
  ) {
    this.#open = open;
    this.#events = events;
  }

  /** The first start. Rejects with the reason when it fails: whoever starts a server wants to know, not to wait. */
  async start(): Promise<{ readonly thread: EngineThread; readonly ready: Ready }> {
    const thread = this.#launch();
    return { thread, ready: await thread.ready };
  }

  /** Resolves when nothing runs any more and nothing will. */
  async stop(): Promise<void> {
    this.#isStopped = true;
    clearTimeout(this.#restart);
    await this.#thread?.stop();
  }

  #launch(): EngineThread {
    this.#thread = this.#open(this.#epoch, (reason) => this.#lost(reason));
    return this.#thread;
  }

  #lost(reason: string): void {
    if (this.#isStopped) return;
    const delayMs = this.#rule.lost(performance.now());
    if (delayMs !== null) this.#restart = setTimeout(() => this.#replace(), delayMs);
    this.#events.onLost(reason, delayMs !== null);
  }

  #replace(): void {
    this.#epoch += 1;
    const thread = this.#launch();
    thread.ready.then(
      (ready) => {
        if (!this.#isStopped) this.#events.onReplaced(thread, ready, this.#epoch);
      },
      (error: Error) => this.#lost(error.message),
    );
  }
}
