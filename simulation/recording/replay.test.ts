/** A replay repeats a recorded run's decisions, and detects a recording that was changed. */

import { describe, expect, test } from "bun:test";
import { SeededRandom } from "../../base/random.ts";
import { chatService, type EngineId, type Service } from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { ours } from "../../scheduler/policies.ts";
import {
  RECORDING_VERSION,
  type RecordingEntry,
  type RecordingHead,
} from "../../scheduler/recording/recording.ts";
import { policyOf } from "../baselines/policies.ts";
import { deviceSpec } from "../factories.ts";
import type { SimulationReport } from "../report.ts";
import { type SimulationSetup, simulate } from "../simulator.ts";
import type { Arrival, Workload } from "../workload.ts";
import { type Replayed, replay } from "./replay.ts";
import { recordedCosts, recordedWorkload } from "./what-if.ts";

/**
 * Makes 60 calls over three prefixes; each tenth is a task group of three. `keys`: their cache salts, in
 * turn. `vocabSize`: number of tokens.
 */
function calls(keys: readonly string[] = [""], vocabSize = 900): Workload {
  const random = new SeededRandom(4);
  const arrivals: Arrival[] = [];
  let atMs = 0;
  for (let i = 0; i < 60; i++) {
    atMs += random.below(30);
    const isTaskGroup = i % 10 === 0;
    for (let member = 0; member < (isTaskGroup ? 3 : 1); member++) {
      const service: Service = isTaskGroup
        ? { ...chatService, objective: "gang", taskGroup: i }
        : chatService;
      const prefix = random.below(3) * 100;
      const prompt = Int32Array.from({ length: 30 + random.below(60) }, (_, k) => (prefix + k) % vocabSize);
      const outputTokens = 1 + random.below(10);
      arrivals.push({
        atMs,
        promptTokens: () => prompt,
        outputTokens,
        tokensMax: outputTokens + 3,
        cacheSalt: keys[i % keys.length]!,
        service,
        kind: "call",
      });
    }
  }
  let next = 0;
  return { name: "calls", vocabSize, next: () => arrivals[next++] ?? null, after: () => [] };
}

const asRecorded: Replayed = { divergence: null, breakdowns: [] };

interface Recording {
  readonly head: RecordingHead;
  readonly entries: readonly RecordingEntry[];
  readonly report: SimulationReport;
}

function record(overrides: Partial<SimulationSetup> = {}): Recording {
  const device = { profile: linearCost(5, 0.1), spec: deviceSpec({ pages: 96 }) };
  const entries: RecordingEntry[] = [];
  let head: RecordingHead | null = null;
  const report = simulate({
    workload: calls(),
    policy: policyOf("ours"),
    devices: [device, device],
    seed: 1,
    record: (entry) => {
      if (entry.kind === "head") head = entry;
      else entries.push(entry);
    },
    ...overrides,
  });
  return { head: head!, entries, report };
}

