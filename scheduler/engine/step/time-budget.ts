import type { SequenceId } from "../../core.ts";
import type { EngineCosts, PromptShape, StepShape } from "../../cost/cost-model.ts";
import type { ObjectiveRules } from "../../objective.ts";
import type { TimePolicy } from "../../policy.ts";
import type { Backlog, SequenceView, StepBudget } from "./step-budget.ts";
import { leastDelay, type SizeOption, takesRest } from "./step-size.ts";
import { nextTile, tileTrim } from "./tile.ts";

/** Sizes of a step that are compared: so many half tiles, then at distances that double each time there are half as many
 *  again. */
const SIZES_FINE = 8;
/** How often a chunk is made smaller at most, to fit. */
const TRIES_MAX = 16;
/** Prompts are not cut into smaller pieces than this, whatever the device's tiles. */
const CHUNK_MIN = 16;
/** Where decodes alone take more than half of `stepMs`, steps with prompts take so many times as long as without: prompts have
 *  half of the time, and streams half of their speed. */
const SLOWED = 2;
/** Where one stream alone takes more than its part of `stepMs`, decodes alone may take so many times as long as it does. By
 *  then a step's fixed cost is spread over so many streams that more of them would add less than an eighth to the device's
 *  throughput. */
const CROWDED = 8;
/** Where no stream runs, a step may take so many times `stepMs` before smaller ones are looked for that are nearly as good, and one of a gang
 *  longer than that where none has run for long: a request that arrives meanwhile waits for its end. */
const QUIET = 4;

/** Where no stream has run for so long, none is expected; where one has, the next one is expected after as long again. */
const QUIET_AFTER_MS = 60_000;

/** Where a stream has run of late, the next one waits no longer for a step of bulk alone than this part of the time that its prompt usually
 *  takes, and half as long on average. */
const NOTICED = 0.2;

/** Beside streams without a target, bulk sequences lengthen a step by this part of it at most. */
const BULK_SHARE = 0.0625;

/** What a budget goes by that is of more than one step. */
export interface Company {
  /** For so long no stream has run; Infinity: none ever has. */
  readonly quietMs: number;
  /** In so many places a step of bulk alone can be given up (device.ts). */
  readonly waysOut: number;
  /** When a bulk prompt last lengthened a step that others were in. */
  bulkTileMs: number;
}

interface MutableShape extends StepShape {
  readonly prompts: PromptShape[];
  decodes: number;
  decodeContext: number;
}

/**
 * A budget of time, with targets or without: Sarathi-Serve (arXiv:2403.02310 §4.3) fixes the tokens of a step beforehand so that
 * its time stays below a target; this one asks the cost model at each step, and takes what the tightest running stream's slack
 * allows.
 *
 *   limit = min over decodes with a target of (last token + target - now) / (1 + margin + the cost model's own)
 *
 * Beside streams without a target a step takes `stepMs` at most, or twice what it takes without prompts. Unlike a target's,
 * this limit always leaves room for a tile. Bulk sequences (objective.ts) lengthen such a step by a sixteenth at most: their prompts come in
 * as small pieces as it takes, and where the smallest is too large, as one tile in `starvationMs`. So streams keep their pace, whatever bulk
 * there is, but for a step in a hundred. One
 * bulk sequence may always run, and its decode is left out for `skipsMax` steps at most. While a prompt that is awaited is computed,
 * bulk makes way likewise; and neither the bulk that waits nor the bulk that runs has a say in how large the step is.
 *
 * Of the sizes (decodes included) on a grid of half tiles, coarser further up, that fit the limits, it takes not the largest
 * but the one with the least total delay (step-size.ts), and for bulk that is alone the one in which a token takes least. It gives way in this order:
 *
 *   0. forced tokens are left for later steps, all but one of each decode;
 *   1. prompt chunks shrink, half a tile at a time;
 *   2. to none, unless a prompt has got none for `starvationMs`: that one gets a tile;
 *   3. decodes of bulk sequences are left out, at most `skipsMax` steps in a row each;
 *   4. no sequence is admitted with which the decodes alone would miss the target, or take longer than `stepMs` (`admits`);
 *   5. the target is missed, and that is counted.
 *
 * The first prompt that asks decides the size of the step; later ones fill it up. Costs O(running) to open and about
 * 16 predictions per offer.
 */
