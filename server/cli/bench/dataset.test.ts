import { describe, expect, test } from "bun:test";
import { SeededRandom } from "../../../base/random.ts";
import { conversationsOf, type Dataset, drawLengths } from "./dataset.ts";

const scale = { overhead: 4, perWord: 1.5 };
const fixed: Dataset = {
  name: "fixed",
  promptTokens: 40,
  sharedPrefixTokens: 20,
  outputTokens: 5,
  turns: 1,
};
const wordsOf = (dataset: Dataset, seed = 7): string[][] =>
  conversationsOf(dataset, 6, seed, scale)
    .flat()
    .map(({ text }) => text.split(" "));

describe("prompts of a fixed length", () => {
  test("have that length, share exactly the wanted prefix, and are otherwise different", () => {
    const prompts = wordsOf(fixed);
    expect(new Set(prompts.map((words) => words.length))).toEqual(new Set([24])); // 4 + 1.5 × 24 = 40 tokens
    const shared = Math.round(20 / 1.5);
    expect(new Set(prompts.map((words) => words.slice(0, shared).join(" "))).size).toBe(1);
    expect(new Set(prompts.map((words) => words.slice(shared).join(" "))).size).toBe(6);
  });

  test("are the same for the same seed only", () => {
    expect(wordsOf(fixed)).toEqual(wordsOf(fixed));
    expect(wordsOf(fixed, 8)).not.toEqual(wordsOf(fixed));
  });
});

test("conversations have all requests between them, and share the prefix of their first messages alone", () => {
  const conversations = conversationsOf({ ...fixed, name: "conversations", turns: 4 }, 6, 7, scale);
  expect(conversations.map((turns) => turns.length)).toEqual([4, 2]);
  const firsts = conversations.map(([first]) => first!.text.split(" ").slice(0, 13).join(" "));
  expect(new Set(firsts).size).toBe(1);
  const later = conversations.flatMap((turns) => turns.slice(1).map(({ text }) => text));
  expect(later.some((text) => text.startsWith(firsts[0]!))).toBe(false);
});

test("lengths as ShareGPT's have the published means, a long tail, and their bounds", () => {
  const random = new SeededRandom(1);
  const lengths = Array.from({ length: 20_000 }, () => drawLengths(random));
  const meanOf = (name: "prompt" | "output"): number =>
    lengths.reduce((sum, one) => sum + one[name], 0) / lengths.length;
  expect(Math.abs(meanOf("prompt") / 161.3 - 1)).toBeLessThan(0.1);
  expect(Math.abs(meanOf("output") / 338 - 1)).toBeLessThan(0.1);
  const prompts = lengths.map(({ prompt }) => prompt).sort((a, b) => a - b);
  expect(prompts[10_000]!).toBeLessThan(0.75 * meanOf("prompt"));
  expect([prompts[0]! >= 4, prompts.at(-1)! <= 1024]).toEqual([true, true]);
});
