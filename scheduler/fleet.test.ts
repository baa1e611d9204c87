/** The fleet: where sequences go, and that everybody hears of the end exactly once. */

import { expect, test } from "bun:test";
import { SimulatedDevice } from "../gpu/simulated/device.ts";
import { tokensAlone } from "../tests/support/engine-harness.ts";
import type { EngineId, Finish, SequenceId, TokenId } from "./core.ts";
import { linearCost } from "./cost/linear.ts";
import { Engine } from "./engine.ts";
import { Fleet, type SequenceListener } from "./fleet.ts";
import type { EngineMessage } from "./messages.ts";
import { deviceSpec, sequenceSpec, tokensFrom } from "./sim/factories.ts";
import { ManualClock } from "./sim/manual-clock.ts";

class Listener implements SequenceListener {
  cachedTokens: number | null = null;
  readonly tokens: TokenId[] = [];
  readonly finishes: Finish[] = [];

  onStarted(cachedTokens: number): void {
    this.cachedTokens = cachedTokens;
  }

  onToken(token: TokenId): void {
    this.tokens.push(token);
  }

  onFinish(finish: Finish): void {
    this.finishes.push(finish);
  }
}

/** A fleet of engines on simulated devices, linked by direct calls. */
function fleetOf(count: number) {
  const clock = new ManualClock();
  const sent: EngineMessage[][] = [];
  const engines: Engine[] = [];
  const members = Array.from({ length: count }, (_, index) => {
    const messages: EngineMessage[] = [];
    sent.push(messages);
    const device = new SimulatedDevice(deviceSpec(), clock, linearCost(6, 0.02));
    const engine = new Engine(device, clock, { integrity: "always" }, (report) =>
      fleet.report(index as EngineId, report),
    );
    engines.push(engine);
    const send = (message: EngineMessage): void => {
      messages.push(message);
      engine.receive(message);
      engine.run();
    };
    return { link: { send }, spec: device.spec };
  });
  const fleet: Fleet = new Fleet(members);
  return { fleet, clock, sent, engines };
}

test("tokens, the end and the load come through", () => {
  const { fleet, clock } = fleetOf(1);
  const listener = new Listener();
  const spec = sequenceSpec(tokensFrom(0, 20), 5);
  fleet.submit(spec, listener);
  expect(fleet.active).toBe(1);
  clock.runAll();
  expect(listener.tokens).toEqual(tokensAlone(spec).tokens);
  expect(listener.finishes).toEqual([{ kind: "length" }]);
  expect(listener.cachedTokens).toBe(0);
  expect(fleet.active).toBe(0);
  expect(fleet.loads()[0]!.generatedTokensTotal).toBe(5);
});

test("a sequence goes to the engine with the fewest outstanding tokens, ties to the lowest", () => {
  const { fleet, clock, sent } = fleetOf(3);
  const sizes = [100, 10, 50, 10, 10];
  for (const size of sizes) fleet.submit(sequenceSpec(tokensFrom(0, size), 10), new Listener());
  // 110 | 20 + 20 | 60, then 40 + 20 on the second one, and all is done.
  expect(sent.map((messages) => messages.length)).toEqual([1, 3, 1]);
  clock.runAll();
  fleet.submit(sequenceSpec(tokensFrom(0, 5), 1), new Listener());
  expect(sent[0]).toHaveLength(2);
});

test("ids are never given twice, and abort, pause and resume find their engine", () => {
  const { fleet, clock, sent } = fleetOf(2);
  const listeners = [new Listener(), new Listener()];
  const ids = listeners.map((listener) => fleet.submit(sequenceSpec(tokensFrom(0, 20), 50), listener));
  expect(new Set(ids).size).toBe(2);
  fleet.pause(ids[1]!);
  fleet.resume(ids[1]!);
  fleet.abort(ids[0]!);
  clock.runAll();
  expect(sent.map((messages) => messages.map((message) => message.kind))).toEqual([
    ["submit", "abort"],
    ["submit", "pause", "resume"],
  ]);
  expect(listeners.map((listener) => listener.finishes)).toEqual([
    [{ kind: "aborted" }],
    [{ kind: "length" }],
  ]);
  fleet.abort(ids[0]!);
  fleet.abort(99 as SequenceId);
  expect(sent[0]).toHaveLength(2);
});

test("when an engine is lost its sequences fail at once, and nothing goes there any more", () => {
  const { fleet, clock, sent } = fleetOf(2);
  const there = new Listener();
  const elsewhere = new Listener();
  fleet.submit(sequenceSpec(tokensFrom(0, 20), 5), there);
  fleet.submit(sequenceSpec(tokensFrom(0, 20), 5), elsewhere);
  fleet.lost(0 as EngineId, "crashed");
  fleet.lost(0 as EngineId, "crashed again");
  expect(there.finishes).toEqual([{ kind: "failed", reason: "crashed" }]);
  clock.runAll();
  expect(there.finishes).toHaveLength(1);
  expect(there.tokens).toEqual([]);
  expect(elsewhere.finishes).toEqual([{ kind: "length" }]);
  fleet.submit(sequenceSpec(tokensFrom(0, 20), 5), new Listener());
  expect(sent.map((messages) => messages.length)).toEqual([1, 2]);
  fleet.lost(1 as EngineId, "crashed too");
  const late = new Listener();
  fleet.submit(sequenceSpec(tokensFrom(0, 20), 5), late);
  expect(late.finishes).toEqual([{ kind: "failed", reason: "crashed" }]);
  expect(fleet.active).toBe(0);
});

test("a listener may submit and abort from within its calls", () => {
  const { fleet, clock } = fleetOf(1);
  const second = new Listener();
  const first: SequenceListener = {
    onStarted: () => {},
    onToken: () => fleet.abort(0 as SequenceId),
    onFinish: () => fleet.submit(sequenceSpec(tokensFrom(50, 20), 3), second),
  };
  fleet.submit(sequenceSpec(tokensFrom(0, 20), 5), first);
  clock.runAll();
  expect(second.finishes).toEqual([{ kind: "length" }]);
});
