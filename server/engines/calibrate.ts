import type { HostedDevice } from "../../gpu/hosted-device.ts";
import { greedySampling, type PageId, type SequenceId, type Step } from "../../scheduler/core.ts";
import { type LinearCost, linearCost } from "../../scheduler/cost/linear.ts";

/** Rows that the kernels compute together. */
const TILE_TOKENS = 16;
const PROMPT_TOKENS = 32;
const CONTEXT_TOKENS = 256;
const CONTEXT_TOKENS_MOST = 8192;
/** A longer prompt, or a longer context, is tried until the step takes so many times as long: a device that reads its
 *  weights for one token computes dozens meanwhile, or hundreds. */
const TOKENS_SEEN = 2;
const CONTEXT_SEEN = 1.25;
/** What cannot be seen is not free: a token looks at fewer than so many in the time that it is computed in itself, and a
 *  step reads a shorter context than this in the time that it takes without. */
const PAIRS_MOST = 65_536;
const CONTEXT_MOST = 1_048_576;

/**
 * What steps cost on a device that has nothing to do yet, measured: the time of one token, of a prompt, of that prompt
 * after others, and of one token after others, whichever is the faster of two. Coarse, but of the right size from the first
 * request on, and each part beside the others: the steps that follow correct it, within bounds (scheduler/cost/online.ts).
 * What they leave in the pages is nobody's and is never read. Throws when the device cannot compute.
 */
export function calibrate(device: HostedDevice): LinearCost {
  const { stepTokensMax, contextMax, pages, pageTokens } = device.spec;
  const room = Math.min(contextMax, pages * pageTokens);
  const timeOf = (tokens: number, context: number): number =>
    Math.max(1e-3, Math.min(timeStep(device, tokens, context), timeStep(device, tokens, context)));
  timeStep(device, 1, 0); // warms up
  const oneMs = timeOf(1, 0);
  const prompt = grown(PROMPT_TOKENS, Math.min(stepTokensMax, room), TOKENS_SEEN * oneMs, (tokens) =>
    timeOf(tokens, 0),
  );
  const tokenMs = Math.max(1e-3, (prompt.ms - oneMs) / Math.max(1, prompt.count - 1));
  const after = (tokens: number, aloneMs: number): number => {
    const most = Math.min(room - tokens, CONTEXT_TOKENS_MOST);
    if (most < 1) return 0;
    const { count, ms } = grown(CONTEXT_TOKENS, most, CONTEXT_SEEN * aloneMs, (context) =>
      timeOf(tokens, context),
    );
    return (ms - aloneMs) / (tokens * count);
  };
  return linearCost(Math.max(1e-3, oneMs - tokenMs), tokenMs, TILE_TOKENS, {
    pairMs: Math.max(tokenMs / PAIRS_MOST, after(prompt.count, prompt.ms)),
    contextMs: Math.max(oneMs / CONTEXT_MOST, after(1, oneMs)),
  });
}

/** Doubles `count`, up to `most` at most, until `timeOf` it is `enoughMs`. */
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

/** Milliseconds of a step that computes `tokens` of a prompt after `context` others, and draws one. */
function timeStep(device: HostedDevice, tokens: number, context: number): number {
  const length = Math.ceil((context + tokens) / device.spec.pageTokens);
  const step: Step = {
    number: 0,
    copies: [],
    chunks: [
      {
        sequence: 0 as SequenceId,
        start: context,
        tokens: new Int32Array(tokens),
        pages: Int32Array.from({ length }, (_, page) => page as PageId),
        sample: { sampling: greedySampling, position: 0, banned: [], seen: null, allowed: null },
      },
    ],
  };
  const startMs = performance.now();
  device.start(step, (result) => {
    if (result.kind !== "done") throw new Error(`its first step failed: ${result.reason}`);
  });
  device.wait();
  device.deliver();
  return performance.now() - startMs;
}
