/** How long the thread that serves HTTP was away from its clients. */
import type { Gap } from "./telemetry.ts";

const CHECK_MS = 10;
/** Half of the time that a gap is told for. */
const WINDOW_MS = 30_000;

const none: Gap = { wholeMs: 0, computingMs: 0 };

/** Watches the thread that it is made on: nothing else runs there while one thing takes long. */
export class ThreadGap {
  readonly #timer: ReturnType<typeof setInterval>;
  #dueMs: number;
  #windowEndMs: number;
  #computedMs = threadMs();
  #worst = none;
  #worstBefore = none;

  constructor() {
    const nowMs = performance.now();
    this.#dueMs = nowMs + CHECK_MS;
    this.#windowEndMs = nowMs + WINDOW_MS;
    this.#timer = setInterval(() => this.#check(), CHECK_MS);
    this.#timer.unref();
  }

  /** Of the last 30 to 60 seconds. */
  get worst(): Gap {
    return longest(this.#worst, this.#worstBefore);
  }

  close(): void {
    clearInterval(this.#timer);
  }

  #check(): void {
    const nowMs = performance.now();
    const wholeMs = nowMs - this.#dueMs;
    const computedMs = threadMs();
    // Since the check before, which was earlier than this one was due: no less than what it computed while it was away.
    const computingMs = Math.min(wholeMs, computedMs - this.#computedMs);
    this.#worst = longest(this.#worst, { wholeMs, computingMs });
    this.#computedMs = computedMs;
    this.#dueMs = nowMs + CHECK_MS;
    if (nowMs < this.#windowEndMs) return;
    this.#worstBefore = this.#worst;
    this.#worst = none;
    this.#windowEndMs = nowMs + WINDOW_MS;
  }
}

/** Processor time of this thread. */
function threadMs(): number {
  const { user, system } = process.threadCpuUsage();
  return (user + system) / 1000;
}

function longest(a: Gap, b: Gap): Gap {
  return {
    wholeMs: Math.max(a.wholeMs, b.wholeMs),
    computingMs: Math.max(a.computingMs, b.computingMs),
  };
}
