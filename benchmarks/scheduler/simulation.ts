/**
 * Simulated time over real time: four A6000s (Llama-3.1-8B shape) under three kinds of work at once, one
 * core; the fastest of three runs.
 */

import { deviceModels } from "../../scheduler/cost/profiles.ts";
import { lengthsOf } from "../../server/cli/simulate/traces.ts";
import { policyOf } from "../../simulation/baselines/policies.ts";
import { simulate } from "../../simulation/simulator.ts";
import { mixedWorkload } from "../../simulation/workloads/mixed.ts";

export interface SimulationRow {
  readonly policy: string;
  readonly calls: number;
  readonly steps: number;
  readonly simulatedS: number;
  readonly realS: number;
}

const CALLS = 600;
const CALLS_PER_SECOND = 3;

function measure(policy: string): SimulationRow {
  const { rows: lengths } = lengthsOf(null);
  const device = deviceModels.a6000;
  const run = (calls: number): SimulationRow => {
    const workload = mixedWorkload(lengths, { seed: 1, callsPerSecond: CALLS_PER_SECOND, calls });
    const startNs = Bun.nanoseconds();
    const report = simulate({
      workload,
      policy: policyOf(policy),
      devices: [device, device, device, device],
      seed: 1,
    });
    return {
      policy,
      calls: report.calls.length,
      steps: report.engines.reduce((sum, { steps }) => sum + steps, 0),
      simulatedS: report.durationMs / 1000,
      realS: (Bun.nanoseconds() - startNs) / 1e9,
    };
  };
  run(CALLS / 10); // JIT warm-up
  const runs = [run(CALLS), run(CALLS), run(CALLS)];
  return runs.reduce((best, other) => (other.realS < best.realS ? other : best));
}

export function measureSimulation(): readonly SimulationRow[] {
  return ["ours", "preble", "sarathi"].map(measure);
}

export function simulationTable(rows: readonly SimulationRow[]): string {
  const lines = rows.map(({ policy, calls, steps, simulatedS, realS }) => {
    const columns = [calls, steps, simulatedS.toFixed(0), realS.toFixed(2), (simulatedS / realS).toFixed(0)];
    const usPerStep = ((realS / steps) * 1e6).toFixed(1);
    return `${policy.padEnd(20)} ${[...columns, usPerStep].map((value) => String(value).padStart(11)).join(" ")}`;
  });
  const head = ["calls", "steps", "simulated s", "real s", "times", "us per step"];
  return [
    `${"policy, 4 engines".padEnd(20)} ${head.map((name) => name.padStart(11)).join(" ")}`,
    ...lines,
  ].join("\n");
}
