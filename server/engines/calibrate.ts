import { type LinearCost, linearCost } from "../../scheduler/cost/linear.ts";
import {
  type Bench,
  CONTEXT_TOKENS,
  growing,
  LEAST_MS,
  oneToken,
  PROMPT_TIMES,
  PROMPT_TOKENS,
  roomOf,
  type Trial,
  timeStep,
} from "./trial.ts";

/** Rows that the kernels compute together. */
const TILE_TOKENS = 16;
const SEQUENCES = 16;
/** So many tokens are tried, then twice as many again and again: the first ones take less than others, as they are computed while weights are
 *  read, and the next ones what kernels for few rows take. */
const FIRST_TOKENS = 8;
const CONTEXT_TOKENS_MOST = 8192;
/** A longer context is tried until the step takes so many times as long: of a small difference most would be noise. */
const CONTEXT_SEEN = 1.5;
/** What cannot be seen is not free. Beside a token a sequence takes at least a 16th of its time; a token looks at fewer
 *  than so many in the time that it takes itself; and a step reads a shorter context than this in the time that it takes
 *  without. */
const SEQUENCES_MOST = 16;
const PAIRS_MOST = 65_536;
const CONTEXT_MOST = 1_048_576;
/** A time is believed when it was met twice: the fastest two are no further apart. */
const MET_WITHIN = 1.1;
/** Where what is measured is kept for later starts, a disturbed one may take longer. */
export const ROUNDS_MAX = { kept: 8, once: 3 } as const;

/**
 * What steps cost on a device that has nothing to do yet, measured: the time of one token, of a few, of a prompt, of several
 * sequences, and of prompt and token after others. They take turns, as often as it takes until each has met its fastest time twice: what a part
 * costs is a difference of two, and a machine that others use may have half of its speed from one second to the next. The steps that follow
 * correct it, within bounds (scheduler/cost/online.ts). Takes seconds for a large model
 * (docs/decisions/0084-what-steps-cost-is-kept.md). Throws when the device cannot compute.
 */
export function calibrate(bench: Bench, roundsMax: number = ROUNDS_MAX.once): LinearCost {
  const { stepTokensMax, stepChunksMax, contextMax, pages } = bench.device.spec;
  const room = roomOf(bench.device);
  const withTokens = (tokens: number): Trial => ({ ...oneToken, tokens });
  const prompts = growing(PROMPT_TOKENS, 2, Math.min(stepTokensMax, room)).map(withTokens);
  const prompt = firstSeen(bench, oneToken, PROMPT_TIMES, prompts);
  const few = growing(FIRST_TOKENS, 2, prompt.tokens >> 1).map(withTokens);
  const sequences = Math.min(SEQUENCES, stepTokensMax, stepChunksMax, pages, contextMax);
  const [together, apart] = [withTokens(sequences), { ...oneToken, sequences }];
  const afterOthers = (alone: Trial): Trial => {
    const most = Math.min(room - alone.tokens, CONTEXT_TOKENS_MOST);
    const trials = growing(CONTEXT_TOKENS, 4, most).map((context) => ({ ...alone, context }));
    return firstSeen(bench, alone, CONTEXT_SEEN, trials);
  };
  const [promptLater, oneLater] = [afterOthers(prompt), afterOthers(oneToken)];
  const trials = [apart, together, ...few, oneToken, oneLater, prompt, promptLater];
  const wholeMs = timesOf(bench, trials, roundsMax);
  const perContextMs = (later: Trial, alone: Trial): number =>
    Math.max(0, wholeMs(later) - wholeMs(alone)) / Math.max(1, later.context);
  const seenPairMs = perContextMs(promptLater, prompt) / prompt.tokens;
  /** Without what its tokens take that look at each other. */
  const msOf = (trial: Trial): number =>
    Math.max(LEAST_MS, wholeMs(trial) - (seenPairMs * trial.tokens * trial.tokens) / 2);

  const eachMs = (from: Trial, to: Trial): number =>
    Math.max(LEAST_MS, (msOf(to) - msOf(from)) / Math.max(1, to.tokens - from.tokens));
  const first = few.map((trial, index) => {
    const before = few[index - 1] ?? oneToken;
    return { tokens: trial.tokens, tokenMs: eachMs(before, trial) };
  });
  const [oneMs, tokenMs] = [msOf(oneToken), eachMs(few.at(-1) ?? oneToken, prompt)];
  const apartMs = (msOf(apart) - msOf(together)) / Math.max(1, sequences - 1);
  const sequenceMs = Math.max(tokenMs / SEQUENCES_MOST, apartMs);
  const stepMs = Math.max(LEAST_MS, oneMs - (first[0]?.tokenMs ?? tokenMs) - sequenceMs);
  const pairMs = Math.max(tokenMs / PAIRS_MOST, seenPairMs);
  const contextMs = Math.max(oneMs / CONTEXT_MOST, perContextMs(oneLater, oneToken));
  return linearCost(stepMs, tokenMs, TILE_TOKENS, { sequenceMs, pairMs, contextMs }, first);
}

/** The first of the trials that takes `times` as long as `beside`; else the last, or `beside` where there is none. Each is timed twice, since
 *  one step may wait for a core that others use, or be the first of its kind. */
function firstSeen(bench: Bench, beside: Trial, times: number, trials: readonly Trial[]): Trial {
  let besideMs = Number.POSITIVE_INFINITY;
  const isSeen = (trial: Trial): boolean => {
    besideMs = Math.min(besideMs, timeStep(bench, beside), timeStep(bench, beside));
    return Math.min(timeStep(bench, trial), timeStep(bench, trial)) >= times * besideMs;
  };
  return trials.slice(0, -1).find(isSeen) ?? trials.at(-1) ?? beside;
}

/** Milliseconds of each trial: the fastest of as many rounds as it takes to meet all of them twice, 2 … `roundsMax`. */
function timesOf(bench: Bench, trials: readonly Trial[], roundsMax: number): (trial: Trial) => number {
  const least = trials.map(() => ({ ms: Number.POSITIVE_INFINITY, nextMs: Number.POSITIVE_INFINITY }));
  const isMet = (): boolean => least.every(({ ms, nextMs }) => nextMs <= MET_WITHIN * ms);
  for (let round = 0; round < roundsMax && (round < 2 || !isMet()); round++) {
    for (const [index, trial] of trials.entries()) {
      const took = timeStep(bench, trial);
      const { ms, nextMs } = least[index]!;
      least[index] = { ms: Math.min(ms, took), nextMs: Math.min(nextMs, Math.max(ms, took)) };
    }
  }
  return (trial) => least[trials.indexOf(trial)]!.ms;
}
