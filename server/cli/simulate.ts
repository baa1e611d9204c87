/** `bunting simulate`: runs the production scheduler in virtual time on measured devices and traces. */

import { profileNames } from "../../scheduler/cost/profiles.ts";
import { isServed } from "../../scheduler/policy.ts";
import type { Divergence, RecordingEntry, RecordingHead } from "../../scheduler/recording/recording.ts";
import { policyNames } from "../../simulation/baselines/policies.ts";
import { type Noise, noiseNames } from "../../simulation/noise.ts";
import { type Breakdown, type Replayed, replay } from "../../simulation/recording/replay.ts";
import { recordedCosts, recordedWorkload } from "../../simulation/recording/what-if.ts";
import { simulate } from "../../simulation/simulator.ts";
import type { Workload } from "../../simulation/workload.ts";
import { ConfigError, decimal, integer, list, optional, text, type Values } from "../config.ts";
import { RecordingWriter, readRecording } from "../recording/file.ts";
import { goodputSettings } from "./bench.ts";
import type { OptionList } from "./options.ts";
import { writeHtml } from "./report/html.ts";
import { writeReport } from "./report-file.ts";
import { comparisonTable, type NamedReport } from "./simulate/compare.ts";
import { simulationHtml } from "./simulate/report.ts";
import { type NamedWorkload, openWorkload, tracesFolder, workloadNames } from "./simulate/traces.ts";
import {
  type Arrangement,
  changeNames,
  devicesNamed,
  noiseNamed,
  parseChanges,
  policyNamed,
  withTarget,
} from "./simulate/what-if.ts";
import { table } from "./table.ts";

export const simulateSettings = Object.freeze({
  workload: text({
    placeholder: "name",
    default: "videos",
    sentence: `Workload: ${workloadNames.join(", ")}.`,
  }),
  policy: list({
    holdsCommas: true,
    placeholder: "name",
    defaultText: "ours",
    sentence: `Scheduler: ${policyNames.join(", ")}; with changes as in vllm-chunked,sequences-max=128. May be given several times, to compare.`,
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
    sentence: "Target for the time between tokens, for policies that support one.",
  }),
  rate: decimal({
    unit: "calls per second",
    default: 0,
    defaultText: "the workload's own",
    min: 0,
    max: 100_000,
    sentence: "Calls per second; for agents, sessions of some twenty calls each.",
  }),
  requests: integer({
    unit: "calls",
    default: 0,
    defaultText: "the workload's own",
    min: 0,
    max: 10_000_000,
    sentence: "Number of calls, or of sessions.",
  }),
  noise: optional({
    placeholder: "name",
    sentence: `Deviation of step times from the profile: ${noiseNames.join(", ")}.`,
  }),
  seed: integer({ default: 1, min: 0, max: 2 ** 31 - 1, sentence: "Seed of arrivals, order and sampling." }),
  traces: optional({
    placeholder: "folder",
    defaultText: "../shared/traces if it is there",
    sentence:
      "Traces of real services; a workload whose trace is not there is drawn from published statistics.",
  }),
  record: optional({
    placeholder: "file",
    sentence: "Record all scheduler inputs and decisions, as `bunting serve --record` does; with one policy.",
  }),
  replay: optional({
    placeholder: "file",
    sentence: "Replay a recording and compare the scheduler's decisions.",
  }),
  whatIf: list({
    holdsCommas: true,
    placeholder: "changes",
    defaultText: "none",
    sentence: `With --replay: simulate the recorded calls with changes, as in engines=1,tbt-ms=200; of ${changeNames.join(", ")}. May be given several times, to compare.`,
  }),
  ...goodputSettings,
  json: optional({ placeholder: "file", sentence: "Also write the reports here." }),
  html: optional({
    placeholder: "file",
    sentence: "Also write the reports here, with plots, as one file that needs no network.",
  }),
});

export const simulateOptions: OptionList<typeof simulateSettings> = {
  settings: simulateSettings,
  headings: {
    workload: "What is simulated:",
    record: "Recordings:",
    goodTtftMs: "Report:",
  },
};

export type SimulateOptions = Values<typeof simulateSettings>;

interface Run extends NamedReport {
  /** Real seconds that the simulation took. */
  readonly seconds: number;
}

/** Simulates and prints; resolves to the exit code, 1 if a recording does not replay identically. */
export async function simulateCommand(options: SimulateOptions): Promise<number> {
  const { replay: recording, whatIf, policy, record } = options;
  if (recording === null && whatIf.length > 0)
    throw new ConfigError("--what-if is about a recording: --replay.");
  if (record !== null && (recording !== null || policy.length > 1)) {
    throw new ConfigError("--record writes down one simulation: give one --policy and no --replay.");
  }
  const [text = "ours"] = policy;
  if (record !== null && !isServed(policyNamed(text.split(",")[0]!))) {
    throw new ConfigError(`--record is for what serves: policy ours, not ${text}.`);
  }
  return recording === null ? await simulateWorkload(options) : await simulateRecording(recording, options);
}

