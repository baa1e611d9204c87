/** The suffix drafter against a plain search, and its bounds. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import type { Draft, Drafter } from "./drafter.ts";
import { SuffixDrafter, suffixSource } from "./suffix.ts";

/** Drafts after each token of a text, from the given length on. */
function draftsOf(text: readonly number[], from = 1, most = 4): (Draft | null)[] {
  const drafter: Drafter = new SuffixDrafter();
  const tokens = Int32Array.from(text);
  return text.slice(from - 1).map((_, i) => drafter.draft(tokens, from + i, most));
}

function tokensAfter(text: readonly number[], most = 4): readonly number[] | null {
  return draftsOf(text, text.length, most)[0]?.tokens ?? null;
}

test("what followed the end of the text before is drafted", () => {
  expect(tokensAfter([1, 2, 3, 4, 5, 6, 9, 1, 2])).toEqual([3, 4, 5, 6]);
  expect(tokensAfter([1, 2, 3, 4, 5, 6, 9, 1, 2], 2)).toEqual([3, 4]);
  expect(tokensAfter([1, 2, 3, 4, 5])).toBeNull();
  expect(tokensAfter([1])).toBeNull();
});

test("a text that repeats itself goes on so", () => {
  expect(tokensAfter([7, 1, 2, 3, 1, 2, 3, 1, 2], 8)).toEqual([3, 1, 2, 3, 1, 2, 3, 1]);
});

test("a longer match wins over a later one, and most places over one", () => {
  const long = [1, 2, 3, 4, 5, 6, 7, 50];
  expect(tokensAfter([...long, 6, 7, 60, 9, 1, 2, 3, 4, 5, 6, 7], 1)).toEqual([50]);
  expect(tokensAfter([8, 9, 50, 8, 9, 60, 8, 9, 50, 0, 8, 9], 1)).toEqual([50]);
});

test("kinds tell long from short matches, and agreement from a single place", () => {
  const kindsAfter = (text: readonly number[]): readonly number[] => draftsOf(text, text.length)[0]!.kinds;
  const chance = (kind: number): number => suffixSource.priors[kind]!;
  const [once] = kindsAfter([1, 2, 3, 4, 9, 1, 2]);
  const [twice] = kindsAfter([1, 2, 3, 4, 8, 1, 2, 3, 4, 9, 1, 2]);
  const [split] = kindsAfter([1, 2, 3, 4, 8, 1, 2, 5, 4, 9, 1, 2]);
  const later = kindsAfter([1, 2, 3, 4, 5, 6, 7, 9, 1, 2]).map(chance);
  expect(chance(twice!)).toBeGreaterThan(chance(once!));
  expect(chance(once!)).toBeGreaterThan(chance(split!));
  expect(later[3]!).toBeGreaterThan(later[0]!);
});

test("each draft follows a place whose last two tokens are those of the end", () => {
  const rule = fc.property(fc.array(fc.nat({ max: 2 }), { minLength: 1, maxLength: 120 }), (text) => {
    for (const [i, draft] of draftsOf(text, 1, 1).entries()) {
      const [a, b] = [text[i - 1], text[i]];
      const followers = text.slice(0, i + 1).flatMap((token, at) => {
        return at >= 2 && text[at - 2] === a && text[at - 1] === b ? [token] : [];
      });
      if (followers.length === 0) expect(draft).toBeNull();
      else expect(followers).toContain(draft!.tokens[0]!);
    }
  });
  fc.assert(rule, runs(200));
});

test("tokens that come several at a time are read like single ones", () => {
  const rule = fc.property(
    fc.array(fc.nat({ max: 2 }), { minLength: 20, maxLength: 80 }),
    fc.integer({ min: 2, max: 7 }),
    (text, stride) => {
      const tokens = Int32Array.from(text);
      const strides = new SuffixDrafter();
      for (let length = 1; length < text.length; length += stride) strides.draft(tokens, length, 3);
      const last = strides.draft(tokens, text.length, 3);
      expect(last === null).toBe(tokensAfter(text, 3) === null);
    },
  );
  fc.assert(rule, runs(100));
});

test("a text of any length is read in bounded memory, and its last part is known", () => {
  const tokens = Int32Array.from({ length: 300_000 }, (_, i) => i % 100_000);
  const drafter = new SuffixDrafter();
  let last: Draft | null = null;
  for (let length = 4000; length <= 300_000; length += 4000) last = drafter.draft(tokens, length, 2);
  // The second hundred thousand is out of reach.
  expect(last).toBeNull();
  const repeated = Int32Array.from({ length: 300_000 }, (_, i) => i % 10_000);
  const other = new SuffixDrafter();
  const drafts = Array.from({ length: 16 }, () => other.draft(repeated, 300_000, 2));
  // A long text is read in pieces, and nothing is drafted before its end.
  expect(drafts.slice(0, 15)).toEqual(new Array(15).fill(null));
  expect(drafts.at(-1)?.tokens).toEqual([0, 1]);
});
