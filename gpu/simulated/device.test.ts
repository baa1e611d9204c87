/** Simulated device: its tokens depend only on the context, and it detects every wrong step. */

import { describe, expect, test } from "bun:test";
import { InvariantError } from "../../base/assert.ts";
import type {
  Chunk,
  ChunkState,
  PageMove,
  SampleRow,
  Sampling,
  SequenceId,
  StateSlot,
  Step,
  StepResult,
} from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import { deviceSpec, sampling } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { type Script, SimulatedDevice } from "./device.ts";

function row(position: number, overrides: Partial<Sampling> = {}, rest: Partial<SampleRow> = {}): SampleRow {
  return {
    afterIndex: 0,
    sampling: sampling(overrides),
    position,
    banned: [],
    seen: null,
    allowed: null,
    ...rest,
  };
}

function chunk(
  start: number,
  tokens: number[],
  pages: number[],
  sample: SampleRow | null = null,
  id = 0,
): Chunk {
  return {
    sequence: id as SequenceId,
    start,
    tokens: Int32Array.from(tokens),
    pages: Int32Array.from(pages),
    samples: sample === null ? [] : [{ ...sample, afterIndex: tokens.length - 1 }],
    adapter: 0,
  };
}

/** A device with pages of 4 tokens, and a function that runs a step on it. */
function device(script?: Script, overrides: Partial<DeviceSpec> = {}) {
  const clock = new ManualClock();
  const spec = deviceSpec({ pages: 8, pageTokens: 4, ...overrides });
  const simulated = new SimulatedDevice(spec, clock, linearCost(5, 1), undefined, script);
  let number = 0;
  const run = (chunks: Chunk[], moves: PageMove[] = []): StepResult => {
    const results: StepResult[] = [];
    number += 1;
    const step: Step = { number, moves, chunks };
    simulated.start(step, (result) => results.push(result));
    expect(results).toEqual([]);
    clock.runAll();
    expect(results).toHaveLength(1);
    return results[0]!;
  };
  const token = (...args: Parameters<typeof run>): number => {
    const result = run(...args);
    const drawn = result.kind === "done" ? result.sampled[0]! : null;
    if (drawn?.kind !== "token") throw new Error("no token was drawn");
    return drawn.token;
  };
  return { clock, simulated, run, token };
}

const copy = (from: number, to: number, count: number): PageMove =>
  ({ from, tier: "device", to, count }) as PageMove;

test("the token does not depend on chunks, pages, copies or other sequences", () => {
  const whole = device().token([chunk(0, [1, 2, 3, 4, 5, 6], [0, 1], row(0))]);

  const chunked = device();
  chunked.run([chunk(0, [1, 2, 3], [5])]);
  chunked.run([chunk(3, [4, 5], [5, 2]), chunk(0, [9], [0], row(0), 1)]);
  expect(chunked.token([chunk(5, [6], [5, 2], row(0))])).toBe(whole);

  const copied = device();
  copied.run([chunk(0, [1, 2, 3, 4, 5, 9], [0, 1])]);
  expect(copied.token([chunk(5, [6], [0, 3], row(0))], [copy(1, 3, 1)])).toBe(whole);

  expect(device().token([chunk(0, [1, 2, 3, 4, 5, 7], [0, 1], row(0))])).not.toBe(whole);
});

test("greedy tokens depend on the context alone; drawn ones on seed and position too", () => {
  const draw = (position: number, overrides: Partial<Sampling>): number =>
    device().token([chunk(0, [1, 2], [0], row(position, overrides))]);
  expect(draw(0, { seed: [1, 0] })).toBe(draw(5, { seed: [2, 0] }));
  const drawn = draw(0, { temperature: 1, seed: [1, 0] });
  expect(draw(0, { temperature: 1, seed: [1, 0] })).toBe(drawn);
  expect(draw(1, { temperature: 1, seed: [1, 0] })).not.toBe(drawn);
  expect(draw(0, { temperature: 1, seed: [1, 1] })).not.toBe(drawn);
});

