/**
 * What the scheduler costs: microseconds of TypeScript per step (apply the last one, report, plan the next), on a device
 * that answers at once. A step of a small model on a CPU takes some 2000 µs.
 *
 *   bun benchmarks/scheduler.ts [--json]
 */

import type { Sampled, SequenceId, Step, StepResult } from "../scheduler/core.ts";
import type { Device } from "../scheduler/device.ts";
import { Engine } from "../scheduler/engine.ts";
import { staticBudget } from "../scheduler/engine-options.ts";
import type { EngineReport } from "../scheduler/messages.ts";
import { SeededRandom } from "../scheduler/random.ts";
import { deviceSpec, sequenceSpec } from "../scheduler/sim/factories.ts";
import { ManualClock } from "../scheduler/sim/manual-clock.ts";

const VOCABULARY = 32_000;

/** Computes nothing: draws tokens that no sequence stops at. */
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

  /** The result of the step in flight, made outside of what is timed; null if there is none. */
  compute(): (() => void) | null {
    const step = this.#step;
    const done = this.#done;
    if (step === null || done === null) return null;
    this.#step = null;
    const sampled: Sampled[] = [];
    for (const { sequence, sample } of step.chunks) {
      if (sample === null) continue;
      sampled.push({ kind: "token", sequence, token: this.#random.below(VOCABULARY), logprobs: null });
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
  /** Keeps the house full: one more sequence for each that ends. */
  readonly refill: boolean;
}

const scenarios: readonly Scenario[] = [64, 256].flatMap((running) => [
  { name: "decode", running, promptTokens: 512, sharedTokens: 0, tokensMax: 4000, refill: false },
  { name: "decode, penalties", running, promptTokens: 512, sharedTokens: 0, tokensMax: 4000, refill: false },
  { name: "chat, 3/4 shared", running, promptTokens: 512, sharedTokens: 384, tokensMax: 64, refill: true },
]);

interface Row {
  readonly name: string;
  readonly running: number;
  readonly steps: number;
  readonly meanUs: number;
  readonly p50Us: number;
  readonly p99Us: number;
}

const STEPS_WARM = 1000;
const STEPS_TIMED = 2000;

function measure(scenario: Scenario): Row {
  const device = new InstantDevice();
  let ended = 0;
  const options = { batch: staticBudget(1024), admission: { sequencesMax: scenario.running } };
  const engine = new Engine(device, new ManualClock(), options, (report: EngineReport) => {
    ended += report.finished.length;
  });
  const random = new SeededRandom(2);
  const shared = draw(random, scenario.sharedTokens);
  let submitted = 0;
  const submit = (): void => {
    const prompt = Int32Array.of(...shared, ...draw(random, scenario.promptTokens - shared.length));
    const presencePenalty = scenario.name.includes("penalties") ? 1 : 0;
    const spec = sequenceSpec(prompt, scenario.tokensMax, { sampling: { presencePenalty } });
    engine.receive({ kind: "submit", sequence: { ...spec, id: submitted as SequenceId } });
    submitted += 1;
  };

  for (let i = 0; i < scenario.running; i++) submit();
  engine.run();
  const timesUs: number[] = [];
  for (let step = 0; step < STEPS_WARM + STEPS_TIMED; step++) {
    const answer = device.compute();
    if (answer === null) throw new Error("The engine ran out of work.");
    const startNs = Bun.nanoseconds();
    answer();
    const tookUs = (Bun.nanoseconds() - startNs) / 1000;
    if (step >= STEPS_WARM) timesUs.push(tookUs);
    while (scenario.refill && submitted - ended < scenario.running + 8) submit();
  }
  timesUs.sort((a, b) => a - b);
  const { name, running } = scenario;
  const meanUs = timesUs.reduce((sum, time) => sum + time, 0) / timesUs.length;
  const percentile = (share: number): number => timesUs[Math.floor(share * (timesUs.length - 1))]!;
  return { name, running, steps: timesUs.length, meanUs, p50Us: percentile(0.5), p99Us: percentile(0.99) };
}

function draw(random: SeededRandom, count: number): number[] {
  return Array.from({ length: count }, () => random.below(VOCABULARY));
}

const rows = scenarios.map(measure);
if (process.argv.includes("--json")) console.log(JSON.stringify(rows));
else {
  console.log("sequences  what                  mean us    p50 us    p99 us   per step");
  for (const { name, running, meanUs, p50Us, p99Us } of rows) {
    const times = [meanUs, p50Us, p99Us].map((us) => us.toFixed(1).padStart(9));
    console.log(`${String(running).padStart(9)}  ${name.padEnd(20)} ${times.join(" ")}`);
  }
}
