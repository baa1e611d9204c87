/** Placement rules of the baselines, by example. */

import { describe, expect, test } from "bun:test";
import type { KvEvent } from "../../scheduler/cache/kv-event-log.ts";
import { hashPages, keyHash } from "../../scheduler/cache/page-hash.ts";
import { cacheKeyOf, type EngineId, type SequenceId } from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { Dispatcher } from "../../scheduler/fleet/dispatcher.ts";
import type { Placement } from "../../scheduler/fleet/placement.ts";
import { ours } from "../../scheduler/policies.ts";
import type { PlacementBaseline } from "../../scheduler/policy.ts";
import { deviceSpec, sequenceSpec } from "../factories.ts";
import { roundRobin, shortestQueue } from "./placements.ts";
import { type PrebleOptions, prebleE2 } from "./preble-placement.ts";
import { WINDOW_MS } from "./preble-window.ts";

const spec = deviceSpec({ pages: 1024, contextMax: 8192, vocabSize: 100_000 });
/** Costs where a prompt of n tokens takes 5 + n / 10 ms. A decode in a step of 32 takes 8.2 / 32 ms. */
const costs = linearCost(5, 0.1);
const asPublished: PrebleOptions = { adjusts: true, balances: true, knowsEvictions: true };
const bare: PrebleOptions = { adjusts: false, balances: false, knowsEvictions: true };

/** Makes a prompt that shares no prefix with those of other numbers. */
function text(number: number, tokens: number): number[] {
  return Array.from({ length: tokens }, (_, i) => 1000 * (number + 1) + (i % 1000));
}

class Bench {
  readonly dispatcher: Dispatcher;
  readonly #numbers: number[];
  #nextId = 0;
  nowMs = 1;

  constructor(placement: PlacementBaseline, engines = 2, pages = spec.pages) {
    const members = Array.from({ length: engines }, () => ({ spec: { ...spec, pages }, costs }));
    this.dispatcher = new Dispatcher({ ...ours(null), placement }, members);
    this.#numbers = members.map(() => 0);
  }

  place(promptTokens: readonly number[]): Placement & { readonly id: SequenceId } {
    const id = this.#nextId as SequenceId;
    this.#nextId += 1;
    const sequence = { ...sequenceSpec(promptTokens, 1000), id };
    return { ...this.dispatcher.place(sequence, this.nowMs)!, id };
  }

  /** Places a request, which waits and then answers with `tokens` tokens. */
  run(promptTokens: readonly number[], tokens = 0, waitedMs = 0): Placement {
    const placement = this.place(promptTokens);
    this.dispatcher.started(placement.id, 0, this.nowMs + waitedMs);
    for (let i = 0; i < tokens; i++) this.dispatcher.drew(placement.id);
    this.dispatcher.ended(placement.id, true);
    return placement;
  }

  tell(engine: EngineId, kind: KvEvent["kind"], prompt: readonly number[], from: number, isWhole = false) {
    const path = hashPages(
      prompt,
      0,
      Math.floor(prompt.length / 16),
      16,
      keyHash(cacheKeyOf({ adapter: 0, cacheSalt: "" })),
    );
    const number = this.#numbers[engine]!;
    this.#numbers[engine] = number + 1;
    const load = { kind: "load" } as never;
    return this.dispatcher.reported(engine, load, {
      epoch: 0,
      number,
      isWhole,
      events: [{ kind, path, from }],
    });
  }

  miss(engine: EngineId): void {
    this.#numbers[engine]! += 1;
  }
}

test("round robin goes on after the one that is gone", () => {
  const bench = new Bench(roundRobin, 3);
  const turns = (count: number): number[] =>
    Array.from({ length: count }, (_, i) => bench.place(text(i, 20)).engine);
  expect(turns(4)).toEqual([0, 1, 2, 0]);
  bench.dispatcher.lost(1 as EngineId);
  expect(turns(3)).toEqual([2, 0, 2]);
});

test("the shortest queue is that of the fewest that have not ended", () => {
  const bench = new Bench(shortestQueue, 2);
  const placed = [0, 1, 2].map((i) => bench.place(text(i, 20)));
  expect(placed.map(({ engine }) => engine)).toEqual([0, 1, 0] as EngineId[]);
  bench.dispatcher.ended(placed[0]!.id, true);
  bench.dispatcher.ended(placed[2]!.id, true);
  expect(bench.place(text(3, 20)).engine).toBe(0 as EngineId);
});

