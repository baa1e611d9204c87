import { signal } from "@preact/signals";
import type { EngineNow, LiveNow, StepBar } from "../../http/state-events.ts";

/** Milliseconds on the time axis. */
export const WINDOW_MS = 30_000;
/** Events whose rates and quantiles are kept for the plots: two minutes of them. */
const POINTS_MAX = 240;

/** Rates between two events, and quantiles; null: there is none. */
export interface Point {
  readonly timeMs: number;
  readonly tokensPerSecond: number;
  readonly promptPerSecond: number;
  readonly firstTokenMs: number | null;
  readonly betweenTokensMs: number | null;
}

/** Engine with the rate of its tokens since the event before. */
export interface EngineView extends EngineNow {
  readonly tokensPerSecond: number;
}

export interface LiveView extends LiveNow {
  readonly engines: readonly EngineView[];
  readonly points: readonly Point[];
  /** Steps of the window, by engine, oldest first. */
  readonly bars: readonly (readonly StepBar[])[];
}

/** Engines as they were told last, with what a look back needs. */
export class LiveState {
  readonly view = signal<LiveView | null>(null);

  take(now: LiveNow): void {
    const last = this.view.value;
    // A clock that went back is another server's; engines change with the models that are loaded.
    const isSame = last !== null && last.timeMs < now.timeMs && last.engines.length === now.engines.length;
    const before = isSame ? last : null;
    const seconds = before === null ? Number.POSITIVE_INFINITY : (now.timeMs - before.timeMs) / 1000;
    const grown = (total: "generatedTokensTotal" | "promptTokensTotal", engine: number) => {
      const earlier = before?.engines[engine]?.load[total] ?? 0;
      return Math.max(0, now.engines[engine]!.load[total] - earlier) / seconds;
    };
    const engines = now.engines.map((engine, at) => ({
      ...engine,
      tokensPerSecond: grown("generatedTokensTotal", at),
    }));
    const point: Point = {
      timeMs: now.timeMs,
      tokensPerSecond: engines.reduce((sum, { tokensPerSecond }) => sum + tokensPerSecond, 0),
      promptPerSecond: engines.reduce((sum, _, at) => sum + grown("promptTokensTotal", at), 0),
      firstTokenMs: now.firstToken?.p99Ms ?? null,
      betweenTokensMs: now.betweenTokens?.p99Ms ?? null,
    };
    const begin = now.timeMs - WINDOW_MS;
    this.view.value = {
      ...now,
      engines,
      points: [...(before?.points ?? []), point].slice(-POINTS_MAX),
      bars: engines.map(({ steps }, at) => endingAfter(before?.bars[at] ?? [], begin).concat(steps)),
    };
  }
}

/** Steps that end after a time, of steps in the order of their ends. */
function endingAfter(bars: readonly StepBar[], timeMs: number): StepBar[] {
  const first = bars.findIndex(([endMs]) => endMs > timeMs);
  return first < 0 ? [] : bars.slice(first);
}
