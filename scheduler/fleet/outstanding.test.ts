/** Work before a new sequence, and beside it. */

import { describe, expect, test } from "bun:test";
import type { Objective } from "../core.ts";
import { objectives } from "../objective.ts";
import { Outstanding, type Work } from "./outstanding.ts";

function sequence(objective: Objective, tenant: string, promptMs: number): Work {
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

function outstanding(sequences: readonly Work[]): Outstanding {
  const work = new Outstanding(1, objectives);
  for (const each of sequences) work.placed(each);
  return work;
}

describe("prompts before a new sequence", () => {
  test("count all work of earlier objectives, the credit share of later ones, and no offline work", () => {
    const work = outstanding([
      sequence("latency", "a", 100),
      sequence("gang", "a", 60),
      sequence("throughput", "a", 45),
    ]);
    const before = (objective: Objective, workMs: number): number =>
      work.promptsMs(0, { objective, tenant: "a", workUs: 1000 * workMs, turnUs: 0 });
    expect(before("latency", 100)).toBeCloseTo(100 + (60 * 4) / 12, 9);
    expect(before("gang", 60)).toBe(160);
    expect(before("throughput", 45)).toBe(205);
  });

  test("of its own objective count its tenant's work, and as much of each other tenant", () => {
    const work = outstanding([
      sequence("latency", "crowd", 1000),
      sequence("latency", "crowd", 1000),
      sequence("latency", "own", 70),
      sequence("latency", "small", 20),
    ]);
    /** Its prompt takes as long as the average of those before it, so that neither overtakes the other. */
    const before = (tenant: string, sumMs: number): number =>
      work.promptsMs(0, { objective: "latency", tenant, workUs: (1000 * sumMs) / 4, turnUs: 30_000 });
    expect(before("own", 190)).toBe(70 + 100 + 20);
    expect(before("new", 80)).toBe(30 + 30 + 20);
    expect(before("crowd", 2090)).toBe(2000 + 70 + 20);
  });

  test("count a tenant's prompts alone after those of others have ended, and none after all have", () => {
    const [a, b] = [sequence("latency", "a", 100), sequence("latency", "b", 50)];
    const work = outstanding([a, b]);
    /** Its prompt takes as long as the one before it. */
    const before = (tenant: string, ms: number): number =>
      work.promptsMs(0, { objective: "latency", tenant, workUs: 1000 * ms, turnUs: 30_000 });
    work.ended(b);
    expect(before("a", 100)).toBe(100);
    expect(before("b", 30)).toBe(30);
    work.ended(a);
    work.placed(b);
    expect(before("b", 50)).toBe(50);
    expect(before("a", 30)).toBe(30);
    work.ended(b);
    expect(before("b", 50)).toBe(0);
  });

  test("of its own objective count at most its own cost for each under response ratio, but all under FCFS", () => {
    const beside = (objective: Objective, workMs: number): number =>
      outstanding([100, 100, 100, 100].map((ms) => sequence(objective, "a", ms))).promptsMs(0, {
        objective,
        tenant: "a",
        workUs: 1000 * workMs,
        turnUs: 0,
      });
    expect(beside("latency", 1)).toBeWithin(4, 8);
    expect(beside("latency", 100)).toBe(400);
    expect(beside("latency", 10_000)).toBeWithin(400, 800);
    expect(beside("gang", 1)).toBe(400);
  });
});

test("decodes beside a new one: all of earlier objectives, the credit share of later ones, no offline work", () => {
  const work = outstanding([
    sequence("latency", "a", 100),
    sequence("gang", "a", 60),
    sequence("gang", "b", 60),
    sequence("throughput", "a", 45),
  ]);
  const each = (10 + 2 * 30) / 3;
  expect(work.tokensBeside(0, "latency", 30)).toBeCloseTo(each * (1 + (2 * 4) / 12), 9);
  expect(work.tokensBeside(0, "throughput", 30)).toBeCloseTo(4 * each, 9);
});

test("a sequence is a prompt until its first token, then a decode, and nothing when it has ended", () => {
  const one = sequence("latency", "a", 100);
  const work = outstanding([one]);
  expect([work.allPromptsMs(0), work.decoding(0), work.allDecodesMs(0, 2)]).toEqual([100, 0, 20]);
  work.drew(one);
  expect([work.allPromptsMs(0), work.decoding(0), work.allDecodesMs(0, 2)]).toEqual([0, 1, 18]);
  work.ended(one);
  expect([work.workMs(0, 2), work.decoding(0), work.sequences(0)]).toEqual([0, 0, 0]);
});
