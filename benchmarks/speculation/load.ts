/** A drawn load: calls, a device, and how well the calls' drafts do. */

import { SeededRandom } from "../../base/random.ts";
import { chatService } from "../../scheduler/core.ts";
import type { PartedCostModel } from "../../scheduler/cost/cost-model.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { deviceModels } from "../../scheduler/cost/profiles.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import { ours } from "../../scheduler/policies.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { type DraftCurve, drawnDrafts } from "../../simulation/baselines/drawn-drafts.ts";
import { fixedDrafts } from "../../simulation/baselines/fixed-drafts.ts";
import { deviceSpec } from "../../simulation/factories.ts";
import { type NoiseName, noises } from "../../simulation/noise.ts";
import { simulate } from "../../simulation/simulator.ts";
import type { Arrival, Workload } from "../../simulation/workload.ts";
import {
  exponentialGapMs,
  nameOf,
  promptOf,
  VOCABULARY,
  workloadOf,
} from "../../simulation/workloads/parts.ts";

/**
 * Curves by kind of answer, after what SuffixDecoding (arXiv:2411.04975) and prompt lookup report: answers that
 * edit or quote a text, code, records of one form, chats, and texts without any repetition.
 */
const curves = {
  quote: { share: 0.8, first: 0.92, decay: 0.99 },
  code: { share: 0.6, first: 0.75, decay: 0.97 },
  records: { share: 0.75, first: 0.85, decay: 0.98 },
  chat: { share: 0.25, first: 0.4, decay: 0.85 },
  none: { share: 0.1, first: 0.08, decay: 0.6 },
} as const satisfies Readonly<Record<string, DraftCurve>>;
export type CurveName = keyof typeof curves;
export const curveNames = Object.keys(curves) as readonly CurveName[];

/** Rules that are compared: a fixed number of drafts, 0 for none, or the price. */
export const rules = ["priced", 0, 1, 2, 4, 8] as const;
export type Rule = (typeof rules)[number];

/** Average milliseconds from a call's arrival to its end, and the 99th percentile of gaps. */
export interface Outcome {
  readonly latencyMs: number;
  readonly gapMs: number;
}

export interface DrawnLoad {
  readonly name: string;
  run(rule: Rule): Outcome;
}

const CALLS = 40;

/** A load's parts. */
export interface LoadParts {
  readonly seed: number;
  readonly machine: Machine;
  readonly kinds: readonly CurveName[];
  readonly promptTokens: number;
  readonly outputTokens: number;
  /** Average calls at a time. */
  readonly running: number;
  readonly noise: NoiseName | null;
  /** Target of all streams between two tokens; null: none. */
  readonly tbtMs: number | null;
}

interface Machine {
  readonly profile: PartedCostModel;
  readonly spec: DeviceSpec;
  readonly device: string;
}

/** Draws a load. */
export function drawLoad(seed: number): DrawnLoad {
  const random = new SeededRandom(seed).child("load");
  const pick = <Item>(items: readonly Item[]): Item => items[random.below(items.length)]!;
  const machine = drawDevice(random);
  const kinds = Array.from({ length: 1 + random.below(2) }, () => pick(curveNames));
  const promptTokens = pick([50, 400, 2000]);
  const outputTokens = pick([40, 120, 300]);
  const running = pick([0.3, 1, 2, 4, 8, 16, 32]);
  const noise: NoiseName | null = pick([null, "mild", "rough"]);
  return loadOf({ seed, machine, kinds, promptTokens, outputTokens, running, noise, tbtMs: null });
}

export function loadOf(parts: LoadParts): DrawnLoad {
  const { seed, kinds, promptTokens, outputTokens, running, noise, tbtMs } = parts;
  const { profile, spec, device } = parts.machine;
  // Calls arrive so that the wanted number runs at a time, if each takes as long as among so many.
  const decodes = Math.max(1, Math.round(running));
  const stepMs = profile.stepMs({ prompts: [], decodes, decodeContext: decodes * promptTokens });
  const promptMs = profile.stepMs({
    prompts: [{ tokens: promptTokens, context: 0 }],
    decodes: 0,
    decodeContext: 0,
  });
  const gapMs = (promptMs * Math.max(1, running / 2) + outputTokens * stepMs) / running;
  const curveOf = (call: number): DraftCurve => curves[kinds[nameOf(seed, call, 7) % kinds.length]!];
  const name = `${device}, ${kinds.join("+")}, ${promptTokens} in, ${outputTokens} out, ${running} at a time, ${noise}`;
  return {
    name,
    run: (rule) => {
      const report = simulate({
        workload: calls(seed, gapMs, promptTokens, outputTokens),
        policy: policyFor(rule, tbtMs, curveOf, seed),
        devices: [{ profile, spec }],
        seed,
        noise: noise === null ? null : noises[noise],
      });
      const { calls: records, tbt } = report;
      const sum = records.reduce((total, { arrivedMs, finishedMs }) => total + finishedMs - arrivedMs, 0);
      return { latencyMs: sum / records.length, gapMs: tbt.p99 };
    },
  };
}

function policyFor(
  rule: Rule,
  tbtMs: number | null,
  curveOf: (call: number) => DraftCurve,
  seed: number,
): Policy {
  const policy = ours(tbtMs);
  const drafts = drawnDrafts(curveOf, seed, VOCABULARY);
  if (rule === "priced") return { ...policy, drafts };
  if (rule === 0) return { ...policy, drafts: { kind: "off" } };
  return { ...policy, batch: fixedDrafts(policy.batch, rule), drafts };
}

/** A processor whose rows cost a share of a step, or a measured GPU. */
function drawDevice(random: SeededRandom): Machine {
  const kind = random.below(3);
  if (kind === 0) {
    return gpu(random.below(2) === 0 ? "a100" : "rtx4090");
  }
  return processor(8 + random.below(50), 0.01 + 0.14 * random.unit() * random.unit());
}

/** A processor with steps of `stepMs`, of which each row takes a share more. */
export function processor(stepMs: number, share: number): Machine {
  const first = [{ tokens: 8, tokenMs: (share / 2) * stepMs }];
  const sequences = { sequenceMs: (share / 2) * stepMs, pairMs: 1e-6 * stepMs, contextMs: 1e-5 * stepMs };
  return {
    profile: linearCost(stepMs, (share / 2) * stepMs, 1, sequences, first),
    spec: deviceSpec({ pages: 8192, contextMax: 8192 }),
    device: `cpu ${stepMs} ms, rows ${(100 * share).toFixed(1)} %`,
  };
}

/** A measured GPU. */
export function gpu(name: "a100" | "rtx4090"): Machine {
  const { profile, spec } = deviceModels[name];
  return { profile, spec: { ...spec, stepTokensMax: 2048, stepChunksMax: 256 }, device: name };
}

function calls(seed: number, gapMs: number, promptTokens: number, outputTokens: number): Workload {
  const random = new SeededRandom(seed).child("calls");
  function* arrivals(): IterableIterator<Arrival> {
    let atMs = 0;
    for (let index = 0; index < CALLS; index++) {
      atMs += exponentialGapMs(random, gapMs);
      const output = Math.max(1, Math.round(outputTokens * (0.5 + random.unit())));
      const tokens = Math.max(1, Math.round(promptTokens * (0.5 + random.unit())));
      yield {
        atMs,
        promptTokens: promptOf([{ name: nameOf(seed, index), tokens }]),
        outputTokens: output,
        tokensMax: 2 * outputTokens,
        cacheSalt: "",
        service: chatService,
        kind: "call",
      };
    }
  }
  return workloadOf("drafted calls", arrivals());
}
