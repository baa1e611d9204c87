/** Fair shares of tenants, in tokens that are computed for them. */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { staticBudget } from "../../../simulation/baselines/static-budget.ts";
import { sequenceSpec, tokensFrom } from "../../../simulation/factories.ts";
import { EngineHarness } from "../../../tests/support/engine-harness.ts";
import { runs } from "../../../tests/support/property.ts";
import type { SequenceId } from "../../core.ts";
import { objectives } from "../../objective.ts";
import { servedAdmission } from "../admission-rule.ts";
import { Sequence } from "../sequence.ts";
import { ColdGate } from "./cold-gate.ts";
import { BUCKET, ResponseRatio } from "./response-ratio.ts";
import { Tenants } from "./tenants.ts";

/** No sequence waits for the prefix of another. */
const ownPrefixes = { ...servedAdmission, findInFlightPrefix: () => null };

const SLACK = 4000;

function waitingRoom() {
  const tenants = new Tenants(SLACK, 0);
  let arrivals = 0;
  const add = (tenant: string): Sequence => {
    const spec = { ...sequenceSpec([1], 1, { service: { tenant } }), id: arrivals as SequenceId };
    const sequence = new Sequence(spec, arrivals, 0);
    arrivals += 1;
    tenants.add(sequence);
    return sequence;
  };
  const take = (tokens: number): Sequence => {
    const sequence = tenants.peek(0)!;
    tenants.take(sequence, tokens);
    return sequence;
  };
  const name = (sequence: Sequence): string => sequence.spec.service.tenant;
  return { tenants, add, take, name };
}

test("backlogged tenants' computed tokens differ by one sequence at most", () => {
  const COST_MAX = 5000;
  const names = ["a", "b", "c"];
  const rule = fc.property(
    fc.array(fc.integer({ min: 1, max: COST_MAX }), { minLength: 2, maxLength: 7 }),
    fc.array(fc.integer({ min: 1, max: 300 }), { minLength: 2, maxLength: 7 }),
    (large, small) => {
      const { add, take, name } = waitingRoom();
      for (const tenant of [...names, ...names]) add(tenant);
      let apart = 0;
      const used = new Map(names.map((tenant) => [tenant, 0]));
      for (let i = 0; i < 300; i++) {
        const costs = i % 3 === 0 ? large : small;
        const cost = costs[i % costs.length]!;
        const tenant = name(take(cost));
        used.set(tenant, used.get(tenant)! + cost);
        add(tenant);
        const values = [...used.values()];
        apart = Math.max(apart, Math.max(...values) - Math.min(...values));
      }
      expect(apart).toBeLessThanOrEqual(COST_MAX);
    },
  );
  fc.assert(rule, runs(15));
});

test("of tenants that are even the highest ratio of wait to cost is next; they come no further apart than that and one sequence", () => {
  const REACH = 3000;
  const COST_MAX = 2000;
  const names = ["a", "b", "c", "d"];
  const rule = fc.property(fc.infiniteStream(fc.integer({ min: 1, max: COST_MAX })), (costs) => {
    const gate = new ColdGate({ computeMs: () => 0, displaces: () => false });
    const tenants = new Tenants(SLACK, REACH, () => new ResponseRatio(gate), gate);
    const waiting: Sequence[] = [];
    let arrivals = 0;
    const add = (tenant: string): void => {
      const spec = sequenceSpec(tokensFrom(arrivals, costs.next().value!), 1, { service: { tenant } });
      const sequence = new Sequence({ ...spec, id: arrivals as SequenceId }, arrivals, 10 * arrivals);
      arrivals += 1;
      waiting.push(sequence);
      tenants.add(sequence);
    };
    for (const tenant of [...names, ...names]) add(tenant);
    const used = new Map(names.map((tenant) => [tenant, 0]));
    for (let i = 0; i < 200; i++) {
      const nowMs = 10 * arrivals + 1;
      const next = tenants.peek(nowMs)!;
      const { tenant } = next.spec.service;
      const least = Math.min(...waiting.map(({ queued }) => queued.counter!.used));
      expect(next.queued.counter!.used).toBeLessThanOrEqual(least + REACH);
      const even = waiting.filter(({ queued }) => queued.counter!.used <= least + REACH);
      const cheaper = even.filter(
        (one) => one.arrivedMs <= next.arrivedMs && one.length * BUCKET < next.length,
      );
      expect(cheaper.map(({ id }) => id)).toEqual([]);
      tenants.take(next, next.length);
      waiting.splice(waiting.indexOf(next), 1);
      used.set(tenant, used.get(tenant)! + next.length);
      add(tenant);
      const values = [...used.values()];
      expect(Math.max(...values) - Math.min(...values)).toBeLessThanOrEqual(REACH + COST_MAX);
    }
  });
  fc.assert(rule, runs(15));
});

test("a tenant's sequences are first come, first served, and tenants with equal use take turns", () => {
  const { add, take } = waitingRoom();
  for (let i = 0; i < 3; i++) for (const tenant of ["a", "b"]) add(tenant);
  expect(Array.from({ length: 6 }, () => take(500).arrival)).toEqual([0, 1, 2, 3, 4, 5]);
});

