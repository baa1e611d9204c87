/** Draws repeat, stay within what they promise, and are counted as they are. */

import { expect, test } from "bun:test";
import { drawConfiguration, idOf, parseId, traitsOf } from "./configuration.ts";
import type { Figures } from "./figures.ts";
import { settings } from "./hindsight.ts";
import { summaryOf } from "./summary.ts";
import { own } from "./systems.ts";
import { bestRival, runTrial, type Trial } from "./trial.ts";

test("a configuration is decided by its seed and number, and every one differs", () => {
  const drawn = Array.from({ length: 50 }, (_, index) => drawConfiguration(3, index));
  expect(Array.from({ length: 50 }, (_, index) => drawConfiguration(3, index))).toEqual(drawn);
  expect(new Set(drawn.map((one) => JSON.stringify({ ...one, index: 0 }))).size).toBe(50);
  for (const one of drawn) {
    expect(parseId(idOf(one))).toEqual({ seed: 3, index: one.index });
    const { load, pages, loadShare } = one;
    const { rootTokens, documentTokens, sectionTokens, suffixTokens, outputTokens, tokensMax } = load;
    const prompt = rootTokens + documentTokens.most + sectionTokens.most + suffixTokens.most;
    expect(16 * pages).toBeGreaterThanOrEqual(1.5 * (prompt + Math.max(outputTokens.most, tokensMax ?? 0)));
    expect(loadShare).toBeGreaterThanOrEqual(0.3);
    expect(loadShare).toBeLessThan(2);
    expect(Number.isFinite(load.callsPerSecond) && load.callsPerSecond > 0).toBe(true);
  }
  expect(() => parseId("7")).toThrow("7 is no configuration");
});

test("a trial repeats, and every policy answers every call", () => {
  const drawn = drawConfiguration(1, 5);
  const small = { ...drawn, load: { ...drawn.load, calls: 20 } };
  expect(runTrial(small)).toEqual(runTrial(small));
});

/** Ours has 100 of every figure, each rival what is given. */
function trial(index: number, rivals: Readonly<Record<string, number>>): Trial {
  const all = (value: number): Figures => ({
    latencyMeanMs: value,
    latencyP99Ms: value,
    ttftMeanMs: value,
    tbtP99Ms: value,
    tokensPerSecond: value,
    hitRate: value,
    preemptions: value,
  });
  return {
    configuration: drawConfiguration(1, index),
    ours: all(100),
    rivals: Object.fromEntries(Object.entries(rivals).map(([name, value]) => [name, all(value)])),
  };
}

test("a loss is counted against the best rival of its configuration, where more is better the other way round", () => {
  const trials = [trial(0, { a: 80, b: 120 }), trial(1, { a: 95, b: 200 }), trial(2, { a: 300, b: 150 })];
  expect(trials.map((one) => bestRival(one, "latencyMeanMs"))).toMatchObject([
    { name: "a", ratio: 1.25 },
    { name: "a" },
    { name: "b" },
  ]);
  expect(bestRival(trials[1]!, "tokensPerSecond")).toMatchObject({ name: "b", ratio: 2 });
  expect(bestRival(trials[0]!, "latencyMeanMs", ({ hitRate }) => hitRate > 100)).toMatchObject({ name: "b" });
  expect(bestRival(trials[0]!, "latencyMeanMs", () => false)).toBeNull();
  const summary = summaryOf(trials, 1);
  expect(summary).toContain("| mean latency | 33 % | 1.25× | 1.05× | ≤ 2.0 %, ≤ 1.5× | **no** |");
  expect(summary).toContain("| throughput | 100 % | 3.00× | 2.00× |  |  |");
  expect(summary).toContain("| a | 33 % | 33 % | 33 % | 67 % |");
  expect(summary).toContain(
    "| of each configuration the rival that is best in mean latency | 0 % | 0 % | 0 % | 100 % |",
  );
  expect(summary).toContain("| a | **33 %** / 33 % |");
  expect(summary).toContain("| b | 100 % / 0 % |");
  expect(summary).toContain("| mean latency | 0 | 0 | 0 |  | 0 | 0 |");
  expect(summary).toContain(`| ${traitsOf(trials[0]!.configuration)[0]} | `);
});

