/** A 99th percentile of latencies that no policy goes below. */

import { type CostModel, decodeStepMs } from "../../scheduler/cost/cost-model.ts";

/** Calls whose answers have at least `answerTokens` ≥ 2 tokens, on contexts of at least `contextTokens`. */
export interface AlikeCalls {
  /** In order. */
  readonly arrivalsMs: readonly number[];
  readonly contextTokens: number;
  readonly answerTokens: number;
}

/** Engines that are alike. */
export interface Engines {
  readonly engine: CostModel;
  readonly count: number;
}

/** Of the first and the last calls of a stretch, one in so many is tried. */
const STRIDE = 4;
const ACCURACY_MS = 100;

/**
 * Suppose all calls but one in a hundred end within L of their arrival. Then of those that arrive in a stretch of time no more run at
 * a time than have arrived in the last L, and the late ones. That many, spread evenly over all engines, draw only so many tokens
 * a second, whatever the policy: each step costs at least its decodes. From the first arrival of the stretch until L after its last that must
 * be enough for the answers. The result is the least L for which it is, for every stretch. Prompts cost nothing here.
 */
export function leastP99Ms(
  { arrivalsMs, contextTokens, answerTokens }: AlikeCalls,
  engines: Engines,
): number {
  const late = Math.floor(arrivalsMs.length / 100);
  const tokensPerMs = paces(arrivalsMs.length + late, contextTokens, engines);
  const isEnough = (latencyMs: number, first: number, last: number): boolean => {
    let left = (answerTokens - 1) * (last - first + 1 - late);
    let nowMs = arrivalsMs[first]!;
    let [arrived, ended] = [first, first];
    while (ended <= last && left > 0) {
      const nextMs = Math.min(
        arrived <= last ? arrivalsMs[arrived]! : Number.POSITIVE_INFINITY,
        arrivalsMs[ended]! + latencyMs,
      );
      left -= tokensPerMs[arrived - ended + late]! * (nextMs - nowMs);
      nowMs = nextMs;
      if (arrived <= last && arrivalsMs[arrived] === nextMs) arrived += 1;
      else ended += 1;
    }
    return left <= 0;
  };
  const isPossible = (latencyMs: number): boolean => {
    for (let first = 0; first < arrivalsMs.length; first += STRIDE) {
      for (let last = first + late; last < arrivalsMs.length; last += STRIDE) {
        if (!isEnough(latencyMs, first, last)) return false;
      }
    }
    return true;
  };
  let [no, yes] = [0, arrivalsMs.length * answerTokens * decodeStepMs(engines.engine, 1, contextTokens)];
  while (yes - no > ACCURACY_MS) {
    const middle = (no + yes) / 2;
    if (isPossible(middle)) yes = middle;
    else no = middle;
  }
  return no;
}

/** By number of sequences, the tokens that all engines draw in a millisecond at most, however the sequences are spread: by the least concave
 *  curve that no number of decodes of one engine exceeds. */
function paces(sequencesMax: number, contextTokens: number, { engine, count }: Engines): number[] {
  const pace = Array.from({ length: sequencesMax + 1 }, (_, decodes) =>
    decodes === 0 ? 0 : decodes / decodeStepMs(engine, decodes, contextTokens),
  );
  const slope = (from: number, to: number): number => (pace[to]! - pace[from]!) / (to - from);
  const corners: number[] = [];
  for (let decodes = 0; decodes <= sequencesMax; decodes++) {
    while (corners.length > 1 && slope(corners.at(-2)!, corners.at(-1)!) <= slope(corners.at(-1)!, decodes))
      corners.pop();
    corners.push(decodes);
  }
  return pace.map((_, sequences) => {
    const each = sequences / count;
    const to = Math.max(
      1,
      corners.findIndex((corner) => corner >= each),
    );
    const from = corners[to - 1]!;
    return count * (pace[from]! + slope(from, corners[to]!) * (each - from));
  });
}
