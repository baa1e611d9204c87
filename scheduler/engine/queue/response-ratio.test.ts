/**
 * Order by response ratio: the weights of costs and waits, and the longest wait of cold sequences for warm
 * ones.
 */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { sequenceSpec } from "../../../simulation/factories.ts";
import { runs } from "../../../tests/support/property.ts";
import { ownSharing } from "../../../tests/support/sharing.ts";
import { PrefixWaiter } from "../../cache/radix-tree.ts";
import type { SequenceId } from "../../core.ts";
import { Sequence } from "../sequence.ts";
import { ColdGate } from "./cold-gate.ts";
import { BUCKET, COST_MIN, ResponseRatio } from "./response-ratio.ts";

/** A token takes a millisecond. */
function waitingRoom() {
  const gate = new ColdGate({ computeMs: (tokens) => tokens, displaces: () => true });
  const order = new ResponseRatio(gate);
  let arrivals = 0;
  /** Sets the cached length of its prompt. */
  const cache = (sequence: Sequence, cached: number): void => {
    sequence.kv.waiter ??= new PrefixWaiter(ownSharing(""), sequence.tokens, sequence.length, () => {});
    sequence.kv.waiter.depth = cached;
    order.matched(sequence);
  };
  const add = (tokens: number, cached: number, arrivedMs = 0): Sequence => {
    const spec = { ...sequenceSpec(new Int32Array(tokens), 1), id: arrivals as SequenceId };
    const sequence = new Sequence(spec, arrivals, arrivedMs);
    arrivals += 1;
    cache(sequence, cached);
    order.add(sequence);
    return sequence;
  };
  const take = (nowMs: number): Sequence | null => {
    const sequence = order.peek(nowMs);
    if (sequence === null) return null;
    expect(order.peek(nowMs)).toBe(sequence);
    order.take(sequence);
    gate.taken(sequence, nowMs);
    return sequence;
  };
  return { order, cache, add, take };
}

const ratio = ({ length, cachedTokens, arrivedMs }: Sequence, nowMs: number): number =>
  (nowMs - arrivedMs + 1) / (COST_MIN + length - cachedTokens);

test("of sequences that arrived together the cheapest is first, whether short or cached", () => {
  const { add, take } = waitingRoom();
  const [long, cached, short] = [add(4000, 0), add(4000, 3900), add(500, 0)];
  expect([take(0), take(0), take(0), take(0)]).toEqual([cached, short, long, null]);
});

test("a sequence of twice the cost goes first after more than twice the wait", () => {
  const { add, take } = waitingRoom();
  const dear = add(2 * 1000 - COST_MIN, 0, 0);
  const cheap = add(1000 - COST_MIN, 0, 1000);
  const late = add(1000 - COST_MIN, 0, 1020);
  expect([take(2010), take(2010), take(2010)]).toEqual([cheap, dear, late]);
});

test("what becomes cached, or is evicted, changes whose turn it is", () => {
  const { add, cache, take } = waitingRoom();
  const [first, second, third] = [add(4000, 0), add(4000, 0), add(4000, 3000)];
  cache(second, 3900);
  cache(third, 0);
  expect([take(0), take(0), take(0)]).toEqual([second, first, third]);
});

const waiting = fc.record({
  tokens: fc.integer({ min: 10, max: 20_000 }),
  cached: fc.integer({ min: 0, max: 100 }),
  arrivedMs: fc.nat({ max: 60_000 }),
});

test("nobody is taken who has less than two thirds of the ratio of another one, warm before warm and cold before cold", () => {
  const rule = fc.property(
    fc.array(waiting, { minLength: 2, maxLength: 60 }),
    fc.boolean(),
    (all, isWarm) => {
      const { add, take } = waitingRoom();
      const nowMs = 60_000;
      const ordered = [...all].sort((a, b) => a.arrivedMs - b.arrivedMs);
      const left = new Set(
        ordered.map(({ tokens, cached, arrivedMs }) => {
          const half = Math.ceil(tokens / 2);
          const more = Math.floor(((half - 1) * cached) / 100);
          return add(tokens, isWarm ? half + more : more, arrivedMs);
        }),
      );
      const size = left.size;
      for (let i = 0; i < size; i++) {
        const taken = take(nowMs)!;
        const most = Math.max(...[...left].map((sequence) => ratio(sequence, nowMs)));
        expect(ratio(taken, nowMs) * BUCKET).toBeGreaterThan(most);
        expect(left.delete(taken)).toBe(true);
      }
    },
  );
  fc.assert(rule, runs(50));
});

