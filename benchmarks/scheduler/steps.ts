/**
 * Cost of steps: microseconds of TypeScript per step (apply the last one, report, plan the next), on a device
 * that answers at once. Planning, from the report to the start of the next step, is also shown separately.
 * Shows the fastest of five runs, since other programs may run on the machine. Includes garbage collection
 * pauses.
 */

import { SeededRandom } from "../../base/random.ts";
import type { Sampled, SequenceId, Service, Step, StepResult } from "../../scheduler/core.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import type { Device } from "../../scheduler/device.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import type { EngineSettings } from "../../scheduler/engine/engine-options.ts";
import type { EngineReport } from "../../scheduler/messages.ts";
import { ours } from "../../scheduler/policies.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { deviceSpec, sequenceSpec } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";

const VOCABULARY = 32_000;

/** Device that computes nothing and draws tokens that stop no sequence. */
class InstantDevice implements Device {
  readonly spec = deviceSpec({
    pages: 32_768,
    contextMax: 8192,
    stepTokensMax: 2048,
    stepChunksMax: 512,
    vocabSize: VOCABULARY,
  });
  #step: Step | null = null;
  #done: ((result: StepResult) => void) | null = null;
  readonly #random = new SeededRandom(1);

  start(step: Step, done: (result: StepResult) => void): void {
    this.#step = step;
    this.#done = done;
  }

  /** Prepares the result of the step in flight outside of the timed part; null: no step is in flight. */
  compute(): (() => void) | null {
    const step = this.#step;
    const done = this.#done;
    if (step === null || done === null) return null;
    this.#step = null;
    const sampled: Sampled[] = [];
    for (const { sequence, samples } of step.chunks) {
      for (const _ of samples) {
        sampled.push({ kind: "token", sequence, token: this.#random.below(VOCABULARY), logprobs: null });
      }
    }
    return () => done({ kind: "done", sampled, deviceMs: 0 });
  }

  close(): void {}
}

interface Scenario {
  readonly name: string;
  readonly running: number;
  readonly promptTokens: number;
  readonly sharedTokens: number;
  readonly tokensMax: number;
  /** Number of waiting sequences, kept constant by adding one per end; null: none follow. */
  readonly waiting: number | null;
  readonly engine: EngineSettings;
}

const fixed: EngineSettings = { batch: staticBudget(1024) };

/** Settings for three tenants, some with throughput work; prompts share three quarters. */
const crowded: EngineSettings = { ...ours(), queueMax: 8192 };

const scenarios: readonly Scenario[] = [
  ...[64, 256].flatMap((running): Scenario[] => [
    {
      name: "decode",
      running,
      promptTokens: 512,
      sharedTokens: 0,
      tokensMax: 4000,
      waiting: null,
      engine: fixed,
    },
    {
      name: "decode, penalties",
      running,
      promptTokens: 512,
      sharedTokens: 0,
      tokensMax: 4000,
      waiting: null,
      engine: fixed,
    },
    {
      name: "chat, 3/4 shared",
      running,
      promptTokens: 512,
      sharedTokens: 384,
      tokensMax: 64,
      waiting: 8,
      engine: fixed,
    },
  ]),
  {
    name: "chat, 4096 wait",
    running: 256,
    promptTokens: 512,
    sharedTokens: 384,
    tokensMax: 64,
    waiting: 4096,
    engine: crowded,
  },
];

export interface StepRow {
  readonly name: string;
  readonly running: number;
  readonly steps: number;
  readonly meanUs: number;
  readonly p50Us: number;
  readonly p99Us: number;
  /** Mean planning time of these. */
  readonly planMeanUs: number;
  readonly planP50Us: number;
  readonly planP99Us: number;
}

/** Milliseconds between two steps, so that sequences age. */
const STEP_MS = 20;
const STEPS_WARM = 1000;
const STEPS_TIMED = 2000;
const RUNS = 5;

function measure(scenario: Scenario): StepRow {
  const device = new InstantDevice();
  let ended = 0;
  let reportedNs = 0;
  const clock = new ManualClock();
  const { engine: settings, running, waiting } = scenario;
  const options = { ...settings, admission: { ...settings.admission, sequencesMax: running } };
  const engine = new Engine(
    device,
    clock,
    options,
    (report: EngineReport) => {
      ended += report.finished.length;
      if (reportedNs === 0) reportedNs = Bun.nanoseconds(); // the second of a step's two reports counts as planning
    },
    linearCost(10, 0.05),
  );
  const random = new SeededRandom(2);
  const shared = draw(random, scenario.sharedTokens);
  let submitted = 0;
  const submit = (): void => {
    const prompt = Int32Array.of(...shared, ...draw(random, scenario.promptTokens - shared.length));
    const presencePenalty = scenario.name.includes("penalties") ? 1 : 0;
    const service = services[submitted % services.length]!;
    const spec = sequenceSpec(prompt, scenario.tokensMax, { sampling: { presencePenalty }, service });
    engine.receive({ kind: "submit", sequence: { ...spec, id: submitted as SequenceId } });
    submitted += 1;
  };

  for (let i = 0; i < running + (waiting ?? 0); i++) submit();
  engine.run();
  const timesUs: number[] = [];
  const plansUs: number[] = [];
  for (let step = 0; step < STEPS_WARM + STEPS_TIMED; step++) {
    const answer = device.compute();
    if (answer === null) throw new Error("The engine ran out of work.");
    reportedNs = 0;
    const startNs = Bun.nanoseconds();
    answer();
    const endNs = Bun.nanoseconds();
    if (step >= STEPS_WARM) {
      timesUs.push((endNs - startNs) / 1000);
      plansUs.push((endNs - reportedNs) / 1000);
    }
    clock.advance(STEP_MS);
    while (waiting !== null && submitted - ended < running + waiting) submit();
  }
  return {
    name: scenario.name,
    running,
    steps: timesUs.length,
    meanUs: mean(timesUs),
    p50Us: percentile(timesUs, 0.5),
    p99Us: percentile(timesUs, 0.99),
    planMeanUs: mean(plansUs),
    planP50Us: percentile(plansUs, 0.5),
    planP99Us: percentile(plansUs, 0.99),
  };
}

const services: readonly Partial<Service>[] = [
  { tenant: "a" },
  { tenant: "b" },
  { tenant: "a", objective: "throughput" },
  { tenant: "c" },
  { tenant: "c", objective: "gang" },
];

function mean(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

function percentile(values: readonly number[], share: number): number {
  return [...values].sort((a, b) => a - b)[Math.floor(share * (values.length - 1))]!;
}

function draw(random: SeededRandom, count: number): number[] {
  return Array.from({ length: count }, () => random.below(VOCABULARY));
}

export function measureSteps(): readonly StepRow[] {
  return scenarios.map((scenario) => {
    const runs = Array.from({ length: RUNS }, () => measure(scenario));
    return runs.reduce((best, run) => (run.planMeanUs < best.planMeanUs ? run : best));
  });
}

export function stepTable(rows: readonly StepRow[]): string {
  const lines = rows.map((row) => {
    const { meanUs, p50Us, p99Us, planMeanUs, planP50Us, planP99Us } = row;
    const times = [meanUs, p50Us, p99Us, planMeanUs, planP50Us, planP99Us];
    const columns = times.map((us) => us.toFixed(1).padStart(9)).join(" ");
    return `${String(row.running).padStart(9)}  ${row.name.padEnd(20)} ${columns}`;
  });
  return [
    "sequences  us per step            mean       p50       p99  plan mean  plan p50  plan p99",
    ...lines,
  ].join("\n");
}
