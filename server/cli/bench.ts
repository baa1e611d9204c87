/**
 * `bunting bench`: loads an OpenAI-compatible server and prints client-side latencies and throughput, or measures
 * this machine.
 */

import { type Isa, isaNames } from "../../gpu/native.ts";
import { ConfigError, choice, decimal, flag, integer, optional, text, type Values } from "../config.ts";
import { benchMachine } from "./bench-machine.ts";
import { listModels } from "./client.ts";
import { type LoadPlan, type LoadReport, type Percentiles, runLoad } from "./load.ts";
import type { OptionList } from "./options.ts";
import { progressLine } from "./progress.ts";
import { writeReport } from "./report-file.ts";
import { interruption } from "./signals.ts";
import { table } from "./table.ts";
import { apiKeySetting, targetOf } from "./target.ts";

export const benchSettings = Object.freeze({
  url: text({ placeholder: "url", default: "http://127.0.0.1:8000", sentence: "The server." }),
  apiKey: apiKeySetting,
  model: optional({ placeholder: "name", defaultText: "the server's first", sentence: "Model to ask for." }),
  requests: integer({ default: 64, min: 1, max: 1_000_000, sentence: "Requests to send." }),
  concurrency: integer({
    unit: "clients",
    default: 8,
    min: 1,
    max: 256,
    sentence: "Clients that each wait for an answer before they ask again; not used with --rate.",
  }),
  rate: decimal({
    unit: "requests per second",
    default: 0,
    defaultText: "off",
    min: 0,
    max: 100_000,
    sentence:
      "Send at random moments (Poisson arrivals) at this mean rate per second, whether or not answers keep up.",
  }),
  promptTokens: integer({
    unit: "tokens",
    default: 128,
    min: 1,
    max: 1_000_000,
    sentence: "Length of a prompt.",
  }),
  sharedPrefix: integer({
    unit: "tokens",
    default: 0,
    min: 0,
    max: 1_000_000,
    sentence: "Prompt tokens that all requests share.",
  }),
  outputTokens: integer({
    unit: "tokens",
    default: 64,
    min: 1,
    max: 1_000_000,
    sentence: "Length of an answer.",
  }),
  stopEarly: flag({
    sentence:
      "Let answers end where the model ends them; otherwise `ignore_eos` is sent, which strict servers refuse.",
  }),
  seed: integer({
    default: 1,
    min: 0,
    max: 2 ** 31 - 1,
    sentence: "Seed of prompts, arrivals and sampling.",
  }),
  machine: flag({
    sentence:
      "Measure this machine instead of a server, in some 15 seconds: its ceilings, what kernels reach of them, and what common models may expect.",
  }),
  isa: choice<Isa | "auto">({
    default: "auto",
    defaultText: "the best of this machine",
    among: ["auto", ...isaNames],
    sentence: "Instruction set to measure with --machine.",
  }),
  threads: integer({
    unit: "threads",
    default: 0,
    defaultText: "as many as the server takes",
    min: 1,
    max: 1024,
    sentence: "Threads to measure with --machine.",
  }),
  json: optional({ placeholder: "file", sentence: "Also write the report here." }),
});

export type BenchOptions = Values<typeof benchSettings>;

export const benchOptions: OptionList<typeof benchSettings> = {
  settings: benchSettings,
  headings: { url: "Server:", requests: "Load:", machine: "This machine:", json: "Report:" },
};

export const benchHelp = `
Exit codes:
  0    every request was answered, or the machine was measured
  1    some failed, or the server cannot be reached
  130  stopped by Ctrl-C (143 by SIGTERM); what was measured by then is printed`;

/** Runs and prints a benchmark; resolves to the exit code. */
export async function bench(options: BenchOptions): Promise<number> {
  if (options.machine) return await benchMachine(options);
  const target = targetOf(options.url, options.apiKey);
  if (options.sharedPrefix > options.promptTokens) {
    throw new ConfigError(
      `--shared-prefix ${options.sharedPrefix} is longer than --prompt-tokens ${options.promptTokens}.`,
    );
  }
  const model = options.model ?? (await listModels(target))[0];
  if (model === undefined) throw new ConfigError(`${options.url} has no model.`);
  const plan: LoadPlan = {
    model,
    requests: options.requests,
    arrivals:
      options.rate > 0
        ? { kind: "poisson", perSecond: options.rate }
        : { kind: "closed", clients: options.concurrency },
    promptTokens: options.promptTokens,
    sharedPrefixTokens: options.sharedPrefix,
    outputTokens: options.outputTokens,
    ignoreEos: !options.stopEarly,
    seed: options.seed,
  };

  const interrupted = interruption();
  const progress = progressLine();
  const report = await runLoad(
    target,
    plan,
    (ended) => progress.show(`${ended} of ${plan.requests} requests`, ended / plan.requests),
    interrupted.signal,
  );
  progress.clear();
  const ended = report.completed + report.failed;
  if (ended > 0) {
    console.log(formatReport(report));
    if (options.json !== null) await writeReport(options.json, report);
  }
  if (interrupted.signal.aborted) {
    console.error(`Stopped after ${ended} of ${plan.requests} requests.`);
    return interrupted.exitCode;
  }
  return report.failed > 0 ? 1 : 0;
}

/** Formats a report for people. */
export function formatReport(report: LoadReport): string {
  const { plan } = report;
  const arrivals =
    plan.arrivals.kind === "poisson"
      ? `Poisson arrivals at ${plan.arrivals.perSecond}/s`
      : `${plan.arrivals.clients} clients`;
  const shared = plan.sharedPrefixTokens > 0 ? ` (${plan.sharedPrefixTokens} shared)` : "";
  const lines = [
    `${plan.model}: ${plan.requests} requests, ${arrivals}, prompts of ${plan.promptTokens} tokens${shared}, answers of ${plan.outputTokens}, seed ${plan.seed}`,
    "",
    table(
      ["milliseconds", "p50", "p90", "p99", "max"],
      [
        row("time to first token", report.ttftMs),
        row("time between tokens", report.tbtMs),
        row("per token of an answer", report.perTokenMs),
        row("end to end", report.endToEndMs),
      ],
    ),
    "",
    table(
      ["completed", "failed", "seconds", "requests/s", "tokens/s", "prompt tokens", "cached"],
      [
        [
          report.completed,
          report.failed,
          report.seconds.toFixed(2),
          (report.completed / report.seconds).toFixed(2),
          report.outputTokensPerSecond.toFixed(1),
          report.promptTokens,
          `${(report.cachedShare * 100).toFixed(1)} %`,
        ],
      ],
    ),
  ];
  for (const [message, count] of Object.entries(report.errors)) lines.push("", `${count} × ${message}`);
  return lines.join("\n");
}

function row(name: string, values: Percentiles | null): (string | null)[] {
  if (values === null) return [name, null, null, null, null];
  return [name, ...[values.p50, values.p90, values.p99, values.max].map((value) => value.toFixed(1))];
}