test("no_starvation_bound: however many warm ones come, a cold one whose ratio is the highest waits for four times what the last one took", () => {
  const COLD_MAX = 3000;
  const rule = fc.property(
    fc.array(fc.integer({ min: 300, max: COLD_MAX }), { minLength: 2, maxLength: 12 }),
    fc.integer({ min: 1, max: 200 }),
    (costs, stepMs) => {
      const { add, take } = waitingRoom();
      const cold = new Set(costs.map((tokens) => add(tokens, 0)));
      const warm = new Set<Sequence>();
      /** Since when there is a cold one with the highest ratio. */
      let sinceMs: number | null = null;
      let taken = 0;
      for (let nowMs = 0; cold.size > 0 && nowMs < 2_000_000; nowMs += stepMs) {
        warm.add(add(1000, 900, nowMs));
        const top = (all: Set<Sequence>): number => Math.max(...[...all].map((one) => ratio(one, nowMs)));
        if (top(cold) > BUCKET * top(warm)) sinceMs ??= nowMs;
        if (sinceMs !== null) expect(nowMs - sinceMs).toBeLessThanOrEqual(4 * COLD_MAX + stepMs);
        const next = take(nowMs)!;
        warm.delete(next);
        if (!cold.delete(next)) continue;
        taken += 1;
        sinceMs = null;
      }
      expect(taken).toBe(costs.length);
    },
  );
  fc.assert(rule, runs(20));
});

/**
 * Later sequences are taken before a sequence at time t only if they came by
 * t − (t − its arrival) × COST_MIN / (BUCKET × its cost). So all that is computed during its wait w had arrived
 * by then: w ≤ backlog + burst + (1 − COST_MIN / (BUCKET × cost)) × (w + 1), where a millisecond brings at most
 * a token, besides a burst.
 */
test("no_starvation_bound: at full load a sequence waits for the work that it met times BUCKET × its cost / COST_MIN at most", () => {
  const TOKENS_MAX = 800;
  const newcomer = fc.record({
    tokens: fc.oneof({ weight: 20, arbitrary: fc.constant(2) }, fc.integer({ min: 2, max: TOKENS_MAX })),
    pauseMs: fc.oneof({ weight: 50, arbitrary: fc.constant(0) }, fc.nat({ max: 500 })),
  });
  const rule = fc.property(
    fc.array(newcomer, { minLength: 100, maxLength: 400 }),
    fc.integer({ min: COST_MIN + TOKENS_MAX, max: 2000 }),
    fc.boolean(),
    (newcomers, burst, isWarm) => {
      const { add, take } = waitingRoom();
      /** Longest wait of each sequence. */
      const limits = new Map<Sequence, number>();
      let waiting = 0;
      let doneMs = 0;
      let next = 0;
      let [allowed, sinceMs] = [burst, 0];
      for (let nowMs = 0; next < newcomers.length || limits.size > 0; nowMs++) {
        for (; next < newcomers.length; next++, sinceMs = nowMs) {
          const { tokens, pauseMs } = newcomers[next]!;
          const cost = COST_MIN + tokens;
          if (cost > allowed || nowMs - sinceMs < pauseMs) break;
          const met = waiting + Math.max(0, doneMs - nowMs);
          const sequence = isWarm ? add(2 * tokens, tokens, nowMs) : add(tokens, 0, nowMs);
          limits.set(sequence, ((met + burst + 1) * BUCKET * cost) / COST_MIN);
          allowed -= cost;
          waiting += cost;
        }
        allowed = Math.min(burst, allowed + 1);
        const sequence = nowMs < doneMs ? null : take(nowMs);
        if (sequence === null) continue;
        expect(nowMs - sequence.arrivedMs).toBeLessThanOrEqual(limits.get(sequence)!);
        limits.delete(sequence);
        const cost = COST_MIN + sequence.length - sequence.cachedTokens;
        waiting -= cost;
        doneMs = nowMs + cost;
      }
    },
  );
  fc.assert(rule, runs(20));
});

test("while the warm wait, a quarter of the time at most goes into cold ones that are taken before them", () => {
  const { add, take } = waitingRoom();
  for (let i = 0; i < 100; i++) add(2000, 0);
  let coldMs = 0;
  const END_MS = 300_000;
  for (let nowMs = 100_000; nowMs < 100_000 + END_MS; nowMs += 10) {
    add(1000, 990, nowMs - 50);
    if (take(nowMs)!.length === 2000) coldMs += 2000;
  }
  expect(coldMs / END_MS).toBeGreaterThan(0.24);
  expect(coldMs / END_MS).toBeLessThan(0.26);
});
