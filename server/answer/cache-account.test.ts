/** Reasons why prompts were not cached, on real engines with little memory, states, or replacements. */
import { describe, expect, test } from "bun:test";
import type { TokenId } from "../../base/token.ts";
import { SimulatedDevice } from "../../gpu/simulated/device.ts";
import type { EngineId } from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import { type EngineLink, Fleet } from "../../scheduler/fleet/fleet.ts";
import { HashedTokens } from "../../scheduler/session/hashed-tokens.ts";
import type { PastPrompt } from "../../scheduler/session/prompt-history.ts";
import { deviceSpec, sequenceSpec, tokensFrom } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { SimulatedTier } from "../../simulation/simulated-tier.ts";
import { CacheAccount, type StartedPrompt } from "./cache-account.ts";
import { briefOutcome, type CacheOutcome, endOf } from "./cache-outcome.ts";

interface Rig {
  readonly fleet: Fleet;
  readonly account: CacheAccount;
  /** Output tokens of the last prompt's sequence. */
  readonly drawn: TokenId[];
  /** Reasons that were counted. */
  readonly counted: string[];
  /** Runs a prompt to its end, or to its first token if it `stays`. Returns its prefix-cache outcome. */
  run(prompt: readonly TokenId[], options?: Asked): CacheOutcome;
  finish(): void;
  replace(engine: number): void;
}

interface Asked {
  readonly tenant?: string;
  readonly salt?: string;
  readonly adapter?: number;
  readonly tokensMax?: number;
  readonly stays?: boolean;
  readonly changes?: Partial<StartedPrompt>;
}

function rig(spec: Partial<DeviceSpec> = {}, engines = 1, hasTier = false): Rig {
  const clock = new ManualClock();
  const device = deviceSpec(spec);
  const cost = linearCost(1, 0.1);
  const setup = {
    ...{
      pageBytes: 1,
      pageTokens: device.pageTokens,
      bytesPerMs: 10,
      latencyMs: 0.1,
      copiedBytesPerMs: 1000,
    },
    ...{ waitingPagesMax: 1000, segmentPages: 64, segmentsMax: 100, lostShare: 0, seed: 1 },
  };
  const running = new Map<EngineId, Engine>();
  const open = (id: EngineId, epoch: number): EngineLink => {
    const simulated = new SimulatedDevice(device, clock, cost);
    const tier = hasTier ? new SimulatedTier(setup, clock, simulated) : null;
    const engine: Engine = new Engine(
      simulated,
      clock,
      { integrity: "always", kvEvents: true, epoch },
      (report) => fleet.report(id, report),
      cost,
      tier,
    );
    running.set(id, engine);
    return { send: (message) => engine.receive(message) };
  };
  const specs = Array.from({ length: engines }, () => device);
  const fleet: Fleet = new Fleet(
    specs.map((_, id) => ({ link: open(id as EngineId, 0), spec: device })),
    { clock },
  );
  const drawn: TokenId[] = [];
  const counted: string[] = [];
  const account = new CacheAccount(fleet, specs, ({ misses }) =>
    counted.push(...misses.map(({ reason }) => reason)),
  );
  const turn = (): boolean => {
    for (const engine of running.values()) engine.run();
    return clock.runNext();
  };
  return {
    fleet,
    account,
    counted,
    drawn,
    run(tokens, { tenant = "", salt = "", adapter = 0, tokensMax = 4, stays = false, changes } = {}) {
      let outcome: CacheOutcome | null = null;
      let past: PastPrompt | null = null;
      let isDone = false;
      const hashed = HashedTokens.of(tokens);
      const started = {
        tokens: hashed,
        tenant,
        salt,
        adapter,
        turn: null,
        hasLogprobs: false,
        isKept: true,
        ...changes,
      };
      fleet.submit(sequenceSpec(tokens, tokensMax, { cacheSalt: `${tenant}:${salt}`, adapter }), {
        onStarted: (cached, at) => {
          [outcome, past] = account.started(started, cached, at);
        },
        onToken: () => {
          isDone ||= stays;
        },
        onFinish: (_, all) => {
          drawn.splice(0, drawn.length, ...all);
          if (past !== null) account.ended(past, all);
          isDone = true;
        },
      });
      while (!isDone) turn();
      return outcome!;
    },
    finish: () => {
      while (fleet.active > 0) turn();
    },
    replace(engine) {
      const id = engine as EngineId;
      fleet.lost(id, "gone", true);
      running.delete(id);
      fleet.replaced(id, open(id, 1), device, 1);
    },
  };
}

/** Reasons with their places, in order. */
const reasonsOf = ({ misses }: CacheOutcome): readonly string[] =>
  misses.map(({ reason, from, tokens }) => `${reason} ${from}+${tokens}`);

const long = tokensFrom(0, 100);

test("tokens from disk are told apart", () => {
  const { run } = rig({ pages: 12 }, 1, true);
  run(long);
  run(tokensFrom(500, 150), { tenant: "other" });
  const again = run(long);
  const { cachedTokens: cached, tierTokens: disk } = again;
  expect(disk).toBeGreaterThan(0);
  expect(disk).toBeLessThanOrEqual(cached);
  expect(briefOutcome(again)).toBe(`hit=${cached} of 100; disk=${disk}; ended=${endOf(again.misses)}`);
});

