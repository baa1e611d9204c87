import type { HostedDevice } from "../../gpu/hosted-device.ts";
import {
  type Chunk,
  type ChunkState,
  greedySampling,
  type PageId,
  type SequenceId,
  type StateSlot,
} from "../../scheduler/core.ts";
import type { StepShape } from "../../scheduler/cost/cost-model.ts";

/**
 * Step to measure: `sequences` ≥ 1, each of which computes `tokens` ≥ 1 after `context` ≥ 0 cached tokens.
 */
export interface Trial {
  readonly sequences: number;
  readonly tokens: number;
  readonly context: number;
}

/** Idle device with a clock that measures its steps. */
export interface Bench {
  readonly device: HostedDevice;
  readonly nowMs: () => number;
}

/** Trial of one token in one sequence. */
export const oneToken: Trial = { sequences: 1, tokens: 1, context: 0 };

/** Maximum tokens per sequence of a trial. */
export function roomOf({ spec }: HostedDevice): number {
  return Math.min(spec.contextMax, spec.pages * spec.pageTokens);
}

/** Shape of the trial's step, for the cost model. */
export function shapeOfTrial({ sequences, tokens, context }: Trial): StepShape {
  if (tokens === 1 && context > 0)
    return { prompts: [], decodes: sequences, decodeContext: sequences * context };
  const prompts = Array.from({ length: sequences }, () => ({ tokens, context }));
  return { prompts, decodes: 0, decodeContext: 0 };
}

/**
 * Milliseconds, more than 0, of a step that computes a trial and samples a token for each of its sequences.
 * The pages that it writes belong to no sequence and are never read. Throws if the device cannot compute.
 */
export function timeStep({ device, nowMs }: Bench, { sequences, tokens, context }: Trial): number {
  const { states, draftModel } = device.spec;
  // The draft model computes prompts but no single tokens, as in served steps.
  const isRead = draftModel === undefined || tokens > 1;
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
      ...(isRead ? {} : { unread: null }),
      ...(states === undefined ? {} : { state: stateOf(sequence as StateSlot, context) }),
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

/** Recurrent state of a trial. With context, its contents do not matter: the slot's present ones are used. */
function stateOf(slot: StateSlot, context: number): ChunkState {
  return { slot, from: context === 0 ? null : slot, saves: [] };
}

/** Smallest time in milliseconds that a clock reliably distinguishes from 0. */
export const LEAST_MS = 1e-3;

/**
 * Geometric sequence from `least` by factor `times`, capped by a last element `most`; empty if `most` is
 * below 1.
 */
export function growing(least: number, times: number, most: number): readonly number[] {
  if (most < 1) return [];
  return least >= most ? [most] : [least, ...growing(times * least, times, most)];
}
