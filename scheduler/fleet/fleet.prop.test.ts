/**
 * Random commands to a fleet, reactions of its listeners and losses of engines. Every listener receives one
 * finish, after the tokens that the sequence would draw alone. The fleet frees everything, and a replay of
 * its recording gives the same result.
 */

import { expect, test } from "bun:test";
import fc from "fast-check";
import { assert } from "../../base/assert.ts";
import type { TokenId } from "../../base/token.ts";
import { SimulatedDevice } from "../../gpu/simulated/device.ts";
import { EventClock } from "../../simulation/event-clock.ts";
import { deviceSpec, sequenceSpec } from "../../simulation/factories.ts";
import { replay } from "../../simulation/recording/replay.ts";
import { tokensAlone } from "../../tests/support/engine-harness.ts";
import { runs } from "../../tests/support/property.ts";
import type { EngineId, Finish, SequenceId, Service } from "../core.ts";
import { linearCost } from "../cost/linear.ts";
import { OnlineCostModel } from "../cost/online.ts";
import { settingsOf } from "../engine/engine-options.ts";
import { EngineHost } from "../host/engine-host.ts";
import type { EngineMessage, EngineReport } from "../messages.ts";
import { ours } from "../policies.ts";
import { engineRecorder, RecordedFleet } from "../recording/recorder.ts";
import type { RecordingEntry, RecordingHead } from "../recording/recording.ts";
import type { EngineLink, SequenceListener, Unplaced } from "./fleet.ts";

const SPEC = deviceSpec({ pages: 20, pageTokens: 4, contextMax: 48, vocabSize: 2 });
const ENGINES_MAX = 3;
const QUEUE_MAX = 12;

/** Command that a listener gives from within a callback. `who`: another sequence, or itself. */
interface Reaction {
  /** Number of received tokens after which it acts; null: at the finish. */
  readonly tokens: number | null;
  readonly act: Command;
}

type Command =
  | {
      readonly kind: "submit";
      readonly specs: readonly Unplaced[];
      readonly continues: number | null;
      readonly reaction: Reaction | null;
    }
  | { readonly kind: "abort" | "pause" | "resume" | "release"; readonly who: number | "self" }
  | { readonly kind: "raise"; readonly who: number | "self"; readonly service: Service }
  | { readonly kind: "expect"; readonly prompt: readonly TokenId[]; readonly adapter: number }
  | { readonly kind: "extend"; readonly who: number; readonly more: readonly TokenId[] }
  | { readonly kind: "forget"; readonly who: number; readonly givesUp: boolean }
  | { readonly kind: "lose"; readonly engine: number; readonly backAfterMs: number | null };

interface Setting {
  readonly engines: number;
  readonly delayMs: number;
  readonly tbtMs: number | null;
}

/** A client with one sequence. */
class Client implements SequenceListener {
  readonly spec: Unplaced;
  readonly tokens: TokenId[] = [];
  readonly finishes: Finish[] = [];
  readonly #react: (act: Command) => void;
  readonly #reaction: Reaction | null;

  constructor(spec: Unplaced, reaction: Reaction | null, react: (act: Command) => void) {
    this.spec = spec;
    this.#reaction = reaction;
    this.#react = react;
  }

  onStarted(): void {}

