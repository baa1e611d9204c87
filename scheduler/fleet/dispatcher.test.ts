/** Placement by example: E2, its reasons, and the events that keep its view of the engines true. */

import { describe, expect, test } from "bun:test";
import { deviceSpec, sequenceSpec } from "../../simulation/factories.ts";
import type { KvEvents } from "../cache/kv-event-log.ts";
import { hashPages, keyHash } from "../cache/page-hash.ts";
import {
  cacheKeyOf,
  type EngineId,
  type Objective,
  type SequenceId,
  type SequenceSpec,
  type Service,
} from "../core.ts";
import { linearCost } from "../cost/linear.ts";
import { type EngineLoad, idleLoad } from "../messages.ts";
import { ours } from "../policies.ts";
import type { PlacementPolicy } from "../policy.ts";
import { WINDOW_MS } from "./costs.ts";
import { Dispatcher, type DispatchPolicy } from "./dispatcher.ts";
import { checkIndex } from "./integrity.ts";
import { explain, type Placement, totalMs } from "./placement.ts";

const PAGE_TOKENS = 16;
const spec = deviceSpec({ pages: 1024, contextMax: 8192, vocabSize: 100_000 });
/** 5 ms for a step and 0.1 ms for each of its tokens. */
const costs = linearCost(5, 0.1);

/** Policy under test. */
const served: DispatchPolicy = {
  placement: { kind: "e2" },
  queue: ours(null).queue,
  batch: ours(null).batch,
};

interface Options {
  readonly tokensMax?: number;
  readonly service?: Partial<Service>;
  readonly cacheSalt?: string;
}

/** Dispatcher with engines that complete their work at once. */
class Bench {
  readonly dispatcher: Dispatcher;
  readonly #kvEvents: number[];
  readonly #steps: number[];
  #nextId = 0;
  nowMs = 0;

  constructor(engines: number, placement: PlacementPolicy = served.placement, perEngine = costs) {
    this.dispatcher = new Dispatcher(
      { ...served, placement },
      Array.from({ length: engines }, () => ({ spec, costs: perEngine })),
    );
    this.#kvEvents = Array.from({ length: engines }, () => 0);
    this.#steps = Array.from({ length: engines }, () => 0);
    for (let engine = 0; engine < engines; engine++) this.report(engine);
  }

  place(promptTokens: readonly number[], options: Options = {}): Placement & { readonly id: SequenceId } {
    const id = this.#nextId as SequenceId;
    this.#nextId += 1;
    return { ...this.dispatcher.place(sequence(id, promptTokens, options), this.nowMs)!, id };
  }