test("turns follow use, also of many tenants whose use grows while they wait", () => {
  const rule = fc.property(
    fc.array(fc.record({ tenant: fc.nat({ max: 20 }), cost: fc.integer({ min: 1, max: 900 }) }), {
      minLength: 60,
      maxLength: 120,
    }),
    (turns) => {
      const { tenants, add, take } = waitingRoom();
      const waiting: Sequence[] = [];
      for (const { tenant } of turns) waiting.push(add(`${tenant}`));
      for (const { tenant, cost } of turns) {
        const charged = waiting.find(({ spec }) => spec.service.tenant === `${tenant}`);
        if (charged !== undefined && tenants.size > 0) charged.queued.counter!.chargeOccupancy(cost, 100_000);
        const least = Math.min(...waiting.map(({ queued }) => queued.counter!.used));
        const next = tenants.peek(0)!;
        expect(next.queued.counter!.used).toBe(least);
        expect(take(cost)).toBe(next);
        waiting.splice(waiting.indexOf(next), 1);
      }
      expect(tenants.peek(0)).toBeNull();
    },
  );
  fc.assert(rule, runs(30));
});

test("generated tokens are charged as they come, so a tenant with long answers is admitted less", () => {
  const { add, take, name } = waitingRoom();
  const picks = { a: 0, b: 0 };
  for (const tenant of ["a", "a", "b", "b"]) add(tenant);
  for (let i = 0; i < 200; i++) {
    const sequence = take(500);
    const tenant = name(sequence) as "a" | "b";
    picks[tenant] += 1;
    if (tenant === "a") for (let token = 0; token < 1500; token++) sequence.queued.counter!.chargeOutput();
    add(tenant);
  }
  expect(picks.b / picks.a).toBeGreaterThan(3.5);
  expect(picks.b / picks.a).toBeLessThan(4.5);
});

test("a tenant with little recent use goes first for a while, with bounded credit", () => {
  const { add, take, name } = waitingRoom();
  add("idle");
  take(1);
  for (let i = 0; i < 30; i++) {
    add("crowd");
    take(1000);
  }
  for (let i = 0; i < 12; i++) for (const tenant of ["crowd", "idle"]) add(tenant);
  const picks = Array.from({ length: 8 }, () => name(take(1000)));
  expect(picks.filter((tenant) => tenant === "idle")).toHaveLength(6);
  expect(picks.slice(0, 4)).toEqual(["idle", "idle", "idle", "idle"]);
});

test("a tenant with much recent use waits for a bounded time; a new tenant starts level with the others", () => {
  const { add, take, name } = waitingRoom();
  for (const tenant of ["a", "b"]) add(tenant);
  take(100_000);
  take(1);
  for (let i = 0; i < 12; i++) for (const tenant of ["a", "b", "new"]) add(tenant);
  const picks = Array.from({ length: 9 }, () => name(take(1000)));
  expect(picks.filter((tenant) => tenant === "a").length).toBeLessThanOrEqual(1);
  const later = Array.from({ length: 9 }, () => name(take(1000)));
  expect(later.filter((tenant) => tenant === "a")).toHaveLength(3);
});

test("what is used while nobody waits is not charged", () => {
  const { add, take } = waitingRoom();
  const { counter } = add("a").queued;
  take(1);
  for (let i = 0; i < 500; i++) counter!.chargeOutput();
  expect(counter!.used).toBe(1);
  add("b");
  counter!.chargeOutput();
  expect(counter!.used).toBe(2);
});

test("cached_tokens_not_charged_as_compute: they cost the room they take, a hundredth of a token a second", () => {
  const harness = new EngineHarness({
    spec: { pages: 256 },
    engine: {
      queue: { kind: "lanes", lanes: objectives, tenantSlack: 400, tenantReach: 0 },
      batch: staticBudget(2048),
      admission: { sequencesMax: 1, rule: ownPrefixes },
    },
  });
  const submit = (tenant: string, first: number): SequenceId =>
    harness.submit(sequenceSpec(tokensFrom(first, 400), 1, { service: { tenant } }));
  submit("cached", 0);
  harness.finish();
  for (let i = 0; i < 8; i++) submit("other", 100 * i + 37);
  for (let i = 0; i < 8; i++) submit("cached", 0);
  harness.finish();
  const order = harness.steps.map(({ chunks }) => chunks[0]!.sequence as number);
  // The cost of one uncached prompt equals four turns, and a tenant with cached prompts has all of its own in
  // each.
  expect(order.indexOf(16)).toBeLessThanOrEqual(10);

  const { counter } = new Sequence({ ...sequenceSpec([1], 1), id: 0 as SequenceId }, 0, 0).queued;
  expect(counter).toBeNull();
  const { add } = waitingRoom();
  const charged = add("a").queued.counter!;
  charged.chargeOccupancy(4000, 10_000);
  expect(charged.used).toBeCloseTo(400, 9);
});

test("a tenant's many short prompts overtake another's long one only until their use is even; then the long one goes first", () => {
  const harness = new EngineHarness({
    spec: { pages: 256 },
    engine: {
      queue: { kind: "lanes", lanes: objectives, tenantSlack: 400, tenantReach: 0 },
      batch: staticBudget(20),
      admission: { sequencesMax: 64, rule: ownPrefixes },
    },
  });
  let prompts = 0;
  const submit = (tenant: string, tokens: number): SequenceId => {
    prompts += 1;
    return harness.submit(sequenceSpec(tokensFrom(61 * prompts, tokens), 1, { service: { tenant } }));
  };
  for (let i = 0; i < 20; i++) submit("crowd", 60);
  harness.step();
  const other = submit("other", 200);
  for (let i = 0; i < 20; i++) submit("crowd", 40);
  harness.finish();
  const order = harness.steps.flatMap(({ chunks }) => chunks.map(({ sequence }) => sequence));
  const before = new Set(order.slice(0, order.lastIndexOf(other)));
  const passed = [...before].filter((id) => order.indexOf(id) > order.indexOf(other));
  // It begins at once, beside the crowd's first; then 200 tokens of the crowd's pass it.
  expect(order.indexOf(other)).toBeLessThanOrEqual(4);
  expect(passed.length).toBeWithin(2, 7);
});
