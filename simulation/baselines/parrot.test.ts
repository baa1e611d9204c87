/** Parrot's Algorithm 1 and its caps, as published. */

import { expect, test } from "bun:test";
import {
  chatService,
  type EngineId,
  type SequenceId,
  type SequenceSpec,
  type Service,
} from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import type { SequenceView } from "../../scheduler/engine/step/step-rule.ts";
import { openStepRule } from "../../scheduler/engine/step/time-budget.ts";
import { objectives } from "../../scheduler/objective.ts";
import { deviceSpec, sequenceSpec, tokensFrom } from "../factories.ts";
import { capped } from "./capped.ts";
import { parrotPlacement } from "./parrot.ts";
import { promptsFirst } from "./vllm.ts";

const caps = { latency: 400, throughput: null };
const there = [0, 1, 2] as EngineId[];

function rule() {
  const engine = { spec: deviceSpec({ pages: 64 }), costs: linearCost(5, 0.1) };
  return parrotPlacement(caps).open([engine, engine, engine]);
}

let nextId = 0;

function spec(first: number, tokens: number, service: Partial<Service> = {}): SequenceSpec {
  nextId += 1;
  const all = { ...chatService, ...service };
  return { ...sequenceSpec(tokensFrom(first, tokens), 20, { service: all }), id: nextId as SequenceId };
}

test("a task group goes to one engine, and what shares its prefix follows it", () => {
  const placement = rule();
  placement.place(spec(900, 32), there, 0);
  const group = [1, 2, 3].map(() => spec(0, 64, { objective: "gang", taskGroup: 1 }));
  const engines = placement.placeTaskGroup!(group, there, 0).map(({ engine }) => engine);
  expect(new Set(engines).size).toBe(1);
  expect(placement.place(spec(0, 64, { objective: "throughput" }), there, 0).engine).toBe(engines[0]!);
});

test("a latency call goes where residents lose least: not to an engine full of throughput work", () => {
  const placement = rule();
  const busy = placement.place(spec(0, 300, { objective: "throughput" }), there, 0).engine;
  const quiet = placement.place(spec(500, 64), there, 0).engine;
  expect(quiet).not.toBe(busy);
  expect(placement.place(spec(700, 64), there, 0).engine).toBe(quiet);
});

test("a cap admits what fits beside a latency call, and one sequence always", () => {
  const batch = capped(promptsFirst(8192), caps);
  const view = (length: number, objective: keyof typeof objectives): SequenceView => ({
    id: length as SequenceId,
    objective: objectives[objective],
    tbtMs: null,
    pacing: { lastTokenMs: 0, lastChunkMs: 0, skips: 0, advance: 1 },
    length,
    isDecoding: true,
    isPaused: false,
  });
  const backlog = {
    promptTokens: 1,
    likelyTokens: 1,
    waiting: 1,
    refillTokens: 1,
    answerTokens: 1,
    streamTokens: 0,
    countsOffline: true,
  };
  const admits = (running: readonly SequenceView[], next: SequenceView): boolean => {
    const [pass] = openStepRule(batch, deviceSpec(), linearCost(5, 0.1)).passes(64, 64);
    return pass!.open({ running, backlog, nowMs: 0, tokensMax: 8192 }).admits(next, false);
  };
  expect([
    admits([], view(500, "latency")),
    admits([view(300, "latency")], view(100, "latency")),
    admits([view(300, "latency")], view(101, "throughput")),
    admits([view(300, "throughput")], view(900, "gang")),
  ]).toEqual([true, true, false, true]);
});
