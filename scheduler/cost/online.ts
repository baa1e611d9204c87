import { assert } from "../../base/assert.ts";
import { type EngineCosts, PARTS, type PartedCostModel, type StepShape } from "./cost-model.ts";
import { ErrorQuantile } from "./error-quantile.ts";
import { LinearCost, type LinearState } from "./linear.ts";
import { ProfileCostModel, type ProfileTable } from "./profile.ts";

/** What makes a prior that is plain data at heart. */
export type PriorState =
  | LinearState
  | { readonly kind: "profile"; readonly table: ProfileTable; readonly overheadMs: number };

/** An online model as plain data, to cross threads or lie in a file. */
export interface OnlineState {
  readonly prior: PriorState;
  readonly slowdown: number;
  readonly weights: readonly number[];
  readonly gram: readonly number[];
  readonly goal: readonly number[];
  readonly recent: readonly number[];
  readonly steady: number;
  readonly usual: number;
  readonly unrest: number;
  readonly errors: readonly number[];
  readonly observations: number;
}

/** A part takes at least a tenth and at most ten times what the prior says of it, beside the others. */
export const WEIGHT_MAX = 10;
/** The machine is at most so many times as slow, or as fast, as the prior says: room for a prior of another device. */
export const SLOWDOWN_MAX = 10_000;
/** The slowdown is the median of so many steps: a change is believed when it is older than half of them. */
export const RECENT = 15;

/** What is told to those who place work averages the slowdown over about so long; of longer steps it is that of the moment. */
const STEADY_MS = 100;
/** What a machine's speed usually is, and how far it is from that, are averages over about so long: work that is placed waits for seconds. */
const USUAL_MS = 10_000;
/** The speed counts as off by no more than this part of the usual one: a device that gets stuck is no device that often is. */
const UNREST_MAX = 2;
/** How much an observation counts for the weights when the next one is made: the last 500 decide. */
const FORGET = 0.998;
/** The prior counts as so many observations of each part. A part that is no longer observed is back at its prior when what
 *  is remembered of it is less than that: after 4,000 steps at most. */
const PRIOR = 0.2;
const SWEEPS = 4;
/** For the weights an observation is off by at most so much. One that is off by more is luck, or one of several, and then
 *  they are believed all the same. (A machine whose cores are shared lets a third of its short steps take ten times as
 *  long, and of its long ones none: taken at their word they would say that tokens are nearly free.) */
const SURPRISE = 1.25;
/** When the median leaps by more, from one step to the next, then the machine has another speed now (a clock that was
 *  lowered, a neighbour that came or went), and earlier errors say nothing of this one. */
const LEAP = 1.25;
/** A step that took so many times what was predicted says something of the machine, which slept, and nothing of errors
 *  that a margin could cover. */
const OUTLIER = 8;
/** The margin covers this share of the last few hundred steps: targets are kept by 99 of 100. */
const COVERED = 0.99;
const ERRORS_FORGET = 0.995;
/** What is believed of the prior's error before there are steps to tell. */
const ERRORS_BELIEF = { error: 0.1, count: 2 };

/** Of a step in `#recent`: its parts, and what it took. */
const STRIDE = PARTS + 1;

/**
 * A cost model that learns from what steps took. It begins with a prior, which says what the parts of a step take, and
 * corrects it twice over:
 *
 *   prediction = slowdown × Σ weight × part
 *
 * The slowdown is common to all parts and follows the machine: the median, over the last 15 steps, of what a step took
 * over what its weighted parts say. So it follows any change of speed within 8 steps, and up to 7 steps of 15 may be off
 * by anything. It is 1/10,000 … 10,000: priors may be of another machine altogether.
 *
 * The weights say how parts compare, and follow the model that is served: regularised least squares of the error as a
 * share of the prediction, the oldest observations forgotten. Each is 1/10 … 10, whatever was observed. What is common
 * to all observations is taken out of them first, since it is the slowdown's. Ridge regression pulls each weight to 1,
 * hardly where there are observations, and all the way where they were forgotten. So of parts that no step has the
 * prediction is the prior's, times the slowdown; and as a change of speed leaves weights alone, nothing adds up over
 * many of them.
 *
 * Where steps take half a millisecond, on cores that others use, the last 15 are but a moment, which says nothing of work
 * that waits. `steady` is the same model with a slowdown that is averaged over time: over a tenth of a second, and, as far as
 * the machine has been restless of late, over ten. A machine that was even is believed when it changes. One whose speed comes and goes
 * will have another one when the work that is placed now is computed.
 *
 * A prior must therefore be right about a device's parts beside each other within 10 times, and need not be right about
 * its speed. That holds of a prior that was measured on the device with the model, however coarsely, and of a profile
 * of a model of that kind; see docs/decisions/0014-costs-are-a-prior-corrected-within-bounds.md.
 *
 * All parts grow with the shape, so predictions do, too. One observation costs O(parts² + recent). Predictions decide, so
 * only +, -, × and ÷ make them, which give the same bits on every machine.
 */
