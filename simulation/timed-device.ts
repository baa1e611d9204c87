import { assert } from "../base/assert.ts";
import type { Clock } from "../base/clock.ts";
import type { TokenId } from "../base/token.ts";
import type { Sampled, SampleRow, Step, StepResult } from "../scheduler/core.ts";
import { type CostModel, type StepShape, shapeOf } from "../scheduler/cost/cost-model.ts";
import type { Device, DeviceSpec } from "../scheduler/device.ts";

/** Work counters of a timed device. */
export interface DeviceWork {
  steps: number;
  busyMs: number;
  promptTokens: number;
}

/**
 * Device that only takes time, as its cost model says: for simulations of hours of work on large devices. It
 * keeps no page contents; `nextToken` chooses the tokens. (The simulated device of gpu/ is the one that finds
 * paging bugs.)
 */
export class TimedDevice implements Device {
  readonly spec: DeviceSpec;
  readonly work: DeviceWork = { steps: 0, busyMs: 0, promptTokens: 0 };
  readonly #clock: Clock;
  readonly #costs: CostModel;
  readonly #took: (ms: number) => number;
  readonly #nextToken: (row: SampleRow) => TokenId;
  /** Last step in which a decode read a page, by page; null: each decode reads its own context. */
  readonly #readIn: Int32Array | null;
  #isInFlight = false;
  #isClosed = false;

  /**
   * `took` maps the predicted time of a step to its real time; called once per step (noise.ts). With
   * `sharesReads`, kernels read a page once for all decodes that have it in their context.
   */
  constructor(
    spec: DeviceSpec,
    clock: Clock,
    costs: CostModel,
    took: (ms: number) => number,
    nextToken: (row: SampleRow) => TokenId,
    sharesReads = false,
  ) {
    this.spec = spec;
    this.#clock = clock;
    this.#costs = costs;
    this.#took = took;
    this.#nextToken = nextToken;
    this.#readIn = sharesReads ? new Int32Array(spec.pages) : null;
  }

  start(step: Step, done: (result: StepResult) => void): void {
    assert(!this.#isInFlight && !this.#isClosed, "one step at a time, and none after close");
    this.#isInFlight = true;
    const shape = this.#shapeOf(step);
    const deviceMs = this.#took(this.#costs.stepMs(shape));
    this.work.steps += 1;
    this.work.busyMs += deviceMs;
    for (const { tokens } of shape.prompts) this.work.promptTokens += tokens;
    this.#clock.after(deviceMs, () => {
      this.#isInFlight = false;
      if (!this.#isClosed) done({ kind: "done", sampled: this.#draw(step), deviceMs });
    });
  }

  /** Drops a step in flight. */
  close(): void {
    this.#isClosed = true;
  }

  #shapeOf(step: Step): StepShape {
    const shape = shapeOf(step);
    const readIn = this.#readIn;
    if (readIn === null) return shape;
    let decodeContext = 0;
    for (const { start, tokens, pages, drafted = 0 } of step.chunks) {
      if (tokens.length - drafted > 1 || start === 0) continue;
      for (let index = 0; index < pages.length; index++) {
        const page = pages[index]!;
        if (readIn[page] === step.number) continue;
        readIn[page] = step.number;
        const { pageTokens } = this.spec;
        decodeContext += Math.max(0, Math.min(pageTokens, start - index * pageTokens));
      }
    }
    return { ...shape, decodeContext };
  }

  #draw({ chunks }: Step): Sampled[] {
    const sampled: Sampled[] = [];
    for (const { sequence, samples } of chunks) {
      for (const sample of samples) {
        assert(sample.wants === undefined, "a device without numbers gives no hidden states");
        sampled.push({ kind: "token", sequence, token: this.#nextToken(sample), logprobs: null });
      }
    }
    return sampled;
  }
}
