/** The suffix drafter against a plain search, its texts, and its bounds. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { sequenceSpec } from "../../simulation/factories.ts";
import { runs } from "../../tests/support/property.ts";
import type { SequenceId, SequenceSpec } from "../core.ts";
import type { Draft, Drafter, DraftSource } from "./drafter.ts";
import { EarlierTexts } from "./earlier.ts";
import { EngineDrafts } from "./sequence-drafts.ts";
import { openSuffixSource, SuffixDrafter } from "./suffix.ts";

/** Drafts after each token of a text, from the given length on. */
function draftsOf(text: readonly number[], from = 1, most = 4): (Draft | null)[] {
  const drafter: Drafter = new SuffixDrafter();
  const tokens = Int32Array.from(text);
  return text.slice(from - 1).map((_, i) => drafter.draft(tokens, from + i, most));
}

function tokensAfter(text: readonly number[], most = 4): readonly number[] | null {
  return draftsOf(text, text.length, most)[0]?.tokens ?? null;
}

test("the tokens after an earlier occurrence of the last tokens are drafted", () => {
  expect(tokensAfter([1, 2, 3, 4, 5, 6, 9, 1, 2])).toEqual([3, 4, 5, 6]);
  expect(tokensAfter([1, 2, 3, 4, 5, 6, 9, 1, 2], 2)).toEqual([3, 4]);
  expect(tokensAfter([1, 2, 3, 4, 5])).toBeNull();
  expect(tokensAfter([1])).toBeNull();
});

test("a periodic text is drafted beyond its own end", () => {
  expect(tokensAfter([7, 1, 2, 3, 1, 2, 3, 1, 2], 8)).toEqual([3, 1, 2, 3, 1, 2, 3, 1]);
});

test("the longer match wins over the more recent one, then the majority of positions", () => {
  const long = [1, 2, 3, 4, 5, 6, 7, 50];
  expect(tokensAfter([...long, 6, 7, 60, 9, 1, 2, 3, 4, 5, 6, 7], 1)).toEqual([50]);
  expect(tokensAfter([8, 9, 50, 8, 9, 60, 8, 9, 50, 0, 8, 9], 1)).toEqual([50]);
});

test("kinds separate long from short matches, and several agreeing positions from one", () => {
  const kindsAfter = (text: readonly number[]): readonly number[] => draftsOf(text, text.length)[0]!.kinds;
  const chance = (kind: number): number => openSuffixSource().priors[kind]!;
  const [once] = kindsAfter([1, 2, 3, 4, 9, 1, 2]);
  const [twice] = kindsAfter([1, 2, 3, 4, 8, 1, 2, 3, 4, 9, 1, 2]);
  const [split] = kindsAfter([1, 2, 3, 4, 8, 1, 2, 5, 4, 9, 1, 2]);
  const later = kindsAfter([1, 2, 3, 4, 5, 6, 7, 9, 1, 2]).map(chance);
  expect(chance(twice!)).toBeGreaterThan(chance(once!));
  expect(chance(once!)).toBeGreaterThan(chance(split!));
  expect(later[3]!).toBeGreaterThan(later[0]!);
});