export class OnlineCostModel implements EngineCosts, PartedCostModel {
  readonly name: string;
  readonly tileTokens: number;
  readonly #prior: PartedCostModel;
  #slowdown = 1;
  readonly #weights = new Float64Array(PARTS).fill(1);
  /** Sums over observations of x xᵀ and x y: x are a step's parts as shares of what was expected, y is what it took as a
   *  share of that. */
  readonly #gram = new Float64Array(PARTS * PARTS);
  readonly #goal = new Float64Array(PARTS);
  /** The last steps, in turn; at first steps that took what the prior says. */
  readonly #recent = new Float64Array(RECENT * STRIDE).fill(1);
  readonly #errors = new ErrorQuantile(ERRORS_FORGET, ERRORS_BELIEF);
  /** The slowdown, averaged over `STEADY_MS`. */
  #steady = 1;
  /** The slowdown, averaged over `USUAL_MS`; and by which part the two are apart, on average over as long. */
  #usual = 1;
  #unrest = 0;
  #observations = 0;
  /** Of the step that is looked at. */
  readonly #parts = new Float64Array(PARTS);
  readonly #ratios = new Float64Array(RECENT);

  /** `prior` is believed until observations say otherwise. */
  constructor(prior: PartedCostModel) {
    this.name = prior.name;
    this.tileTokens = prior.tileTokens;
    this.#prior = prior;
    for (let step = 0; step < RECENT; step++) this.#recent[step * STRIDE + PARTS] = PARTS;
  }

  /** What `state` told; it goes on learning from there. */
  static from(state: OnlineState): OnlineCostModel {
    const { prior } = state;
    const model =
      prior.kind === "linear" ? LinearCost.from(prior) : new ProfileCostModel(prior.table, prior.overheadMs);
    return new OnlineCostModel(model).#set(state);
  }

