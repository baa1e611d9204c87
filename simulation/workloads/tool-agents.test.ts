/**
 * Agents with tools: prompts that continue completions, subagents that are awaited, and reproducible draws.
 */

import { expect, test } from "bun:test";
import type { Arrival } from "../workload.ts";
import { type ToolAgentLoad, toolAgentWorkload } from "./tool-agents.ts";

const LOAD: ToolAgentLoad = {
  seed: 5,
  sessions: 60,
  gapMs: 1000,
  tenants: 3,
  agentShare: 0.6,
  turns: 8,
  contextMax: 30_000,
};

interface Ended {
  readonly arrival: Arrival;
  readonly prompt: Int32Array;
  readonly finishedMs: number;
  readonly next: readonly Arrival[];
}

/** All calls, each answered after `ms` with the token 7, in order of time, or the one asked last `first`. */
function play(ms: number, first: "earliest" | "last"): readonly Ended[] {
  const workload = toolAgentWorkload(LOAD);
  const open: Arrival[] = [];
  for (let next = workload.next(); next !== null; next = workload.next()) open.push(next);
  const ended: Ended[] = [];
  for (;;) {
    if (first === "earliest") open.sort((a, b) => b.atMs - a.atMs);
    const arrival = open.pop();
    if (arrival === undefined) return ended;
    const finishedMs = arrival.atMs + ms;
    const tokens = new Array<number>(arrival.outputTokens).fill(7);
    const next = workload.after(arrival, { finishedMs, tokens });
    ended.push({ arrival, prompt: arrival.promptTokens(), finishedMs, next });
    open.push(...next);
  }
}

const ended = play(500, "earliest");
const idOf = ({ service }: Arrival): number => service.session!.id;

test("a turn's prompt is the one before it, its answer and more, after the time of a tool or a thought", () => {
  let turns = 0;
  for (const { arrival, prompt, finishedMs, next } of ended) {
    for (const one of next) {
      expect(one.atMs).toBeGreaterThanOrEqual(finishedMs);
      if (idOf(one) !== idOf(arrival)) continue;
      const following = one.promptTokens();
      const answerEnd = prompt.length + arrival.outputTokens;
      expect(following.length).toBeGreaterThan(answerEnd);
      expect(following.subarray(0, prompt.length).every((token, at) => token === prompt[at])).toBe(true);
      expect(following.subarray(prompt.length, answerEnd).every((token) => token === 7)).toBe(true);
      turns += 1;
    }
  }
  expect(turns).toBeGreaterThan(150);
});

test("an agent waits for its subagents, whose prompts begin with its instruction", () => {
  const first = new Map<number, Ended>();
  for (const one of ended) if (!first.has(idOf(one.arrival))) first.set(idOf(one.arrival), one);
  let waits = 0;
  for (const { arrival, next } of ended) {
    if (next[0]?.kind !== "subagent" || arrival.kind !== "agent") continue;
    const { prompt } = first.get(idOf(arrival))!;
    for (const one of next) {
      expect(one.service.session!.parent).toBe(idOf(arrival));
      expect(one.service.tenant).toBe(arrival.service.tenant);
      const common = one.promptTokens().subarray(0, 3500);
      expect(common.every((token, at) => token === prompt[at])).toBe(true);
    }
    const ids = new Set(next.map(idOf));
    const ends = ended.filter((one) => ids.has(idOf(one.arrival))).map(({ finishedMs }) => finishedMs);
    const goesOn = ended.flatMap((one) => (ids.has(idOf(one.arrival)) ? one.next : []));
    const join = goesOn.filter((one) => idOf(one) === idOf(arrival));
    expect(join).toHaveLength(1);
    expect(join[0]!.atMs).toBeGreaterThanOrEqual(Math.max(...ends));
    waits += 1;
  }
  expect(waits).toBeGreaterThan(4);
});

test("calls are the same whenever others end", () => {
  const lengths = (all: readonly Ended[]): string[] =>
    all.map(({ arrival, prompt }) => `${idOf(arrival)}: ${prompt.length} ${arrival.outputTokens}`).sort();
  expect(lengths(play(9000, "last"))).toEqual(lengths(ended));
});

test("times of tools have a long tail: the slowest tenth takes most of the time", () => {
  const gaps = ended
    .flatMap(({ finishedMs, next }) => next.map((one) => (one.kind === "chat" ? 0 : one.atMs - finishedMs)))
    .filter((ms) => ms > 0)
    .sort((a, b) => b - a);
  const sum = (ms: readonly number[]): number => ms.reduce((a, b) => a + b, 0);
  expect(sum(gaps.slice(0, gaps.length / 10))).toBeGreaterThan(0.7 * sum(gaps));
  expect(gaps[Math.floor(gaps.length / 2)]!).toBeLessThan(1000);
});
