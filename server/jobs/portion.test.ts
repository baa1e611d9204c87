/** Order of lines by shared prefixes, with the number of new tokens of each. */

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { BLOCK_TOKENS, type PlacedLine, type Portion, PortionBuilder } from "./portion.ts";

function placed(portion: Portion): PlacedLine[] {
  return Array.from({ length: portion.length }, (_, place) => portion.at(place)!);
}

/** Orders prompts as lines 1, 2, …. */
function ordered(prompts: readonly (readonly number[])[], keys: readonly string[] = []): PlacedLine[] {
  const builder = new PortionBuilder();
  prompts.forEach((tokens, index) => {
    builder.add(index + 1, { tokens, cacheKey: keys[index] ?? "", answerTokensMax: 10 + index });
  });
  return placed(builder.ordered(128));
}

/** `count` consecutive numbers from `first`. */
function tokens(first: number, count: number): number[] {
  return Array.from({ length: count }, (_, index) => first + index);
}

describe("a portion", () => {
  test("has prompts that share blocks one after the other, and tells what is new of each", () => {
    const prefix = tokens(0, 2 * BLOCK_TOKENS);
    const prompts = [[...prefix, 100, 101], tokens(500, 40), [...prefix, 200]];
    expect(ordered(prompts)).toEqual([
      { line: 3, newTokens: 33, tokensMax: 12 },
      { line: 1, newTokens: 2, tokensMax: 10 },
      { line: 2, newTokens: 40, tokensMax: 11 },
    ]);
  });

  test("computes a prompt twice that has another key", () => {
    const prompt = tokens(0, 20);
    expect(ordered([prompt, prompt, prompt], ["a", "b", "a"]).map(({ newTokens }) => newTokens)).toEqual([
      20, 0, 20,
    ]);
  });

  test("has each line once, with what it does not share with the one before but for a block", () => {
    const prompt = fc.array(fc.constantFrom(1, 2), { minLength: 1, maxLength: 4 * BLOCK_TOKENS });
    const family = fc
      .tuple(prompt, fc.array(prompt, { minLength: 1, maxLength: 3 }))
      .map(([prefix, own]) => own.map((rest) => [...prefix, ...prefix, ...rest]));
    fc.assert(
      fc.property(fc.array(family, { minLength: 1, maxLength: 5 }), (families) => {
        const prompts = families.flat();
        const order = ordered(prompts);
        expect(order.map(({ line }) => line).sort((a, b) => a - b)).toEqual(
          prompts.map((_, index) => index + 1),
        );
        order.forEach(({ line, newTokens }, place) => {
          const own = prompts[line - 1]!;
          const before = place === 0 ? [] : prompts[order[place - 1]!.line - 1]!;
          const differs = own.findIndex((token, at) => token !== before[at]);
          const shared = differs < 0 ? own.length : differs;
          expect(own.length - newTokens).toBeLessThanOrEqual(shared);
          expect(own.length - newTokens).toBeGreaterThan(shared - BLOCK_TOKENS);
        });
      }),
      runs(200),
    );
  });
});