  /** Another with the same prior that has learnt the same. */
  copy(): OnlineCostModel {
    return new OnlineCostModel(this.#prior).#set(this.#learnt());
  }

  /** A copy for placement: as slow as the machine usually is, but for what its unrest does not explain of how slow it was over the
   *  last tenth of a second. */
  steady(): OnlineCostModel {
    const model = this.copy();
    const band = 1 + this.#unrest;
    model.#slowdown = Math.min(Math.max(this.#usual, this.#steady / band), this.#steady * band);
    return model;
  }

  /** 99 % of steps stay below prediction × (1 + margin); 0.0025 … 1.04. */
  get margin(): number {
    return this.#errors.below(COVERED);
  }

  stepMs(shape: StepShape): number {
    this.#prior.partsMs(shape, this.#parts);
    return this.#slowdown * this.#weigh(this.#parts, 0);
  }

  partsMs(shape: StepShape, into: Float64Array): void {
    this.#prior.partsMs(shape, into);
    for (let part = 0; part < PARTS; part++) into[part]! *= this.#slowdown * this.#weights[part]!;
  }

  /** Takes note of a step that took `ms`. The first one is left out: it warms up the machine. */
  observe(shape: StepShape, ms: number): void {
    this.#observations += 1;
    if (this.#observations === 1 || !(ms > 0 && ms < Number.POSITIVE_INFINITY)) return;
    const before = this.#slowdown;
    const predicted = this.stepMs(shape);
    this.#recent.set(this.#parts, (this.#observations % RECENT) * STRIDE);
    this.#recent[(this.#observations % RECENT) * STRIDE + PARTS] = ms;
    this.#slowdown = this.#median();
    const leap = this.#slowdown / before;
    if (leap > LEAP || leap < 1 / LEAP) this.#errors.reset();
    else if (ms < OUTLIER * predicted) this.#errors.add(ms / predicted - 1);
    this.#remember(ms);
    for (let sweep = 0; sweep < SWEEPS; sweep++) this.#solve();
    this.#slowdown = this.#median();
    this.#steady += (this.#slowdown - this.#steady) * Math.min(1, ms / STEADY_MS);
    const apart = Math.max(this.#steady / this.#usual, this.#usual / this.#steady) - 1;
    const part = Math.min(1, ms / USUAL_MS);
    this.#unrest += (Math.min(apart, UNREST_MAX) - this.#unrest) * part;
    this.#usual += (this.#slowdown - this.#usual) * part;
  }

  /** Everything that makes another of the same. Breaks an invariant if the prior is neither linear nor a profile. */
  state(): OnlineState {
    const prior = this.#prior;
    const isData = prior instanceof LinearCost || prior instanceof ProfileCostModel;
    assert(isData, "a prior that is code is not data");
    return { prior: prior.state, ...this.#learnt() };
  }

  #learnt(): Omit<OnlineState, "prior"> {
    return {
      slowdown: this.#slowdown,
      weights: [...this.#weights],
      gram: [...this.#gram],
      goal: [...this.#goal],
      recent: [...this.#recent],
      steady: this.#steady,
      usual: this.#usual,
      unrest: this.#unrest,
      errors: this.#errors.state,
      observations: this.#observations,
    };
  }

  #set(learnt: Omit<OnlineState, "prior">): this {
    const { slowdown, weights, gram, goal, recent, steady, usual, unrest, errors, observations } = learnt;
    this.#slowdown = slowdown;
    this.#weights.set(weights);
    this.#gram.set(gram);
    this.#goal.set(goal);
    this.#recent.set(recent);
    this.#steady = steady;
    this.#usual = usual;
    this.#unrest = unrest;
    this.#errors.state = errors;
    this.#observations = observations;
    return this;
  }

  /** The weighted sum of the parts that begin at `from`. */
  #weigh(parts: Float64Array, from: number): number {
    let ms = 0;
    for (let part = 0; part < PARTS; part++) ms += this.#weights[part]! * parts[from + part]!;
    return ms;
  }

  /** What the recent steps say of the machine. */
  #median(): number {
    const ratios = this.#ratios;
    for (let step = 0; step < RECENT; step++) {
      const from = step * STRIDE;
      ratios[step] = this.#recent[from + PARTS]! / this.#weigh(this.#recent, from);
    }
    return within(ratios.sort()[(RECENT - 1) / 2]!, SLOWDOWN_MAX);
  }

  /** Adds the step whose parts were looked at to what the weights are learnt from. */
  #remember(ms: number): void {
    const [gram, goal, parts] = [this.#gram, this.#goal, this.#parts];
    const expected = this.#slowdown * this.#weigh(parts, 0);
    const took = within(ms / expected, SURPRISE);
    let sumOfGoal = 0;
    let sumOfGram = 0;
    for (let i = 0; i < PARTS; i++) {
      const share = (this.#slowdown * parts[i]!) / expected;
      goal[i] = goal[i]! * FORGET + share * took;
      sumOfGoal += goal[i]!;
      for (let j = 0; j < PARTS; j++) {
        const both = (share * this.#slowdown * parts[j]!) / expected;
        gram[i * PARTS + j] = gram[i * PARTS + j]! * FORGET + both;
        sumOfGram += gram[i * PARTS + j]!;
      }
    }
    // The factor that fits all observations best if all weights are one is the slowdown's.
    for (let i = 0; i < PARTS; i++) goal[i]! *= sumOfGram / sumOfGoal;
  }

  /** Coordinate descent, once around. */
  #solve(): void {
    const [gram, weights] = [this.#gram, this.#weights];
    for (let i = 0; i < PARTS; i++) {
      let residual = this.#goal[i]! + PRIOR;
      for (let j = 0; j < PARTS; j++) if (j !== i) residual -= gram[i * PARTS + j]! * weights[j]!;
      weights[i] = within(residual / (gram[i * PARTS + i]! + PRIOR), WEIGHT_MAX);
    }
  }
}

/** The value, or the nearest to it in 1 / most … most. */
function within(value: number, most: number): number {
  return Math.min(Math.max(value, 1 / most), most);
}
