/** Accounts of sequences whose time is known: an engine whose steps take 10 ms and 0.1 ms a token. */
import { expect, test } from "bun:test";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { EngineHarness, type HarnessOptions } from "../../tests/support/engine-harness.ts";
import { chatService, type SequenceId } from "../core.ts";
import { linearCost } from "../cost/linear.ts";
import { type CauseName, causes, fitMs } from "./causes.ts";

const STEP_MS = 10;
const TOKEN_MS = 0.1;

function harnessWith(options: HarnessOptions = {}): EngineHarness {
  const { engine, ...rest } = options;
  return new EngineHarness({
    cost: linearCost(STEP_MS, TOKEN_MS),
    engine: { batch: staticBudget(256), ...engine },
    ...rest,
  });
}

/** Causes of an ended sequence that have any time, rounded to microseconds. */
function causesOf(harness: EngineHarness, sequence: number): Partial<Record<CauseName, number>> {
  const ended = harness.reports
    .flatMap(({ accounts }) => accounts)
    .findLast((one) => one.sequence === sequence && one.at === "ended")!;
  const entries = causes.map(({ name }, index) => [name, Math.round(1000 * ended.account.ms[index]!) / 1000]);
  return Object.fromEntries(entries.filter(([, ms]) => ms !== 0));
}

const prompt = (from: number, tokens = 100): readonly number[] => tokensFrom(100 * from, tokens);

test("alone, a sequence takes what the cost model says, and nothing else", () => {
  const harness = harnessWith();
  harness.submit(sequenceSpec(prompt(0), 3));
  harness.finish();
  const decodes = 2 * (STEP_MS + TOKEN_MS);
  expect(causesOf(harness, 0)).toEqual({ prompt: STEP_MS + 100 * TOKEN_MS, decode: decodes });
});

test("two that begin together divide their steps", () => {
  const harness = harnessWith();
  for (const from of [0, 1]) harness.submit(sequenceSpec(prompt(from), 3));
  harness.finish();
  const own = { prompt: 20, prompt_others: 10, decode: 20.2, decode_others: 0.2 };
  expect([causesOf(harness, 0), causesOf(harness, 1)]).toEqual([own, own]);
});

test("a prompt that arrives later slows an answer, and waits for its step to end", () => {
  const harness = harnessWith();
  harness.submit(sequenceSpec(prompt(0), 3));
  harness.step();
  harness.engine.run();
  harness.clock.advance(4);
  harness.submit(sequenceSpec(prompt(1, 50), 1));
  harness.finish();
  expect(causesOf(harness, 0)).toEqual({ prompt: 20, decode: 20.2, decode_prompts: 5 });
  expect(causesOf(harness, 1)).toEqual({ step_in_flight: 6.1, prompt: 15, prompt_decodes: 0.1 });
});

test("without room, a sequence waits for memory or for a slot", () => {
  const few = harnessWith({ spec: { pages: 12 } });
  for (const from of [0, 1]) few.submit(sequenceSpec(prompt(from), 2));
  few.finish();
  expect(causesOf(few, 1)).toEqual({ memory: 30.1, prompt: 20, decode: 10.1 });
  const single = harnessWith({ engine: { admission: { sequencesMax: 1 } } });
  for (const from of [0, 1]) single.submit(sequenceSpec(prompt(from), 2));
  single.finish();
  expect(causesOf(single, 1)).toEqual({ slots: 30.1, prompt: 20, decode: 10.1 });
});

test("a step that is full of another prompt is named, with the prompt", () => {
  const harness = harnessWith();
  harness.submit(sequenceSpec(prompt(0, 512), 1));
  harness.submit(sequenceSpec(prompt(9, 600), 1));
  harness.finish();
  const { other_prompts: waited = 0 } = causesOf(harness, 1);
  expect(waited).toBeGreaterThan(60);
  const ended = harness.reports.flatMap(({ accounts }) => accounts).findLast((one) => one.sequence === 1)!;
  expect(ended.account.behind).toEqual({ sequence: 0 as SequenceId, ms: expect.closeTo(waited, 6) });
});

test("other keys and other service classes are told apart", () => {
  const of = (tenant: string) => ({ service: { ...chatService, tenant } });
  const harness = harnessWith({ engine: { admission: { sequencesMax: 1 } } });
  harness.submit(sequenceSpec(prompt(0), 1, of("a")));
  harness.step();
  harness.submit(sequenceSpec(prompt(1), 1, of("a")));
  harness.submit(sequenceSpec(prompt(2), 1, of("b")));
  harness.submit(sequenceSpec(prompt(3), 1, { service: { ...chatService, objective: "throughput" } }));
  harness.finish();
  expect([1, 2, 3].map((sequence) => causesOf(harness, sequence))).toEqual([
    { other_tenants: 20, prompt: 20 },
    { prompt: 20 },
    { slots: 20, other_lane: 20, prompt: 20 },
  ]);
});

test("a prefix that another computes is waited for, and names it", () => {
  const harness = harnessWith();
  harness.submit(sequenceSpec(prompt(0, 800), 1));
  harness.step();
  harness.submit(sequenceSpec(prompt(0, 800), 1));
  harness.finish();
  expect(causesOf(harness, 1).same_prefix).toBeGreaterThan(0);
  const ended = harness.reports.flatMap(({ accounts }) => accounts).findLast((one) => one.sequence === 1)!;
  expect(ended.account.prefixOwner!.sequence).toBe(0 as SequenceId);
});

test("a slow reader's time is its own", () => {
  const harness = harnessWith();
  const id = harness.submit(sequenceSpec(prompt(0), 4));
  harness.step();
  harness.step();
  harness.send("pause", id);
  harness.finish();
  harness.clock.advance(500);
  harness.send("resume", id);
  harness.finish();
  expect(causesOf(harness, 0)).toEqual({ prompt: 20, decode: 30.3, paused: 500 });
});

test("a preempted sequence waits, and computes again what it had", () => {
  const harness = harnessWith({ spec: { pages: 14 }, isStallFree: false });
  harness.submit(sequenceSpec(prompt(0, 90), 60));
  harness.submit(sequenceSpec(prompt(1, 90), 60));
  harness.finish();
  const all = harness.reports.flatMap(({ accounts }) => accounts).filter(({ at }) => at === "ended");
  const { account } = all.find((one) => one.account.preemptions > 0)!;
  expect(account.recomputedTokens).toBeGreaterThan(0);
  const again = causesOf(harness, all.find((one) => one.account === account)!.sequence);
  expect(again.preempted).toBeGreaterThan(0);
  expect(again.recompute).toBeGreaterThan(0);
});

test("an excess is taken from the latest phases, a rest goes where it is said", () => {
  const ms = new Float64Array(causes.length);
  ms[0] = 5;
  ms[20] = 3;
  ms[21] = 1;
  fitMs(ms, 7, 4);
  expect([ms[0], ms[20], ms[21], ms[4]]).toEqual([5, 2, 0, 0]);
  fitMs(ms, 10, 4);
  expect([ms[0], ms[20], ms[4]]).toEqual([5, 2, 3]);
});
