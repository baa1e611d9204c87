/** Batch as returned by `GET /v1/batches`. */
export interface BatchFacts {
  readonly id: string;
  readonly endpoint: string;
  readonly status: string;
  readonly created_at: number;
  readonly in_progress_at: number | null;
  readonly completed_at: number | null;
  readonly request_counts: { readonly total: number; readonly completed: number; readonly failed: number };
  readonly usage: {
    readonly total_tokens: number;
    readonly input_tokens: number;
    readonly input_tokens_details: { readonly cached_tokens: number };
  };
  readonly paused_by: string | null;
}

/** Time over which the rate is computed: long enough for many lines, short enough to follow a change. */
const WINDOW_MS = 60_000;

/** Number of finished lines and tokens of a batch at some time. */
interface Count {
  readonly atMs: number;
  readonly lines: number;
  readonly tokens: number;
}

export interface Pace {
  readonly linesPerSecond: number;
  readonly tokensPerSecond: number;
  readonly secondsLeft: number;
}

/** Rates of batches over the last minute that the page observed, else since they began. */
export class Paces {
  readonly #counts = new Map<string, Count[]>();

  /** Rate of a running batch; null if no line has finished. */
  of({ id, status, in_progress_at, request_counts, usage }: BatchFacts, nowMs: number): Pace | null {
    const { total, completed, failed } = request_counts;
    const now: Count = { atMs: nowMs, lines: completed + failed, tokens: usage.total_tokens };
    const counts = (this.#counts.get(id) ?? []).filter(({ atMs }) => nowMs - atMs <= WINDOW_MS);
    if (status !== "in_progress" || in_progress_at === null || now.lines === 0) {
      this.#counts.delete(id);
      return null;
    }
    this.#counts.set(id, [...counts, now]);
    const seen = counts.find(({ atMs, lines }) => nowMs - atMs > WINDOW_MS / 6 && lines < now.lines);
    const from = seen ?? { atMs: in_progress_at * 1000, lines: 0, tokens: 0 };
    const seconds = Math.max(1, (nowMs - from.atMs) / 1000);
    const linesPerSecond = (now.lines - from.lines) / seconds;
    return {
      linesPerSecond,
      tokensPerSecond: (now.tokens - from.tokens) / seconds,
      secondsLeft: (total - now.lines) / linesPerSecond,
    };
  }
}

/** "40 s", "12 min", "3.2 h". */
export function timeLeft(seconds: number): string {
  if (seconds > 5400) return `${(seconds / 3600).toFixed(1)} h`;
  return seconds > 90 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds)} s`;
}
