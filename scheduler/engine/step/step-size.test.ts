/** Choice of the best of a step's possible sizes, and proof that the choice follows from the delays. */

import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import { leastDelay, type SizeContext, type SizeOption } from "./step-size.ts";

const context: SizeContext = {
  decodes: 10,
  streams: 10,
  aloneMs: 12,
  contextMs: 2,
  prompts: 1,
  promptTokens: 1024,
  answerTokens: 40,
  patienceMs: 400,
};

/** Sizes of whole tiles of 128 tokens that take `tookMs`. */
function tiles(...tookMs: readonly number[]): SizeOption[] {
  return tookMs.map((ms, index) => ({ size: 128 * (index + 1), tookMs: ms }));
}

describe("least delay", () => {
  // Reading the weights takes 10 ms, which a small step hides; later tiles cost 15 ms each.
  const device = tiles(16, 30, 45, 60, 75, 90, 105, 120);

  test("one prompt beside many streams is computed in small chunks, many prompts in large ones", () => {
    expect(leastDelay(device, { ...context, decodes: 60, streams: 60 })).toBe(128);
    expect(
      leastDelay(device, { ...context, decodes: 60, streams: 60, prompts: 500, promptTokens: 512_000 }),
    ).toBeGreaterThan(512);
    expect(
      leastDelay(device, { ...context, decodes: 0, streams: 0, aloneMs: 0, prompts: 1 }),
    ).toBeGreaterThan(128);
  });

  test("without streams the best size wins, unless it exceeds the patience and a smaller one is nearly as good", () => {
    const alone = { ...context, decodes: 0, streams: 0, aloneMs: 0, contextMs: 0 };
    const slow = tiles(...Array.from({ length: 16 }, (_, index) => 10 + 20 * (index + 1)));
    expect(leastDelay(slow, { ...alone, patienceMs: 330 })).toBe(16 * 128);
    expect(leastDelay(slow, { ...alone, patienceMs: 329 })).toBe(8 * 128);
  });

  test("a larger size that takes no longer always wins", () => {
    const rule = fc.property(
      fc.integer({ min: 13, max: 200 }),
      fc.nat({ max: 100 }),
      fc.integer({ min: 1, max: 200 }),
      fc.integer({ min: 1, max: 500 }),
      (tookMs, decodes, prompts, answerTokens) => {
        const options = [128, 256].map((size) => ({ size, tookMs }));
        const state = {
          ...context,
          decodes,
          prompts,
          answerTokens,
          promptTokens: 300 * prompts,
          contextMs: 0,
        };
        expect(leastDelay(options, state)).toBe(256);
      },
    );
    fc.assert(rule, runs(200));
  });

  test("contexts of the answers that follow are no fixed part of steps: larger ones do not spread them out", () => {
    // With 40 streams a step takes 10 ms of reading weights and 40 of contexts.
    const options = tiles(...Array.from({ length: 16 }, (_, index) => 50 + 16 * (index + 1)));
    const state = { ...context, decodes: 40, aloneMs: 50, prompts: 10, promptTokens: 4000, answerTokens: 40 };
    const sizes = [40, 0].map((contextMs) => leastDelay(options, { ...state, contextMs }));
    expect(sizes[0]!).toBeLessThan(sizes[1]!);
  });

  const [promptTokens, answerTokens] = [400, 40];
  /**
   * A device that reads weights in 10 ms, hides a tile behind it, and takes 0.3 ms for a stream's context.
   */
  const stepMs = (tokens: number, decodes: number): number =>
    10 + 15 * Math.max(0, Math.ceil(tokens / 128) - 1) + 0.3 * decodes;

  /** Mean milliseconds of 300 calls that come one each `gapMs`, with steps as large as `choose` says. */
  function played(gapMs: number, choose: (options: SizeOption[], state: SizeContext) => number): number {
    const arrivals = Array.from({ length: 300 }, (_, index) => index * gapMs);
    let nowMs = 0;
    let sumMs = 0;
    let begun = 0;
    let left = promptTokens;
    let streams: { arrivedMs: number; tokens: number }[] = [];
    while (begun < arrivals.length || streams.length > 0) {
      const prompts = arrivals.filter((atMs, index) => index >= begun && atMs <= nowMs).length;
      const decodes = streams.length;
      let chunk = 0;
      if (prompts > 0) {
        const waiting = left + (prompts - 1) * promptTokens;
        const options = tiles(...Array(16).fill(0)).flatMap(({ size }) =>
          size > decodes ? [{ size, tookMs: stepMs(size, decodes) }] : [],
        );
        const aloneMs = decodes === 0 ? 0 : stepMs(decodes, decodes);
        const contextMs = 0.3 * decodes;
        const state = {
          decodes,
          streams: decodes,
          aloneMs,
          contextMs,
          prompts,
          promptTokens: waiting,
          answerTokens,
          patienceMs: 400,
        };
        chunk = Math.min(waiting, choose(options, state) - decodes);
      }
      nowMs = decodes + chunk === 0 ? arrivals[begun]! : nowMs + stepMs(decodes + chunk, decodes);
      for (const stream of streams) stream.tokens += 1;
      for (const { arrivedMs, tokens } of streams) if (tokens === answerTokens) sumMs += nowMs - arrivedMs;
      streams = streams.filter(({ tokens }) => tokens < answerTokens);
      for (; chunk >= left && chunk > 0; left = promptTokens) {
        streams.push({ arrivedMs: arrivals[begun]!, tokens: 0 });
        begun += 1;
        chunk -= left;
      }
      left -= chunk;
    }
    return sumMs / arrivals.length;
  }

  test.each([400, 120, 90, 80])(
    "calls each %d ms are answered nearly as soon as with the best of all fixed sizes",
    (gapMs) => {
      const fixed = [128, 256, 384, 512, 768, 1024, 2048].map((size) => played(gapMs, () => size));
      expect(played(gapMs, leastDelay)).toBeLessThan(1.1 * Math.min(...fixed));
    },
  );
});