export class TimeBudget implements StepBudget {
  readonly skipped = new Set<SequenceId>();
  readonly deadlineMs: number;
  readonly #policy: TimePolicy;
  readonly #costs: EngineCosts;
  #limitMs: number;
  readonly #backlog: Backlog;
  readonly #tokensMax: number;
  readonly #company: Company;
  readonly #nowMs: number;
  /** Prompts that are unfinished or wait. */
  #prompts: number;
  /** What is in the step so far, and what is tried. */
  readonly #shape: MutableShape = { prompts: [], decodes: 0, decodeContext: 0 };
  #tokens = 0;
  #hasPrompt = false;
  /** Tokens, decodes included, that the step is to have; null until the first offer. */
  #wanted: number | null = null;
  /** Of all that run, how many are bulk and how many are not, and their tokens. */
  readonly #bulk = { count: 0, context: 0 };
  readonly #others = { count: 0, context: 0 };
  /** The tightest target of all that run. */
  #tightestMs = Number.POSITIVE_INFINITY;
  /** Calm streams, which are interactive ones without a target: of all that run, and of the decodes in this step. */
  #calm = 0;
  #calmDecodes = 0;
  /** Decodes in this step that are not bulk. */
  readonly #awaitedDecodes: number;
  /** Interactive streams of all that run, with a target or without. */
  #interactive = 0;
  /** How long a step with bulk sequences takes at most. */
  #bulkMs = Number.POSITIVE_INFINITY;

