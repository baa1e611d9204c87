import { describe, expect, test } from "bun:test";
import { BatchAdmission } from "./batch-admission.ts";

const items = (count: number, newTokens: number, tokensMax = 1000) =>
  Array.from({ length: count }, () => ({ newTokens, tokensMax }));

function taken(feed: BatchAdmission): number[] {
  const places: number[] = [];
  for (let place = feed.next(); place !== null; place = feed.next()) places.push(place);
  return places;
}

describe("BatchAdmission", () => {
  test("admits what KV memory holds, and half as many more", () => {
    // 72 + 128 expected tokens each: 2000 hold 10, the job's 1333 with half as many more.
    const feed = new BatchAdmission(items(100, 72), { tokens: 1334, sequences: 1000, stepTokens: 8192 });
    expect(taken(feed)).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8, 9]);
    feed.ended(3, 128);
    expect(taken(feed)).toEqual([10]);
  });

  test("admits no more than the sequences of a step, and half as many more", () => {
    const feed = new BatchAdmission(items(100, 1), { tokens: 1_000_000, sequences: 7, stepTokens: 8192 });
    expect(taken(feed)).toHaveLength(10);
  });

  test("admits no more than can run at a time, where answers are short", () => {
    // An answer of one token lasts two steps: they have 200 tokens, for prompts of 10 and 1 tokens.
    const feed = new BatchAdmission(items(100, 10, 1), {
      tokens: 1_000_000,
      sequences: 1000,
      stepTokens: 100,
    });
    expect(taken(feed)).toHaveLength(27);
  });

  test("learns the mean answer length", () => {
    const feed = new BatchAdmission(items(100, 0), { tokens: 1024, sequences: 1000, stepTokens: 8192 });
    expect(taken(feed)).toHaveLength(12);
    for (let place = 0; place < 12; place++) feed.ended(place, 64);
    expect(feed.answerTokens).toBe(64);
    expect(taken(feed)).toHaveLength(24);
  });

  test("expects no answer longer than its max_tokens", () => {
    expect(
      taken(new BatchAdmission(items(100, 0, 16), { tokens: 128, sequences: 1000, stepTokens: 8192 })),
    ).toHaveLength(12);
  });

  test("always admits one, and is done when all have ended", () => {
    const feed = new BatchAdmission(items(2, 5000), { tokens: 100, sequences: 1, stepTokens: 8192 });
    expect(taken(feed)).toEqual([0]);
    feed.ended(0, null);
    expect([taken(feed), feed.isDone]).toEqual([[1], false]);
    feed.ended(1, 3);
    expect([taken(feed), feed.isDone]).toEqual([[], true]);
  });
});
