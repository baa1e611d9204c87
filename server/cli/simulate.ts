/** `bunting simulate`: the scheduler that serves, in virtual time, on measured devices and traces. */

import { profileNames } from "../../scheduler/cost/profiles.ts";
import { policyNames } from "../../scheduler/policies.ts";
import { simulate } from "../../scheduler/sim/simulator.ts";
import { ConfigError, decimal, integer, list, optional, text } from "../config.ts";
import { comparisonTable, type NamedReport } from "../simulate/compare.ts";
import { type NamedWorkload, openWorkload, tracesFolder, workloadNames } from "../simulate/traces.ts";
import { type Arrangement, devicesNamed, policyNamed, withTarget } from "../simulate/what-if.ts";
import { table } from "./table.ts";

export const simulateSettings = Object.freeze({
  workload: text({
    placeholder: "name",
    default: "videos",
    sentence: `Who calls: ${workloadNames.join(", ")}.`,
  }),
  policy: list({
    placeholder: "name",
    defaultText: "ours",
    sentence: `Scheduler: ${policyNames.join(", ")}. May be given several times, to compare.`,
  }),
  devices: text({
    placeholder: "count and name",
    default: "4xa6000",
    sentence: `Devices, as in 4xa6000: ${profileNames.join(", ")}.`,
  }),
  tbtMs: decimal({
    unit: "milliseconds",
    default: 0,
    defaultText: "the policy's own",
    min: 0,
    max: 60_000,
    sentence: "Time wanted between two tokens of a stream, at most; of policies that heed one.",
  }),
  rate: decimal({
    unit: "calls per second",
    default: 0,
    defaultText: "the workload's own",
    min: 0,
    max: 100_000,
    sentence: "How fast calls come.",
  }),
  requests: integer({
    unit: "calls",
    default: 0,
    defaultText: "the workload's own",
    min: 0,
    max: 10_000_000,
    sentence: "How many come.",
  }),
  seed: integer({ default: 1, min: 0, max: 2 ** 31 - 1, sentence: "Decides arrivals, order and draws." }),
  traces: optional({
    placeholder: "folder",
    defaultText: "../shared/traces if it is there",
    sentence:
      "Traces of real services; a workload whose trace is not there is drawn from published statistics.",
  }),
  json: optional({ placeholder: "file", sentence: "Also write the reports here." }),
});

export interface SimulateOptions {
  readonly workload: string;
  readonly policy: readonly string[];
  readonly devices: string;
  readonly tbtMs: number;
  readonly rate: number;
  readonly requests: number;
  readonly seed: number;
  readonly traces: string | null;
  readonly json: string | null;
}

interface Run extends NamedReport {
  /** Real time that the simulation took. */
  readonly seconds: number;
}

/** Simulates and prints; resolves to the exit code. */
export async function simulateCommand(options: SimulateOptions): Promise<number> {
  const devices = devicesNamed(options.devices);
  const names = options.policy.length > 0 ? options.policy : ["ours"];
  const arrangements = names.map((name) => arrangementOf(name, devices, options.tbtMs));
  const workload = workloadOf(options);
  console.log(
    `${options.workload} (${workload.source}) on ${devices.length} × ${devices[0]!.spec.name}, seed ${options.seed}\n`,
  );
  const runs = arrangements.map(({ policy }): Run => {
    const startMs = performance.now();
    const report = simulate({ workload: workload.make(), policy, devices, seed: options.seed });
    return { name: policy.name, report, seconds: (performance.now() - startMs) / 1000 };
  });
  console.log(`${comparisonTable(runs)}\n\n${speedTable(runs)}`);
  if (options.json !== null) {
    const reports = runs.map(({ name, report }) => ({ name, ...report }));
    await Bun.write(options.json, `${JSON.stringify(reports, null, 2)}\n`);
  }
  return 0;
}

/** Same workload, devices, policy and seed: same history, on every machine. */
function speedTable(runs: readonly Run[]): string {
  return table(
    ["", "simulated in", "times real time", "history"],
    runs.map(({ name, report, seconds }) => [
      name,
      `${seconds.toFixed(2)} s`,
      (report.durationMs / 1000 / seconds).toFixed(0),
      report.historyHash,
    ]),
  );
}

/** A target is for policies that heed one; the others stay what they are. */
function arrangementOf(name: string, devices: Arrangement["devices"], tbtMs: number): Arrangement {
  const policy = policyNamed(name);
  const heeds = tbtMs > 0 && policy.batch.kind === "target";
  return { policy: heeds ? withTarget(policy, tbtMs) : policy, devices };
}

function workloadOf({ workload, traces, seed, rate, requests }: SimulateOptions): NamedWorkload {
  try {
    return openWorkload(workload, tracesFolder(traces), {
      seed,
      callsPerSecond: rate > 0 ? rate : null,
      calls: requests > 0 ? requests : null,
    });
  } catch (error) {
    throw new ConfigError(error instanceof Error ? error.message : String(error));
  }
}
