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

/** Number of rows that the kernels compute together. */
const TILE_TOKENS = 16;
const SEQUENCES = 16;
/**
 * Smallest of the token counts to measure, which double up to half a prompt. The first tokens are cheaper
 * because they are computed while weights are read; the next ones run in kernels for few rows.
 */
const FIRST_TOKENS = 8;
const CONTEXT_TOKENS_MOST = 8192;
/**
 * Slowdown of a step at which the context counts as long enough: a small difference would be mostly noise.
 */
const CONTEXT_SEEN = 1.5;
/**
 * Lower bounds of costs too small to measure. A sequence costs at least a 16th of a token. A token attends to
 * at most 65,536 tokens in its own compute time. A step reads at most 1,048,576 tokens of context in the time
 * that it takes without context.
 */
const SEQUENCES_MOST = 16;
const PAIRS_MOST = 65_536;
const CONTEXT_MOST = 1_048_576;
/** Ratio of the fastest two times within which a time counts as confirmed. */
const MET_WITHIN = 1.1;
/** Maximum measuring rounds: more if the result is kept for later starts. */
export const ROUNDS_MAX = { kept: 8, once: 3 } as const;

/**
 * Measures step costs of an idle device. It times one token, a few tokens, a prompt, several sequences, and
 * token and prompt after a context. The trials alternate until each has reached its fastest time twice. Costs
 * are differences of two times, and the speed of a shared machine varies by the second. Later steps correct
 * the result within bounds (scheduler/cost/online.ts). Takes seconds for a large model
 * (docs/decisions/0084-measured-step-costs-are-kept.md). Throws if the device cannot compute.
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
  /** Time of a trial without the attention between its own tokens. */
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

/**
 * The first trial that takes `times` as long as `beside`, else the last one, or `beside` if there are none.
 * Times each trial twice, since one step may wait for a busy core or be the first of its kind.
 */
function firstSeen(bench: Bench, beside: Trial, times: number, trials: readonly Trial[]): Trial {
  let besideMs = Number.POSITIVE_INFINITY;
  const isSeen = (trial: Trial): boolean => {
    besideMs = Math.min(besideMs, timeStep(bench, beside), timeStep(bench, beside));
    return Math.min(timeStep(bench, trial), timeStep(bench, trial)) >= times * besideMs;
  };
  return trials.slice(0, -1).find(isSeen) ?? trials.at(-1) ?? beside;
}

/** Fastest time of each trial in milliseconds, over 2 to `roundsMax` rounds; stops when all are confirmed. */
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