test("banned and forbidden tokens are not drawn, and none is left if none is allowed", () => {
  const draw = (rest: Partial<SampleRow>, overrides: Partial<Sampling> = {}): StepResult =>
    device().run([chunk(0, [1, 2], [0], row(0, overrides, rest))]);
  const tokenOf = (result: StepResult): number => {
    if (result.kind !== "done" || result.sampled[0]?.kind !== "token") throw new Error("no token");
    return result.sampled[0].token;
  };
  const free = tokenOf(draw({}));
  expect(tokenOf(draw({ banned: [free] }))).toBe((free + 1) % 1000);
  expect(tokenOf(draw({}, { logitBias: [[free, -100]] }))).toBe((free + 1) % 1000);
  expect(tokenOf(draw({}, { logitBias: [[17, 100]] }))).toBe(17);
  const only40 = new Uint32Array(32);
  only40[1] = 1 << 8;
  expect(tokenOf(draw({ allowed: only40 }))).toBe(40);
  const none = draw({ allowed: new Uint32Array(32) });
  expect(none).toMatchObject({ kind: "done", sampled: [{ kind: "failed", reason: "No token is allowed." }] });
});

test("a scripted token is drawn if allowed, and the script receives the whole context", () => {
  const contexts: number[][] = [];
  const scripted = device((_, { position }, context) => {
    contexts.push(Array.from(context));
    return [7, 8].slice(position);
  });
  const draw = (rest: Partial<SampleRow>, position = 0): number =>
    scripted.token([chunk(2, [3], [0], row(position, {}, rest))]);
  scripted.run([chunk(0, [1, 2], [0])]);
  expect([draw({}), draw({}, 1), draw({ banned: [7] })]).toEqual([7, 8, 8]);
  expect(contexts).toEqual([
    [1, 2, 3],
    [1, 2, 3],
    [1, 2, 3],
  ]);
  const free = device().token([chunk(0, [1, 2, 3], [0], row(2))]);
  expect(draw({}, 2)).toBe(free);
});

test("seen tokens count, whatever their order", () => {
  const draw = (tokens: number[], counts: number[]): number => {
    const seen = { tokens: Int32Array.from(tokens), counts: Int32Array.from(counts), length: tokens.length };
    return device().token([chunk(0, [1, 2], [0], row(0, {}, { seen }))]);
  };
  expect(draw([1, 2], [0, 3])).toBe(draw([2, 1], [3, 0]));
  expect(draw([1, 2], [0, 3])).not.toBe(draw([1, 2], [0, 4]));
});

test("a step takes the time of the cost model", () => {
  const { clock, run } = device();
  expect(run([chunk(0, [1, 2, 3], [0])])).toEqual({ kind: "done", sampled: [], deviceMs: 8 });
  expect(clock.nowMs()).toBe(8);
});

test("reading what was not written, or belongs to another context, breaks an invariant", () => {
  expect(() => device().run([chunk(2, [3], [0])])).toThrow(InvariantError);
  const mixed = device();
  mixed.run([chunk(0, [1, 2, 3, 4, 5, 6, 7, 8], [0, 1])]);
  mixed.run([chunk(0, [9, 2, 3, 4], [2], null, 1)]);
  // Page 1 holds 5..8 computed after 1..4, not after 9, 2, 3, 4.
  expect(() => mixed.run([chunk(8, [1], [2, 1, 3], null, 1)])).toThrow(InvariantError);
});

const badSteps: Readonly<Record<string, () => Chunk[]>> = {
  "a page written twice": () => [chunk(0, [1], [0]), chunk(0, [2], [0], null, 1)],
  "a page read while it is written": () => [chunk(4, [1], [0, 1]), chunk(0, [2], [0], null, 1)],
  "a page too many": () => [chunk(0, [1], [0, 1])],
  "a page too few": () => [chunk(0, [1, 2, 3, 4, 5], [0])],
  "a page that does not exist": () => [chunk(0, [1], [8])],
  "a token outside of the vocabulary": () => [chunk(0, [1000], [0])],
  "an empty chunk": () => [chunk(0, [], [])],
  "two chunks of one sequence": () => [chunk(0, [1], [0]), chunk(1, [1], [1])],
  "a state, of a device without slots": () => [{ ...chunk(0, [1], [0]), state: state(0, null) }],
};