  onToken(token: TokenId): void {
    expect(this.finishes).toEqual([]);
    this.tokens.push(token);
    if (this.#reaction?.tokens === this.tokens.length) this.#react(this.#reaction.act);
  }

  onFinish(finish: Finish): void {
    this.finishes.push(finish);
    if (this.#reaction?.tokens === null) this.#react(this.#reaction.act);
  }
}

/** A recorded fleet over engine hosts on simulated devices, in virtual time, and its clients. */
class Play {
  readonly clock = new EventClock();
  readonly clients: Client[] = [];
  readonly entries: RecordingEntry[] = [];
  readonly fleet: RecordedFleet;
  readonly hosts: readonly EngineHost[];
  head: RecordingHead | null = null;
  readonly #setting: Setting;
  readonly #ids: SequenceId[] = [];
  readonly #hints: { readonly id: SequenceId; tokens: readonly TokenId[] }[] = [];
  readonly #inboxes: EngineMessage[][];
  readonly #devices: SimulatedDevice[] = [];
  readonly #costs: OnlineCostModel[] = [];
  readonly #epochs: number[];

  constructor(setting: Setting) {
    this.#setting = setting;
    const { engines, tbtMs } = setting;
    const write = (entry: RecordingHead | RecordingEntry): void => {
      if (entry.kind === "head") this.head = entry;
      else this.entries.push(entry);
    };
    const ids = Array.from({ length: engines }, (_, engine) => engine as EngineId);
    this.#inboxes = ids.map(() => []);
    this.#epochs = ids.map(() => 0);
    this.hosts = ids.map((engine) => new EngineHost(engineRecorder(engine, this.clock, write)));
    for (const engine of ids) this.#open(engine);
    this.fleet = new RecordedFleet(
      ids.map((engine) => ({ link: this.#link(engine), spec: SPEC })),
      {
        policy: ours(tbtMs),
        costs: this.#costs,
        clock: this.clock,
        queueMax: QUEUE_MAX,
        publicTexts: [[1, 0, 1, 0, 1, 0, 1, 0, 1]],
        onPlacement: () => {},
        learns: true,
      },
      write,
    );
  }

  act(command: Command, self: number | null = null): void {
    const { fleet } = this;
    switch (command.kind) {
      case "submit":
        this.#submit(command);
        return;
      case "expect":
        this.#hints.push({
          id: fleet.expect({
            tokens: command.prompt,
            cacheSalt: "",
            adapter: command.adapter,
            program: 1,
            isWarmed: true,
          }),
          tokens: command.prompt,
        });
        return;
      case "extend":
      case "forget": {
        const hint = this.#hints[command.who % Math.max(1, this.#hints.length)];
        if (hint === undefined) return;
        if (command.kind === "forget") fleet.forget(hint.id, command.givesUp);
        else {
          hint.tokens = [...hint.tokens, ...command.more];
          fleet.extend(hint.id, hint.tokens);
        }
        return;
      }
      case "lose":
        this.#lose((command.engine % this.#setting.engines) as EngineId, command.backAfterMs);
        return;
      default: {
        const who = command.who === "self" ? self : command.who % Math.max(1, this.#ids.length);
        const id = who === null ? undefined : this.#ids[who];
        if (id === undefined) return;
        if (command.kind === "raise") fleet.raise(id, command.service);
        else fleet[command.kind](id);
      }
    }
  }

  /** Ends everything: resumes, releases and forgets all. */
  end(): void {
    this.#run();
    for (const id of this.#ids) {
      this.fleet.resume(id);
      this.fleet.release(id);
    }
    for (const { id } of this.#hints) this.fleet.forget(id);
    this.#run();
    // Listeners may have submitted and paused more meanwhile.
    for (const id of this.#ids) {
      this.fleet.resume(id);
      this.fleet.release(id);
    }
    this.#run();
  }

  #run(): void {
    while (this.clock.runNext());
  }

  #submit({ specs, continues, reaction }: Command & { readonly kind: "submit" }): void {
    const before = continues === null ? undefined : continues % (this.#ids.length + 1);
    const made = specs.map((spec) => this.#continued(spec, before));
    const first = this.clients.length;
    const clients = made.map((spec, index) => {
      return new Client(spec, index === 0 ? reaction : null, (act) => this.act(act, first + index));
    });
    this.clients.push(...clients);
    const ids =
      made.length === 1
        ? [this.fleet.submit(made[0]!, clients[0]!)]
        : this.fleet.submitTaskGroup(made, clients);
    for (const [index, id] of ids.entries()) this.#ids[first + index] = id;
  }

  #continued(spec: Unplaced, before: number | undefined): Unplaced {
    const client = before === undefined ? undefined : this.clients[before];
    const id = before === undefined ? undefined : this.#ids[before];
    if (client === undefined || id === undefined) return spec;
    const { cacheSalt, adapter } = client.spec;
    const promptTokens = [
      ...Array.from(client.spec.promptTokens),
      ...client.tokens,
      ...Array.from(spec.promptTokens),
    ];
    return { ...spec, promptTokens, cacheSalt, adapter, continues: id };
  }

  #link(engine: EngineId): EngineLink {
    const epoch = this.#epochs[engine];
    const isSame = (): boolean => this.#epochs[engine] === epoch && this.hosts[engine]!.engine !== null;
    return {
      send: (message) => {
        this.clock.after(this.#setting.delayMs, () => {
          if (!isSame()) return;
          this.#inboxes[engine]!.push(message);
          this.hosts[engine]!.turn();
        });
      },
    };
  }

  #open(engine: EngineId): void {
    const epoch = this.#epochs[engine]!;
    this.#inboxes[engine] = [];
    this.#devices[engine] = new SimulatedDevice(SPEC, this.clock, linearCost(6, 0.1));
    this.#costs[engine] = new OnlineCostModel(linearCost(5, 0.1));
    const report = (report: EngineReport, learnt: unknown): void => {
      const copy = learnt instanceof OnlineCostModel ? learnt.copy() : null;
      this.clock.after(this.#setting.delayMs, () => {
        if (this.#epochs[engine] === epoch && this.hosts[engine]!.engine !== null)
          this.fleet.report(engine, report, copy);
      });
    };
    this.hosts[engine]!.open(
      {
        link: { next: () => this.#inboxes[engine]!.shift() ?? null, report },
        device: this.#devices[engine]!,
        clock: this.clock,
      },
      {
        epoch,
        settings: {
          ...settingsOf(ours(this.#setting.tbtMs), this.#setting.engines),
          queueMax: QUEUE_MAX,
          integrity: "always",
        },
        costs: this.#costs[engine]!,
      },
    );
  }

  #lose(engine: EngineId, backAfterMs: number | null): void {
    if (this.hosts[engine]!.engine === null) return;
    this.#devices[engine]!.close();
    this.hosts[engine]!.close();
    this.fleet.lost(engine, "it was lost", backAfterMs !== null);
    if (backAfterMs === null) return;
    this.clock.after(backAfterMs, () => {
      this.#epochs[engine]! += 1;
      this.#open(engine);
      this.fleet.updateCosts(engine, this.#costs[engine]!);
      this.fleet.replaced(engine, this.#link(engine), SPEC, this.#epochs[engine]!);
    });
  }
}

const bit = fc.nat({ max: 1 });
const prompts = fc
  .tuple(fc.nat({ max: 2 }), fc.nat({ max: 16 }), fc.array(bit, { minLength: 1, maxLength: 4 }))
  .map(([family, length, rest]) => [
    ...Array.from({ length }, (_, i) => ((family >> (i % 2)) & 1 ? 1 : 0)),
    ...rest,
  ]);

const services: fc.Arbitrary<Service> = fc.record({
  objective: fc.constantFrom("latency", "latency", "gang", "throughput"),
  tenant: fc.constantFrom("", "a", "b"),
  tbtMs: fc.constantFrom(null, null, 8, 30),
  ttftMs: fc.constantFrom(null, null, 10, 400),
  priority: fc.constantFrom(0, 0, -1, 5),
  taskGroup: fc.constant(null),
  program: fc.constantFrom(null, null, { id: 1, ageMs: 5, remainingMs: 10 }),
  session: fc.constantFrom(null, null, { id: 1, parent: null }, { id: 2, parent: 1 }),
});

/** No adapter, and two that differ in their high bits alone. */
const adapters = fc.constantFrom(0, 0, 1, 1 + 2 ** 32);

const specs: fc.Arbitrary<Unplaced> = fc
  .record({
    prompt: prompts,
    tokensMax: fc.integer({ min: 1, max: 20 }),
    seed: fc.nat({ max: 3 }),
    isHeld: fc.boolean(),
    cacheSalt: fc.constantFrom("", "", "other"),
    adapter: adapters,
    service: services,
  })
  .map(({ prompt, tokensMax, seed, isHeld, cacheSalt, adapter, service }) => {
    const { drawnTokens: _, ...spec } = sequenceSpec(prompt, tokensMax, {
      sampling: { temperature: 1, seed: [seed, 0] },
      cacheSalt,
      adapter,
      service,
      isHeld,
    });
    return spec;
  });

const anybody = fc.nat({ max: 1000 });
const who = fc.oneof(anybody, fc.constant("self" as const));
const simple: fc.Arbitrary<Command> = fc.oneof(
  fc.record({ kind: fc.constantFrom("abort", "abort", "pause", "resume", "release"), who }),
  fc.record({ kind: fc.constant("raise" as const), who, service: services }),
);
const submit = (reaction: fc.Arbitrary<Reaction | null>): fc.Arbitrary<Command> =>
  fc.record({
    kind: fc.constant("submit" as const),
    specs: fc.oneof(
      { weight: 3, arbitrary: fc.array(specs, { minLength: 1, maxLength: 1 }) },
      { weight: 1, arbitrary: fc.array(specs, { minLength: 2, maxLength: 3 }) },
    ),
    continues: fc.option(anybody, { nil: null }),
    reaction,
  });
const reaction: fc.Arbitrary<Reaction> = fc.record({
  tokens: fc.option(fc.integer({ min: 1, max: 6 })),
  act: fc.oneof(simple, submit(fc.constant(null))),
});
const commands = fc.array(
  fc.record({
    afterMs: fc.constantFrom(0, 0, 1, 5, 30, 250),
    command: fc.oneof(
      { weight: 8, arbitrary: submit(fc.option(reaction, { freq: 2 })) },
      { weight: 3, arbitrary: simple },
      {
        weight: 1,
        arbitrary: fc.record({ kind: fc.constant("expect" as const), prompt: prompts, adapter: adapters }),
      },
      {
        weight: 1,
        arbitrary: fc.record({
          kind: fc.constant("extend" as const),
          who: anybody,
          more: fc.array(bit, { minLength: 1, maxLength: 8 }),
        }),
      },
      {
        weight: 1,
        arbitrary: fc.record({
          kind: fc.constant("forget" as const),
          who: anybody,
          givesUp: fc.boolean(),
        }),
      },
      {
        weight: 1,
        arbitrary: fc.record({
          kind: fc.constant("lose" as const),
          engine: fc.nat({ max: ENGINES_MAX - 1 }),
          backAfterMs: fc.constantFrom(0, 10, 100, 100, null),
        }),
      },
    ),
  }),
  { maxLength: 50, size: "max" },
);

test("a fleet keeps its invariants, and a replay gives the same result", () => {
  const setting = fc.record({
    engines: fc.integer({ min: 1, max: ENGINES_MAX }),
    delayMs: fc.constantFrom(0, 0.2, 30),
    tbtMs: fc.constantFrom(null, 20),
  });
  const rule = fc.property(setting, commands, (setting, script) => {
    const play = new Play(setting);
    let atMs = 0;
    for (const { afterMs, command } of script) {
      atMs += afterMs;
      play.clock.at(atMs, () => play.act(command));
    }
    play.end();
    for (const { spec, tokens, finishes } of play.clients) {
      expect(finishes.length).toBe(1);
      const alone = tokensAlone({ ...spec, drawnTokens: [] }, SPEC);
      const [finish] = finishes;
      const isWhole = finish!.kind === "stop" || finish!.kind === "length";
      expect(alone.tokens.slice(0, isWhole ? alone.tokens.length : tokens.length)).toEqual(tokens);
    }
    const { fleet, hosts } = play;
    expect(fleet.active).toBe(0);
    for (const [index, { engine }] of hosts.entries()) {
      expect(fleet.dispatcher.workMs(index as EngineId)).toBeLessThan(1e-6);
      if (engine === null) continue;
      expect(engine.busy).toBe(false);
      engine.checkIntegrity();
      const { waiting, running, paused, pagesFree, pagesCached, pagesTotal } = fleet.loads()[index]!;
      expect({ waiting, running, paused }).toEqual({ waiting: 0, running: 0, paused: 0 });
      expect(pagesFree + pagesCached).toBe(pagesTotal);
    }
    assert(play.head !== null, "a recording has a head");
    expect(replay(play.head, play.entries)).toEqual({ divergence: null, breakdowns: [] });
  });
  fc.assert(rule, runs(60));
});