describe("what was recorded is decided again", () => {
  for (const tbtMs of [null, 12]) {
    test(tbtMs === null ? "without a target" : "with a target", () => {
      const { head, entries, report } = record({ policy: ours(tbtMs) });
      expect(report.isComplete).toBe(true);
      expect(entries.length).toBeGreaterThan(300);
      expect(replay(head, entries)).toEqual(asRecorded);
    });
  }

  test("with drafts, of which many are right where there are few tokens", () => {
    const { head, entries } = record({ workload: calls([""], 3) });
    const checked = entries.filter((entry) => {
      const sampled = entry.kind === "step" ? entry.sampled : [];
      return new Set(sampled.map(({ sequence }) => sequence)).size < sampled.length;
    });
    expect(checked.length).toBeGreaterThan(20);
    expect(replay(head, entries)).toEqual(asRecorded);
  });

  test("a baseline holds functions, and is not recorded", () => {
    expect(() => record({ policy: policyOf("preble") })).toThrow("only a policy of plain data is recorded");
  });

  test("also from a copy: what serves is data", () => {
    const { head, entries } = record();
    expect(replay(structuredClone(head), structuredClone(entries))).toEqual(asRecorded);
  });

  test("through a loss and a slow device", () => {
    const { head, entries } = record({
      faults: [
        { kind: "lost", engine: 1 as EngineId, atMs: 300, backAfterMs: 200 },
        { kind: "slow", engine: 0 as EngineId, atMs: 450, factor: 2 },
      ],
    });
    expect(entries.some(({ kind }) => kind === "replaced")).toBe(true);
    expect(replay(head, entries)).toEqual(asRecorded);
  });

  test("of several keys, with texts that are public, without which it would be another run", () => {
    const publicTexts = [0, 100, 200].map((from) => Array.from({ length: 40 }, (_, k) => from + k));
    const { head, entries } = record({ workload: calls(["ann", "bob", "cem"]), publicTexts });
    expect(head.publicTexts).toEqual(publicTexts);
    expect(replay(head, entries)).toEqual(asRecorded);
    expect(replay({ ...head, publicTexts: [] }, entries).divergence).not.toBeNull();
  });

  test.each([
    ["pages", {}, 12],
    ["states", { states: { slots: 4, bytes: 1 } }, 24],
  ] as const)("with tiers of %s on disk, which answer again what was recorded", (_, states, pages) => {
    const tier = {
      statePages: "states" in states ? 2 : 0,
      pageBytes: 100,
      pageTokens: 16,
      bytesPerMs: 400,
      latencyMs: 1,
      copiedBytesPerMs: 10_000,
      waitingPagesMax: 8,
      segmentPages: 8,
      segmentsMax: 8,
      lostShare: 0.05,
      seed: 1,
    };
    const device = { profile: linearCost(5, 0.1), spec: deviceSpec({ pages, ...states }), tier };
    const { head, entries, report } = record({
      devices: [device, device],
      faults: [{ kind: "lost", engine: 1 as EngineId, atMs: 300, backAfterMs: 200 }],
    });
    expect(report.engines.every(({ tierLoadedPages }) => tierLoadedPages > 0)).toBe(true);
    expect(replay(head, entries)).toEqual(asRecorded);
    const at = entries.findIndex((entry) => entry.kind === "loaded" && entry.right > 1);
    const short = entries.with(at, { ...(entries[at] as RecordingEntry & { kind: "loaded" }), right: 0 });
    expect(replay(head, short).divergence).not.toBeNull();
  });

  test("also where a start failed, and the engine that came back is in its third life", () => {
    const { head, entries } = record({
      faults: [{ kind: "lost", engine: 1 as EngineId, atMs: 300, backAfterMs: 200 }],
    });
    const third = entries.map((entry) =>
      "epoch" in entry && entry.epoch === 1 ? { ...entry, epoch: 2 } : entry,
    );
    expect(replay(head, third)).toEqual(asRecorded);
  });
});

/**
 * A failure means that the scheduler decides differently than before: raise `RECORDING_VERSION` and update
 * both values here.
 */
test("these decisions are those of this version", () => {
  const hashes = [ours(null), ours(12)].map((policy) => record({ policy }).report.historyHash);
  expect({ version: RECORDING_VERSION, hashes }).toEqual({
    version: 61,
    hashes: ["babc9585eb8b14bc", "ec6e5c408af98338"],
  });
});