for (const [name, chunks] of Object.entries(badSteps)) {
  test(`a step with ${name} breaks an invariant`, () => {
    expect(() => device().run(chunks())).toThrow(InvariantError);
  });
}

function state(slot: number, from: number | null, ...saves: [count: number, slot: number][]): ChunkState {
  return {
    slot: slot as StateSlot,
    from: from as StateSlot | null,
    saves: saves.map(([count, to]) => ({ count, slot: to as StateSlot })),
  };
}

describe("states", () => {
  const recurrent = () => device(undefined, { states: { slots: 4, bytes: 1 } });
  const first = { ...chunk(0, [1, 2, 3], [0]), state: state(0, null, [2, 1]) };

  test("a chunk begins from the state of its own context, which others read unchanged", () => {
    const one = recurrent();
    one.run([first]);
    const branch = (sequence: number, slot: number) => ({
      ...chunk(2, [7, 8], [0], row(1), sequence),
      state: state(slot, 1),
    });
    const alone = device().token([chunk(0, [1, 2, 7, 8], [0], row(3))]);
    expect(one.token([branch(1, 2)])).toBe(alone);
    // The branch wrote over token 3 of page 0.
    expect(() => one.run([{ ...chunk(3, [4], [0]), state: state(0, 0) }])).toThrow(InvariantError);
    expect(one.token([branch(2, 3)])).toBe(alone);
  });

  const wrong: Readonly<Record<string, () => Chunk[]>> = {
    "no state": () => [chunk(3, [4], [0])],
    "a token computed twice": () => [{ ...chunk(2, [3], [0]), state: state(0, 0) }],
    "the state of another length": () => [{ ...chunk(3, [4], [0]), state: state(0, 1) }],
    "a state at position 0": () => [{ ...chunk(0, [4], [0]), state: state(0, 0) }],
    "no state to begin from": () => [{ ...chunk(3, [4], [0]), state: state(0, null) }],
    "a slot that does not exist": () => [{ ...chunk(3, [4], [0]), state: state(4, 0) }],
    "a slot written twice": () => [{ ...chunk(3, [4], [0]), state: state(0, 0, [1, 0]) }],
    "a save behind its chunk": () => [{ ...chunk(3, [4], [0]), state: state(0, 0, [2, 2]) }],
    "a slot read while it is written": () => [
      { ...chunk(3, [4], [0]), state: state(0, 0) },
      { ...chunk(0, [9], [1], null, 1), state: state(2, null) },
      { ...chunk(3, [5], [0], null, 2), state: state(3, 2) },
    ],
  };
  test.each(Object.keys(wrong))("%s breaks an invariant", (name) => {
    const one = recurrent();
    one.run([first]);
    expect(() => one.run(wrong[name]!())).toThrow(InvariantError);
  });

  test("a state of another context breaks an invariant", () => {
    const one = recurrent();
    one.run([first]);
    one.run([{ ...chunk(0, [9, 2, 3], [1], null, 1), state: state(2, null) }]);
    expect(() => one.run([{ ...chunk(3, [4], [0]), state: state(0, 2) }])).toThrow(InvariantError);
  });
});

test("one step at a time, and none after close", () => {
  const { simulated, clock } = device();
  const step = { number: 1, moves: [], chunks: [chunk(0, [1], [0])] };
  let answers = 0;
  const done = (): void => {
    answers += 1;
  };
  simulated.start(step, done);
  expect(() => simulated.start(step, done)).toThrow(InvariantError);
  simulated.close();
  clock.runAll();
  expect(answers).toBe(0);
  expect(() => simulated.start(step, done)).toThrow(InvariantError);
});