test("each draft follows a position that matches the last two tokens", () => {
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

test("tokens appended several at a time are indexed like single ones", () => {
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

test("the index of a text of any length is bounded, and keeps its last part", () => {
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

/** A sequence with a prompt that shares nothing with others. */
const specOf = (changes: Partial<SequenceSpec> & { readonly tenant?: string } = {}): SequenceSpec => {
  const { tenant = "", ...more } = changes;
  return { ...sequenceSpec([90, 91, 92], 20, { service: { tenant } }), id: 0 as SequenceId, ...more };
};
/** Drafts of a source after each token of an answer. */
function draftedIn(
  source: DraftSource,
  spec: SequenceSpec,
  answer: readonly number[],
): (readonly number[] | null)[] {
  const tokens = Int32Array.from([...Array.from(spec.promptTokens), ...answer]);
  const drafter = source.open(spec);
  const begin = spec.promptTokens.length;
  return answer.map((_, i) => drafter.draft(tokens, begin + i + 1, 3, null)?.tokens ?? null);
}
const answer = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10];
const ends = (source: DraftSource, spec: SequenceSpec, tokens: readonly number[] = answer): void => {
  const all = Int32Array.from([...Array.from(spec.promptTokens), ...tokens, 77, 77]);
  source.ended!(spec, all, all.length - 2);
};

test("an earlier answer of the same key is drafted from, up to its end", () => {
  const source = openSuffixSource();
  expect(draftedIn(source, specOf(), answer)[1]).toBeNull();
  ends(source, specOf());
  ends(source, specOf(), [40, 41, 42, 43, 44, 45, 46, 47]);
  const drafts = draftedIn(source, specOf(), answer);
  expect(drafts.slice(0, 3)).toEqual([null, [3, 4, 5], [4, 5, 6]]);
  expect(drafts.slice(-3)).toEqual([[9, 10], [10], null]);
});

test("nothing of one key is drafted for another, and answers without drafts are not kept", () => {
  const source = openSuffixSource();
  ends(source, specOf({ tenant: "a", cacheSalt: "s" }));
  for (const other of [
    specOf({ tenant: "b", cacheSalt: "s" }),
    specOf({ tenant: "a" }),
    specOf({ tenant: "a", cacheSalt: "s", adapter: 1 }),
  ])
    expect(draftedIn(source, other, answer)).toEqual(answer.map(() => null));
  expect(draftedIn(source, specOf({ tenant: "a", cacheSalt: "s" }), answer)[1]).toEqual([3, 4, 5]);
  ends(source, specOf({ draftTokensMax: 0 }));
  expect(draftedIn(source, specOf(), answer)[1]).toBeNull();
});

test("acceptance rates of one key do not change those of another", () => {
  const drafts = new EngineDrafts(openSuffixSource());
  const chanceFor = (spec: SequenceSpec): number => {
    const tokens = Int32Array.from([1, 2, 3, 1, 2]);
    return drafts.open(spec).offer(tokens, tokens.length, 1, null)!.chances[0]!;
  };
  const [own, other] = [specOf({ tenant: "a" }), specOf({ tenant: "b" })];
  const before = chanceFor(other);
  const text = Int32Array.from({ length: 200 }, (_, i) => (i % 3 === 2 ? 100 + i : i % 3));
  const sequence = drafts.open(own);
  for (let length = 5; length < text.length; length++) {
    sequence.offer(text, length, 1, null);
    sequence.drew(text[length]!);
  }
  expect(chanceFor(own)).toBeLessThan(before);
  expect(chanceFor(other)).toBe(before);
});

test("earlier answers are bounded per key and in all; the least recently used keys are forgotten", () => {
  const texts = new EarlierTexts();
  const long = (first: number): Int32Array =>
    Int32Array.from({ length: 10_000 }, (_, i) => (first + i) % 50_000);
  const knows = (spec: SequenceSpec, tokens: Int32Array): boolean =>
    Array.from({ length: 8 }, () => texts.of(spec).texts())
      .at(-1)!
      .some((text) => text.match(tokens, 200, -1) !== null);
  for (const first of [0, 10_000, 20_000]) texts.add(specOf(), long(first));
  expect([0, 10_000, 20_000].map((first) => knows(specOf(), long(first)))).toEqual([false, true, true]);
  for (let key = 1; key < 200; key++) texts.add(specOf({ tenant: `${key}` }), long(0));
  expect(texts.bytes).toBeLessThanOrEqual(32 * 2 ** 20);
  expect(knows(specOf({ tenant: "1" }), long(0))).toBe(false);
  expect(knows(specOf({ tenant: "199" }), long(0))).toBe(true);
});

test("a prediction is followed from the answer's first token on, and found again behind what differs", () => {
  const source = openSuffixSource();
  const spec = specOf({ prediction: answer });
  const drafts = draftedIn(source, spec, [1, 2, 50, 51, 4, 5, 6]);
  expect(drafts).toEqual([[2, 3, 4], [3, 4, 5], null, null, null, [6, 7, 8], [7, 8, 9]]);
  const tokens = Int32Array.from([90, 91, 92, 1]);
  expect(source.open(spec).draft(tokens, 4, 3, null)).toMatchObject({ isPredicted: true });
  // Some tokens of an answer are known from the start if an engine was lost.
  expect(source.open(spec).draft(Int32Array.from([90, 91, 92, 1, 2]), 5, 3, null)!.tokens).toEqual([3, 4, 5]);
});
