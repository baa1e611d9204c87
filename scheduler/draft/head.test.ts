/** Drafts of a model's own head: their kinds, and how many the device is asked for. */

import { expect, test } from "bun:test";
import { sequenceSpec } from "../../simulation/factories.ts";
import type { DeviceDraft, SequenceId } from "../core.ts";
import { HeadDrafter, headSource } from "./head.ts";
import { EngineDrafts } from "./sequence-drafts.ts";

const draftOf = (tokens: number[], probability = 0.9): DeviceDraft => ({
  tokens,
  probabilities: tokens.map(() => probability),
});

/** The number of tokens asked for after each of `steps` drafts of four, of which the first `right` are right. */
function askedFor(right: number, steps: number): number[] {
  const drafter = new HeadDrafter();
  const tokens = new Int32Array(10_000).fill(1);
  let length = 1;
  return Array.from({ length: steps }, () => {
    const guess = [0, 1, 2, 3].map((place) => (place < right ? 1 : 2));
    drafter.draft(tokens, length, 8, draftOf(guess));
    length += right + 1;
    return drafter.wanted(4, 0.12);
  });
}

test("a draft is the device's draft tokens, cut to the number asked for", () => {
  const drafter = new HeadDrafter();
  const tokens = Int32Array.of(1, 2, 3);
  expect(drafter.draft(tokens, 3, 2, draftOf([4, 5, 6]))?.tokens).toEqual([4, 5]);
  expect(drafter.draft(tokens, 3, 2, null)).toBeNull();
});

test("kinds of a higher draft probability have a higher prior acceptance rate", () => {
  const chanceOf = (probability: number): number => {
    const { kinds } = new HeadDrafter().draft(Int32Array.of(1), 1, 1, draftOf([4], probability))!;
    return headSource.priors[kinds[0]!]!;
  };
  const chances = [0.1, 0.4, 0.6, 0.8, 0.9, 0.99].map(chanceOf);
  expect(chances).toEqual(chances.toSorted((a, b) => a - b));
  expect(new Set(chances).size).toBe(chances.length);
});

test("as many draft tokens are asked for as are accepted, and only rare trials of a head that is always rejected", () => {
  expect(
    askedFor(4, 100)
      .slice(-15)
      .every((count) => count === 4),
  ).toBeTrue();
  expect(
    askedFor(1, 100)
      .slice(-15)
      .filter((count) => count === 1).length,
  ).toBe(13);
  const none = askedFor(0, 160).slice(-32);
  expect(none.filter((count) => count > 0)).toEqual([1, 1]);
});

test("of several drafters' drafts the one with the most expected accepted tokens is offered; all drafters are rated", () => {
  const suffix = { priors: [0.5], open: () => ({ draft: () => ({ tokens: [8, 9], kinds: [0, 0] }) }) };
  const drafts = new EngineDrafts(suffix, headSource).open({
    ...sequenceSpec([1], 9),
    id: 0 as SequenceId,
  });
  const tokens = Int32Array.of(1, 8, 0, 0);
  expect(drafts.offer(tokens, 1, 4)?.tokens).toEqual([8, 9]);
  expect(drafts.offer(tokens, 1, 4, draftOf([4, 5]))?.tokens).toEqual([4, 5]);
  // The head is wrong each time, and the other one right.
  for (let i = 0; i < 60; i++) {
    drafts.offer(tokens, 1, 4, draftOf([4, 5]));
    drafts.drew(8);
  }
  expect(drafts.offer(tokens, 1, 4, draftOf([4, 5]))?.tokens).toEqual([8, 9]);
});