  constructor(
    policy: TimePolicy,
    running: readonly SequenceView[],
    costs: EngineCosts,
    nowMs: number,
    backlog: Backlog,
    tokensMax: number,
    company: Company = { quietMs: QUIET_AFTER_MS, waysOut: 1, bulkTileMs: Number.NEGATIVE_INFINITY },
  ) {
    this.#policy = policy;
    this.#costs = costs;
    this.#backlog = backlog;
    this.#tokensMax = tokensMax;
    this.#company = company;
    this.#nowMs = nowMs;
    this.#prompts = backlog.waiting;
    let deadlineMs = Number.POSITIVE_INFINITY;
    const withoutBulk = { prompts: [], decodes: 0, decodeContext: 0 };
    for (const sequence of running) {
      if (sequence.isPaused) continue;
      this.join(sequence);
      if (!sequence.isDecoding) {
        if (backlog.countsBulk || !sequence.objective.isBulk) this.#prompts += 1;
        continue;
      }
      this.#shape.decodes += 1;
      this.#shape.decodeContext += sequence.length;
      if (!sequence.objective.isBulk) {
        withoutBulk.decodes += 1;
        withoutBulk.decodeContext += sequence.length;
      }
      const targetMs = this.#targetOf(sequence);
      if (targetMs === null) {
        if (sequence.objective.isInteractive) this.#calmDecodes += 1;
        continue;
      }
      const { lastTokenMs } = sequence.pacing;
      if (lastTokenMs === Number.NEGATIVE_INFINITY) continue;
      if (lastTokenMs + targetMs < deadlineMs) deadlineMs = lastTokenMs + targetMs;
    }
    this.deadlineMs = deadlineMs;
    this.#limitMs = this.#withMargin(deadlineMs - nowMs);
    this.#awaitedDecodes = withoutBulk.decodes;
    const makesWay = this.#calmDecodes > 0 || (!backlog.countsBulk && policy.tbtMs === null);
    if (makesWay) this.#bulkMs = (1 + BULK_SHARE) * costs.stepMs(withoutBulk);
    const decodesMs = Math.min(this.#limitMs, this.#bulkMs);
    if (decodesMs < Number.POSITIVE_INFINITY) this.#skip(running, decodesMs);
    this.#tokens = this.#shape.decodes;
  }

  offer(left: number, context: number, waitedMs: number, objective: ObjectiveRules): number {
    if (this.#tokens >= this.#tokensMax) return 0;
    this.#wanted ??= this.#bestSize(left, context, objective);
    const fitting = this.#fitting(this.#fill(left, this.#wanted), context);
    const tokens = objective.isBulk ? this.#unnoticed(fitting, context) : fitting;
    if (tokens > 0) return tokens;
    if (this.#hasPrompt) return 0;
    const isNoticed = objective.isBulk && this.#bulkMs < Number.POSITIVE_INFINITY;
    const tileMs = isNoticed ? Math.min(waitedMs, this.#nowMs - this.#company.bulkTileMs) : waitedMs;
    if (tileMs < this.#policy.starvationMs) return 0;
    return this.#fill(left, Math.min(this.#tokensMax, this.#smallest()));
  }

  take(tokens: number, context: number, { isBulk }: ObjectiveRules): void {
    this.#shape.prompts.push({ tokens, context });
    this.#tokens += tokens;
    this.#hasPrompt = true;
    if (isBulk && this.#costs.stepMs(this.#shape) > this.#bulkMs) this.#company.bulkTileMs = this.#nowMs;
  }

  takeForced(left: number, context: number, { isBulk }: ObjectiveRules): number {
    const calmMs = this.#calmDecodes > 0 ? this.#policy.stepMs : Number.POSITIVE_INFINITY;
    const limitMs = Math.min(this.#limitMs, calmMs, isBulk ? this.#bulkMs : Number.POSITIVE_INFINITY);
    let tokens = Math.min(left, this.#tokensMax - this.#tokens);
    while (tokens > 0 && this.#predict(tokens, context, 0) > limitMs) tokens = Math.floor(tokens / 2);
    if (tokens <= 0) return 0;
    this.#shape.prompts.push({ tokens, context });
    this.#tokens += tokens;
    return tokens;
  }

  admits(sequence: SequenceView, isAged: boolean): boolean {
    const [bulk, others] = [this.#bulk, this.#others];
    const { isBulk } = sequence.objective;
    // Bulk is no reason to keep an awaited sequence out, even if that cannot keep its target.
    if (others.count === 0 && (!isBulk || bulk.count === 0)) return true;
    const targetMs = this.#targetOf(sequence);
    const tightestMs = Math.min(this.#tightestMs, targetMs ?? Number.POSITIVE_INFINITY);
    const isCalm = this.#calm > 0 || (targetMs === null && sequence.objective.isInteractive);
    const limitMs = Math.min(
      this.#withMargin(tightestMs),
      isCalm
        ? this.#calmMs(CROWDED, { prompts: [], decodes: 1, decodeContext: sequence.length })
        : tightestMs,
    );
    if (limitMs === Number.POSITIVE_INFINITY) return true;
    // Bulk decodes can be left out of all steps but one in `skipsMax` + 1, except for more bulk.
    const share = isBulk && !isAged ? 1 : 1 / (this.#policy.skipsMax + 1);
    const steady: StepShape = {
      prompts: [],
      decodes: others.count + Math.ceil(bulk.count * share) + 1,
      decodeContext: others.context + bulk.context * share + sequence.length,
    };
    const steadyMs = this.#costs.stepMs(steady);
    if (!isBulk || this.#calm === 0 || bulk.count === 0) return steadyMs <= limitMs;
    const without = { prompts: [], decodes: others.count, decodeContext: others.context };
    return steadyMs <= Math.min(limitMs, (1 + BULK_SHARE) * this.#costs.stepMs(without));
  }

  join(sequence: SequenceView): void {
    const kin = sequence.objective.isBulk ? this.#bulk : this.#others;
    kin.count += 1;
    kin.context += sequence.length;
    const targetMs = this.#targetOf(sequence);
    if (targetMs !== null) this.#tightestMs = Math.min(this.#tightestMs, targetMs);
    else if (sequence.objective.isInteractive) this.#calm += 1;
    if (sequence.objective.isInteractive) this.#interactive += 1;
  }

  /** How long a step with such streams takes at most, as predicted: `stepMs`, or `times` what these decodes take
   *  alone. It is no promise: a device whose steps are hard to predict keeps to it on average. */
  #calmMs(times: number, alone: StepShape): number {
    return Math.max(this.#policy.stepMs, times * this.#costs.stepMs(alone));
  }

  /** What a stream waits for at most: what it asks for; else interactive streams have the policy's default. */
  #targetOf({ objective, tbtMs }: SequenceView): number | null {
    if (objective.isBulk) return null;
    return tbtMs ?? (objective.isInteractive ? this.#policy.tbtMs : null);
  }

  #withMargin(slackMs: number): number {
    return slackMs / (1 + this.#policy.margin + (this.#costs.margin ?? 0));
  }

  /** As much of a bulk prompt's chunk as streams without a target do not notice. */
  #unnoticed(tokens: number, context: number): number {
    if (this.#bulkMs === Number.POSITIVE_INFINITY) return tokens;
    let unnoticed = Math.min(tokens, Math.max(1, this.#smallest() - this.#tokens));
    while (unnoticed > 0 && this.#predict(unnoticed, context, 0) > this.#bulkMs) unnoticed >>= 1;
    while (unnoticed > 0 && unnoticed < tokens) {
      const more = Math.min(tokens, 2 * unnoticed);
      if (this.#predict(more, context, 0) > this.#bulkMs) break;
      unnoticed = more;
    }
    return unnoticed;
  }

  /** How long a step of bulk takes at most that is alone. A stream that comes meanwhile waits for its end, or for the next place in which it
   *  can be given up; what it has computed is lost then, so that it takes no longer than a step beside streams. */
  get #bulkAloneMs(): number {
    const { stepMs } = this.#policy;
    if (this.#company.quietMs >= QUIET_AFTER_MS) return QUIET * stepMs;
    const promptTokens = this.#backlog.awaitedTokens;
    const promptMs = this.#costs.stepMs({
      prompts: [{ tokens: promptTokens, context: 0 }],
      decodes: 0,
      decodeContext: 0,
    });
    return Math.min(stepMs, this.#company.waysOut * NOTICED * promptMs);
  }

  /**
   * Whether a step of a gang beside which no stream runs may take so long. Each step that it takes more costs the gang what a step takes besides
   * its tokens; a stream that comes meanwhile waits for half a step on average. If one comes in `quietMs`, both together are least with steps of
   * √(2 · fixed · quietMs). Where none has ever come nothing is known of the next one.
   */
  #isGangStep(ms: number): boolean {
    const { quietMs } = this.#company;
    if (ms <= QUIET * this.#policy.stepMs) return true;
    if (quietMs === Number.POSITIVE_INFINITY) return false;
    const fixedMs = this.#costs.stepMs({
      prompts: [{ tokens: 1, context: 0 }],
      decodes: 0,
      decodeContext: 0,
    });
    return ms * ms <= 2 * fixedMs * Math.min(quietMs, QUIET_AFTER_MS);
  }

  /** Leaves out as few bulk decodes as the limit asks for: those first that were left out least of late, so that they take turns, and of those
   *  the longest. Those whose turn must come within `skipsMax` steps are spread over these: else they would all come in one. */
  #skip(running: readonly SequenceView[], limitMs: number): void {
    if (this.#costs.stepMs(this.#shape) <= limitMs) return;
    const { skipsMax } = this.#policy;
    const bulk = running.filter(
      ({ objective, isDecoding, isPaused }) => objective.isBulk && isDecoding && !isPaused,
    );
    const leastSkips = bulk.reduce((least, { pacing }) => Math.min(least, pacing.skips), skipsMax);
    const isDue = leastSkips + 1 >= Math.floor((skipsMax + 1) / bulk.length);
    const due = isDue ? Math.ceil(bulk.length / (skipsMax + 1)) : 0;
    const candidates = bulk.filter(({ pacing }) => pacing.skips < skipsMax);
    candidates.sort((a, b) => a.pacing.skips - b.pacing.skips || b.length - a.length || a.id - b.id);
    for (const { id, length } of candidates.slice(0, bulk.length - due)) {
      this.skipped.add(id);
      this.#shape.decodes -= 1;
      this.#shape.decodeContext -= length;
      if (this.#costs.stepMs(this.#shape) <= limitMs) break;
    }
  }

  /** As much of a prompt as brings the step to `size` tokens. */
  #fill(left: number, size: number): number {
    const room = size - this.#tokens;
    if (left <= room) return left;
    return Math.max(0, tileTrim(size, this.#costs.tileTokens) - this.#tokens);
  }

  /** `tokens`, or as many whole tiles less as it takes to fit the limit. */
  #fitting(tokens: number, context: number): number {
    let fitting = tokens;
    for (let tries = 0; fitting > 0 && tries < TRIES_MAX; tries++) {
      if (this.#predict(fitting, context, 0) <= this.#limitMs) return fitting;
      const size = this.#tokens + fitting;
      fitting = size - (size % this.#quantum || this.#quantum) - this.#tokens;
    }
    return 0;
  }

  /** Of the sizes that fit the limits the one with the least total delay; the decodes' own if none fits. */
  #bestSize(left: number, context: number, objective: ObjectiveRules): number {
    const decodes = this.#tokens;
    const calmMs = this.#calmDecodes > 0 ? this.#calmMs(SLOWED, this.#shape) : Number.POSITIVE_INFINITY;
    const promptTokens = Math.max(left, this.#backlog.promptTokens);
    const most = Math.min(this.#tokensMax, decodes + promptTokens);
    const isBulkAlone = this.#others.count === 0 && this.#backlog.countsBulk;
    if (objective.isBulk && isBulkAlone) return this.#bestRate(left, context, most);
    const quantum = this.#quantum;
    const options: SizeOption[] = [];
    let stride = quantum;
    for (let size = Math.min(nextTile(decodes, quantum), most); ; size = Math.min(size + stride, most)) {
      const tokens = Math.min(left, size - decodes);
      const tookMs = this.#predict(tokens, context, size - decodes - tokens);
      if (tookMs > this.#limitMs || (tookMs > calmMs && options.length > 0)) break;
      options.push({ size, tookMs });
      if (size === most) break;
      if (options.length >= SIZES_FINE && options.length % (SIZES_FINE / 2) === 0) stride *= 2;
    }
    const [smallest, largest] = [options[0], options.at(-1)];
    if (smallest === undefined || largest === undefined) return decodes;
    this.#limitMs = Math.min(this.#limitMs, Math.max(calmMs, smallest.tookMs));
    // Of a gang the last one counts: its steps are as large as what comes next can wait for.
    if (this.#interactive === 0 && !objective.isInteractive && !objective.isBulk) {
      return (options.findLast(({ tookMs }) => this.#isGangStep(tookMs)) ?? smallest).size;
    }
    const aloneMs = decodes === 0 ? 0 : this.#costs.stepMs(this.#shape);
    // Bulk beside a prompt that is awaited is no reason to cut that: it is computed as it would be without.
    const streams = this.#backlog.countsBulk ? decodes : this.#awaitedDecodes;
    const size = leastDelay(options, {
      decodes,
      streams,
      aloneMs,
      contextMs: this.#contextMs(aloneMs),
      prompts: Math.max(1, this.#prompts),
      promptTokens: Math.max(left, this.#backlog.likelyTokens),
      answerTokens: this.#backlog.answerTokens,
      patienceMs: QUIET * this.#policy.stepMs,
    });
    const rest = decodes + promptTokens - size;
    if (rest === 0 || largest.size !== size + rest) return size;
    const isAlone = streams === 0 && this.#prompts <= 1 && largest.tookMs <= QUIET * this.#policy.stepMs;
    if (rest > quantum && !isAlone) return size;
    const { tookMs } = options.find((option) => option.size === size)!;
    const restMs = this.#predict(rest, context + size, 0);
    const others = { prompts: Math.max(1, this.#prompts), streams };
    return takesRest(largest.tookMs - tookMs, restMs, others) ? largest.size : size;
  }

  /**
   * For bulk that is alone: of the sizes that what comes next can wait for, the one in which a token takes least. What tokens look at is
   * the same in steps of any size, and left out.
   *
   * A step of p tokens of prompts takes T, and T0 without them. Where prompts find room only as answers end, that is as many steps as answers take,
   * with prompts in them or not: r tokens in each (`refillTokens`).
   *
   *   p ≤ r   memory is not full: every step has p, and decodes in proportion. A token takes T / size, decodes included.
   *   p > r   one step of p / r has prompts, and the others have decodes alone: a token of prompts takes (T - T0) / p + T0 / r.
   *
   * Where T grows evenly, the second is the same for every p. But no step takes less than reading the weights does, and up to there tokens of prompts
   * cost nearly nothing beside decodes: then steps of r are better than ones of many tokens between ones of few.
   */
  #bestRate(left: number, context: number, most: number): number {
    const decodes = this.#tokens;
    const waitMs = this.#bulkAloneMs;
    const { refillTokens } = this.#backlog;
    const stride = Math.max(CHUNK_MIN, this.#quantum >> 1);
    const tookMs = (tokens: number): number =>
      tokens === 0 ? 0 : this.#costs.stepMs({ prompts: [], decodes: tokens, decodeContext: 0 });
    const aloneMs = tookMs(decodes);
    /** For each token of prompts. */
    const tokenMs = (size: number): number => {
      const tokens = size - decodes;
      if (tokens <= refillTokens) return (tookMs(size) / size) * (1 + decodes / refillTokens);
      return (tookMs(size) - aloneMs) / tokens + aloneMs / refillTokens;
    };
    let best = Math.min(nextTile(decodes, stride), most);
    let leastMs = Number.POSITIVE_INFINITY;
    for (let size = best; ; size = Math.min(size + stride, most)) {
      const tokens = Math.min(left, size - decodes);
      if (this.#predict(tokens, context, size - decodes - tokens) > waitMs) break;
      const ms = tokenMs(size);
      if (ms <= leastMs) [best, leastMs] = [size, ms];
      if (size === most) break;
    }
    return best;
  }

  /** What the contexts of decodes take: predicted with them, less what as many tokens alone take. */
  #contextMs(aloneMs: number): number {
    const { decodes } = this.#shape;
    if (decodes === 0) return 0;
    const tokens: StepShape = { prompts: [{ tokens: decodes, context: 0 }], decodes: 0, decodeContext: 0 };
    return Math.max(0, aloneMs - this.#costs.stepMs(tokens));
  }

  /** The step with a chunk more; `others`: tokens of prompts of which nothing is known. */
  #predict(tokens: number, context: number, others: number): number {
    const { prompts } = this.#shape;
    prompts.push({ tokens, context });
    if (others > 0) prompts.push({ tokens: others, context: 0 });
    const tookMs = this.#costs.stepMs(this.#shape);
    prompts.length -= others > 0 ? 2 : 1;
    return tookMs;
  }

  /** The size with one tile of prompt, or little less. */
  #smallest(): number {
    const quantum = this.#quantum;
    const next = nextTile(this.#tokens, quantum);
    return (next - this.#tokens) * 2 < quantum ? next + quantum : next;
  }

  /** Sizes are multiples of this: half a tile, as some devices have a smaller step there. */
  get #quantum(): number {
    return Math.max(CHUNK_MIN, this.#costs.tileTokens / 2);
  }
}