describe("Preble", () => {
  test("L + M + P: prefills and decodes of the window, done or not, and nothing else", () => {
    const bench = new Bench(prebleE2(bare));
    bench.run(text(1, 320), 100);
    const [first, second] = bench.place(text(2, 160)).costs;
    const decodeMs = (100 * costs.stepMs({ prompts: [], decodes: 32, decodeContext: 32 * 320 })) / 32;
    expect(first).toEqual({
      engine: 0 as EngineId,
      cachedTokens: 0,
      loadMs: 37 + decodeMs,
      evictMs: 0,
      promptMs: 21,
      decodeMs: 0,
      harmMs: 0,
      delayMs: 0,
    });
    expect(second).toEqual({ ...first!, engine: 1 as EngineId, loadMs: 0 });
    bench.nowMs += WINDOW_MS;
    expect(bench.place(text(3, 160)).costs.map(({ loadMs }) => loadMs)).toEqual([0, 0]);
  });

  test("more than half cached is exploited, half is explored", () => {
    const bench = new Bench(prebleE2(bare));
    bench.run(text(1, 160));
    const half = bench.place([...text(1, 160), ...text(2, 160)]);
    expect([half.engine, half.reason]).toEqual([1 as EngineId, "explore"]);
    // Both have it cached now; the rule chooses the one with less work.
    const more = bench.place([...text(1, 160), ...text(3, 144)]);
    expect([more.engine, more.reason, more.costs[0]!.cachedTokens]).toEqual([0 as EngineId, "exploit", 160]);
  });

  test("M is what would be evicted, least recently used first, by its share of the requests", () => {
    const bench = new Bench(prebleE2(bare), 2, 40);
    const [wanted, other] = [text(1, 320), text(2, 320)];
    bench.dispatcher.lost(1 as EngineId);
    for (const prompt of [wanted, other]) bench.run(prompt);
    bench.dispatcher.joined(1 as EngineId, spec, 1, 0);
    bench.run(wanted);
    // 40 pages are full; the ten pages of `other`, with one of three requests, are evicted.
    expect(bench.place(text(3, 160)).costs[0]!.evictMs).toBeCloseTo(21 / 3, 6);
  });

  test("a notice of an eviction is believed, an insertion is not told", () => {
    const bench = new Bench(prebleE2(bare));
    const prompt = text(1, 320);
    const { engine } = bench.run(prompt);
    expect(bench.tell(engine, "evict", prompt, 8)).toBeNull();
    expect(bench.place(prompt).reason).toBe("explore");
    expect(bench.tell(1 as EngineId, "insert", text(5, 320), 0)).toBeNull();
    expect(bench.place(text(5, 320)).costs[1]!.cachedTokens).toBe(0);
  });

  test("after a gap in the notices everything is told again", () => {
    const bench = new Bench(prebleE2(bare));
    const prompt = text(1, 320);
    const { engine } = bench.run(prompt);
    bench.miss(engine);
    expect(bench.tell(engine, "evict", text(2, 320), 0)).toBe("resync");
    expect(bench.tell(engine, "insert", text(3, 320), 0, true)).toBeNull();
    expect(bench.place(text(3, 320)).reason).toBe("exploit");
    expect(bench.place(prompt).reason).toBe("explore");
  });

  test("without notices a prefix counts as cached as long as a request of the window has it", () => {
    const bench = new Bench(prebleE2({ ...bare, knowsEvictions: false }));
    const prompt = text(1, 320);
    bench.run(prompt);
    expect(bench.place(prompt).reason).toBe("exploit");
    bench.nowMs += WINDOW_MS;
    expect(bench.place(prompt).reason).toBe("explore");
  });

  test("one hot prefix spreads over all engines, however heavy it is", () => {
    const hot = text(1, 1600);
    const enginesOf = (options: PrebleOptions): number => {
      const bench = new Bench(prebleE2(options), 8);
      const engines = Array.from(
        { length: 80 },
        (_, i) => bench.run([...hot, ...text(i + 2, 64)], 10).engine,
      );
      return new Set(engines).size;
    };
    expect([enginesOf(bare), enginesOf(asPublished)]).toEqual([1, 8]);
  });

  test("a prefix whose requests wait twice as long as before is replicated", () => {
    const bench = new Bench(prebleE2(asPublished));
    const [hot, other] = [text(1, 1600), text(2, 1600)];
    // Both engines have equal work, so that no request is redirected.
    const reasons: string[] = [];
    for (let i = 0; i < 40; i++) {
      bench.nowMs += WINDOW_MS / 40;
      reasons.push(bench.run([...hot, ...text(i + 10, 64)], 0, i < 20 ? 10 : 30).reason);
      bench.run([...other, ...text(i + 100, 64)], 0, 10);
    }
    expect(reasons).toContain("replicate");
  });

  test("what is explored goes to an engine that has hardly anything but decodes", () => {
    const placeOn = (balances: boolean): Placement => {
      const bench = new Bench(prebleE2({ ...bare, balances }));
      bench.run(text(1, 32), 3000);
      return bench.place(text(2, 320));
    };
    expect([placeOn(true).engine, placeOn(true).reason]).toEqual([0 as EngineId, "balance"]);
    expect([placeOn(false).engine, placeOn(false).reason]).toEqual([1 as EngineId, "explore"]);
  });
});
