/**
 * A simulation at scale: a million tool calls (simulation/workloads/tools.ts: 1,835 tokens each, 80 tools per engine
 * by Zipf, six calls a second and engine) on 64 A6000 in one run on one core, caches full for most of it. Tells real
 * time, the process's own processor time, and the most memory that it had.
 *
 *   bun benchmarks/scale.ts [--calls 1000000] [--engines 64] [--policy ours]
 */

import { parseArgs } from "node:util";
import { openProfile } from "../scheduler/cost/profiles.ts";
import { policyOf } from "../simulation/baselines/policies.ts";
import { simulate } from "../simulation/simulator.ts";
import { tools, toolWorkload } from "../simulation/workloads/tools.ts";

const TOOLS_PER_ENGINE = 80;
const CALLS_PER_SECOND = 6;

const { values } = parseArgs({
  options: {
    calls: { type: "string", default: "1000000" },
    engines: { type: "string", default: "64" },
    policy: { type: "string", default: "ours" },
  },
});
const [calls, engines] = [Number(values.calls), Number(values.engines)];
const device = openProfile("a6000");
const workload = toolWorkload(tools(TOOLS_PER_ENGINE * engines, 1), {
  seed: 1,
  callsPerSecond: CALLS_PER_SECOND * engines,
  calls,
  exponent: 1.1,
});
const startNs = Bun.nanoseconds();
const report = simulate({
  workload,
  policy: policyOf(values.policy),
  devices: Array.from({ length: engines }, () => device),
  seed: 1,
});
const realS = (Bun.nanoseconds() - startNs) / 1e9;
const { userCPUTime, systemCPUTime, maxRSS } = process.resourceUsage();
const steps = report.engines.reduce((sum, engine) => sum + engine.steps, 0);
const rows: readonly (readonly [string, string])[] = [
  ["calls, engines, steps", `${calls}, ${engines}, ${steps}`],
  ["simulated", `${(report.durationMs / 1000).toFixed(0)} s`],
  ["real", `${realS.toFixed(0)} s`],
  ["processor", `${((userCPUTime + systemCPUTime) / 1e6).toFixed(0)} s`],
  ["real per call", `${((realS * 1e6) / calls).toFixed(0)} us`],
  ["memory at most", `${(maxRSS / 1024).toFixed(0)} MiB`],
  ["answered, cached", `${calls - report.unanswered}, ${(100 * report.hitRate).toFixed(1)} %`],
  ["latency mean, p99", `${report.latency.mean.toFixed(0)}, ${report.latency.p99.toFixed(0)} ms`],
];
for (const [name, value] of rows) console.log(`${name.padEnd(24)}${value}`);
