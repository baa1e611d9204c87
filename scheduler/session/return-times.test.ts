/** Times to keep a session: by what was learnt of its returns, and by the price of memory. */
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { RETURN_MAX_MS, ReturnTimes } from "./return-times.ts";

function timesOf(...times: readonly number[]): ReturnTimes {
  const counted = new ReturnTimes();
  for (const time of times) counted.add(time);
  return counted;
}

describe("a session is kept", () => {
  test("until the end of the bucket in which it always returned", () => {
    expect(timesOf(100, 100, 120).worth(0, 10, 0.001)).toEqual({
      untilMs: 128,
      gainMs: 10 - 0.064 - 0.032,
      keptMs: 96,
    });
  });

  test("not at all if it never returned, or nothing is known", () => {
    const none = { untilMs: 0, gainMs: 0, keptMs: 0 };
    expect(timesOf(2 * RETURN_MAX_MS).worth(0, 1, 0)).toEqual(none);
    expect(new ReturnTimes().worth(0, 1, 0)).toEqual(none);
  });

  test("shorter at a higher price, and not for returns that are rare and late", () => {
    const seldom = timesOf(50, 50, 50, 50_000);
    const until = (rent: number) => seldom.worth(0, 1, rent).untilMs;
    expect([0, 1e-6, 1e-3, 1].map(until)).toEqual([65_536, 65_536, 64, 0]);
  });

  test("by the conditional distribution: what has not returned by now returns later or never", () => {
    const times = timesOf(50, 50, 50, 50, 1000);
    expect(times.worth(64, 1, 1e-6).untilMs).toBe(1024);
    expect(times.worth(1024, 1, 1e-6)).toEqual({ untilMs: 1024, gainMs: 0, keptMs: 0 });
  });
});

test("it gains no more than a return saves, and less the dearer memory is", () => {
  const time = fc.double({ min: 0, max: 3 * RETURN_MAX_MS, noNaN: true });
  const rents = fc.tuple(
    fc.double({ min: 0, max: 1, noNaN: true }),
    fc.double({ min: 0, max: 1, noNaN: true }),
  );
  fc.assert(
    fc.property(fc.array(time, { maxLength: 80 }), time, rents, (times, elapsed, [one, other]) => {
      const counted = timesOf(...times);
      const [cheap, dear] = [Math.min(one, other), Math.max(one, other)].map((rent) =>
        counted.worth(elapsed, 100, rent),
      );
      expect(cheap!.gainMs).toBeLessThanOrEqual(100 + 1e-9);
      expect(dear!.gainMs).toBeLessThanOrEqual(cheap!.gainMs + 1e-9);
      for (const { untilMs, gainMs } of [cheap!, dear!]) {
        expect(gainMs).toBeGreaterThanOrEqual(0);
        expect(untilMs).toBeGreaterThanOrEqual(elapsed);
      }
    }),
    runs(300),
  );
});