describe("the reason is", () => {
  test("new for the first prompt, and none for the same again", () => {
    const { run, counted } = rig();
    const first = run(long);
    expect(reasonsOf(first)).toEqual(["new 0+100"]);
    expect(first.earlier).toBeNull();
    const second = run(long);
    expect([reasonsOf(second), second.cachedTokens, endOf(second.misses)]).toEqual([[], 99, "whole"]);
    expect(counted).toEqual(["new"]);
  });

  test("new where a conversation goes on", () => {
    const { run, drawn } = rig();
    run(long);
    const answer = [...drawn];
    expect(answer).toHaveLength(4);
    // The last output token was sampled, but its keys and values were never computed.
    expect(reasonsOf(run([...long, ...answer, 7, 7]))).toEqual(["new 103+3"]);
    // The client changed the answer before it sent it back.
    expect(reasonsOf(run([...long, answer[0]!, (answer[1]! + 1) % 1000, 7]))).toEqual(["differs 101+2"]);
  });

  test("the first token that differs", () => {
    const { run } = rig();
    run(long);
    const other = [...long.slice(0, 40), ...tokensFrom(500, 60)];
    const outcome = run(other);
    expect(reasonsOf(outcome)).toEqual(["differs 40+60"]);
    expect(outcome.earlier!.around[outcome.earlier!.at]).toBe(40);
    expect(outcome.misses[0]!.costMs).toBeGreaterThan(0);
  });

  test("eviction, after others needed the pages", () => {
    const { run } = rig({ pages: 12 });
    run(long);
    run(tokensFrom(500, 150), { tenant: "other" });
    const again = run(long);
    expect(again.misses[0]!.reason).toBe("evicted");
    expect(again.misses.at(-1)!.from + again.misses.at(-1)!.tokens).toBe(100);
    expect(again.earlier!.ownTokensSince).toBe(0);
  });

  test("an earlier prompt that is still being computed", () => {
    const { run, finish } = rig({ stepTokensMax: 32 });
    run(long, { stays: true, tokensMax: 60 });
    // Only whole pages of it are published.
    const outcome = run(long);
    expect(outcome.misses[0]!.reason).toBe("running");
    expect(outcome.earlier!.endedAgoMs).toBeNull();
    finish();
  });

  test("the loss of an engine", () => {
    const { run, replace } = rig();
    run(long);
    replace(0);
    expect(reasonsOf(run(long))).toEqual(["lost 0+100"]);
  });

  test("another engine", () => {
    const { run, fleet } = rig({}, 2);
    run(long);
    fleet.lost(0 as EngineId, "gone", true);
    expect(reasonsOf(run(long))).toEqual(["other_engine 0+100"]);
  });

  test("no checkpoint of a recurrent state", () => {
    const { run } = rig({ states: { slots: 8, bytes: 1 } });
    run(long, { tokensMax: 1 });
    const outcome = run([...long.slice(0, 50), ...tokensFrom(500, 50)]);
    expect(outcome.cachedTokens).toBeLessThan(50);
    expect(reasonsOf(outcome)).toEqual([
      `no_checkpoint ${outcome.cachedTokens}+${50 - outcome.cachedTokens}`,
      "differs 50+50",
    ]);
  });

  test("part of a page, which a sequence that barely fits does not copy", () => {
    const { run } = rig({ pages: 7 });
    run(long.slice(0, 40), { tokensMax: 1 });
    const outcome = run([...long.slice(0, 39), ...tokensFrom(500, 71)], { tokensMax: 1 });
    expect(reasonsOf(outcome)[0]).toBe("partial_page 32+7");
  });

  test("another adapter, or none", () => {
    const { run } = rig();
    run(long, { adapter: 1 });
    expect(reasonsOf(run(long, { adapter: 1 + 2 ** 32 }))).toEqual(["adapter 0+100"]);
    expect(reasonsOf(run([...long.slice(0, 30), ...tokensFrom(500, 20)]))).toEqual([
      "adapter 0+30",
      "differs 30+20",
    ]);
    expect(reasonsOf(run(long, { adapter: 1 }))).toEqual([]);
  });

  test("another cache salt of the same tenant", () => {
    const { run } = rig();
    run(long, { salt: "x" });
    expect(reasonsOf(run([...long.slice(0, 30), ...tokensFrom(500, 20)], { salt: "y" }))).toEqual([
      "salt 0+30",
      "differs 30+20",
    ]);
  });

  test("log probabilities of the prompt", () => {
    const { run } = rig();
    expect(reasonsOf(run(long, { changes: { hasLogprobs: true } }))).toEqual(["prompt_logprobs 0+100"]);
  });
});

test("another tenant's prompts change no outcome", () => {
  const quiet = rig();
  const beside = rig();
  for (const salt of ["", "x"]) beside.run(long, { tenant: "red", salt });
  const outcomes = [quiet, beside].map(({ run }) => [
    run(long, { tenant: "blue" }),
    run([...long.slice(0, 30), 7], { tenant: "blue" }),
  ]);
  const facts = outcomes.map((some) =>
    some.map(({ earlier, ...rest }) => ({
      ...rest,
      shared: earlier?.shared ?? null,
      around: earlier?.around,
    })),
  );
  expect(facts[1]).toEqual(facts[0]!);
});

test("misses cover the prompt behind its cached tokens without gaps", () => {
  const { run } = rig({ pages: 24, states: { slots: 4, bytes: 1 } });
  for (let seed = 0; seed < 60; seed++) {
    const own = tokensFrom(((seed * 7) % 5) * 100, 20 + ((seed * 13) % 60));
    const prompt = [...long.slice(0, (seed * 11) % 90), ...own];
    const outcome = run(prompt, { tenant: seed % 3 === 0 ? "red" : "", salt: seed % 4 === 0 ? "x" : "" });
    let from = outcome.cachedTokens;
    for (const miss of outcome.misses) {
      expect(miss.from).toBe(from);
      from += miss.tokens;
    }
    expect(from).toBe(outcome.misses.length === 0 ? prompt.length - 1 : prompt.length);
  }
});
