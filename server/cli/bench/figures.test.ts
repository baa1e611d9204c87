import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import { goodputOf, isGood, type Outcome, percentiles, perTokenMs, quantileCurve } from "./figures.ts";

test("percentiles are nearest ranks", () => {
  const values = Array.from({ length: 100 }, (_, i) => 100 - i);
  expect(percentiles(values)).toEqual({ p50: 50, p90: 90, p99: 99, max: 100 });
  expect(percentiles([3])).toEqual({ p50: 3, p90: 3, p99: 3, max: 3 });
  expect(percentiles([])).toBeNull();
  expect(quantileCurve([], [0, 1])).toEqual([null, null]);
});

const outcome = fc.record<Outcome>({
  sentMs: fc.constant(0),
  endMs: fc.nat(2000),
  ttftMs: fc.option(fc.nat(1000)),
  tokens: fc.nat(20),
  isAnswered: fc.boolean(),
});
const target = fc.record({ ttftMs: fc.nat(1000), tbtMs: fc.nat(100) });

test("a percentile is a value of which at least as many are not above it, and fewer are below it", () => {
  fc.assert(
    fc.property(
      fc.array(fc.nat(50), { minLength: 1 }),
      fc.constantFrom(0.5, 0.9, 0.99, 1),
      (values, share) => {
        const [found] = quantileCurve(values, [share]);
        const notAbove = values.filter((value) => value <= found!).length;
        const below = values.filter((value) => value < found!).length;
        expect(values).toContain(found!);
        expect(notAbove).toBeGreaterThanOrEqual(share * values.length);
        expect(below).toBeLessThan(share * values.length);
      },
    ),
    runs(300),
  );
});

test("goodput counts what is good, and a looser target counts no less", () => {
  fc.assert(
    fc.property(fc.array(outcome), target, target, (outcomes, first, second) => {
      const good = outcomes.filter(({ isAnswered, ttftMs, ...rest }) => {
        const time = perTokenMs({ isAnswered, ttftMs, ...rest });
        const isSteady = time === null || time <= first.tbtMs;
        return isAnswered && ttftMs !== null && ttftMs <= first.ttftMs && isSteady;
      }).length;
      const told = goodputOf(outcomes, first, 2);
      expect(told.perSecond).toBe(good / 2);
      expect(told.share).toBe(outcomes.length === 0 ? 0 : good / outcomes.length);
      const loose = {
        ttftMs: Math.max(first.ttftMs, second.ttftMs),
        tbtMs: Math.max(first.tbtMs, second.tbtMs),
      };
      for (const one of outcomes) if (isGood(one, first)) expect(isGood(one, loose)).toBe(true);
    }),
    runs(300),
  );
});

test("the time per token leaves out the first one", () => {
  const whole = { sentMs: 10, ttftMs: 20, endMs: 130, tokens: 11, isAnswered: true };
  expect(perTokenMs(whole)).toBe(10);
  expect(perTokenMs({ ...whole, tokens: 1 })).toBeNull();
});
