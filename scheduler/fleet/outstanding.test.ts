/** What is before a new sequence, and beside it. */

import { describe, expect, test } from "bun:test";
import type { Objective } from "../core.ts";
import { objectives } from "../objective.ts";
import { type Job, Outstanding } from "./outstanding.ts";

function job(objective: Objective, tenant: string, promptMs: number): Job {
  return {
    engine: 0,
    objective,
    tenant,
    hasTarget: false,
    promptUs: 1000 * promptMs,
    pages: 1,
    context: 100,
    drawn: 0,
    isDecoding: false,
    expected: 10,
    tokensMax: 10,
    prefix: undefined,
    end: null,
  };
}

function workOf(jobs: readonly Job[]): Outstanding {
  const work = new Outstanding(1, objectives);
  for (const each of jobs) work.placed(each);
  return work;
}

describe("prompts before a new sequence", () => {
  test("of earlier objectives all, of later ones what their credits win", () => {
    const work = workOf([job("latency", "a", 100), job("gang", "a", 60), job("throughput", "a", 45)]);
    const before = (objective: Objective): number =>
      work.promptsMs(0, { objective, tenant: "a", promptUs: 0 });
    expect(before("latency")).toBeCloseTo(100 + (60 * 4) / 12 + 45 / 9, 9);
    expect(before("gang")).toBeCloseTo(100 + 60 + 45 / 5, 9);
    expect(before("throughput")).toBe(205);
  });

  test("of its own objective its tenant's, and of other tenants as much", () => {
    const work = workOf([
      job("latency", "crowd", 1000),
      job("latency", "crowd", 1000),
      job("latency", "own", 70),
      job("latency", "small", 20),
    ]);
    const newcomer = { objective: "latency", tenant: "own", promptUs: 30_000 } as const;
    expect(work.promptsMs(0, newcomer)).toBe(70 + 100 + 20);
    expect(work.promptsMs(0, { ...newcomer, tenant: "new" })).toBe(30 + 30 + 20);
    expect(work.promptsMs(0, { ...newcomer, tenant: "crowd" })).toBe(2000 + 70 + 20);
  });
});

test("a sequence is a prompt until its first token, then a decode, and nothing when it has ended", () => {
  const one = job("latency", "a", 100);
  const work = workOf([one]);
  expect([work.allPromptsMs(0), work.decoding(0), work.decodesMs(0, "latency", 2)]).toEqual([100, 0, 20]);
  work.drew(one);
  expect([work.allPromptsMs(0), work.decoding(0), work.decodesMs(0, "latency", 2)]).toEqual([0, 1, 18]);
  work.ended(one);
  expect([work.workMs(0, 2), work.decoding(0), work.sequences(0)]).toEqual([0, 0, 0]);
});
