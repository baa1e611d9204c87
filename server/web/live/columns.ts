/** Steps of an engine as columns of pixels, one per pixel of width, however many steps there are. */
import type { StepBar } from "../../http/state-events.ts";

/** Kinds of tokens in a step, bottom to top. */
export const tokenKinds = ["decode", "draft", "prompt", "warm"] as const;

/** Marks below a column, as bits. */
export const EVICTED = 1;
export const PREEMPTED = 2;

export interface Columns {
  /** Milliseconds of the longest step in each column; 0 for none. */
  readonly ms: Float32Array;
  /** Cumulated shares of that step's tokens by kind, per column. */
  readonly shares: Float32Array;
  /** Evictions and preemptions of all steps in each column, as bits. */
  readonly ticks: Uint8Array;
}

/** Columns of the steps that end in the `windowMs` before `nowMs`. Wide steps leave a column between them. */
export function columnsOf(bars: readonly StepBar[], width: number, nowMs: number, windowMs: number): Columns {
  const ms = new Float32Array(width);
  const shares = new Float32Array(width * tokenKinds.length);
  const ticks = new Uint8Array(width);
  const perMs = width / windowMs;
  for (let at = 0; at < bars.length; at++) {
    const bar = bars[at]!;
    const right = width - (nowMs - bar[0]) * perMs;
    const first = Math.max(0, Math.floor(right - bar[1] * perMs));
    const wide = bar[1] * perMs > 3 ? 1 : 0;
    const end = Math.min(width, Math.max(first + 1, Math.floor(right) - wide));
    const tick = (bar[6] > 0 ? EVICTED : 0) | (bar[7] > 0 ? PREEMPTED : 0);
    for (let x = first; x < end; x++) {
      ticks[x]! |= tick;
      if (bar[1] <= ms[x]!) continue;
      ms[x] = bar[1];
      setShares(shares, x, bar);
    }
  }
  return { ms, shares, ticks };
}

function setShares(shares: Float32Array, x: number, bar: StepBar): void {
  const [, , decodes, prompt, warmed, drafts] = bar;
  const all = Math.max(1, decodes + drafts + prompt + warmed);
  let sum = 0;
  let at = x * tokenKinds.length;
  for (const count of [decodes, drafts, prompt, warmed]) {
    sum += count;
    shares[at++] = sum / all;
  }
}
