import { type CostModel, linearCost } from "../../gpu/simulated/cost-model.ts";
import { SimulatedDevice } from "../../gpu/simulated/device.ts";
import {
  assert,
  type Finish,
  type SequenceId,
  type SequenceSpec,
  type Step,
  type StepResult,
  type TokenId,
} from "../../scheduler/core.ts";
import type { Device, DeviceSpec } from "../../scheduler/device.ts";
import { Engine } from "../../scheduler/engine.ts";
import type { EngineOptions } from "../../scheduler/engine-options.ts";
import type { EngineLoad, EngineReport } from "../../scheduler/messages.ts";
import { deviceSpec } from "../../scheduler/sim/factories.ts";
import { ManualClock } from "../../scheduler/sim/manual-clock.ts";
import { formatStep, type StepTrace } from "../../scheduler/trace.ts";

/** What became of one sequence. */
export interface Outcome {
  cachedTokens: number | null;
  readonly tokens: TokenId[];
  finish: Finish | null;
}

export interface HarnessOptions {
  readonly spec?: Partial<DeviceSpec>;
  readonly engine?: Partial<EngineOptions>;
  readonly cost?: CostModel;
  readonly fault?: (step: Step) => StepResult | null;
}

/** One engine on the simulated device under a hand-moved clock, with every integrity check on. Sequences are 0, 1, 2 …,
 *  A, B, C … in traces. */
export class EngineHarness {
  readonly clock = new ManualClock();
  readonly engine: Engine;
  readonly outcomes: Outcome[] = [];
  readonly steps: Step[] = [];
  readonly traces: StepTrace[] = [];
  readonly reports: EngineReport[] = [];

  constructor(options: HarnessOptions = {}) {
    const spec = deviceSpec(options.spec);
    const simulated = new SimulatedDevice(
      spec,
      this.clock,
      options.cost ?? linearCost(6, 0.02),
      options.fault,
    );
    const device: Device = {
      spec,
      start: (step, done) => {
        this.steps.push(step);
        simulated.start(step, done);
      },
      close: () => simulated.close(),
    };
    const engineOptions: Partial<EngineOptions> = {
      integrity: "always",
      trace: (step) => this.traces.push(step),
      ...options.engine,
    };
    this.engine = new Engine(device, this.clock, engineOptions, (report) => this.#take(report));
  }

  get load(): EngineLoad {
    return this.reports.at(-1)!.load;
  }

  /** The steps so far, one line each. */
  get trace(): string {
    return this.traces.map((step) => formatStep(step)).join("\n");
  }

  submit(spec: Omit<SequenceSpec, "id">): SequenceId {
    const id = this.outcomes.length as SequenceId;
    this.outcomes.push({ cachedTokens: null, tokens: [], finish: null });
    this.engine.receive({ kind: "submit", sequence: { ...spec, id } });
    return id;
  }

  send(kind: "abort" | "pause" | "resume", sequence: SequenceId): void {
    this.engine.receive({ kind, sequence });
  }

  /** Lets one step be done, if one is in flight or can be started. */
  step(): void {
    this.engine.run();
    this.clock.runNext();
  }

  /** Lets steps be done until there is nothing to do. */
  finish(): void {
    this.engine.run();
    this.clock.runAll(100_000);
  }

  #take(report: EngineReport): void {
    this.reports.push(report);
    for (const { sequence, cachedTokens } of report.started) {
      const outcome = this.outcomes[sequence]!;
      assert(outcome.cachedTokens === null && outcome.tokens.length === 0, "started once, before any token");
      outcome.cachedTokens = cachedTokens;
    }
    report.sequences.forEach((sequence, i) => {
      const outcome = this.outcomes[sequence]!;
      assert(outcome.cachedTokens !== null && outcome.finish === null, "tokens come between start and end");
      outcome.tokens.push(report.tokens[i]!);
    });
    for (const { sequence, finish } of report.finished) {
      const outcome = this.outcomes[sequence]!;
      assert(outcome.finish === null, "a sequence ends once");
      outcome.finish = finish;
    }
  }
}

/** The tokens the specification asks for, of a device with nothing shared: one sequence, no cache, whole prompt at once. */
export function tokensAlone(spec: Omit<SequenceSpec, "id">, device: Partial<DeviceSpec> = {}): Outcome {
  const harness = new EngineHarness({ spec: { ...device, pages: 1024 }, engine: { stepTokens: 2048 } });
  harness.submit(spec);
  harness.finish();
  return harness.outcomes[0]!;
}
