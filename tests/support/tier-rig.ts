/** Engines of few pages above lower tiers, and a document that goes down to them and comes up. */

import { expect } from "bun:test";
import type { Finish, SequenceSpec } from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness, type HarnessOptions, tokensAlone } from "./engine-harness.ts";

export type Disk = NonNullable<HarnessOptions["tier"]>;

/** A page or a piece takes 0.1 ms. */
export const fastDisk: Disk = {
  bytesPerMs: 10,
  latencyMs: 1,
  copiedBytesPerMs: 1000,
  waitingPagesMax: 1000,
  segmentPages: 64,
  segmentsMax: 100,
  lostShare: 0,
  seed: 1,
};

/** To compute a page takes 16 × 0.2 ms. */
export const tierCost = linearCost(6, 0.2);

export function tierHarness(options: HarnessOptions): EngineHarness {
  return new EngineHarness({ spec: { pages: 32 }, cost: tierCost, isStallFree: false, ...options });
}

export const document = tokensFrom(0, 320);
export const prompt = [...document, 700];
/** Tokens that take the document's place in the cache. */
export const others = tokensFrom(400, 500);

/** Tokens of a prompt that were found: in the engine's own memory, in the host's, and on a disk. */
export type Found = readonly [memory: number, host: number, disk: number];

/** Runs a prompt to its end, and checks what was drawn. */
export function run(
  harness: EngineHarness,
  tokens: readonly number[],
  changes: Partial<SequenceSpec> = {},
): Found {
  const spec = { ...sequenceSpec(tokens, 2), ...changes };
  const id = harness.submit(spec);
  harness.finish();
  const { cachedTokens, tierTokens = 0, hostTokens = 0, ...outcome } = harness.outcomes[id]!;
  expect(outcome.tokens).toEqual(tokensAlone(spec).tokens);
  return [cachedTokens! - tierTokens, hostTokens, tierTokens - hostTokens];
}

/** Computes the document, and then others that take its place. */
export function evictDocument(harness: EngineHarness): void {
  run(harness, prompt);
  run(harness, others);
}

/** Aborts a sequence while the document comes up for it, and asks for the document again. */
export function abortDuringLoad(harness: EngineHarness): {
  readonly finish: Finish | null;
  readonly pagesHeld: number;
  readonly foundAgain: Found;
} {
  evictDocument(harness);
  const id = harness.submit(sequenceSpec(prompt, 2));
  harness.engine.run();
  harness.send("abort", id);
  harness.finish();
  const { pagesFree, pagesCached, pagesTotal } = harness.load;
  const pagesHeld = pagesTotal - pagesFree - pagesCached;
  return { finish: harness.outcomes[id]!.finish, pagesHeld, foundAgain: run(harness, prompt) };
}
