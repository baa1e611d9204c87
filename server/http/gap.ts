/** Interval of the checks that find gaps: times in which the HTTP thread did not serve its clients. */
import type { Gap } from "./telemetry.ts";

const CHECK_MS = 10;
/** Half of the window over which the worst gap is reported. */
const WINDOW_MS = 30_000;

const none: Gap = { wholeMs: 0, computingMs: 0 };

/** Watches the thread that created it: a task that takes long blocks everything else there. */
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

  /** Worst gap of the last 30 to 60 seconds. */
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
    // Upper bound: counts processor time since the previous check, which was before this one was due.
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
