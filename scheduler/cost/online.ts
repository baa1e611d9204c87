import { assert } from "../../base/assert.ts";
import { type EngineCosts, PARTS, type PartedCostModel, type StepShape } from "./cost-model.ts";
import { ErrorQuantile } from "./error-quantile.ts";
import { LinearCost, type LinearState } from "./linear.ts";
import { ProfileCostModel, type ProfileTable } from "./profile.ts";

/** Parameters of a prior that is plain data. */
export type PriorState =
  | LinearState
  | { readonly kind: "profile"; readonly table: ProfileTable; readonly overheadMs: number };

/** State of an online model as plain data, to cross threads or go into a file. */
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

/** Bound on a part's weight: 1/10 to 10 times the prior's, relative to the other parts. */
export const WEIGHT_MAX = 10;
/** Bound on the slowdown, both ways; wide enough for a prior of another device. */
export const SLOWDOWN_MAX = 10_000;
/** Steps in the median that is the slowdown: it follows a change after more than half of them. */
export const RECENT = 15;

/** Averaging time of the slowdown reported for placement; for longer steps it is the current slowdown. */
const STEADY_MS = 100;
/** Averaging time of the machine's usual speed and its deviation from it: placed work waits for seconds. */
const USUAL_MS = 10_000;
/**
 * Cap on one deviation, as a share of the usual speed: a single long stall must not count as lasting jitter.
 */
const UNREST_MAX = 2;
/** Decay of an observation's weight per new observation: the last 500 decide. */
const FORGET = 0.998;
/**
 * Weight of the prior, in observations per part. A part without observations returns to its prior once its
 * remembered weight falls below this: after 4,000 steps at most.
 */
const PRIOR = 0.2;
const SWEEPS = 4;
/**
 * Clamp on the error of one observation in the regression. Larger errors are chance, or repeat and are learnt
 * anyway. On shared cores, preemption by other processes delays many short steps several times over, and long steps
 * hardly. Unclamped, all time would go to the fixed cost, and tokens would seem nearly free.
 */
const SURPRISE = 1.25;
/**
 * Jump of the median between two steps that means a new machine speed, such as a lower clock rate or another busy
 * process. The error margin then starts anew.
 */
const LEAP = 1.25;
/**
 * Ratio of time to prediction from which a step is an outlier (a suspended machine, for example), which the error
 * margin ignores.
 */
const OUTLIER = 8;
/** Quantile of the margin over the last few hundred steps: 99 of 100 steps keep it. */
const COVERED = 0.99;
const ERRORS_FORGET = 0.995;
/** Assumed error of the prior before the first steps. */
const ERRORS_BELIEF = { error: 0.1, count: 2 };

/** Row size in `#recent`: the parts of a step and its time. */
const STRIDE = PARTS + 1;

/**
 * Cost model that learns from measured steps. It begins with a prior for the parts of a step and corrects it
 * twice:
 *
 *     prediction = slowdown × Σ weight × part
 *
 * The slowdown is common to all parts and follows the machine. It is the median, over the last 15 steps, of
 * measured time over weighted parts. It follows any change of speed within 8 steps, and up to 7 of 15 steps
 * may be arbitrarily wrong. It stays within 1/10,000 … 10,000: a prior may come from another machine
 * altogether.
 *
 * The weights say how parts compare, and follow the served model. They come from regularised least squares of
 * the relative error, with exponential forgetting, and stay within 1/10 … 10. The error common to all
 * observations is divided out first, since it belongs to the slowdown. Ridge regression pulls each weight to
 * 1: hardly where there are observations, fully where they are forgotten. A part that no step has is
 * therefore predicted as prior × slowdown. A change of speed leaves the weights alone, so errors do not
 * accumulate over many changes.
 *
 * The last 15 short steps on shared cores say little about work that waits for seconds. `steady` is the same
 * model for placement, with a slowdown averaged over a tenth of a second. If the machine's speed had jitter lately
 * (`#unrest`), it averages over ten seconds instead: such a speed will have changed again when placed work runs.
 *
 * A prior must therefore be right within 10 times about parts relative to each other, but not about the
 * speed. A prior measured on the device with the model satisfies that, however coarse. So does a profile of a
 * similar model; see docs/decisions/0014-costs-are-a-prior-corrected-within-bounds.md.
 *
 * All parts grow with the shape, so predictions do, too. O(parts² + recent) per observation. Predictions
 * decide schedules, so they use only +, -, × and ÷, which give the same bits on every machine.
 */
