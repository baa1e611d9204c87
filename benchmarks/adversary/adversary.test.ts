/** Draws are reproducible and within their bounds; losses count against the best rival. */

import { expect, test } from "bun:test";
import { drawConfiguration, idOf, parseId } from "./configuration.ts";
import { summaryOf } from "./summary.ts";
import { bestRival, type Figures, own, runTrial, settings, type Trial } from "./trial.ts";

test("a configuration is decided by its seed and number, and every one differs", () => {
  const drawn = Array.from({ length: 50 }, (_, index) => drawConfiguration(3, index));
  expect(Array.from({ length: 50 }, (_, index) => drawConfiguration(3, index))).toEqual(drawn);
  expect(new Set(drawn.map((one) => JSON.stringify({ ...one, index: 0 }))).size).toBe(50);
  for (const one of drawn) {
    expect(parseId(idOf(one))).toEqual({ seed: 3, index: one.index });
    const { rootTokens, documentTokens, sectionTokens, suffixTokens, outputTokens, tokensMax } = one.load;
    const prompt = rootTokens + documentTokens.most + sectionTokens.most + suffixTokens.most;
    expect(16 * one.pages).toBeGreaterThanOrEqual(
      1.5 * (prompt + Math.max(outputTokens.most, tokensMax ?? 0)),
    );
  }
  expect(() => parseId("7")).toThrow("7 is no configuration");
});

test("a trial repeats, and every policy answers every call", () => {
  const drawn = drawConfiguration(1, 5);
  const small = { ...drawn, load: { ...drawn.load, calls: 20 } };
  expect(runTrial(small, true)).toEqual(runTrial(small, true));
});

test("settings have names of their own, and what serves is not among them", () => {
  expect(new Set([...settings, own].map(({ name }) => name)).size).toBe(settings.length + 1);
  const served = JSON.stringify({ ...own, name: "" });
  for (const setting of settings) expect(JSON.stringify({ ...setting, name: "" })).not.toBe(served);
});

test("a loss is counted against the best rival, the other way round where more is better", () => {
  const all = (value: number): Figures => {
    return { latencyMeanMs: value, latencyP99Ms: value, ttftMeanMs: value, tokensPerSecond: value };
  };
  const trial = (index: number, a: number, b: number): Trial => ({
    configuration: drawConfiguration(1, index),
    ours: all(100),
    rivals: { a: all(a), b: all(b) },
    settings: { quick: all(70) },
  });
  const trials = [trial(0, 80, 120), trial(1, 95, 200), trial(2, 300, 150)];
  expect(trials.map((one) => bestRival(one, "latencyMeanMs").name)).toEqual(["a", "a", "b"]);
  expect(trials.map((one) => bestRival(one, "tokensPerSecond").name)).toEqual(["b", "b", "a"]);
  const summary = summaryOf(trials);
  expect(summary).toContain("| ours | 33.3 % | 33.3 % | 33.3 % | 100.0 % |");
  expect(summary).toContain("| quick | 0.0 % | 0.0 % | 0.0 % | 100.0 % |");
  expect(summary).toContain("| a | 33.3 % | 33.3 % | 33.3 % | 66.7 % |");
  expect(summary).toContain("| the policy that loses least | 0.0 % | 0.0 % | 0.0 % | 100.0 % |");
  expect(summary).toContain("| 100 ms | a: 80 ms | 1.25× |");
});
