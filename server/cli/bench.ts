/**
 * `bunting bench`: loads an OpenAI-compatible server and prints client-side latencies and throughput, or measures
 * this machine.
 */

import { type Isa, isaNames } from "../../gpu/native.ts";
import { ConfigError, choice, decimal, flag, integer, optional, text, type Values } from "../config.ts";
import { datasetNames } from "./bench/dataset.ts";
import type { Target as TimeTarget } from "./bench/figures.ts";
import { formatReport, kneeText, loadHtml, rateOf, sweepHtml, sweepTable } from "./bench/report.ts";
import { kneeOf, nextRate, type Tried } from "./bench/sweep.ts";
import { benchMachine } from "./bench-machine.ts";
import { listModels, type Target } from "./client.ts";
import { type LoadPlan, type LoadReport, runLoad, runLoadRecorded } from "./load.ts";
import type { OptionList } from "./options.ts";
import { progressLine } from "./progress.ts";
import { writeHtml } from "./report/html.ts";
import { writeReport } from "./report-file.ts";
import { type Interruption, interruption } from "./signals.ts";
import { apiKeySetting, targetOf } from "./target.ts";

/** Latency target of goodput, also for simulations. */
export const goodputSettings = Object.freeze({
  goodTtftMs: decimal({
    unit: "milliseconds",
    default: 1000,
    min: 1,
    max: 3_600_000,
    sentence: "Longest time to the first token of an answer that counts as good.",
  }),
  goodTbtMs: decimal({
    unit: "milliseconds",
    default: 100,
    min: 1,
    max: 3_600_000,
    sentence: "Longest mean time per token after it, likewise.",
  }),
});

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
  sweep: flag({
    sentence:
      "Try rate after rate, and find the highest one at which nine of ten answers are good; not used with --requests, --concurrency and --rate.",
  }),
  seconds: integer({
    unit: "seconds",
    default: 120,
    min: 10,
    max: 86_400,
    sentence: "Time that --sweep may take.",
  }),
  ...goodputSettings,
  dataset: text({
    placeholder: "name",
    default: "fixed",
    sentence:
      "Prompts and answers: fixed, of the lengths below; sharegpt, of lengths drawn after the statistics published for ShareGPT; conversations, of several turns, each behind the answer before it.",
  }),
  turns: integer({ default: 4, min: 1, max: 1000, sentence: "Turns of a conversation." }),
  promptTokens: integer({
    unit: "tokens",
    default: 128,
    min: 1,
    max: 1_000_000,
    sentence: "Length of a prompt; in conversations, of what the user adds.",
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
  html: optional({
    placeholder: "file",
    sentence: "Also write the report here, with plots, as one file that needs no network.",
  }),
});

export type BenchOptions = Values<typeof benchSettings>;

export const benchOptions: OptionList<typeof benchSettings> = {
  settings: benchSettings,
  headings: {
    url: "Server:",
    requests: "Load:",
    sweep: "Sweep:",
    dataset: "Prompts and answers:",
    machine: "This machine:",
    json: "Report:",
  },
};

export const benchHelp = `
Exit codes:
  0    every request was answered, or the machine was measured
  1    some failed, or the server cannot be reached
  130  stopped by Ctrl-C (143 by SIGTERM); what was measured by then is printed`;

/** Runs and prints a benchmark; resolves to the exit code. */
export async function bench(options: BenchOptions): Promise<number> {
  if (options.machine) {
    if (options.html !== null) throw new ConfigError("--html is for loads; --machine writes --json alone.");
    return await benchMachine(options);
  }
  const target = targetOf(options.url, options.apiKey);
  if (options.sharedPrefix > options.promptTokens) {
    throw new ConfigError(
      `--shared-prefix ${options.sharedPrefix} is longer than --prompt-tokens ${options.promptTokens}.`,
    );
  }
  const model = options.model ?? (await listModels(target))[0];
  if (model === undefined) throw new ConfigError(`${options.url} has no model.`);
  const dataset = datasetNames.find((name) => name === options.dataset);
  if (dataset === undefined)
    throw new ConfigError(`There is no dataset "${options.dataset}"; there are ${datasetNames.join(", ")}.`);
  const time: TimeTarget = { ttftMs: options.goodTtftMs, tbtMs: options.goodTbtMs };
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
    dataset,
    turns: dataset === "conversations" ? options.turns : 1,
    target: time,
  };

  const interrupted = interruption();
  return options.sweep
    ? await sweep(target, { plan, time, options, interrupted })
    : await oneLoad(target, { plan, options, interrupted });
}

