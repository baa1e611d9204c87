import type { HostedDevice } from "../../gpu/hosted-device.ts";
import { type Chunk, greedySampling, type PageId, type SequenceId } from "../../scheduler/core.ts";
import type { StepShape } from "../../scheduler/cost/cost-model.ts";

/** A step that is tried: so many sequences, ≥ 1, each of which computes `tokens`, ≥ 1, after `context` others. */
export interface Trial {
  readonly sequences: number;
  readonly tokens: number;
  readonly context: number;
}

/** A device that has nothing to do, and what steps take on it. */
export interface Bench {
  readonly device: HostedDevice;
  readonly nowMs: () => number;
}

/** Prompts that are tried are longer than the first tokens of a step, which are computed while weights are read, and twice as long each time
 *  until they take so many times as long as one token: full tiles take less a token than what is between two. */
export const PROMPT_TOKENS = 64;
export const PROMPT_TIMES = 4;
/** So many others come before what is tried after others. */
export const CONTEXT_TOKENS = 2048;

/** One token of one sequence. */
export const oneToken: Trial = { sequences: 1, tokens: 1, context: 0 };

/** Tokens that a trial's sequences, and a cost model's shape of it, can have at most. */
export function roomOf({ spec }: HostedDevice): number {
  return Math.min(spec.contextMax, spec.pages * spec.pageTokens);
}

/** The trial as far as its cost goes. */
export function shapeOfTrial({ sequences, tokens, context }: Trial): StepShape {
  if (tokens === 1 && context > 0)
    return { prompts: [], decodes: sequences, decodeContext: sequences * context };
  const prompts = Array.from({ length: sequences }, () => ({ tokens, context }));
  return { prompts, decodes: 0, decodeContext: 0 };
}

/** Milliseconds, more than 0, of a step that computes a trial and draws a token for each of its sequences. What it leaves in the pages
 *  belongs to no sequence and is never read. Throws when the device cannot compute. */
export function timeStep({ device, nowMs }: Bench, { sequences, tokens, context }: Trial): number {
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
  const startMs = nowMs();
  device.start({ number: 0, moves: [], chunks }, (result) => {
    if (result.kind !== "done") throw new Error(`its first step failed: ${result.reason}`);
  });
  device.wait();
  device.deliver();
  return Math.max(LEAST_MS, nowMs() - startMs);
}

/** What a clock may not be able to tell from nothing. */
export const LEAST_MS = 1e-3;

/** `least`, then `times` as many again and again, and last `most`; none if that is below 1. */
export function growing(least: number, times: number, most: number): readonly number[] {
  if (most < 1) return [];
  return least >= most ? [most] : [least, ...growing(times * least, times, most)];
}

export function median(values: readonly number[]): number {
  return values.toSorted((a, b) => a - b)[values.length >> 1]!;
}