test("an extreme that no policy avoids is told from one that a policy avoids", () => {
  const one = trial(0, { even: 100 });
  const { ours } = one;
  const slow = { ...ours, ttftMeanMs: 160 };
  /** First tokens at once, and everything else takes twice as long. */
  const hasty = { ...ours, latencyMeanMs: 200, latencyP99Ms: 200, tbtP99Ms: 200 };
  const avoided = { ...one, ours: slow, rivals: { a: ours, b: hasty } };
  const unavoided = { ...one, ours: slow, rivals: { a: slow, b: hasty } };
  const noisy = { ...unavoided, configuration: { ...one.configuration, noise: "rough" as const } };
  expect(summaryOf([avoided], 1)).toContain("| mean time to first token | 1 | 0 | 0 | 0 | 0 | 0 |");
  const summary = summaryOf([avoided, unavoided, noisy], 1);
  expect(summary).toContain("| mean time to first token | 3 | 2 | 1 | 2 | 2 | 2 |");
  expect(summary).toContain("In 2 of all configurations no policy");
});

test("each policy is compared with the best of all others; who chooses by class looks at other configurations alone", () => {
  const one = trial(0, { a: 80, b: 300 });
  // Of one class: a is ahead of ours by more than a tenth in two of three, and nobody is ahead of b in the last.
  const alike = [one, { ...one }, { ...one, rivals: { a: one.ours, b: one.rivals.a! } }];
  const summary = summaryOf(alike, 1);
  expect(summary).toContain("| ours | 100 % | 100 % | 100 % | 1.00× |");
  expect(summary).toContain("| a | 33 % | 33 % | 33 % | 0.86× |");
  expect(summary).toContain("| b | 67 % | 67 % | 67 % | 1.93× |");
  // In the others a is behind once or never, so it is chosen each time, and is behind where b is ahead.
  expect(summary).toContain("| for first tokens by class, of all | 33 % | 33 % | 33 % | 0.86× |");
  expect(summary).toContain("| for first tokens by class, of the rivals | 33 % | 33 % | 33 % | 0.86× |");
  expect(summary).toContain("| for first tokens by the outcome, of the rivals | 0 % | 0 % | 0 % | 0.80× |");
  expect(summary).toContain("| any | 3 | 0.80× | 0.80× | 0.80× | 0.80× |");
  expect(summary).toContain("| a | 2 | 0.80× | 0.80× | 0.80× | 0.80× |");
  expect(summary).toContain("20 ms later than that rival's, 20 % of ours' mean latency");
});

test("with hindsight each configuration has the setting that loses least, of the trials that have any", () => {
  const one = trial(0, { a: 80 });
  const { ours, rivals } = one;
  const trials = [
    { ...one, settings: { quick: rivals.a! } },
    { ...one, rivals: { a: ours }, settings: { quick: { ...ours, latencyMeanMs: 400 } } },
  ];
  const summary = summaryOf([...trials, one], 1);
  expect(summary).toContain("the first 2 configurations");
  expect(summary).toContain("| quick | 50 % | 0 % | 0 % | 50 % | 50 % | 1.79× |");
  expect(summary).toContain(
    "| of each configuration the one that loses least | 0 % | 0 % | 0 % | 0 % | 0 % | 0.89× |",
  );
  expect(summaryOf([one], 1)).not.toContain("Other settings");
});

test("settings have names of their own, and what serves is not among them", () => {
  expect(new Set([...settings.map(({ name }) => name), "ours"]).size).toBe(settings.length + 1);
  const served = JSON.stringify({ ...own, name: "" });
  for (const setting of settings) expect(JSON.stringify({ ...setting, name: "" })).not.toBe(served);
});
