import { assert } from "../core.ts";
import type { CostModel, EngineCosts, StepShape } from "./cost-model.ts";
import { ErrorQuantile } from "./error-quantile.ts";
import { LinearCost } from "./linear.ts";
import { ProfileCostModel, type ProfileTable } from "./profile.ts";

/** What makes a base that is plain data at heart. */
export type BaseState =
  | {
      readonly kind: "linear";
      readonly stepMs: number;
      readonly tokenMs: number;
      readonly tileTokens: number;
    }
  | { readonly kind: "profile"; readonly table: ProfileTable; readonly overheadMs: number };

/** An online model as plain data, to cross threads or lie in a file. */
export interface OnlineState {
  readonly base: BaseState;
  readonly weights: readonly number[];
  readonly gram: readonly number[];
  readonly goal: readonly number[];
  readonly errors: readonly number[];
  readonly observations: number;
  readonly run: readonly number[];
}

/** The base's prediction, 1, tokens, pairs of a prompt's token and one that it looks at, context of decodes. */
const FEATURES = 5;
/** How much an observation counts when the next one is made: the last 500 decide. */
const FORGET = 0.998;
/** The base counts as so many observations at first, however little is observed. */
const PRIOR = 1;
/** Pulls the corrections to 0, as a share of what was observed of them: what observations cannot tell apart is put down to
 *  the base. */
const RIDGE = 0.05;
const SWEEPS = 8;
/** The base never loses all its weight, so that a step always takes time. */
const BASE_MIN = 0.05;
/** A step that took so many times what was predicted says something of the machine, which slept, and nothing of steps. */
const OUTLIER = 8;
/** When so many steps in a row took more than `CHANGED` times what was predicted, or less than a part of it, the machine
 *  has another speed now (a clock that was lowered, a neighbour that came or went). Forgetting alone would take a
 *  thousand steps to believe it. */
const RUN = 8;
const CHANGED = 1.25;
/** The margin covers this share of the last few hundred steps: targets are kept by 99 of 100. */
const COVERED = 0.99;
const ERRORS_FORGET = 0.995;
/** What is believed of the base's error before there are steps to tell. */
const ERRORS_BELIEF = { error: 0.1, count: 2 };

/**
 * A cost model that learns from what steps took: weighted least squares of the relative error over a few features of a
 * step's shape, the oldest observations forgotten, its weights never negative. All features grow with the shape, so the
 * prediction does too, whatever was observed. One observation costs O(features²).
 *
 * Predictions decide, so only +, -, × and ÷ make them, which give the same bits on every machine; logarithms do not.
 */
export class OnlineCostModel implements EngineCosts {
  readonly name: string;
  readonly tileTokens: number;
  readonly #base: CostModel;
  readonly #weights: Float64Array;
  readonly #gram: Float64Array;
  readonly #goal: Float64Array;
  readonly #features = new Float64Array(FEATURES);
  readonly #errors = new ErrorQuantile(COVERED, ERRORS_FORGET, ERRORS_BELIEF);
  #observations = 0;
  /** Of the last steps, what they took over what was predicted: all above `CHANGED`, or all below 1 / `CHANGED`. */
  #run: number[] = [];

  /** `base` is believed until observations say otherwise. */
  constructor(base: CostModel) {
    this.name = base.name;
    this.tileTokens = base.tileTokens;
    this.#base = base;
    this.#weights = new Float64Array(FEATURES);
    this.#gram = new Float64Array(FEATURES * FEATURES);
    this.#goal = new Float64Array(FEATURES);
    this.#weights[0] = 1;
    this.#gram[0] = PRIOR;
    this.#goal[0] = PRIOR;
  }

  /** What `state` told; it goes on learning from there. */
  static from(state: OnlineState): OnlineCostModel {
    const { base } = state;
    const model =
      base.kind === "linear"
        ? new LinearCost(base.stepMs, base.tokenMs, base.tileTokens)
        : new ProfileCostModel(base.table, base.overheadMs);
    return new OnlineCostModel(model).#set(state);
  }

