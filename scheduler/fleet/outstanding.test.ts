/** What is before a new sequence, and beside it. */

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
  test("of earlier objectives all, of later ones what their credits win, of bulk none", () => {
    const work = outstanding([
      sequence("latency", "a", 100),
      sequence("gang", "a", 60),
      sequence("throughput", "a", 45),
    ]);
    const before = (objective: Objective): number => work.promptsMs(0, { objective, tenant: "a", turnUs: 0 });
    expect(before("latency")).toBeCloseTo(100 + (60 * 4) / 12, 9);
    expect(before("gang")).toBe(160);
    expect(before("throughput")).toBe(205);
  });

  test("of its own objective its tenant's, and of other tenants as much", () => {
    const work = outstanding([
      sequence("latency", "crowd", 1000),
      sequence("latency", "crowd", 1000),
      sequence("latency", "own", 70),
      sequence("latency", "small", 20),
    ]);
    const newcomer = { objective: "latency", tenant: "own", turnUs: 30_000 } as const;
    expect(work.promptsMs(0, newcomer)).toBe(70 + 100 + 20);
    expect(work.promptsMs(0, { ...newcomer, tenant: "new" })).toBe(30 + 30 + 20);
    expect(work.promptsMs(0, { ...newcomer, tenant: "crowd" })).toBe(2000 + 70 + 20);
  });
});

test("beside a new answer are those of earlier objectives, of later ones what their credits win and no bulk, each between its rest and as long", () => {
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
