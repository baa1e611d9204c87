/** Which of a step's possible sizes serves best: two rules, and that neither is a matter of taste. */

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { leastDelay, mostEfficient, type SizeContext, type SizeOption } from "./step-size.ts";

const context: SizeContext = { decodes: 10, aloneMs: 12, contextMs: 2, prompts: 1, tokensBehind: 0 };
const many = 1_000_000;

/** Sizes of whole tiles of 128 tokens that take `tookMs`. */
function tiles(...tookMs: readonly number[]): SizeOption[] {
  return tookMs.map((ms, index) => ({ size: 128 * (index + 1), tookMs: ms }));
}

describe("most tokens per millisecond", () => {
  const steep = tiles(20, 35, 45, 70);

  test("what waits decides whether a little less is good enough", () => {
    expect(mostEfficient(steep, { ...context, tokensBehind: many })).toBe(3 * 128);
    const flat = tiles(22, 37, 52, 68);
    expect(mostEfficient(flat, { ...context, tokensBehind: many })).toBe(4 * 128);
    expect(mostEfficient(flat, { ...context, tokensBehind: 1600 })).toBe(4 * 128);
    expect(mostEfficient(flat, { ...context, tokensBehind: 1500 })).toBe(2 * 128);
    expect(mostEfficient(flat, { ...context, decodes: 0 })).toBe(4 * 128);
  });

  test("the time that contexts of decodes take anyhow does not speak for larger steps", () => {
    const long = steep.map(({ size, tookMs }) => ({ size, tookMs: tookMs + 500 }));
    expect(mostEfficient(long, { ...context, contextMs: 502, tokensBehind: many })).toBe(3 * 128);
    expect(mostEfficient(long, { ...context, contextMs: 0, tokensBehind: many })).toBe(4 * 128);
  });
});

describe("least delay", () => {
  // Reading the weights takes 10 ms, which a small step hides; later tiles cost 15 ms each.
  const device = tiles(16, 30, 45, 60, 75, 90, 105, 120);

  test("a single prompt beside many streams comes in small pieces, many prompts in large ones", () => {
    expect(leastDelay(device, { ...context, decodes: 60 })).toBe(128);
    expect(leastDelay(device, { ...context, decodes: 60, prompts: 500 })).toBeGreaterThan(512);
    expect(leastDelay(device, { ...context, decodes: 0, aloneMs: 0, prompts: 1 })).toBeGreaterThan(128);
  });

  /** Plays steps of one size for 100 prompts of 1024 tokens, of which `prompts` always wait; the delays of all in ms. */
  function played({ size, tookMs }: SizeOption, { decodes, aloneMs, prompts }: SizeContext): number {
    const steps = (100 * 1024) / (size - decodes);
    let delayMs = 0;
    for (let step = 0; step < steps; step++) {
      delayMs += prompts * tookMs + decodes * (tookMs - aloneMs);
    }
    return delayMs;
  }

  test("it is what playing each size through finds, within the 3 % that smoother streams are worth", () => {
    const costs = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 16 });
    const rule = fc.property(
      costs,
      fc.nat({ max: 100 }),
      fc.integer({ min: 1, max: 40 }),
      (steps, decodes, prompts) => {
        let tookMs = 12;
        const options = tiles(...steps.map((ms) => (tookMs += ms)));
        const state = { ...context, decodes, prompts, aloneMs: decodes === 0 ? 0 : 12 };
        const size = leastDelay(options, state);
        const delays = options.map((option) => played(option, state));
        const chosen = delays[options.findIndex((option) => option.size === size)]!;
        expect(chosen).toBeLessThanOrEqual(Math.min(...delays) * 1.035);
      },
    );
    fc.assert(rule, { seed: 20261110, numRuns: 200 });
  });
});