async function simulateWorkload(options: SimulateOptions): Promise<number> {
  const devices = devicesNamed(options.devices);
  const texts = options.policy.length > 0 ? options.policy : ["ours"];
  const arrangements = texts.map((text) => ({
    text,
    arrangement: arrangementOf(text, devices, options.tbtMs),
  }));
  const noise = noiseNamed(options.noise);
  const workload = workloadOf(options);
  const writer = options.record === null ? null : new RecordingWriter(options.record);
  console.log(
    `${options.workload} (${workload.source}) on ${devices.length} × ${devices[0]!.spec.name}, seed ${options.seed}\n`,
  );
  const runs = arrangements.map(({ text, arrangement }) =>
    runOf(text, arrangement, workload.make(), options.seed, { noise, writer }),
  );
  writer?.close();
  await show(runs, `${options.workload} on ${options.devices}`, options);
  return 0;
}

/**
 * Replays a recording. With `--what-if`, then simulates its calls at their recorded times, unchanged and with
 * changes.
 */
async function simulateRecording(path: string, options: SimulateOptions): Promise<number> {
  const { whatIf, seed } = options;
  const noise = noiseNamed(options.noise);
  const { head, entries, isCut } = readRecording(path);
  const changes = whatIf.map((text) => ({ text, change: parseChanges(text) }));
  console.log(recordingText(path, head, entries, isCut));
  const replayed = replay(head, entries);
  console.log(replayText(replayed));
  if (changes.length > 0) {
    const unchanged = { text: "unchanged", change: (arrangement: Arrangement) => arrangement };
    const runs = [unchanged, ...changes].map(({ text, change }) => {
      // Cost models learn while in use, so each simulation starts from those of the recording.
      const costs = recordedCosts(head, entries);
      const devices = head.specs.map((spec, engine) => ({ profile: costs[engine]!, spec }));
      const arrangement = change({ policy: head.policy, devices });
      return runOf(text, arrangement, recordedWorkload(head, entries), seed, { noise, writer: null });
    });
    console.log("\nSimulated, on engines as fast as they were:\n");
    await show(runs, path, options);
  }
  return isSame(replayed) ? 0 : 1;
}

function runOf(
  name: string,
  { policy, devices }: Arrangement,
  workload: Workload,
  seed: number,
  { noise, writer }: { readonly noise: Noise | null; readonly writer: RecordingWriter | null },
): Run {
  const startMs = performance.now();
  const record = writer === null ? {} : { record: writer.write.bind(writer) };
  const report = simulate({ workload, policy, devices, seed, noise, ...record });
  return { name, report, seconds: (performance.now() - startMs) / 1000 };
}

async function show(
  runs: readonly Run[],
  subject: string,
  { json, html, goodTtftMs, goodTbtMs }: SimulateOptions,
): Promise<void> {
  console.log(`${comparisonTable(runs)}\n\n${speedTable(runs)}`);
  const reports = runs.map(({ name, report }) => ({ name, ...report }));
  if (json !== null) await writeReport(json, reports);
  const target = { ttftMs: goodTtftMs, tbtMs: goodTbtMs };
  if (html !== null) await writeHtml(html, simulationHtml(subject, runs, target));
}

/** Summary of a recording in one line. */
function recordingText(
  path: string,
  head: RecordingHead,
  entries: readonly RecordingEntry[],
  isCut: boolean,
): string {
  const count = (kind: RecordingEntry["kind"]): number =>
    entries.filter((entry) => entry.kind === kind).length;
  const engines = head.specs.length === 1 ? "one engine" : `${head.specs.length} engines`;
  const end = isCut ? "; it ends within an entry, as when a process is killed" : "";
  return `${path}: ${count("call")} calls and ${count("step")} steps of ${engines} (${head.specs[0]!.name})${end}.`;
}

/** True if decisions and breakdowns match the recording. */
function isSame({ divergence, breakdowns }: Replayed): boolean {
  return divergence === null && breakdowns.every(({ isRecorded }) => isRecorded);
}

/** Outcome of a replay, one sentence per finding. */
function replayText(replayed: Replayed): string {
  const lines = replayed.breakdowns.map(breakdownText);
  if (replayed.divergence !== null) lines.push(divergenceText(replayed.divergence));
  else lines.push("Run again, the scheduler decides the same, step by step.");
  return lines.join("\n");
}

function breakdownText({ entry, atMs, engine, reason, isRecorded }: Breakdown): string {
  const who = engine === null ? "the fleet" : `engine ${engine}`;
  const where = `at entry ${entry + 1}, ${atMs.toFixed(3)} ms`;
  const how = isRecorded ? "breaks down there again, as recorded" : "breaks down, which it did not then";
  const rest = engine === null ? "Nothing after that can be run again." : "The others go on without it.";
  return `Run again, ${who} ${how}, ${where}: ${reason} ${rest}`;
}

function divergenceText({ entry, atMs, recorded, replayed }: NonNullable<Divergence>): string {
  return `Run again, the scheduler decides otherwise at entry ${entry + 1}, ${atMs.toFixed(3)} ms: recorded is ${recorded}; now it is ${replayed}.`;
}

/**
 * Simulation speeds with history hashes, which are equal on every machine for the same workload, devices,
 * policy and seed.
 */
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

/** Policy by name, with changes after it. The target applies only to policies that support one. */
function arrangementOf(text: string, devices: Arrangement["devices"], tbtMs: number): Arrangement {
  const [name = "", ...changes] = text.split(",");
  const policy = policyNamed(name);
  const heeds = tbtMs > 0 && policy.batch.kind === "time";
  const arrangement = { policy: heeds ? withTarget(policy, tbtMs) : policy, devices };
  return changes.length === 0 ? arrangement : parseChanges(changes.join(","))(arrangement);
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