interface Asked {
  readonly plan: LoadPlan;
  readonly options: BenchOptions;
  readonly interrupted: Interruption;
}

async function oneLoad(target: Target, { plan, options, interrupted }: Asked): Promise<number> {
  const progress = progressLine();
  const run = await runLoadRecorded(
    target,
    plan,
    (ended) => progress.show(`${ended} of ${plan.requests} requests`, ended / plan.requests),
    interrupted.signal,
  );
  progress.clear();
  const { report } = run;
  const ended = report.completed + report.failed;
  if (ended > 0) {
    console.log(formatReport(report));
    if (options.json !== null) await writeReport(options.json, report);
    if (options.html !== null) await writeHtml(options.html, loadHtml(run));
  }
  if (interrupted.signal.aborted) {
    console.error(`Stopped after ${ended} of ${plan.requests} requests.`);
    return interrupted.exitCode;
  }
  return report.failed > 0 ? 1 : 0;
}

/** Number of measurements among which a sweep's time is divided. */
const POINTS = 10;
/** Minimum requests of a measurement, and of the run that finds the first rate. */
const POINT_REQUESTS_MIN = 8;

/** Measures rate after rate until the knee is found or the time is used up. */
async function sweep(
  target: Target,
  { plan, time, options, interrupted }: Asked & { readonly time: TimeTarget },
): Promise<number> {
  const endMs = performance.now() + options.seconds * 1000;
  const pointMs = (options.seconds * 1000) / POINTS;
  const progress = progressLine();
  const until = (ms: number): AbortSignal =>
    AbortSignal.any([interrupted.signal, AbortSignal.timeout(Math.ceil(ms))]);
  const run = (name: string, point: LoadPlan, ms: number): Promise<LoadReport> =>
    runLoad(
      target,
      point,
      (ended) => progress.show(`${name}: ${ended} of ${point.requests} requests`, ended / point.requests),
      until(ms),
    );
  const alone = { ...plan, requests: POINT_REQUESTS_MIN, arrivals: { kind: "closed", clients: 1 } } as const;
  const first = await run("one client", alone, pointMs * 2);
  const points: LoadReport[] = [];
  if (first.completed > 0) {
    const firstRate = first.completed / first.seconds;
    const tried = (): Tried[] =>
      points.map((point) => ({ rate: rateOf(point), share: point.goodput?.share ?? 0 }));
    for (
      let rate = nextRate(tried(), firstRate);
      rate !== null && !interrupted.signal.aborted && performance.now() + pointMs < endMs;
      rate = nextRate(tried(), firstRate)
    ) {
      const perSecond = Number(rate.toPrecision(3));
      const requests = Math.max(POINT_REQUESTS_MIN, Math.round((rate * pointMs) / 1000));
      const point = { ...plan, requests, arrivals: { kind: "poisson", perSecond } } as const;
      points.push(await run(`${perSecond}/s`, point, Math.min(pointMs * 2, endMs - performance.now())));
    }
  }
  progress.clear();
  if (points.length === 0) {
    const reason = Object.keys(first.errors)[0] ?? "no request was answered in time";
    console.error(`Nothing was measured: ${reason}.`);
    return interrupted.signal.aborted ? interrupted.exitCode : 1;
  }
  const knee = kneeOf(points.map((point) => ({ rate: rateOf(point), share: point.goodput?.share ?? 0 })));
  console.log(`${sweepTable(points)}\n\n${kneeText(knee, time)}`);
  if (options.json !== null) await writeReport(options.json, { knee, target: time, points });
  if (options.html !== null) await writeHtml(options.html, sweepHtml(points, knee, time));
  if (interrupted.signal.aborted) return interrupted.exitCode;
  return points.some(({ failed }) => failed > 0) ? 1 : 0;
}
