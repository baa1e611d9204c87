import { expect, test } from "bun:test";
import fc from "fast-check";
import { SimulatedDevice } from "../../../gpu/simulated/device.ts";
import type { EngineId, SequenceId } from "../../../scheduler/core.ts";
import { linearCost } from "../../../scheduler/cost/linear.ts";
import { Engine } from "../../../scheduler/engine/engine.ts";
import { settingsOf } from "../../../scheduler/engine/engine-options.ts";
import { type Expected, Fleet } from "../../../scheduler/fleet/fleet.ts";
import type { EngineMessage } from "../../../scheduler/messages.ts";
import { ours } from "../../../scheduler/policies.ts";
import { deviceSpec, sequenceSpec, tokensFrom } from "../../../simulation/factories.ts";
import { ManualClock } from "../../../simulation/manual-clock.ts";
import { runs } from "../../../tests/support/property.ts";
import { KeptPrefixes } from "./kept-prefixes.ts";

const MINUTE_MS = 60_000;
const PROMPT_TOKENS = 160;

/** A fleet of engines with 40 pages each, and its kept prefixes. */
function openFleet(engineCount = 1) {
  const clock = new ManualClock();
  const spec = deviceSpec({ pages: 40 });
  const engines = Array.from({ length: engineCount }, (_, id) => {
    const device = new SimulatedDevice(spec, clock, linearCost(1, 0.01));
    const engine = new Engine(
      device,
      clock,
      { ...settingsOf(ours(), engineCount), integrity: "always" },
      (report) => fleet.report(id as EngineId, report),
    );
    const link = {
      send: (message: EngineMessage) => {
        engine.receive(message);
        engine.run();
      },
    };
    return { link, spec };
  });
  /** Engines by sequence. */
  const placed = new Map<SequenceId, EngineId>();
  const fleet = new Fleet(engines, {
    costs: engines.map(() => linearCost(1, 0.01)),
    clock,
    onPlacement: (sequence, { engine }) => placed.set(sequence, engine),
  });
  const kept = new KeptPrefixes(
    fleet,
    engines.map((engine) => engine.spec),
    clock,
  );
  /** Runs a prompt to its end. Returns its number of cached tokens. */
  const run = (from: number, tokens = PROMPT_TOKENS): number => place(from, tokens).cached;
  const place = (from: number, tokens = PROMPT_TOKENS) => {
    let cached = 0;
    let isDone = false;
    const id = fleet.submit(sequenceSpec(tokensFrom(from, tokens), 1), {
      onStarted: (tokensCached) => {
        cached = tokensCached;
      },
      onToken: () => {},
      onFinish: ({ kind }) => {
        isDone = kind === "length";
      },
    });
    for (let steps = 0; !isDone && steps < 1000; steps++) clock.advance(1);
    expect(isDone).toBe(true);
    return { cached, engine: placed.get(id)! };
  };
  return { clock, kept, run, place };
}

const ann = { tenant: "ann", cacheSalt: "", adapter: 0 };
const marked = [...tokensFrom(0, PROMPT_TOKENS)];

test("what is marked outlives other prompts until its time is over, and what is not does not", () => {
  for (const [isMarked, afterMs, cached] of [
    [true, 0, PROMPT_TOKENS - 1],
    [false, 0, 0],
    [true, 6 * MINUTE_MS, 0],
  ] as const) {
    const { clock, kept, run } = openFleet();
    run(0);
    if (isMarked) kept.keep(ann, marked, 5 * MINUTE_MS);
    clock.advance(afterMs);
    for (const from of [200, 400, 600, 800]) run(from);
    expect(run(0)).toBe(cached);
  }
});

test("a prompt that needs the room has it, whatever is kept", () => {
  const { kept, run } = openFleet();
  run(0);
  kept.keep(ann, marked, 5 * MINUTE_MS);
  run(300, 40 * 16 - 1);
  expect(run(0)).toBe(0);
});

test("of several engines the one that keeps a prefix has its next reader, however many others come", () => {
  const { kept, place } = openFleet(2);
  const homes = [0, 200].map((from) => {
    const { engine } = place(from);
    kept.keep(ann, [...tokensFrom(from, PROMPT_TOKENS)], 5 * MINUTE_MS);
    return engine;
  });
  expect(new Set(homes).size).toBe(2);
  // All tokens of both prefixes, more than one engine alone would grant one key.
  expect(kept.tokensOf("ann")).toBe(2 * PROMPT_TOKENS);
  const others = Array.from({ length: 8 }, (_, i) => place(400 + 70 * i));
  expect(new Set(others.map(({ engine }) => engine)).size).toBe(2);
  expect(others.every(({ cached }) => cached === 0)).toBe(true);
  const again = [0, 200].map((from) => place(from));
  expect(again).toEqual(homes.map((engine) => ({ engine, cached: PROMPT_TOKENS - 1 })));
});

/** The fleet's interface as a record of open prefix hints. */
class Expectations {
  readonly open = new Map<SequenceId, Expected>();
  #next = 0;

  expect(expected: Expected): SequenceId {
    const id = this.#next++ as SequenceId;
    this.open.set(id, expected);
    return id;
  }

  forget(id: SequenceId): void {
    this.open.delete(id);
  }
}

test("a key has no more kept than it may, all that was marked last, and nothing once all times are over", () => {
  const mark = fc.record({
    tenant: fc.constantFrom("ann", "bob"),
    adapter: fc.constantFrom(0, 0, 2 ** 32),
    from: fc.nat(3),
    tokens: fc.integer({ min: 1, max: 200 }),
    ttlMs: fc.constantFrom(5 * MINUTE_MS, 60 * MINUTE_MS),
    waitMs: fc.nat(3 * MINUTE_MS),
  });
  fc.assert(
    fc.property(fc.array(mark, { maxLength: 30 }), (marks) => {
      const clock = new ManualClock();
      const fleet = new Expectations();
      const kept = new KeptPrefixes(fleet, [deviceSpec({ pages: 40 })], clock);
      for (const { tenant, adapter, from, tokens, ttlMs, waitMs } of marks) {
        const prefix = [...tokensFrom(from, tokens)];
        kept.keep({ tenant, cacheSalt: tenant, adapter }, prefix, ttlMs);
        const own = [...fleet.open.values()].filter(({ cacheSalt }) => cacheSalt === tenant);
        const sum = own.reduce((total, one) => total + one.tokens.length, 0);
        expect(kept.tokensOf(tenant)).toBe(sum);
        expect(sum).toBeLessThanOrEqual((40 * 16) / 4);
        const told = prefix.slice(0, (40 * 16) / 4);
        const shares = own.filter((one) => one.adapter === adapter);
        expect(shares.some((one) => told.every((token, i) => one.tokens[i] === token))).toBe(true);
        clock.advance(waitMs);
      }
      clock.advance(60 * MINUTE_MS);
      expect(fleet.open.size).toBe(0);
    }),
    runs(200),
  );
});