export class OnlineCostModel implements EngineCosts, PartedCostModel {
  readonly name: string;
  readonly tileTokens: number;
  readonly #prior: PartedCostModel;
  #slowdown = 1;
  readonly #weights = new Float64Array(PARTS).fill(1);
  /**
   * Decayed sums over observations of x xᵀ (`#gram`) and x y (`#goal`). x: a step's parts as shares of its
   * expected time; y: its measured time over the expected.
   */
  readonly #gram = new Float64Array(PARTS * PARTS);
  readonly #goal = new Float64Array(PARTS);
  /** Ring buffer of the last steps, filled at first with steps that match the prior. */
  readonly #recent = new Float64Array(RECENT * STRIDE).fill(1);
  readonly #errors = new ErrorQuantile(ERRORS_FORGET, ERRORS_BELIEF);
  /** Slowdown averaged over `STEADY_MS`. */
  #steady = 1;
  /**
   * Slowdown averaged over `USUAL_MS`, and the average relative distance of the two over the same time
   * (`#unrest`).
   */
  #usual = 1;
  #unrest = 0;
  #observations = 0;
  /** Scratch: the parts of the step being observed or predicted. */
  readonly #parts = new Float64Array(PARTS);
  readonly #ratios = new Float64Array(RECENT);

  /** Starts from `prior` until observations correct it. */
  constructor(prior: PartedCostModel) {
    this.name = prior.name;
    this.tileTokens = prior.tileTokens;
    this.#prior = prior;
    for (let step = 0; step < RECENT; step++) this.#recent[step * STRIDE + PARTS] = PARTS;
  }

  /** Restores a model from its `state`; it continues to learn. */
  static from(state: OnlineState): OnlineCostModel {
    const { prior } = state;
    const model =
      prior.kind === "linear" ? LinearCost.from(prior) : new ProfileCostModel(prior.table, prior.overheadMs);
    return new OnlineCostModel(model).#set(state);
  }

  /** Copies the model with its prior and everything learnt. */
  copy(): OnlineCostModel {
    return new OnlineCostModel(this.#prior).#set(this.#learnt());
  }

  /**
   * Returns a copy for placement. Its slowdown is the usual one, clamped to the slowdown of the last tenth of a
   * second within the machine's jitter.
   */
  steady(): OnlineCostModel {
    const model = this.copy();
    const band = 1 + this.#unrest;
    model.#slowdown = Math.min(Math.max(this.#usual, this.#steady / band), this.#steady * band);
    return model;
  }

  /** Error margin: 99 % of steps stay below prediction × (1 + margin); 0.0025 … 1.04. */
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

  /** Learns from a step that took `ms`. Skips the first step, which warms up the machine. */
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

  /** Returns a linear model of what was learnt; null if the prior is not linear or too few steps ran. */
  learnt(): LinearCost | null {
    const prior = this.#prior;
    if (!(prior instanceof LinearCost) || this.#observations <= RECENT) return null;
    return prior.weighted([...this.#weights].map((weight) => this.#slowdown * weight));
  }

  /**
   * Plain data that restores this model. Breaks an invariant if the prior is neither linear nor a profile.
   */
  state(): OnlineState {
    const prior = this.#prior;
    const isData = prior instanceof LinearCost || prior instanceof ProfileCostModel;
    assert(isData, "only a linear or profile prior can be stored");
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

  /** Sums the weighted parts that begin at `from`. */
  #weigh(parts: Float64Array, from: number): number {
    let ms = 0;
    for (let part = 0; part < PARTS; part++) ms += this.#weights[part]! * parts[from + part]!;
    return ms;
  }

  /** Median slowdown of the recent steps. */
  #median(): number {
    const ratios = this.#ratios;
    for (let step = 0; step < RECENT; step++) {
      const from = step * STRIDE;
      ratios[step] = this.#recent[from + PARTS]! / this.#weigh(this.#recent, from);
    }
    return within(ratios.sort()[(RECENT - 1) / 2]!, SLOWDOWN_MAX);
  }

  /** Adds the step in `#parts` to the sums of the regression. */
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
    // Divides out the factor that fits all observations best with weights of one: it belongs to the slowdown.
    for (let i = 0; i < PARTS; i++) goal[i]! *= sumOfGram / sumOfGoal;
  }

  /** Runs one sweep of coordinate descent. */
  #solve(): void {
    const [gram, weights] = [this.#gram, this.#weights];
    for (let i = 0; i < PARTS; i++) {
      let residual = this.#goal[i]! + PRIOR;
      for (let j = 0; j < PARTS; j++) if (j !== i) residual -= gram[i * PARTS + j]! * weights[j]!;
      weights[i] = within(residual / (gram[i * PARTS + i]! + PRIOR), WEIGHT_MAX);
    }
  }
}

/** Clamps a value to 1 / most … most. */
function within(value: number, most: number): number {
  return Math.min(Math.max(value, 1 / most), most);
}
