/** A drawn load of sessions: agents and chats, devices, their memory and noise. */

import { SeededRandom } from "../../base/random.ts";
import { decodeStepMs, type PartedCostModel, promptMs } from "../../scheduler/cost/cost-model.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import { openProfile, profileNames } from "../../scheduler/cost/profiles.ts";
import type { DeviceSpec } from "../../scheduler/device.ts";
import type { Policy } from "../../scheduler/policy.ts";
import { deviceSpec } from "../../simulation/factories.ts";
import { Histogram } from "../../simulation/histogram.ts";
import { type NoiseName, noises } from "../../simulation/noise.ts";
import { simulate } from "../../simulation/simulator.ts";
import type { Arrival, Workload } from "../../simulation/workload.ts";
import { type ToolAgentLoad, toolAgentWorkload } from "../../simulation/workloads/tool-agents.ts";

/** Milliseconds: sessions from their first arrival to their last end, calls to their first token. */
export interface Outcome {
  readonly sessionMs: number;
  readonly sessionP99Ms: number;
  readonly firstMs: number;
  readonly firstP99Ms: number;
  /** Longest wait for admission. */
  readonly waitMs: number;
  /** Cached share of the prompts. */
  readonly cached: number;
}

export interface DrawnLoad {
  readonly name: string;
  run(policy: Policy): Outcome;
}

const PAGE_TOKENS = 16;
const CONTEXT_MAX = 12_000;
/** Decodes among which a step's time is shared, for the estimate of a load. */
const TOGETHER = 8;

/** Draws a load. */
export function drawLoad(seed: number, sessions: number): DrawnLoad {
  const random = new SeededRandom(seed).child("load");
  const pick = <Item>(items: readonly Item[]): Item => items[random.below(items.length)]!;
  const { profile, spec, device } = drawDevice(random);
  const engines = pick([1, 1, 1, 2, 3]);
  const share = pick([0.3, 0.5, 0.7, 0.9, 1.1]);
  const noise: NoiseName | null = pick([null, "mild", "rough"]);
  const load: Omit<ToolAgentLoad, "gapMs"> = {
    seed,
    sessions,
    tenants: pick([1, 1, 2, 4]),
    agentShare: pick([0.3, 0.6, 0.9]),
    turns: pick([4, 8, 16]),
    contextMax: CONTEXT_MAX,
  };
  const work = workOf(toolAgentWorkload({ ...load, gapMs: 1 }), profile);
  const gapMs = work.ms / sessions / share / engines;
  // Memory holds this part of the contexts of as many sessions as are open on average.
  const part = pick([0.1, 0.2, 0.4, 0.7, 1]);
  const open = Math.max(2, Math.min(sessions, (work.aloneMs / sessions / gapMs) * 2));
  const least = Math.max(1.4 * CONTEXT_MAX, 1.1 * work.longest);
  const tokens = Math.max((part * open * work.contextTokens) / sessions / engines, least);
  const pages = Math.ceil(tokens / PAGE_TOKENS);
  const name = `${engines} × ${device}, ${pages} pages, load ${share}, ${load.tenants} tenants, ${load.agentShare} agents of ${load.turns} turns, ${noise} noise`;
  return {
    name,
    run: (policy) => {
      const times = new Map<number, { fromMs: number; toMs: number }>();
      const report = simulate({
        workload: timed(toolAgentWorkload({ ...load, gapMs }), times),
        policy,
        devices: Array.from({ length: engines }, () => ({
          profile,
          spec: { ...spec, pages, contextMax: 2 * CONTEXT_MAX },
        })),
        seed,
        noise: noise === null ? null : noises[noise],
      });
      if (!report.isComplete || report.unanswered > 0) throw new Error(`${seed}: calls were not answered.`);
      const sessionMs = new Histogram();
      for (const { fromMs, toMs } of times.values()) sessionMs.add(toMs - fromMs);
      const whole = sessionMs.quantiles();
      const waits = report.calls.map(({ startedMs, arrivedMs }) => startedMs! - arrivedMs);
      return {
        sessionMs: whole.mean,
        sessionP99Ms: whole.p99,
        firstMs: report.ttft.mean,
        firstP99Ms: report.ttft.p99,
        waitMs: Math.max(...waits),
        cached: report.hitRate,
      };
    },
  };
}

/** Notes when sessions begin and end; those of subagents count as their agent's. */
function timed(workload: Workload, times: Map<number, { fromMs: number; toMs: number }>): Workload {
  const { name, vocabSize } = workload;
  return {
    name,
    vocabSize,
    next: () => workload.next(),
    after: (arrival, answer) => {
      const { id, parent } = arrival.service.session!;
      const whole = times.get(parent ?? id);
      if (whole === undefined) times.set(id, { fromMs: arrival.atMs, toMs: answer.finishedMs });
      else whole.toMs = Math.max(whole.toMs, answer.finishedMs);
      return workload.after(arrival, answer);
    },
  };
}

/** Estimates the work of all calls, without waits, the sum of the sessions' last contexts, and the longest context. */
function workOf(
  workload: Workload,
  profile: PartedCostModel,
): {
  readonly ms: number;
  readonly aloneMs: number;
  readonly contextTokens: number;
  readonly longest: number;
} {
  let [ms, aloneMs, contextTokens, longest] = [0, 0, 0, 0];
  const add = (arrival: Arrival, known: number): void => {
    const { length } = arrival.promptTokens();
    const context = length + arrival.outputTokens;
    longest = Math.max(longest, context);
    const promptsMs = promptMs(profile, Math.max(1, length - known), known);
    const decodesMs = arrival.outputTokens * decodeStepMs(profile, TOGETHER, length);
    ms += promptsMs + decodesMs / TOGETHER;
    aloneMs += promptsMs + decodesMs;
    const next = workload.after(arrival, {
      finishedMs: arrival.atMs,
      tokens: new Array(arrival.outputTokens).fill(0),
    });
    if (next.length === 0) contextTokens += context;
    for (const one of next) add(one, one.promptTokens().length > context ? context : 0);
    aloneMs += next.reduce((sum, { atMs }) => sum + atMs - arrival.atMs, 0);
  };
  for (let first = workload.next(); first !== null; first = workload.next()) add(first, 0);
  return { ms, aloneMs, contextTokens, longest };
}

/** A processor, or a measured GPU. */
function drawDevice(random: SeededRandom): {
  readonly profile: PartedCostModel;
  readonly spec: DeviceSpec;
  readonly device: string;
} {
  if (random.below(3) > 0) {
    const name = profileNames[random.below(profileNames.length)]!;
    const { profile, spec } = openProfile(name);
    return { profile, spec, device: name };
  }
  const stepMs = 10 + random.below(50);
  const tokenMs = stepMs * (0.02 + 0.1 * random.unit());
  const sequences = { sequenceMs: tokenMs / 2, pairMs: 1e-6 * stepMs, contextMs: 1e-5 * stepMs };
  return {
    profile: linearCost(stepMs, tokenMs, 1, sequences),
    spec: deviceSpec({ pageTokens: PAGE_TOKENS }),
    device: `cpu of ${stepMs} ms and ${tokenMs.toFixed(1)} ms a token`,
  };
}
