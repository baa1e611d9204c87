import { assert } from "../base/assert.ts";
import type { Clock } from "../base/clock.ts";
import type { TokenId } from "../base/token.ts";
import type { Sampled, SampleRow, Step, StepResult } from "../scheduler/core.ts";
import { type CostModel, type StepShape, shapeOf } from "../scheduler/cost/cost-model.ts";
import type { Device, DeviceSpec } from "../scheduler/device.ts";

/** What a timed device did. */
export interface DeviceWork {
  steps: number;
  busyMs: number;
  promptTokens: number;
}

/**
 * A device that only takes time, as long as its cost model says: for simulations of hours of work of large devices. It
 * keeps no page contents; what it draws is up to `nextToken`. (The simulated device of gpu/ is the one that finds
 * mistakes in paging.)
 */
export class TimedDevice implements Device {
  readonly spec: DeviceSpec;
  readonly work: DeviceWork = { steps: 0, busyMs: 0, promptTokens: 0 };
  readonly #clock: Clock;
  readonly #costs: CostModel;
  readonly #took: (ms: number) => number;
  readonly #nextToken: (row: SampleRow) => TokenId;
  /** By page, the last step in which a decode read it; null: each decode reads its own context. */
  readonly #readIn: Int32Array | null;
  #isInFlight = false;
  #isClosed = false;

  /** A step takes what `took` makes of what `costs` says; it is asked once a step (noise.ts). With
   *  `sharesReads` its kernels read a page once for all decodes that have it in their context. */
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

  /** A step in flight is forgotten. */
  close(): void {
    this.#isClosed = true;
  }

  #shapeOf(step: Step): StepShape {
    const shape = shapeOf(step);
    const readIn = this.#readIn;
    if (readIn === null) return shape;
    let decodeContext = 0;
    for (const { start, tokens, pages } of step.chunks) {
      if (tokens.length > 1 || start === 0) continue;
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