  /** Another with the same base that has learnt the same. */
  copy(): OnlineCostModel {
    return new OnlineCostModel(this.#base).#set(this.#learnt());
  }

  /** 99 % of steps stay below prediction × (1 + margin); 0.0025 … 1.04. */
  get margin(): number {
    return this.#errors.value;
  }

  stepMs(shape: StepShape): number {
    return this.#predict(this.#look(shape));
  }

  /** Takes note of a step that took `ms`. The first one is left out: it warms up the machine. */
  observe(shape: StepShape, ms: number): void {
    this.#observations += 1;
    const features = this.#look(shape);
    const predicted = this.#predict(features);
    if (this.#observations === 1 || !(ms > 0)) return;
    this.#follow(ms / predicted);
    const expected = this.#predict(features);
    if (ms > OUTLIER * expected) return;
    this.#errors.add(ms / expected - 1);
    this.#remember(features, ms);
    for (let sweep = 0; sweep < SWEEPS; sweep++) this.#solve();
  }

  /** Everything that makes another of the same. Breaks an invariant if the base is neither linear nor a profile. */
  state(): OnlineState {
    const base = this.#base;
    const isData = base instanceof LinearCost || base instanceof ProfileCostModel;
    assert(isData, "a base that is code is not data");
    return { base: base.state, ...this.#learnt() };
  }

  #learnt(): Omit<OnlineState, "base"> {
    return {
      weights: [...this.#weights],
      gram: [...this.#gram],
      goal: [...this.#goal],
      errors: this.#errors.state,
      observations: this.#observations,
      run: [...this.#run],
    };
  }

  #set({ weights, gram, goal, errors, observations, run }: Omit<OnlineState, "base">): this {
    this.#weights.set(weights);
    this.#gram.set(gram);
    this.#goal.set(goal);
    this.#errors.state = errors;
    this.#observations = observations;
    this.#run = [...run];
    return this;
  }

  #look(shape: StepShape): Float64Array {
    const features = this.#features;
    let tokens = shape.decodes;
    let pairs = 0;
    for (const prompt of shape.prompts) {
      tokens += prompt.tokens;
      pairs += prompt.tokens * (prompt.context + prompt.tokens / 2);
    }
    features[0] = this.#base.stepMs(shape);
    features[1] = 1;
    features[2] = tokens;
    features[3] = pairs;
    features[4] = shape.decodeContext;
    return features;
  }

  #predict(features: Float64Array): number {
    const weights = this.#weights;
    let ms = 0;
    for (let i = 0; i < FEATURES; i++) ms += weights[i]! * features[i]!;
    return ms;
  }

  /** Takes the machine's speed for another one after a run of steps that were off in the same direction: what is
   *  remembered counts as if it had taken as many times as long. */
  #follow(ratio: number): void {
    const [first] = this.#run;
    const isOff = ratio > CHANGED || ratio < 1 / CHANGED;
    if (!isOff || (first !== undefined && first > 1 !== ratio > 1)) this.#run = [];
    if (!isOff) return;
    this.#run.push(ratio);
    if (this.#run.length < RUN) return;
    const ratios = this.#run.toSorted((a, b) => a - b);
    // The middle of them: a single step that is off by much more, or a pause of the machine, does not count for more.
    const factor = (ratios[RUN / 2 - 1]! + ratios[RUN / 2]!) / 2;
    this.#run = [];
    this.#errors.reset();
    for (let i = 0; i < FEATURES; i++) {
      this.#weights[i]! *= factor;
      this.#goal[i]! /= factor;
    }
    for (let i = 0; i < this.#gram.length; i++) this.#gram[i]! /= factor * factor;
  }

  #remember(features: Float64Array, ms: number): void {
    const gram = this.#gram;
    const goal = this.#goal;
    for (let i = 0; i < FEATURES; i++) {
      const feature = features[i]! / ms;
      goal[i] = goal[i]! * FORGET + feature;
      for (let j = 0; j < FEATURES; j++) {
        gram[i * FEATURES + j] = gram[i * FEATURES + j]! * FORGET + (feature * features[j]!) / ms;
      }
    }
  }

  /** Coordinate descent, once around. */
  #solve(): void {
    const gram = this.#gram;
    const weights = this.#weights;
    for (let i = 0; i < FEATURES; i++) {
      const diagonal = gram[i * FEATURES + i]!;
      if (diagonal === 0) continue;
      let residual = this.#goal[i]!;
      for (let j = 0; j < FEATURES; j++) if (j !== i) residual -= gram[i * FEATURES + j]! * weights[j]!;
      const weight = residual / (i === 0 ? diagonal : diagonal * (1 + RIDGE));
      weights[i] = Math.max(i === 0 ? BASE_MIN : 0, weight);
    }
  }
}