  taskGroup(prompts: readonly (readonly number[])[], options: Options = {}): number[] {
    const members = prompts.map((prompt) => {
      this.#nextId += 1;
      return sequence((this.#nextId - 1) as SequenceId, prompt, options);
    });
    return this.dispatcher.placeTaskGroup(members, this.nowMs).map((placement) => placement!.engine);
  }

  report(engine: number, load: Partial<EngineLoad> = {}, kvEvents: KvEvents | null = null) {
    this.#steps[engine]! += 1;
    const told = { ...idleLoad(spec), stepsTotal: this.#steps[engine]!, stepMs: 5, ...load };
    return this.dispatcher.reported(engine as EngineId, told, kvEvents);
  }

  /** Reports that whole pages of the prompt from page `from` on were inserted or evicted. */
  tell(
    engine: number,
    kind: "insert" | "evict",
    prompt: readonly number[],
    from = 0,
    load: Partial<EngineLoad> = {},
  ) {
    const number = this.#kvEvents[engine]!;
    this.#kvEvents[engine] = number + 1;
    const path = pathOf(prompt);
    return this.report(engine, load, { epoch: 0, number, isWhole: false, events: [{ kind, path, from }] });
  }

  /** Drops a report of the engine. */
  miss(engine: number): void {
    this.#kvEvents[engine]! += 1;
  }

  tellAll(engine: number, prompts: readonly (readonly number[])[]) {
    const number = this.#kvEvents[engine]!;
    this.#kvEvents[engine] = number + 1;
    const events = prompts.map((prompt) => ({ kind: "insert" as const, path: pathOf(prompt), from: 0 }));
    return this.report(engine, {}, { epoch: 0, number, isWhole: true, events });
  }

  /** Places a prompt, and computes it and its answer of one token. */
  run(promptTokens: readonly number[], options: Options = {}): Placement {
    const placement = this.place(promptTokens, options);
    this.tell(placement.engine, "insert", promptTokens);
    this.finish(placement.id);
    return placement;
  }

  finish(id: SequenceId): void {
    this.dispatcher.started(id, 0, this.nowMs);
    this.dispatcher.drew(id);
    this.dispatcher.ended(id, true);
  }
}

function sequence(
  id: SequenceId,
  promptTokens: readonly number[],
  { tokensMax = 1, ...rest }: Options = {},
): SequenceSpec {
  return { ...sequenceSpec(promptTokens, tokensMax, rest), id };
}

function pathOf(prompt: readonly number[]): Float64Array {
  return hashPages(
    prompt,
    0,
    Math.floor(prompt.length / PAGE_TOKENS),
    PAGE_TOKENS,
    keyHash(cacheKeyOf({ adapter: 0, cacheSalt: "" })),
  );
}

/** Prompts that share nothing with those of other numbers. */
function text(number: number, tokens: number): number[] {
  return Array.from({ length: tokens }, (_, i) => 1000 * (number + 1) + (i % 1000));
}

describe("exploit and explore", () => {
  test("verbatim_repeat_is_exploit", () => {
    const bench = new Bench(3);
    const prompt = text(1, 160);
    const first = bench.run(prompt);
    expect(first.reason).toBe("explore");
    const second = bench.place(prompt);
    expect(second).toMatchObject({ engine: first.engine, reason: "exploit" });
    // The last token is computed in any case, and with it its page.
    expect(second.costs[second.engine]!.cachedTokens).toBe(144);
  });

  test("a match of two thirds exploits, one of a third explores an idle engine", () => {
    const bench = new Bench(2);
    const shared = text(1, 160);
    const { engine } = bench.run(shared);
    bench.run(text(2, 160));
    expect(bench.place([...shared, ...text(3, 80)])).toMatchObject({ engine, reason: "exploit" });
    expect(bench.place([...text(1, 80), ...text(4, 160)]).reason).toBe("explore");
  });

  test("an in-flight prefix counts as cached until its sequence fails", () => {
    const bench = new Bench(2);
    const prompt = text(1, 320);
    const first = bench.place(prompt);
    const second = bench.place(prompt);
    expect(second).toMatchObject({ engine: first.engine, reason: "exploit" });
    bench.dispatcher.ended(first.id, false);
    bench.dispatcher.ended(second.id, false);
    expect(bench.place(prompt).reason).toBe("explore");
    expect(bench.dispatcher.stats()).toMatchObject({ pages: 20, nodes: 1 });
  });

  test("the load includes the wait for the uncomputed rest of an in-flight prefix", () => {
    const bench = new Bench(2);
    const prompt = text(1, 320);
    const { engine } = bench.place(prompt);
    const waitMs = (id: number): number => {
      const placed = bench.place([...prompt, ...text(id, 16)]);
      bench.dispatcher.ended(placed.id, false);
      return placed.costs[engine]!.loadMs;
    };
    const before = waitMs(2);
    expect(before).toBeGreaterThan(30);
    bench.tell(engine, "insert", prompt.slice(0, 160));
    const half = waitMs(3);
    expect(before - half).toBeGreaterThan(14);
    bench.tell(engine, "insert", prompt, 10);
    expect(half - waitMs(4)).toBeGreaterThan(8);
  });

  test("a document in a burst of prompts is computed on all engines before the first has it", () => {
    const bench = new Bench(4);
    const shared = text(1, 3200);
    const engines = Array.from(
      { length: 40 },
      (_, index) => bench.place([...shared, ...text(index + 2, 16)], { tokensMax: 10 }).engine,
    );
    expect(new Set(engines).size).toBe(4);
    expect(new Set(engines.slice(0, 3)).size).toBe(1);
  });

  test("evicted_prefix_is_miss", () => {
    const bench = new Bench(2);
    const prompt = text(1, 320);
    const { engine } = bench.run(prompt);
    bench.tell(engine, "evict", prompt, 8);
    // Eight pages of twenty are left: less than half.
    const placed = bench.place(prompt);
    expect(placed.reason).toBe("explore");
    expect(placed.costs[engine]!.cachedTokens).toBe(128);
  });

  test("prefixes of another salt are not found", () => {
    const bench = new Bench(2);
    bench.run(text(1, 320));
    const placed = bench.place(text(1, 320), { cacheSalt: "other" });
    expect(placed.costs.map(({ cachedTokens }) => cachedTokens)).toEqual([0, 0]);
  });

  test("spill: a holder is left when waiting there costs more than computing the prefix elsewhere", () => {
    const prompt = text(1, 160);
    const bench = new Bench(2);
    const { engine } = bench.run(prompt);
    const reasons: string[] = [];
    // Each of those that wait has 4 ms of its own to compute; elsewhere the prefix takes 16 ms, and 8 of
    // somebody else's.
    while (!reasons.includes("spill") && reasons.length < 40) {
      reasons.push(bench.place([...prompt, ...text(reasons.length + 2, 40)], { tokensMax: 1 }).reason);
    }
    expect(engine).toBe(0 as EngineId);
    expect(reasons).toEqual([...Array.from({ length: reasons.length - 1 }, () => "exploit"), "spill"]);
    expect(reasons.length).toBeGreaterThan(3);
    expect(reasons.length).toBeLessThan(12);
  });

  test("hot_prefix_does_not_disable_affinity_for_others", () => {
    const bench = new Bench(4);
    const own = text(1, 320);
    const { engine } = bench.run(own);
    const hot = text(2, 320);
    const engines = new Set<number>();
    for (let i = 0; i < 200; i++) {
      const placed = bench.place([...hot, ...text(i + 10, 32)], { tokensMax: 4 });
      engines.add(placed.engine);
      bench.tell(placed.engine, "insert", [...hot, ...text(i + 10, 32)]);
    }
    expect(engines.size).toBe(4);
    expect(bench.place(own)).toMatchObject({ engine, reason: "exploit" });
  });

  test("idle_node_gets_work_at_low_load", () => {
    const bench = new Bench(3);
    const engines = Array.from({ length: 9 }, (_, i) => {
      const { engine } = bench.run(text(i, 320));
      bench.report(engine, { pagesFree: spec.pages - 20 * bench.dispatcher.index!.pagesCached(engine) });
      return engine;
    });
    for (const engine of [0, 1, 2]) expect(engines.filter((other) => other === engine)).toHaveLength(3);
  });

  test("ties_deterministic", () => {
    const history = (): string[] => {
      const bench = new Bench(4);
      return Array.from({ length: 60 }, (_, i) => {
        const placed = bench.place(text(i % 7, 100 + (i % 5) * 40), { tokensMax: 1 + (i % 9) });
        if (i % 3 === 0) bench.finish(placed.id);
        bench.nowMs += 7;
        return explain(placed.id, placed);
      });
    };
    expect(history()).toEqual(history());
    expect(new Bench(4).place(text(1, 100)).engine).toBe(0 as EngineId);
  });

  test("one engine takes everything, and needs no costs", () => {
    const bench = new Bench(1);
    for (let i = 0; i < 5; i++) {
      expect(bench.place(text(i, 100))).toMatchObject({ engine: 0, reason: "only", costs: [] });
    }
  });

  test("nothing in common: work is spread evenly", () => {
    const bench = new Bench(4);
    const work = [0, 0, 0, 0];
    for (let i = 0; i < 1000; i++) {
      const tokens = 50 + ((i * 37) % 400);
      work[bench.place(text(i, tokens), { tokensMax: 1 }).engine]! += tokens;
    }
    const mean = work.reduce((sum, part) => sum + part, 0) / 4;
    expect(Math.max(...work) / mean).toBeLessThan(1.1);
  });
});

describe("engine reports", () => {
  test("notification_gap_resync", () => {
    const bench = new Bench(2);
    const known = text(1, 320);
    const { engine } = bench.run(known);
    bench.miss(engine);
    expect(bench.tell(engine, "insert", text(2, 320))).toBe("resync");
    // Pages reported before the gap may be gone; pages reported after it are cached.
    expect(bench.place(known).reason).toBe("explore");
    expect(bench.tell(engine, "insert", text(3, 320))).toBeNull();
    expect(bench.tellAll(engine, [known, text(2, 320)])).toBeNull();
    expect(bench.place(known)).toMatchObject({ engine, reason: "exploit" });
    expect(bench.dispatcher.index!.pagesCached(engine)).toBe(40);
    checkIndex(bench.dispatcher.index!, 2);
  });

  test("load_tracked_on_every_endpoint_and_on_error", () => {
    const bench = new Bench(2);
    const { dispatcher } = bench;
    const endings: ((id: SequenceId) => void)[] = [
      (id) => dispatcher.ended(id, false),
      (id) => {
        dispatcher.started(id, 0, 0);
        dispatcher.ended(id, false);
      },
      (id) => {
        dispatcher.started(id, 64, 0);
        for (let i = 0; i < 200; i++) dispatcher.drew(id);
        dispatcher.ended(id, true);
      },
      (id) => {
        dispatcher.drew(id);
        dispatcher.ended(id, true);
        dispatcher.ended(id, true);
      },
    ];
    for (const objective of ["latency", "gang", "throughput"] as const) {
      for (const end of endings) {
        const placed = bench.place(text(1, 321), { tokensMax: 500, service: { objective, tbtMs: 50 } });
        expect(dispatcher.workMs(placed.engine)).toBeGreaterThan(0);
        end(placed.id);
        expect([0, 1].map((engine) => dispatcher.workMs(engine as EngineId))).toEqual([0, 0]);
      }
    }
    const ids = [0, 1, 2, 3].map((i) => bench.place(text(i, 100)).id);
    dispatcher.lost(0 as EngineId);
    dispatcher.lost(1 as EngineId);
    expect([0, 1].map((engine) => dispatcher.workMs(engine as EngineId))).toEqual([0, 0]);
    for (const id of ids) dispatcher.ended(id, false);
    expect(dispatcher.stats()).toMatchObject({ pages: 0, nodes: 0 });
    checkIndex(dispatcher.index!, 2);
  });

  test("outstanding work shrinks by the actual hit, by the first token, and with each token", () => {
    const bench = new Bench(2);
    const { dispatcher } = bench;
    const { id, engine } = bench.place(text(1, 400), { tokensMax: 100 });
    const [placed, started, first, second] = [
      () => {},
      () => dispatcher.started(id, 200, 0),
      () => dispatcher.drew(id),
      () => dispatcher.drew(id),
    ].map((event) => {
      event();
      return dispatcher.workMs(engine);
    }) as [number, number, number, number];
    const promptTokenMs =
      costs.stepMs({ prompts: [{ tokens: 2048, context: 0 }], decodes: 0, decodeContext: 0 }) / 2048;
    expect(placed - started).toBeCloseTo(200 * promptTokenMs, 2);
    expect(first - second).toBeCloseTo((5 + 8 * 0.1) / 8, 6);
    expect(started - first).toBeCloseTo(200 * promptTokenMs + (first - second), 2);
  });

  test("answers are expected to be as long as others to the same prompt were", () => {
    const bench = new Bench(2);
    const ask = (prompt: number): number =>
      bench.place(text(prompt, 100), { tokensMax: 5000 }).costs[0]!.decodeMs;
    const unknownMs = ask(1);
    for (let i = 0; i < 200; i++) {
      const { id } = bench.place(text(2, 100), { tokensMax: 5000 });
      for (let token = 0; token < 10; token++) bench.dispatcher.drew(id);
      bench.dispatcher.ended(id, true);
    }
    expect(ask(2)).toBeLessThan(unknownMs / 5);
    expect(bench.place(text(2, 100), { tokensMax: 1 }).costs[0]!.decodeMs).toBeLessThan(ask(2));
  });

  test("a lost engine gets nothing, and a replaced one little until its first step", () => {
    const bench = new Bench(2);
    const { dispatcher } = bench;
    const prompt = text(1, 320);
    bench.run(prompt);
    dispatcher.lost(0 as EngineId);
    expect(bench.place(prompt)).toMatchObject({ engine: 1, reason: "only" });
    dispatcher.joined(0 as EngineId, spec, 1, 0);
    const engines = Array.from({ length: 12 }, (_, i) => bench.place(text(i + 2, 320)));
    const warm = engines.filter(({ engine }) => engine === 0);
    expect(warm.map(({ reason }) => reason)).toEqual(["warm", "warm", "warm", "warm"]);
    // Reports of its former incarnation do not count.
    bench.tell(0, "insert", prompt);
    expect(dispatcher.index!.pagesCached(0)).toBe(0);
    checkIndex(dispatcher.index!, 2);
  });

  test("without a live engine there is no placement", () => {
    const bench = new Bench(1);
    bench.dispatcher.lost(0 as EngineId);
    expect(bench.dispatcher.place(sequence(9 as SequenceId, text(1, 20)), 0)).toBeNull();
  });
});

describe("costs", () => {
  test("evicting a prefix costs its share of recent hits, and nothing without hits", () => {
    const bench = new Bench(2);
    const [wanted, unwanted] = [text(1, 320), text(2, 320)];
    // Engine 0 has the prompt that was hit, engine 1 the other; both are full.
    bench.place(wanted);
    bench.nowMs = 1;
    for (const [engine, prompt] of [wanted, unwanted].entries()) {
      bench.tell(engine, "insert", prompt, 0, { pagesFree: 0, pagesCached: 1024 });
    }
    bench.finish(0 as SequenceId);
    const placed = bench.place(text(3, 320));
    expect(placed.costs[0]!.evictMs).toBeCloseTo(bench.place(text(4, 320)).costs[1]!.promptMs, 1);
    expect(placed.costs[1]!.evictMs).toBe(0);
    expect(placed.engine).toBe(1 as EngineId);
  });

  test("hits leave the window after a while", () => {
    const bench = new Bench(2);
    bench.run(text(1, 320));
    bench.tell(0, "insert", text(1, 320), 0, { pagesFree: 0, pagesCached: 1024 });
    const evictMs = (): number => bench.place(text(2, 320)).costs[0]!.evictMs;
    expect(evictMs()).toBeGreaterThan(0);
    bench.nowMs = 2 * WINDOW_MS;
    expect(evictMs()).toBe(0);
  });

  test("answers beside a new one count by their number more than by what they have left", () => {
    const bench = new Bench(2);
    const placed = Array.from({ length: 40 }, (_, seed) => bench.place(text(seed, 320), { tokensMax: 800 }));
    for (const { id, engine } of placed) {
      bench.dispatcher.started(id, 0, bench.nowMs);
      const drawn = engine === 0 ? 1 : 90;
      for (let token = 0; token < drawn; token++) bench.dispatcher.drew(id);
    }
    for (const { id } of placed.filter(({ engine }) => engine === 0).slice(10)) {
      bench.dispatcher.ended(id, false);
    }
    const { costs } = bench.place(text(41, 320), { tokensMax: 800 });
    // 10 with 127 of 128 tokens to come against 20 with 38.
    const beside = [(10 * 127 + 2 * 10 * 128) / 3, (20 * 38 + 2 * 20 * 128) / 3];
    expect(costs.map(({ loadMs, decodeMs }) => (128 * loadMs) / decodeMs)).toEqual(
      beside.map((tokens) => expect.closeTo(tokens, 6)),
    );
  });

  test("waiting for pages of running sequences costs a share of their work", () => {
    const bench = new Bench(2);
    bench.place(text(1, 3200), { tokensMax: 800 });
    bench.report(0, { pagesFree: 0, pagesCached: 0 });
    bench.report(1, { pagesFree: 0, pagesCached: 1024 });
    const { costs } = bench.place(text(2, 320 * 16 - 16), { tokensMax: 16 });
    // On engine 0 the 208 pages of the first come before the 320 of this one, of 1024 that are held and those
    // 208; engine 1 has them for the evicting.
    const share = (208 + 320) / (1024 + 208);
    expect(costs[0]!.evictMs).toBeCloseTo(share * bench.dispatcher.workMs(0 as EngineId), 0);
    expect(costs[1]!.evictMs).toBe(0);
  });

  test("a sequence without a hit waits four times as long for such pages: those with a hit overtake it", () => {
    const bench = new Bench(2);
    bench.tell(0, "insert", text(1, 3200), 0, { pagesFree: 800, pagesCached: 200 });
    expect(bench.place(text(2, 3200), { tokensMax: 800 }).engine).toBe(1 as EngineId);
    bench.report(1, { pagesFree: 0, pagesCached: 0 });
    const { engine, costs } = bench.place(text(1, 3200), { tokensMax: 16 });
    expect(engine).toBe(0 as EngineId);
    // The 208 pages of the other come before the 201 of this one.
    const share = (208 + 201) / (1024 + 208);
    expect(costs[1]!.evictMs).toBeCloseTo(4 * share * bench.dispatcher.workMs(1 as EngineId), 0);
  });

  test("a stream with a target keeps away from throughput work, one without does not", () => {
    const bench = new Bench(2);
    for (let i = 0; i < 4; i++)
      bench.place(text(i, 500), { service: { objective: "throughput" }, tokensMax: 400 });
    bench.place(text(9, 300), { service: { tbtMs: 20 }, tokensMax: 100 });
    const [first, second] = bench.place(text(10, 300), { service: { tbtMs: 20 }, tokensMax: 100 }).costs;
    const harmed = [first!, second!].filter(({ harmMs }) => harmMs > 0);
    expect(harmed).toHaveLength(1);
    expect(bench.place(text(11, 300)).costs.map(({ harmMs }) => harmMs)).toEqual([0, 0]);
  });

  test("work of later objectives counts by its credits, and offline work for nothing but offline work", () => {
    const asked = (placed: Objective, objectives: readonly Objective[]): number[] => {
      const bench = new Bench(2);
      bench.place(text(1, 1600), { service: { objective: placed } });
      const asks = objectives.map((objective) => bench.place(text(2, 16), { service: { objective } }));
      return asks.map(({ costs }) => costs[0]!.loadMs);
    };
    const [taskGroup, latency] = asked("gang", ["gang", "latency"]);
    expect(latency! / taskGroup!).toBeCloseTo(4 / 12, 1);
    const [offline, ...others] = asked("throughput", ["throughput", "latency"]);
    expect([offline! > 0, others]).toEqual([true, [0]]);
  });

  test("a replaced engine gets its share of arrivals, not all of them", () => {
    const bench = new Bench(2);
    for (bench.nowMs = 1; bench.nowMs < 5000; bench.nowMs += 50) bench.run(text(bench.nowMs % 997, 320));
    bench.dispatcher.lost(0 as EngineId);
    bench.dispatcher.joined(0 as EngineId, spec, 1, bench.nowMs);
    bench.report(0);
    const engines = Array.from({ length: 60 }, (_, i) => {
      bench.nowMs += 10;
      return bench.place(text(2000 + i, 320)).engine;
    });
    const there = engines.filter((engine) => engine === 0).length;
    expect(there).toBeGreaterThan(25);
    expect(there).toBeLessThan(45);
  });

  test("a prompt that fits one engine only goes there", () => {
    const small = deviceSpec({ pages: 8 });
    const dispatcher = new Dispatcher(served, [
      { spec: small, costs },
      { spec, costs },
    ]);
    for (let i = 0; i < 6; i++) {
      const id = i as SequenceId;
      expect(dispatcher.place(sequence(id, text(i, 200)), 0)!.engine).toBe(1 as EngineId);
    }
  });

  test("an engine that is slower gets less", () => {
    const dispatcher = new Dispatcher(served, [
      { spec, costs: linearCost(15, 0.3) },
      { spec, costs },
    ]);
    for (const engine of [0, 1]) {
      dispatcher.reported(engine as EngineId, { ...idleLoad(spec), stepsTotal: 1 }, null);
    }
    const counts = [0, 0];
    for (let i = 0; i < 400; i++) {
      counts[dispatcher.place(sequence(i as SequenceId, text(i, 300)), 0)!.engine]! += 1;
    }
    expect(counts[1]! / counts[0]!).toBeGreaterThan(2);
  });
});

describe("task groups", () => {
  const prefix = text(1, 4096);
  const members = Array.from({ length: 16 }, (_, i) => [...prefix, ...text(i + 2, 64)]);

  /** Time at which the last engine completes its part: uncached prompt tokens, and answers. */
  function makespan(engines: readonly number[], answerMs: number): number {
    const finish = [0, 0, 0, 0];
    engines.forEach((engine, index) => {
      const isFirst = engines.indexOf(engine) === index;
      finish[engine]! += (isFirst ? 4160 : 64) * 0.1 + answerMs;
    });
    return Math.max(...finish);
  }

  test("short answers stay where the prefix is cached, long ones spread", () => {
    const counts = (tokensMax: number): number[] => {
      const bench = new Bench(4);
      bench.run(prefix);
      const engines = bench.taskGroup(members, { tokensMax, service: { objective: "gang", taskGroup: 1 } });
      return [0, 1, 2, 3].map((engine) => engines.filter((other) => other === engine).length);
    };
    expect(counts(1)).toEqual([16, 0, 0, 0]);
    const spread = counts(2000);
    expect(Math.min(...spread)).toBeGreaterThan(0);
    expect(Math.max(...spread)).toBe(spread[0]!);
  });

  test("an uncached prefix is charged once per engine, and the members are divided evenly", () => {
    const engines = new Bench(4).taskGroup(members, {
      tokensMax: 100,
      service: { objective: "gang", taskGroup: 1 },
    });
    expect([0, 1, 2, 3].map((engine) => engines.filter((other) => other === engine).length)).toEqual([
      4, 4, 4, 4,
    ]);
  });

  test("list scheduling has no longer makespan than one engine for all, or placement one by one", () => {
    for (const tokensMax of [1, 40, 100, 400]) {
      const options: Options = { tokensMax, service: { objective: "gang", taskGroup: 1 } };
      const listed = new Bench(4).taskGroup(members, options);
      const bench = new Bench(4);
      const alone = members.map((member) => bench.place(member, options).engine);
      const [own, ...others] = [listed, members.map(() => 0), alone].map((engines) =>
        makespan(engines, Math.min(tokensMax, 128) * 0.725),
      );
      for (const other of others) expect(own).toBeLessThanOrEqual(other);
    }
  });

  test("the longest is placed first, answers keep their order", () => {
    const bench = new Bench(2);
    const engines = bench.taskGroup([text(1, 100), text(2, 100), text(3, 190)], {
      service: { objective: "gang", taskGroup: 1 },
    });
    expect(engines).toEqual([1, 1, 0]);
  });
});

test("a placement is explained in one line", () => {
  const bench = new Bench(2);
  const placed = bench.place(text(1, 320));
  expect(explain(placed.id, placed)).toBe(
    "0 to engine 0, explore: 0 = 49.9 ms (load 0.0, evict 0.0, prompt 32.8, delay 16.4, decode 0.7; 0 tokens cached); " +
      "1 = 49.9 ms (load 0.0, evict 0.0, prompt 32.8, delay 16.4, decode 0.7; 0 tokens cached)",
  );
  for (const cost of placed.costs) expect(totalMs(cost)).toBeGreaterThan(0);
});

describe("prefix hints", () => {
  const hint = (id: number, tokens: readonly number[]) => ({
    id: id as SequenceId,
    tokens,
    cacheSalt: "",
    adapter: 0,
    program: 1,
    isWarmed: true,
  });

  test("of different texts are spread as their sequences would be, and these follow them", () => {
    const bench = new Bench(4);
    const heads = [0, 1, 2, 3, 4, 5, 6, 7].map((start) => text(100 + start, 160));
    const engines = heads.map((head, index) =>
      bench.dispatcher.expect(hint(1000 + index, head), bench.nowMs),
    );
    for (const engine of [0, 1, 2, 3]) expect(engines.filter((one) => one === engine)).toHaveLength(2);
    heads.forEach((head, index) => {
      expect(bench.place([...head, ...text(index, 16)]).engine).toBe(engines[index]!);
      bench.dispatcher.forgot((1000 + index) as SequenceId);
    });
  });

  test("that begin alike share an engine, and what is forgotten counts no longer", () => {
    const bench = new Bench(2);
    const shared = text(100, 320);
    const expectAt = (id: number, tokens: readonly number[]): EngineId =>
      bench.dispatcher.expect(hint(id, tokens), bench.nowMs)!;
    const first = expectAt(1000, [...shared, ...text(1, 16)]);
    expect(expectAt(1001, [...shared, ...text(2, 16)])).toBe(first);
    expect(expectAt(1002, text(101, 160))).not.toBe(first);
    for (const id of [1000, 1001, 1002]) bench.dispatcher.forgot(id as SequenceId);
    expect(expectAt(1003, text(102, 160))).toBe(0 as EngineId);
  });

  test("count as work for other prefix hints alone", () => {
    const bench = new Bench(2);
    const engine = bench.dispatcher.expect(hint(1000, text(100, 320)), bench.nowMs)!;
    const { costs: both } = bench.place(text(0, 64));
    expect(totalMs(both[engine]!)).toBe(totalMs(both[1 - engine]!));
  });
});
