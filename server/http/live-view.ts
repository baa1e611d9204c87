/** The last half minute of the engines, assembled from `GET /state/stream` for the page and `bunting top`. */
import type { EngineNow, LiveNow, StepBar } from "./state-events.ts";

/** Milliseconds that the time axis covers. */
export const WINDOW_MS = 30_000;
/** Points kept for the plots: two minutes at two events a second. */
const POINTS_MAX = 240;

/** Rates between two events, and quantiles; null: there is none. */
export interface Point {
  readonly timeMs: number;
  readonly tokensPerSecond: number;
  readonly promptPerSecond: number;
  readonly firstTokenMs: number | null;
  readonly betweenTokensMs: number | null;
}

/** Engine with its generation rate since the previous event. */
export interface EngineView extends EngineNow {
  readonly tokensPerSecond: number;
}

export interface LiveView extends LiveNow {
  readonly engines: readonly EngineView[];
  readonly points: readonly Point[];
  /** Steps of the window, by engine, oldest first. */
  readonly bars: readonly (readonly StepBar[])[];
}

/** Returns the view after an event. `last`: the previous view; null: there was none. */
export function nextView(last: LiveView | null, now: LiveNow): LiveView {
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
  return {
    ...now,
    engines,
    points: [...(before?.points ?? []), point].slice(-POINTS_MAX),
    bars: engines.map(({ steps }, at) => endingAfter(before?.bars[at] ?? [], begin).concat(steps)),
  };
}

/** Steps that end after a time, of steps in the order of their ends. */
function endingAfter(bars: readonly StepBar[], timeMs: number): StepBar[] {
  const first = bars.findIndex(([endMs]) => endMs > timeMs);
  return first < 0 ? [] : bars.slice(first);
}

/** Approximate number of step times that `slowMs` samples. */
const SAMPLED = 2000;

/** Height of the plot of steps: the 98th percentile of their milliseconds plus a tenth. Longer ones are cut off. */
export function slowMs(bars: LiveView["bars"]): number {
  const every = Math.max(1, Math.floor(bars.reduce((sum, { length }) => sum + length, 0) / SAMPLED));
  const sampled: number[] = [];
  let left = 0;
  for (const own of bars) {
    for (; left < own.length; left += every) sampled.push(own[left]![1]);
    left -= own.length;
  }
  sampled.sort((a, b) => a - b);
  return Math.max(1, 1.1 * (sampled[Math.floor(0.98 * (sampled.length - 1))] ?? 1));
}

/** Display names of the requests' objectives. */
export const laneNames = { latency: "chats", gang: "task groups", throughput: "jobs" } as const;

/** "1.2k", "340", "0.8", "–". */
export function shortNumber(value: number | null): string {
  if (value === null) return "–";
  if (value >= 1e6) return `${(value / 1e6).toFixed(1)}M`;
  if (value >= 10_000) return `${(value / 1000).toFixed(0)}k`;
  if (value >= 1000) return `${(value / 1000).toFixed(1)}k`;
  return value >= 10 || value === 0 ? value.toFixed(0) : value.toPrecision(2);
}

/** Share in percent; "–" of nothing. */
export function share(part: number, all: number): string {
  return all === 0 ? "–" : `${Math.round((100 * part) / all)} %`;
}
