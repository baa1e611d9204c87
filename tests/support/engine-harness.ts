import { assert } from "../../base/assert.ts";
import type { TokenId } from "../../base/token.ts";
import { ConstrainedDevice } from "../../gpu/constrained-device.ts";
import { SimulatedDevice } from "../../gpu/simulated/device.ts";
import type { Vocabulary } from "../../grammar/mask/vocabulary.ts";
import type {
  Finish,
  PrefixHint,
  SequenceId,
  SequenceSpec,
  Service,
  Step,
  StepResult,
} from "../../scheduler/core.ts";
import type { CostModel } from "../../scheduler/cost/cost-model.ts";
import { linearCost } from "../../scheduler/cost/linear.ts";
import type { Device, DeviceSpec } from "../../scheduler/device.ts";
import { Engine } from "../../scheduler/engine/engine.ts";
import type { EngineSettings } from "../../scheduler/engine/engine-options.ts";
import { formatStep, type StepTrace } from "../../scheduler/engine/trace.ts";
import { totalMs } from "../../scheduler/explain/causes.ts";
import type { EngineLoad, EngineReport } from "../../scheduler/messages.ts";
import { staticBudget } from "../../simulation/baselines/static-budget.ts";
import { deviceSpec } from "../../simulation/factories.ts";
import { ManualClock } from "../../simulation/manual-clock.ts";
import { type HostSetup, openTiers } from "../../simulation/simulated-places.ts";
import { SimulatedTier, type TierSetup } from "../../simulation/simulated-tier.ts";

/** First number of prefix hints; sequences have lower numbers. */
export const FIRST_HINT = 1_000_000;

/** Outcome of one sequence. */
export interface Outcome {
  cachedTokens: number | null;
  /** Cached tokens that came from the tier; absent: none. */
  tierTokens?: number;
  /** Tokens among them from the host's memory; absent: none. */
  hostTokens?: number;
  readonly tokens: TokenId[];
  finish: Finish | null;
}

export interface HarnessOptions {
  readonly spec?: Partial<DeviceSpec>;
  readonly engine?: EngineSettings;
  readonly cost?: CostModel;
  /** False if the policy may leave decodes out of a step. */
  readonly isStallFree?: boolean;
  readonly fault?: (step: Step) => StepResult | null;
  /** Puts a device between the simulated one and its constraints. */
  readonly wrap?: (drawing: Device) => Device;
  /** Texts of the tokens, for constrained sequences; `maskSteps`: see ConstrainedDevice. */
  readonly vocabulary?: Vocabulary;
  readonly maskSteps?: number;
  /** Lower tier; absent: none. */
  readonly tier?: Omit<TierSetup, "pageTokens" | "pageBytes">;
  /** Places in the host's memory, above the tier; absent: none. */
  readonly host?: Omit<HostSetup, "pageTokens" | "pageBytes">;
}

/**
 * Engine on the simulated device under a manual clock, with every integrity check on and a check for
 * stall-free steps. Sequences are 0, 1, 2 …, shown as A, B, C … in traces.
 */
export class EngineHarness {
  readonly clock = new ManualClock();
  readonly engine: Engine;
  readonly tier: SimulatedTier<Int32Array> | null;
  readonly outcomes: Outcome[] = [];
  readonly steps: Step[] = [];
  readonly traces: StepTrace[] = [];
  readonly reports: EngineReport[] = [];
  /** Times of the submissions; NaN for sequences that were returned. */
  readonly #submittedMs: number[] = [];
  readonly #paused = new Set<SequenceId>();
  readonly #isStallFree: boolean;
  /**
   * Sequences that drew a token in the last step and continue: the next step must have them, unless it
   * preempts them.
   */
  readonly #decoding = new Set<SequenceId>();

