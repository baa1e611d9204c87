/**
 * Compares limits of steps beside streams on classes of machines, from a laptop to an H100, over drawn loads in
 * virtual time.
 *
 *   npx bun benchmarks/machines.ts [--loads 200] [--seed 1] [--class <name>]
 */

import { parseArgs } from "node:util";
import { SeededRandom } from "../base/random.ts";
import { decodeStepMs, type PartedCostModel, promptMs } from "../scheduler/cost/cost-model.ts";
import { linearCost } from "../scheduler/cost/linear.ts";
import type { DeviceSpec } from "../scheduler/device.ts";
import { ours } from "../scheduler/policies.ts";
import type { ServedPolicy, TimePolicy } from "../scheduler/policy.ts";
import { noises } from "../simulation/noise.ts";
import { simulate } from "../simulation/simulator.ts";
import { documentArrivals } from "../simulation/workloads/documents.ts";
import { exp, ln } from "../simulation/workloads/elementary.ts";
import { workloadOf } from "../simulation/workloads/parts.ts";
import { allAnswered, devices, mean } from "./papers/bench.ts";

const { values } = parseArgs({
  options: {
    loads: { type: "string", default: "200" },
    seed: { type: "string", default: "1" },
    class: { type: "string" },
  },
});

interface Machine {
  readonly profile: PartedCostModel;
  readonly spec: DeviceSpec;
}

const cpuSpec = devices("a100", 1)[0]!.spec;
/** CPU whose weights take `stepMs` to read, and whose prompt tokens take `tokenMs` each. */
function cpu(stepMs: number, tokenMs: number, decodeMs: number, pages = 6000): Machine {
  const sequences = { sequenceMs: decodeMs, pairMs: tokenMs / 20_000, contextMs: stepMs / 40_000 };
  return { profile: linearCost(stepMs, tokenMs, 16, sequences), spec: { ...cpuSpec, pages } };
}
const [a100] = devices("a100", 1) as [Machine];

/** Classes of machines with a model each; values of CPUs and the H100 are rounded estimates. */
const machines: Readonly<Record<string, () => Machine>> = {
  "2 old cores, 0.5B": () => cpu(22, 4.2, 4),
  "2 cores, 1B": () => cpu(46, 4.5, 4),
  "8 cores, 1B": () => cpu(18, 1.2, 1),
  "16 cores, 8B": () => cpu(90, 4, 3),
  "RTX 4090, 8B": () => devices("rtx4090", 1)[0]!,
  "A100, 7B": () => a100,
  "H100, 7B": () => ({
    profile: linearCost(6, 0.02, 128, { sequenceMs: 0.02, pairMs: 2e-7, contextMs: 4e-6 }),
    spec: a100.spec,
  }),
};

const own = ours();
const batch = own.batch as TimePolicy;
const rule = (stepMs: number, readingMs: number): ServedPolicy => ({
  ...own,
  batch: { ...batch, stepMs, readingMs },
});
const BASE = "100 ms";
const rules: Readonly<Record<string, ServedPolicy>> = {
  [BASE]: rule(100, 0),
  "200 ms": rule(200, 0),
  "400 ms": rule(400, 0),
  served: own,
  "up to 300 ms": rule(100, 300),
};

interface Figures {
  readonly latencyMs: number;
  readonly firstMs: number;
  readonly gapP99Ms: number;
  readonly gapMs: number;
}

function run(machine: Machine, policy: ServedPolicy, seed: number): Figures {
  const random = new SeededRandom(seed).child("load");
  const scale = (least: number, most: number): number => least * exp(random.unit() * ln(most / least));
  const prompt = Math.round(scale(100, 4000));
  const answer = Math.round(scale(40, 400));
  const { profile } = machine;
  const together = 8;
  const callMs =
    promptMs(profile, prompt, 0) + (answer * decodeStepMs(profile, together, prompt + answer / 2)) / together;
  const share = 0.3 + 0.9 * random.unit();
  const arrivals = documentArrivals(
    {
      rootTokens: 0,
      documents: 1,
      documentTokens: { least: 0, most: 0 },
      skew: 0,
      sections: 0,
      sectionTokens: { least: 0, most: 0 },
      suffixTokens: { least: Math.ceil(prompt / 2), most: Math.ceil(prompt * 1.5) },
      outputTokens: { least: Math.ceil(answer / 2), most: Math.ceil(answer * 1.5) },
      tokensMax: null,
      calls: 80,
      callsPerSecond: (share * 1000) / callMs,
      variation: random.below(2) === 0 ? 1 : 3,
      tenants: 1,
    },
    seed,
  );
  const noise = [null, noises.mild, noises.rough][random.below(3)]!;
  const report = allAnswered(
    simulate({ workload: workloadOf("chats", arrivals), policy, devices: [machine], seed, noise }),
  );
  return {
    latencyMs: report.latency.mean,
    firstMs: report.ttft.mean,
    gapP99Ms: report.tbt.p99,
    gapMs: report.tpot.mean,
  };
}

const count = Number(values.loads);
for (const [name, make] of Object.entries(machines)) {
  if (values.class !== undefined && values.class !== name) continue;
  const machine = make();
  const outcomes = new Map<string, Figures[]>();
  for (let load = 0; load < count; load++)
    for (const [of, policy] of Object.entries(rules))
      outcomes.set(of, [...(outcomes.get(of) ?? []), run(machine, policy, Number(values.seed) + load)]);
  console.log(name);
  const base = outcomes.get(BASE)!;
  for (const [of, all] of outcomes) {
    const ratio = (figure: keyof Figures): string =>
      mean(all.map((one, i) => one[figure] / base[i]![figure])).toFixed(3);
    console.log(
      `  ${of.padEnd(12)} latency ${ratio("latencyMs")} first ${ratio("firstMs")} gap p99 ${ratio("gapP99Ms")} (${mean(all.map((o) => o.gapP99Ms)).toFixed(0)} ms) per token ${ratio("gapMs")}`,
    );
  }
}
