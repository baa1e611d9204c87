/** The fleet: where sequences go, and that everybody hears of the end exactly once. */

import { describe, expect, test } from "bun:test";
import type { TokenId } from "../../base/token.ts";
import { SimulatedDevice } from "../../gpu/simulated/device.ts";
import { shortestQueue } from "../../simulation/baselines/placements.ts";
import { deviceSpec, sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { tokensAlone } from "../../tests/support/engine-harness.ts";
import { chatService, type EngineId, type Finish, type SequenceId } from "../core.ts";
import { linearCost } from "../cost/linear.ts";
import { Engine } from "../engine/engine.ts";
import type { EngineSettings } from "../engine/engine-options.ts";
import { type EngineMessage, idleLoad } from "../messages.ts";
import { ours } from "../policies.ts";
import { type EngineLink, Fleet, type FleetOptions, type SequenceListener } from "./fleet.ts";

class Listener implements SequenceListener {
  starts = 0;
  cachedTokens: number | null = null;
  readonly tokens: TokenId[] = [];
  readonly finishes: Finish[] = [];

  onStarted(cachedTokens: number): void {
    this.starts += 1;
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
function fleetOf(count: number, options: { engine?: EngineSettings; fleet?: Partial<FleetOptions> } = {}) {
  const clock = new ManualClock();
  const sent: EngineMessage[][] = Array.from({ length: count }, () => []);
  const lives: (Engine | null)[] = [];
  const started: SequenceId[] = [];
  const open = (index: number, epoch: number): EngineLink => {
    const device = new SimulatedDevice(deviceSpec(), clock, linearCost(6, 0.02));
    const settings: EngineSettings = { kvEvents: true, ...options.engine, integrity: "always", epoch };
    const engine = new Engine(device, clock, settings, (report) => {
      if (lives[index] !== engine) return;
      started.push(...report.started.map(({ sequence }) => sequence));
      fleet.report(index as EngineId, report);
    });
    lives[index] = engine;
    const send = (message: EngineMessage): void => {
      sent[index]!.push(message);
      engine.receive(message);
      engine.run();
    };
    return { send };
  };
  const members = sent.map((_, index) => ({ link: open(index, 0), spec: deviceSpec() }));
  const policy = { ...ours(null), placement: shortestQueue };
  const fleet: Fleet = new Fleet(members, { policy, ...options.fleet, clock });
  const lose = (index: number, reason: string, isComing = false): void => {
    lives[index] = null;
    fleet.lost(index as EngineId, reason, isComing);
  };
  const replace = (index: number, epoch: number): void => {
    fleet.replaced(index as EngineId, open(index, epoch), deviceSpec(), epoch);
  };
  return { fleet, clock, sent, started, lose, replace };
}

function kinds(sent: readonly (readonly EngineMessage[])[]): string[][] {
  return sent.map((messages) => messages.map((message) => message.kind));
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

test("a report may have several tokens of a sequence: they are told in order", () => {
  const link: EngineLink = { send: () => {} };
  const policy = { ...ours(null), placement: shortestQueue };
  const fleet = new Fleet([{ link, spec: deviceSpec() }], { policy, clock: new ManualClock() });
  const listeners = [new Listener(), new Listener()];
  const [a, b] = listeners.map((listener) => fleet.submit(sequenceSpec(tokensFrom(0, 20), 5), listener));
  fleet.report(0 as EngineId, {
    number: 0,
    started: [a!, b!].map((sequence) => ({ sequence, cachedTokens: 0 })),
    sequences: [a!, a!, b!, a!],
    tokens: [7, 8, 9, 10],
    logprobs: null,
    finished: [{ sequence: a!, finish: { kind: "length" } }],
    returned: [],
    warmed: [],
    progress: [],
    prompts: [],
    checked: [],
    accounts: [],
    load: idleLoad(deviceSpec()),
    kvEvents: null,
  });
  expect(listeners.map(({ tokens }) => tokens)).toEqual([[7, 8, 10], [9]]);
  expect(listeners.map(({ finishes }) => finishes)).toEqual([[{ kind: "length" }], []]);
});

test("a replaced engine keeps its counters and loses its state", () => {
  const { fleet, clock, lose, replace } = fleetOf(2);
  fleet.submit(sequenceSpec(tokensFrom(0, 20), 5), new Listener());
  clock.runAll();
  const before = fleet.loads()[0]!;
  lose(0, "The device was lost.", true);
  replace(0, 1);
  const { pagesTotal, pagesFree, pagesCached, stepsTotal, generatedTokensTotal } = fleet.loads()[0]!;
  expect([pagesFree, pagesCached]).toEqual([pagesTotal, 0]);
  expect([stepsTotal, generatedTokensTotal]).toEqual([before.stepsTotal, 5]);
  fleet.submit(sequenceSpec(tokensFrom(0, 20), 3), new Listener());
  clock.runAll();
  expect(fleet.loads()[0]).toMatchObject({ generatedTokensTotal: 8, running: 0 });
});

test("without costs a sequence goes where the fewest are, ties to the lowest engine", () => {
  const { fleet, clock, sent } = fleetOf(3);
  for (const tokensMax of [30, 1, 30, 30])
    fleet.submit(sequenceSpec(tokensFrom(0, 20), tokensMax), new Listener());
  expect(kinds(sent)).toEqual([["submit", "submit"], ["submit"], ["submit"]]);
  while (fleet.active > 3) clock.runNext();
  fleet.submit(sequenceSpec(tokensFrom(0, 20), 1), new Listener());
  expect(sent[1]).toHaveLength(2);
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
  expect(kinds(sent)).toEqual([
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

test("raise() raises a sequence's service on its engine and after a move, and never lowers it", () => {
  const { fleet, clock, sent, lose } = fleetOf(2);
  const offline = { ...chatService, objective: "throughput", tbtMs: 80 } as const;
  const listener = new Listener();
  const id = fleet.submit(sequenceSpec(tokensFrom(0, 20), 50, { service: offline }), listener);
  const taskGroup = { ...chatService, objective: "gang", taskGroup: 7, tbtMs: 90 } as const;
  fleet.raise(id, taskGroup);
  fleet.raise(id, offline);
  fleet.raise(id, { ...chatService, tenant: "another" });
  fleet.raise(id, taskGroup);
  fleet.raise(99 as SequenceId, chatService);
  const services = sent[0]!.flatMap((message) => (message.kind === "raise" ? [message.service] : []));
  const inTaskGroup = { ...offline, objective: "gang", taskGroup: 7 } as const;
  const asChat = { ...offline, objective: "latency" } as const;
  expect(services).toEqual([inTaskGroup, asChat]);
  lose(0, "gone");
  const again = sent[1]!.flatMap((message) => (message.kind === "submit" ? [message.sequence.service] : []));
  expect(again).toEqual([asChat]);
  clock.runAll();
  expect(listener.finishes).toEqual([{ kind: "length" }]);
});

test("when an engine is lost its sequences continue elsewhere with the same tokens, each reported once", () => {
  const { fleet, clock, sent, lose } = fleetOf(2);
  const specs = [
    sequenceSpec(tokensFrom(0, 20), 30),
    sequenceSpec(tokensFrom(0, 20), 40, {
      sampling: { temperature: 1, seed: [7, 7], repetitionPenalty: 1.2 },
    }),
    sequenceSpec(tokensFrom(5, 40), 30, {
      sampling: { temperature: 0.5, seed: [1, 2] },
      stop: { tokensMin: 3 },
    }),
    sequenceSpec(tokensFrom(5, 20), 1),
  ];
  const listeners = specs.map(() => new Listener());
  specs.forEach((spec, index) => {
    fleet.submit(spec, listeners[index]!);
  });
  while (listeners[0]!.tokens.length < 5) clock.runNext();
  const told = listeners[0]!.tokens.length;
  lose(0, "crashed");
  lose(0, "crashed again");
  clock.runAll();
  listeners.forEach((listener, index) => {
    expect(listener.tokens).toEqual(tokensAlone(specs[index]!).tokens);
    expect(listener.finishes).toEqual([{ kind: "length" }]);
    expect(listener.starts).toBe(1);
  });
  const submitted = sent[1]!.flatMap((message) => (message.kind === "submit" ? [message.sequence] : []));
  expect(submitted.find(({ id }) => id === 0)!.drawnTokens).toHaveLength(told);
});

test("a sequence that loses two engines fails, one that had not begun does not, and an aborted one just ends", () => {
  const { fleet, clock, lose } = fleetOf(3, { engine: { admission: { sequencesMax: 1 } } });
  const listeners = Array.from({ length: 6 }, () => new Listener());
  const ids = listeners.map((listener) => fleet.submit(sequenceSpec(tokensFrom(0, 20), 30), listener));
  while (listeners[0]!.tokens.length === 0) clock.runNext();
  // 0 and 3 are on engine 0, of which 3 waits; both continue elsewhere, behind others.
  fleet.abort(ids[3]!);
  lose(0, "first");
  expect(listeners[3]!.finishes).toEqual([{ kind: "aborted" }]);
  lose(1, "second");
  expect(listeners.map(({ finishes }) => finishes.length)).toEqual([0, 0, 0, 1, 0, 0]);
  while (listeners[0]!.starts === 1 && listeners[1]!.tokens.length < 5) clock.runNext();
  lose(2, "third");
  clock.runAll();
  for (const listener of listeners) expect(listener.finishes).toHaveLength(1);
  expect(listeners[1]!.finishes).toEqual([{ kind: "failed", reason: "third" }]);
  expect(fleet.active).toBe(0);
  const late = new Listener();
  fleet.submit(sequenceSpec(tokensFrom(0, 20), 5), late);
  expect(late.finishes[0]!.kind).toBe("failed");
});

describe("a sequence that kills its engine whenever it is computed", () => {
  const killer = 1;
  const crowd = () => {
    const bench = fleetOf(1);
    const specs = Array.from({ length: 5 }, (_, i) =>
      sequenceSpec(tokensFrom(40 * i, 20), 30, { sampling: { temperature: 1, seed: [i, 7] } }),
    );
    const listeners = specs.map(() => new Listener());
    /** Runs until the killer is in a step for the `times`th time. */
    const kill = (times: number): void => {
      const seen = () => bench.started.filter((id) => id === killer).length;
      while (seen() < times) bench.clock.runNext();
      bench.lose(0, `killed ${times} times`, true);
      bench.replace(0, times);
    };
    const submit = () => specs.map((spec, i) => bench.fleet.submit(spec, listeners[i]!));
    const expectOthersWhole = (): void => {
      specs.forEach((spec, i) => {
        if (i === killer) return;
        expect(listeners[i]!.tokens).toEqual(tokensAlone(spec).tokens);
        expect(listeners[i]!.finishes).toEqual([{ kind: "length" }]);
        expect(listeners[i]!.starts).toBe(1);
      });
    };
    return { ...bench, specs, listeners, kill, submit, expectOthersWhole };
  };

  test("fails when it has done so twice, and who ran beside it does not", () => {
    const { clock, listeners, kill, submit, expectOthersWhole } = crowd();
    submit();
    while (listeners[0]!.tokens.length < 3) clock.runNext();
    kill(1);
    expect(listeners.map(({ finishes }) => finishes.length)).toEqual([0, 0, 0, 0, 0]);
    kill(2);
    expect(listeners[killer]!.finishes).toEqual([{ kind: "failed", reason: "killed 2 times" }]);
    clock.runAll();
    expectOthersWhole();
  });

  test("fails too if nobody has drawn a token yet", () => {
    const { clock, listeners, kill, submit, expectOthersWhole } = crowd();
    submit();
    kill(1);
    kill(2);
    expect(listeners[killer]!.finishes).toHaveLength(1);
    clock.runAll();
    expectOthersWhole();
  });

  test("and one that is paused, or aborted, holds nobody up", () => {
    const { fleet, clock, specs, listeners, kill, submit } = crowd();
    const ids = submit();
    while (listeners[0]!.tokens.length < 3) clock.runNext();
    fleet.pause(ids[0]!);
    fleet.pause(ids[2]!);
    kill(1);
    fleet.abort(ids[killer]!);
    fleet.abort(ids[3]!);
    clock.runAll();
    expect(listeners.map(({ finishes }) => finishes.map(({ kind }) => kind))).toEqual([
      [],
      ["aborted"],
      [],
      ["aborted"],
      ["length"],
    ]);
    fleet.resume(ids[0]!);
    fleet.resume(ids[2]!);
    clock.runAll();
    for (const i of [0, 2]) expect(listeners[i]!.tokens).toEqual(tokensAlone(specs[i]!).tokens);
    expect(fleet.active).toBe(0);
  });
});

test("while an engine is coming, sequences wait for it, up to a limit", () => {
  const { fleet, clock, lose, replace } = fleetOf(1, { fleet: { queueMax: 2 } });
  const specs = [sequenceSpec(tokensFrom(0, 20), 8), sequenceSpec(tokensFrom(3, 20), 8)];
  const listeners = specs.map(() => new Listener());
  fleet.submit(specs[0]!, listeners[0]!);
  while (listeners[0]!.tokens.length < 3) clock.runNext();
  lose(0, "crashed", true);
  const second = fleet.submit(specs[1]!, listeners[1]!);
  fleet.pause(second);
  const tooMany = new Listener();
  fleet.submit(specs[0]!, tooMany);
  expect(tooMany.finishes).toEqual([{ kind: "rejected", reason: "queueFull", needed: 3, limit: 2 }]);
  replace(0, 1);
  clock.runAll();
  expect(listeners.map(({ tokens }) => tokens.length)).toEqual([8, 0]);
  fleet.resume(second);
  clock.runAll();
  listeners.forEach((listener, index) => {
    expect(listener.tokens).toEqual(tokensAlone(specs[index]!).tokens);
  });
});

test("when the engine that was coming does not, the calls that waited for it fail", () => {
  const { fleet, lose } = fleetOf(1);
  lose(0, "crashed", true);
  const listener = new Listener();
  const aborted = new Listener();
  fleet.submit(sequenceSpec(tokensFrom(0, 20), 8), listener);
  fleet.abort(fleet.submit(sequenceSpec(tokensFrom(0, 20), 8), aborted));
  expect([listener.finishes, aborted.finishes]).toEqual([[], [{ kind: "aborted" }]]);
  lose(0, "cannot be opened", false);
  expect(listener.finishes).toEqual([{ kind: "failed", reason: "cannot be opened" }]);
  expect(fleet.active).toBe(0);
});

test("a task group is placed together, each member with its own tokens", () => {
  const { fleet, clock, sent } = fleetOf(2);
  const specs = [3, 5, 4].map((tokensMax) => sequenceSpec(tokensFrom(tokensMax, 20), tokensMax));
  const listeners = specs.map(() => new Listener());
  expect(fleet.submitTaskGroup(specs, listeners)).toEqual([0, 1, 2] as SequenceId[]);
  clock.runAll();
  expect(kinds(sent)).toEqual([["submit", "submit"], ["submit"]]);
  expect(listeners.map(({ tokens }) => tokens.length)).toEqual([3, 5, 4]);
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

test("commands from within a listener run after the report that it was called for", () => {
  const { fleet, clock, sent } = fleetOf(1);
  const listener: SequenceListener = {
    onStarted: () => {},
    onToken: () => fleet.abort(0 as SequenceId),
    onFinish: () => {},
  };
  // Its only token comes with its end: there is nothing to abort any more.
  fleet.submit(sequenceSpec(tokensFrom(0, 20), 1), listener);
  clock.runAll();
  expect(kinds(sent)).toEqual([["submit"]]);
});

test("an aborted sequence that is lost with its engine is not held", () => {
  const { fleet, clock, lose } = fleetOf(2);
  const held = fleet.submit(sequenceSpec(tokensFrom(0, 20), 50, { isHeld: true }), new Listener());
  fleet.abort(held);
  lose(0, "The device was lost.");
  const next = new Listener();
  fleet.submit(sequenceSpec(tokensFrom(0, 25), 3, { continues: held }), next);
  clock.runAll();
  expect(next.finishes).toEqual([{ kind: "length" }]);
});

describe("sequences that wait are moved", () => {
  const crowd = () => {
    const placements: string[] = [];
    const bench = fleetOf(2, {
      engine: { admission: { sequencesMax: 1 } },
      fleet: {
        policy: ours(null),
        costs: [linearCost(6, 0.02), linearCost(6, 0.02)],
        onPlacement: (sequence, { engine, reason }) => placements.push(`${sequence}→${engine} ${reason}`),
      },
    });
    bench.lose(1, "The device was lost.", true);
    const specs = Array.from({ length: 12 }, (_, i) => sequenceSpec(tokensFrom(300 * i, 250), 100));
    const listeners = specs.map(() => new Listener());
    const ids = specs.map((spec, i) => bench.fleet.submit(spec, listeners[i]!));
    bench.replace(1, 1);
    return { ...bench, placements, specs, listeners, ids };
  };

  test("to an engine that has come back, and nobody notices but by the time", () => {
    const { clock, placements, specs, listeners, sent } = crowd();
    clock.runAll();
    const moved = placements.filter((each) => each.endsWith("→1 move"));
    expect(moved.length).toBeGreaterThan(3);
    expect(sent[0]!.filter(({ kind }) => kind === "recall").length).toBeGreaterThanOrEqual(moved.length);
    for (const [i, listener] of listeners.entries()) {
      expect(listener.tokens).toEqual(tokensAlone(specs[i]!).tokens);
      expect(listener.finishes).toEqual([{ kind: "length" }]);
      expect(listener.starts).toBe(1);
    }
  });

  test("a call that is aborted on the way ends, once", () => {
    const { clock, fleet, listeners, ids } = crowd();
    clock.runNext();
    for (const id of ids) fleet.abort(id);
    clock.runAll();
    expect(listeners.map(({ finishes }) => finishes)).toEqual(listeners.map(() => [{ kind: "aborted" }]));
    expect(fleet.active).toBe(0);
  });
});

describe("a prefix hint", () => {
  const hint = { tokens: tokensFrom(0, 48), cacheSalt: "", adapter: 0, program: 0, isWarmed: true };

  test("is computed ahead where its sequence then goes, which finds it", () => {
    const { fleet, clock } = fleetOf(2, { fleet: { policy: ours(null) } });
    let warmed = 0;
    const id = fleet.expect(hint, (tokens) => {
      warmed += tokens;
    });
    clock.runAll();
    fleet.extend(id, tokensFrom(0, 64));
    clock.runAll();
    expect(warmed).toBe(64);
    const listener = new Listener();
    fleet.submit(sequenceSpec([...tokensFrom(0, 64), 900], 2), listener);
    fleet.forget(id);
    clock.runAll();
    expect(listener.cachedTokens).toBe(64);
  });

  test("goes to another engine when its own is lost, and waits for one when there is none", () => {
    const { fleet, clock, sent, lose, replace } = fleetOf(2);
    const id = fleet.expect(hint);
    const [first, second] = sent[0]!.length === 1 ? [0, 1] : [1, 0];
    lose(first, "The device was lost.", true);
    expect(kinds(sent)[second]).toEqual(["expect"]);
    lose(second, "The device was lost.", true);
    replace(first, 1);
    clock.runAll();
    fleet.forget(id, true);
    fleet.forget(id);
    expect(kinds(sent)[first]).toEqual(["expect", "expect", "forget"]);
  });
});