  constructor(options: HarnessOptions = {}) {
    const spec = deviceSpec(options.spec);
    this.#isStallFree = options.isStallFree ?? true;
    const cost = options.cost ?? linearCost(6, 0.02);
    const { vocabulary, maskSteps } = options;
    const simulated = new SimulatedDevice(spec, this.clock, cost, options.fault);
    const drawing = options.wrap?.(simulated) ?? simulated;
    const constrained =
      vocabulary === undefined ? drawing : new ConstrainedDevice(drawing, vocabulary, maskSteps);
    const device: Device = {
      spec,
      start: (step, done) => {
        this.steps.push(step);
        constrained.start(step, done);
      },
      close: () => constrained.close(),
    };
    const engineOptions: EngineSettings = {
      integrity: "always",
      kvEvents: true,
      trace: (step) => this.#takeTrace(step),
      ...options.engine,
    };
    const { tier } = options;
    const sizes = { pageTokens: spec.pageTokens, pageBytes: 1 };
    const host = options.host === undefined ? null : { ...options.host, ...sizes };
    const disk = tier === undefined ? null : { ...tier, ...sizes };
    const opened = openTiers(host, disk, this.clock, simulated);
    this.tier = opened instanceof SimulatedTier ? opened : null;
    this.engine = new Engine(device, this.clock, engineOptions, (report) => this.#take(report), cost, opened);
  }

  get load(): EngineLoad {
    return this.reports.at(-1)!.load;
  }

  /** Steps so far, one line each. */
  get trace(): string {
    return this.traces.map((step) => formatStep(step)).join("\n");
  }

  submit(spec: Omit<SequenceSpec, "id">): SequenceId {
    const id = this.outcomes.length as SequenceId;
    this.outcomes.push({ cachedTokens: null, tokens: [], finish: null });
    this.#submittedMs.push(this.clock.nowMs());
    this.engine.receive({ kind: "submit", sequence: { ...spec, id } });
    return id;
  }

  send(kind: "abort" | "pause" | "resume" | "recall", sequence: SequenceId): void {
    if (kind === "pause") this.#paused.add(sequence);
    else this.#paused.delete(sequence);
    this.#decoding.delete(sequence);
    this.engine.receive({ kind, sequence });
  }

  /** Releases the held sequence: no other continues it. */
  release(sequence: SequenceId): void {
    this.engine.receive({ kind: "release", sequence });
  }

  /** Raises the service of the sequence. */
  raise(sequence: SequenceId, service: Service): void {
    this.#decoding.delete(sequence);
    this.engine.receive({ kind: "raise", sequence, service });
  }

  /** Announces a prefix hint of program 0 for warming; its number is `FIRST_HINT` + `index`. */
  expect(index: number, tokens: readonly TokenId[], changes: Partial<PrefixHint> = {}): SequenceId {
    const id = (FIRST_HINT + index) as SequenceId;
    const hint = { id, tokens, cacheSalt: "", adapter: 0, program: 0, isWarmed: true, ...changes };
    this.engine.receive({ kind: "expect", hint });
    return id;
  }

  forget(index: number, givesUp = false): void {
    this.engine.receive({ kind: "forget", hint: (FIRST_HINT + index) as SequenceId, givesUp });
  }

  /** Completes one step, if one is in flight or can be started. */
  step(): void {
    this.engine.run();
    this.clock.runNext();
  }

  /** Completes steps until the engine is idle. */
  finish(): void {
    this.engine.run();
    this.clock.runAll(100_000);
    for (let { wakeMs } = this.engine; wakeMs !== null; { wakeMs } = this.engine) {
      this.clock.advance(Math.max(0, wakeMs - this.clock.nowMs()));
      this.engine.run();
      this.clock.runAll(100_000);
    }
  }

  /** Checks stall-free batching: every decode is in every step. */
  #takeTrace(step: StepTrace): void {
    this.traces.push(step);
    for (const { kind, sequence } of step.notes) if (kind === "preempted") this.#decoding.delete(sequence);
    for (const { sequence } of step.chunks) this.#decoding.delete(sequence);
    assert(!this.#isStallFree || this.#decoding.size === 0, "every decode is in every step");
  }

  /** Checks that each account has a cause for every instant since the submission, and none twice. */
  #checkAccounts({ accounts, finished }: EngineReport): void {
    for (const { sequence, at, account } of accounts) {
      assert(
        account.ms.every((ms) => ms >= 0),
        "no cause has less than no time",
      );
      const passedMs = this.clock.nowMs() - this.#submittedMs[sequence]!;
      const missingMs = passedMs - totalMs(account.ms);
      const end = finished.find((one) => one.sequence === sequence)?.finish.kind;
      // An abort between two steps is reported after the second one.
      const isReportedLater = at === "ended" && end !== "stop" && end !== "length";
      if (Number.isNaN(passedMs)) continue;
      assert(missingMs > -1e-6 && (isReportedLater || missingMs < 1e-6), "an account has each instant once");
    }
  }

  #take(report: EngineReport): void {
    this.reports.push(report);
    this.#checkAccounts(report);
    for (const sequence of report.returned) this.#submittedMs[sequence] = Number.NaN;
    for (const { sequence, cachedTokens, tierTokens, hostTokens } of report.started) {
      const outcome = this.outcomes[sequence]!;
      assert(outcome.cachedTokens === null && outcome.tokens.length === 0, "started once, before any token");
      outcome.cachedTokens = cachedTokens;
      if (tierTokens !== undefined) outcome.tierTokens = tierTokens;
      if (hostTokens !== undefined) outcome.hostTokens = hostTokens;
    }
    report.sequences.forEach((sequence, i) => {
      const outcome = this.outcomes[sequence]!;
      assert(outcome.cachedTokens !== null && outcome.finish === null, "tokens come between start and end");
      outcome.tokens.push(report.tokens[i]!);
      if (!this.#paused.has(sequence)) this.#decoding.add(sequence);
    });
    for (const { sequence, finish } of report.finished) {
      const outcome = this.outcomes[sequence]!;
      assert(outcome.finish === null, "a sequence ends once");
      outcome.finish = finish;
      this.#decoding.delete(sequence);
    }
  }
}

/** Returns the expected tokens of a sequence alone on a device: no cache, the whole prompt at once. */
export function tokensAlone(
  spec: Omit<SequenceSpec, "id">,
  device: Partial<DeviceSpec> = {},
  vocabulary?: Vocabulary,
): Outcome {
  const harness = new EngineHarness({
    spec: { ...device, pages: 1024 },
    engine: { batch: staticBudget(2048) },
    ...(vocabulary === undefined ? {} : { vocabulary }),
  });
  harness.submit(spec);
  harness.finish();
  return harness.outcomes[0]!;
}
