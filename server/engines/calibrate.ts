import type { HostedDevice } from "../../gpu/hosted-device.ts";
import { type Chunk, greedySampling, type PageId, type SequenceId } from "../../scheduler/core.ts";
import { type FirstTokens, type LinearCost, linearCost } from "../../scheduler/cost/linear.ts";

/** Rows that the kernels compute together. */
const TILE_TOKENS = 16;
const PROMPT_TOKENS = 32;
const SEQUENCES = 16;
/** So many tokens are tried first, then twice as many, as long as each takes less than this part of what a prompt's does: those are
 *  computed while weights are read. */
const FIRST_TOKENS = 8;
const FIRST_SHARE = 0.5;
const CONTEXT_TOKENS = 256;
const CONTEXT_TOKENS_MOST = 8192;
/** A longer prompt, or a longer context, is tried until the step takes so many times as long: a device that reads its
 *  weights for one token computes dozens meanwhile, or hundreds. */
const TOKENS_SEEN = 2;
const CONTEXT_SEEN = 1.25;
/** What cannot be seen is not free. Beside a token a sequence takes at least a 16th of its time; a token looks at fewer
 *  than so many in the time that it takes itself; and a step reads a shorter context than this in the time that it takes
 *  without. */
const SEQUENCES_MOST = 16;
const PAIRS_MOST = 65_536;
const CONTEXT_MOST = 1_048_576;
const LEAST_MS = 1e-3;
const TRIES_MAX = 10;
const TRIES_MS = 50;

/** So many sequences, each of which computes `tokens` after `context` others. */
interface Trial {
  readonly sequences: number;
  readonly tokens: number;
  readonly context: number;
}

/**
 * What steps cost on a device that has nothing to do yet, measured: the time of one token, of a few, of a prompt, of several
 * sequences, and of prompt and token after others, each the fastest of several. Coarse, but of the right size from the first
 * request on, and so is each part beside the others: the steps that follow correct it, within bounds
 * (scheduler/cost/online.ts). What they leave in the pages belongs to no sequence and is never read. Throws when the device cannot
 * compute.
 */
export function calibrate(device: HostedDevice): LinearCost {
  const { stepTokensMax, stepChunksMax, contextMax, pages, pageTokens } = device.spec;
  const room = Math.min(contextMax, pages * pageTokens);
  const timeOf = (tokens: number, context: number, sequences = 1): number =>
    fastest(device, { sequences, tokens, context });
  timeStep(device, { sequences: 1, tokens: 1, context: 0 }); // warms up
  const oneMs = timeOf(1, 0);
  const tokensMost = Math.min(stepTokensMax, room);
  const prompt = grown(PROMPT_TOKENS, tokensMost, TOKENS_SEEN * oneMs, (tokens) => timeOf(tokens, 0));
  const meanMs = Math.max(LEAST_MS, (prompt.ms - oneMs) / Math.max(1, prompt.count - 1));
  const first = firstTokens(oneMs, FIRST_SHARE * meanMs, prompt.count - 1, (tokens) => timeOf(tokens, 0));
  const firstMs = oneMs + first.tokenMs * Math.max(0, first.tokens - 1);
  const tokenMs = Math.max(meanMs, (prompt.ms - firstMs) / Math.max(1, prompt.count - first.tokens));

  const sequences = Math.min(SEQUENCES, stepTokensMax, stepChunksMax, pages, contextMax);
  const apartMs = timeOf(1, 0, sequences) - timeOf(sequences, 0);
  const sequenceMs = Math.max(tokenMs / SEQUENCES_MOST, apartMs / Math.max(1, sequences - 1));

  const contextMs = (tokens: number, aloneMs: number): number => {
    const most = Math.min(room - tokens, CONTEXT_TOKENS_MOST);
    if (most < 1) return 0;
    const enoughMs = CONTEXT_SEEN * aloneMs;
    const { count, ms } = grown(CONTEXT_TOKENS, most, enoughMs, (context) => timeOf(tokens, context));
    return (ms - aloneMs) / count;
  };
  const oneTokenMs = first.tokens > 0 ? first.tokenMs : tokenMs;
  const stepMs = Math.max(LEAST_MS, oneMs - oneTokenMs - sequenceMs);
  const pairMs = Math.max(tokenMs / PAIRS_MOST, contextMs(prompt.count, prompt.ms) / prompt.count);
  const ofContextMs = Math.max(oneMs / CONTEXT_MOST, contextMs(1, oneMs));
  return linearCost(stepMs, tokenMs, TILE_TOKENS, { sequenceMs, pairMs, contextMs: ofContextMs }, first);
}

/** How many tokens, fewer than `most`, take `eachMs` at most besides the first one, and what each takes. */
function firstTokens(
  oneMs: number,
  eachMs: number,
  most: number,
  timeOf: (tokens: number) => number,
): FirstTokens {
  let first: FirstTokens = { tokens: 0, tokenMs: 0 };
  for (let tokens = FIRST_TOKENS; tokens < most; tokens *= 2) {
    const tokenMs = Math.max(LEAST_MS, (timeOf(tokens) - oneMs) / (tokens - 1));
    if (tokenMs > eachMs) break;
    first = { tokens, tokenMs };
  }
  return first;
}

/** Doubles `count`, up to `most`, until `timeOf` it is `enoughMs`. */
function grown(
  count: number,
  most: number,
  enoughMs: number,
  timeOf: (count: number) => number,
): { readonly count: number; readonly ms: number } {
  const tried = Math.min(count, most);
  const ms = timeOf(tried);
  return ms >= enoughMs || tried === most ? { count: tried, ms } : grown(2 * count, most, enoughMs, timeOf);
}

/** A step may wait for a core that others use. Short ones are tried often, long ones twice. */
function fastest(device: HostedDevice, trial: Trial): number {
  let [leastMs, totalMs] = [Number.POSITIVE_INFINITY, 0];
  for (let tries = 0; tries < 2 || (tries < TRIES_MAX && totalMs < TRIES_MS); tries++) {
    const ms = timeStep(device, trial);
    leastMs = Math.min(leastMs, ms);
    totalMs += ms;
  }
  return Math.max(LEAST_MS, leastMs);
}

/** Milliseconds of a step that computes a trial and draws a token for each of its sequences. */
function timeStep(device: HostedDevice, { sequences, tokens, context }: Trial): number {
  const length = Math.ceil((context + tokens) / device.spec.pageTokens);
  const [sampling, afterIndex] = [greedySampling, tokens - 1];
  const row = { afterIndex, sampling, position: 0, banned: [], seen: null, allowed: null };
  const chunks = Array.from({ length: sequences }, (_, sequence): Chunk => {
    return {
      sequence: sequence as SequenceId,
      start: context,
      tokens: new Int32Array(tokens),
      pages: Int32Array.from({ length }, (_, page) => (sequence * length + page) as PageId),
      samples: [row],
      adapter: 0,
    };
  });
  const startMs = performance.now();
  device.start({ number: 0, moves: [], chunks }, (result) => {
    if (result.kind !== "done") throw new Error(`its first step failed: ${result.reason}`);
  });
  device.wait();
  device.deliver();
  return performance.now() - startMs;
}