describe("one changed entry is found, at that entry or where it first matters", () => {
  const { head, entries } = record();
  const find = (kind: RecordingEntry["kind"], after: number): number =>
    entries.findIndex((entry, index) => index > after && entry.kind === kind);
  const changed = (at: number, entry: RecordingEntry): readonly RecordingEntry[] => entries.with(at, entry);

  test("a placement", () => {
    const at = find("call", 200);
    const entry = entries[at] as Extract<RecordingEntry, { kind: "call" }>;
    const engine = (1 - entry.engine!) as EngineId;
    const { divergence } = replay(head, changed(at, { ...entry, engine }));
    expect(divergence).toMatchObject({ entry: at, atMs: entry.atMs });
    expect(divergence!.recorded).toContain(`on engine ${engine}`);
    expect(divergence!.replayed).toContain(`on engine ${entry.engine}`);
  });

  test("a plan", () => {
    const at = find("step", 200);
    const entry = entries[at] as Extract<RecordingEntry, { kind: "step" }>;
    const { divergence } = replay(head, changed(at, { ...entry, plan: entry.plan ^ 1 }));
    expect(divergence?.entry).toBe(at);
  });

  test("a token: the step that computes it has another plan", () => {
    const at = entries.findIndex((entry, index) => {
      return index > 200 && entry.kind === "step" && entry.sampled.some(({ kind }) => kind === "token");
    });
    const entry = entries[at] as Extract<RecordingEntry, { kind: "step" }>;
    const sampled = entry.sampled.map((row) => (row.kind === "token" ? { ...row, token: 7 } : row));
    const { divergence } = replay(head, changed(at, { ...entry, sampled }));
    expect(divergence!.entry).toBeGreaterThan(at);
    expect(divergence!.recorded).toContain("plan");
  });

  test("a message that was never sent", () => {
    const at = find("message", 200);
    const { engine, atMs } = entries[at] as Extract<RecordingEntry, { kind: "message" }>;
    const { divergence } = replay(
      head,
      changed(at, { kind: "message", atMs, engine, message: { kind: "resync" } }),
    );
    expect(divergence).toMatchObject({ entry: at, recorded: "resync" });
  });

  test("a report that was not received", () => {
    const at = find("reported", 200);
    const { divergence } = replay(head, entries.toSpliced(at, 1));
    expect(divergence?.recorded).toMatch(/^report \d+ of engine/);
    expect(divergence!.entry).toBeGreaterThanOrEqual(at);
  });
});

test("a record is a workload for runs that did not happen", () => {
  const { head, entries, report } = record();
  const again = simulate({
    workload: recordedWorkload(head, entries),
    policy: policyOf("sglang"),
    devices: recordedCosts(head, entries).map((profile, index) => ({ profile, spec: head.specs[index]! })),
    seed: 1,
  });
  expect(again.isComplete).toBe(true);
  const shapeOf = ({ calls }: SimulationReport): number[][] =>
    calls.map(({ promptTokens, outputTokens }) => [promptTokens, outputTokens]);
  expect(shapeOf(again)).toEqual(shapeOf(report));
  const profile = recordedCosts(head, entries)[0]!;
  const shape = { prompts: [{ tokens: 100, context: 0 }], decodes: 3, decodeContext: 300 };
  expect(profile.stepMs(shape) / linearCost(5, 0.1).stepMs(shape)).toBeCloseTo(1, 1);
});

describe("an engine that breaks down is told in a sentence, not by an exception", () => {
  const isDrawn = (entry: RecordingEntry, engine: number): boolean =>
    entry.kind === "step" && entry.engine === engine && entry.sampled.length > 0;
  /** A step without its results breaks an invariant of the engine. */
  const broken = (entries: readonly RecordingEntry[], at: number): readonly RecordingEntry[] =>
    entries.with(at, { ...(entries[at] as Extract<RecordingEntry, { kind: "step" }>), sampled: [] });

  test("in the middle of a recording it is new", () => {
    const { head, entries } = record();
    const at = entries.findIndex((entry, index) => index > 100 && isDrawn(entry, 0));
    const { breakdowns } = replay(head, broken(entries, at));
    expect(breakdowns).toEqual([
      {
        entry: at,
        atMs: entries[at]!.atMs,
        engine: 0 as EngineId,
        reason: "a device answers every row",
        isRecorded: false,
      },
    ]);
  });

  test("as the last that an engine did before it was lost, or the recording ended, it is what was recorded", () => {
    const lost = record({ faults: [{ kind: "lost", engine: 1 as EngineId, atMs: 300, backAfterMs: 200 }] });
    const end = lost.entries.findIndex(({ kind }) => kind === "lost");
    const last = lost.entries.findLastIndex((entry, index) => index < end && isDrawn(entry, 1));
    expect(replay(lost.head, broken(lost.entries, last)).breakdowns).toMatchObject([
      { entry: last, isRecorded: true },
    ]);
    const cut = lost.entries.slice(0, last + 1);
    expect(replay(lost.head, broken(cut, last))).toMatchObject({
      divergence: null,
      breakdowns: [{ entry: last, isRecorded: true }],
    });
  });
});
