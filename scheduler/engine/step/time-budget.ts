import type { SequenceId } from "../../core.ts";
import type { EngineCosts } from "../../cost/cost-model.ts";
import type { DeviceSpec } from "../../device.ts";
import type { ObjectiveRules } from "../../objective.ts";
import type { BatchPolicy, TimePolicy } from "../../policy.ts";
import { chooseDrafts, type DraftPrices, isWorthDrafting } from "./draft-rule.ts";
import { OfflineSize } from "./offline-size.ts";
import { PaceLimits } from "./pace-limits.ts";
import type { SizeRule, StepHistory } from "./size-rule.ts";
import { StepLoad } from "./step-load.ts";
import { StepPrediction } from "./step-prediction.ts";
import type { DraftOffer, SequenceView, StepBudget, StepPass, StepRule, StepView } from "./step-rule.ts";
import { StreamSize } from "./stream-size.ts";
import { TaskGroupSize } from "./task-group-size.ts";

/**
 * A budget of time, with targets or without. Sarathi-Serve (arXiv:2403.02310 §4.3) fixes the tokens of a step
 * beforehand so that its time stays below a target. This budget asks the cost model at each step, and uses
 * the slack of the tightest running stream.
 *
 *   limit = min over decodes with a target of (last token + target - now) / (1 + margin + the cost model's own)
 *
 * Beside streams without a target a step takes `stepMs` at most, or more where the streams alone take long
 * (pace-limits.ts). Unlike a target's, this limit always leaves room for a tile. Offline sequences (objective.ts)
 * lengthen such a step by a sixteenth at most: their prompts come in chunks that are small enough for that. If the
 * smallest chunk is too large, they get one tile in `starvationMs`. So streams keep their pace beside any offline
 * work, except in these rare steps. One offline sequence may always run, and its decode is left out for
 * `skipsMax` steps at most. Offline work makes way likewise while an online prompt is computed. Neither
 * waiting nor running offline work then influences the size of the step.
 *
 * A rule (size-rule.ts) chooses one of the sizes (decodes included) that fit the limits. That is
 * stream-size.ts for streams, task-group-size.ts for task groups alone, and offline-size.ts for offline work
 * alone. The step gives way in this order:
 *
 *   0. no drafts are checked (draft-rule.ts), and forced tokens are left for later steps, all but one of each decode;
 *   1. prompt chunks shrink, half a tile at a time;
 *   2. to none, unless a prompt has got none for `starvationMs`: that one gets a tile;
 *   3. decodes of offline sequences are left out, at most `skipsMax` steps in a row each;
 *   4. no sequence is admitted with which the decodes alone would miss the target, or take longer than `stepMs` (`admits`);
 *   5. the target is missed, and that is counted.
 *
 * The first prompt that asks decides the size of the step; later ones fill it up. Costs O(running) to open
 * and about 16 predictions per offer.
 */
export class TimeBudget implements StepBudget {
  readonly skipped: ReadonlySet<SequenceId> = new Set();
  readonly deadlineMs: number;
  readonly #policy: TimePolicy;
  readonly #view: StepView;
  readonly #history: StepHistory;
  readonly #limits: PaceLimits;
  readonly #load: StepLoad;
  readonly #step: StepPrediction;
  /** Limit of the step by targets; Infinity: there are none. */
  readonly #targetMs: number;
  /** Time limit of the step, and the limit with offline sequences. */
  #limitMs: number;
  readonly #offlineMs: number;
  #hasPrompt = false;
  /** Tokens, decodes included, that the step is to have; null until the first offer. */
  #size: number | null = null;

  constructor(policy: TimePolicy, costs: EngineCosts, view: StepView, history: StepHistory) {
    this.#policy = policy;
    this.#view = view;
    this.#history = history;
    this.#limits = new PaceLimits(policy, costs);
    this.#load = new StepLoad(view, policy.tbtMs);
    const { decodes, onlineDecodes, untargetedDecodes, deadlineMs } = this.#load;
    this.#step = new StepPrediction(costs, decodes.count, decodes.context);
    this.deadlineMs = deadlineMs;
    this.#targetMs = this.#limits.targetMs(deadlineMs - view.nowMs);
    this.#limitMs = this.#targetMs;
    const makesWay = untargetedDecodes > 0 || (!view.backlog.countsOffline && policy.tbtMs === null);
    this.#offlineMs = makesWay ? this.#limits.offlineMs(onlineDecodes) : Number.POSITIVE_INFINITY;
    const decodesMs = Math.min(this.#limitMs, this.#offlineMs);
    if (decodesMs < Number.POSITIVE_INFINITY)
      this.skipped = leaveOut(this.#step, view.running, policy.skipsMax, decodesMs);
  }

  offer(left: number, context: number, waitedMs: number, objective: ObjectiveRules): number {
    const { tokensMax } = this.#view;
    if (this.#step.tokens >= tokensMax) return 0;
    const wanted = this.#step.fill(left, this.#sizeFor(left, context, objective));
    const fitting = this.#step.fitting(wanted, context, this.#limitMs);
    const tokens = objective.isOffline ? this.#unnoticed(fitting, context) : fitting;
    if (tokens > 0 || this.#hasPrompt || !this.#isStarving(waitedMs, objective)) return tokens;
    return this.#step.fill(left, Math.min(tokensMax, this.#step.smallestSize));
  }

  take(tokens: number, context: number, { isOffline }: ObjectiveRules): void {
    this.#step.add(tokens, context);
    this.#hasPrompt = true;
    if (isOffline && this.#step.ms > this.#offlineMs) this.#history.offlineTileMs = this.#view.nowMs;
  }

  takeForced(left: number, context: number, { isOffline }: ObjectiveRules): number {
    const untargetedMs = this.#load.untargetedDecodes > 0 ? this.#policy.stepMs : Number.POSITIVE_INFINITY;
    const limitMs = Math.min(
      this.#limitMs,
      untargetedMs,
      isOffline ? this.#offlineMs : Number.POSITIVE_INFINITY,
    );
    let tokens = Math.min(left, this.#view.tokensMax - this.#step.tokens);
    while (tokens > 0 && this.#step.msWith(tokens, context) > limitMs) tokens = Math.floor(tokens / 2);
    if (tokens <= 0) return 0;
    this.#step.add(tokens, context);
    return tokens;
  }

  wantsDrafts(rowsMax: number): boolean {
    const { count, context } = this.#load.decodes;
    const decodes = count - this.skipped.size;
    if (decodes === 0) return false;
    return isWorthDrafting(this.#draftPrices(), context / count, this.#draftRows(rowsMax));
  }

  takeDrafts(offers: readonly DraftOffer[], rowsMax: number): readonly number[] {
    const offered = new Set(offers.map(({ sequence }) => sequence.id));
    const isOther = ({ id, objective, isDecoding, isPaused }: SequenceView): boolean =>
      objective.isInteractive && isDecoding && !isPaused && !offered.has(id);
    const advances = this.#view.running.filter(isOther).map(({ pacing }) => pacing.advance);
    const others = advances.reduce((least, advance) => Math.min(least, advance), Number.POSITIVE_INFINITY);
    // Beside streams that would notice them, offline sequences have no drafts.
    const isQuiet = this.#offlineMs === Number.POSITIVE_INFINITY;
    const allowed = offers.map((offer) =>
      isQuiet || !offer.sequence.objective.isOffline ? offer : { ...offer, chances: [] },
    );
    return chooseDrafts(allowed, { ...this.#draftPrices(), others }, this.#draftRows(rowsMax));
  }

  #draftRows(rowsMax: number): number {
    return Math.min(rowsMax, this.#view.tokensMax - this.#step.tokens);
  }

  #draftPrices(): Omit<DraftPrices, "others"> {
    const { decodes, untargetedDecodes } = this.#load;
    const { ms } = this.#step;
    const aloneMs = this.#step.decodesMs;
    const untargetedMax =
      untargetedDecodes > 0 ? this.#limits.untargetedMs(aloneMs) - aloneMs : Number.POSITIVE_INFINITY;
    // A target that decodes miss by themselves limits nothing.
    const slackMs = this.#targetMs < aloneMs ? Number.POSITIVE_INFINITY : this.#targetMs - ms;
    return {
      decodes: decodes.count - this.skipped.size,
      aloneMs,
      addedMs: (rows, context) => this.#step.addedMs(rows, context),
      addedMax: Math.min(slackMs, untargetedMax),
    };
  }

  admits(sequence: SequenceView, isAged: boolean): boolean {
    return this.#limits.admits(this.#load, sequence, isAged);
  }

  join(sequence: SequenceView): void {
    this.#load.join(sequence);
  }

  /** The size of the step, which its first prompt decides. */
  #sizeFor(left: number, context: number, objective: ObjectiveRules): number {
    if (this.#size !== null) return this.#size;
    const { tokens } = this.#step;
    const { backlog, tokensMax } = this.#view;
    const promptTokens = Math.max(left, backlog.promptTokens);
    const demand = { left, context, promptTokens, sizeMax: Math.min(tokensMax, tokens + promptTokens) };
    const untargetedMs =
      this.#load.untargetedDecodes > 0 ? this.#limits.untargetedMs(this.#step.ms) : Number.POSITIVE_INFINITY;
    const { size, limitMs } = this.#ruleFor(objective).choose(demand, {
      targetMs: this.#limitMs,
      untargetedMs,
    });
    this.#limitMs = limitMs;
    this.#size = size;
    return size;
  }

  #ruleFor({ isOffline, isInteractive }: ObjectiveRules): SizeRule {
    const { backlog } = this.#view;
    const work = { backlog, history: this.#history, stepMs: this.#policy.stepMs };
    if (isOffline && backlog.countsOffline && this.#load.online.count === 0)
      return new OfflineSize(this.#step, work);
    if (!isOffline && !isInteractive && this.#load.streams === 0) return new TaskGroupSize(this.#step, work);
    return new StreamSize(this.#step, this.#load, work);
  }

  /** Largest part of an offline prompt's chunk within `#offlineMs`, the limit beside online work. */
  #unnoticed(tokens: number, context: number): number {
    if (this.#offlineMs === Number.POSITIVE_INFINITY) return tokens;
    const fits = (count: number): boolean => this.#step.msWith(count, context) <= this.#offlineMs;
    let unnoticed = Math.min(tokens, Math.max(1, this.#step.smallestSize - this.#step.tokens));
    while (unnoticed > 0 && !fits(unnoticed)) unnoticed >>= 1;
    while (unnoticed > 0 && unnoticed < tokens) {
      const more = Math.min(tokens, 2 * unnoticed);
      if (!fits(more)) break;
      unnoticed = more;
    }
    return unnoticed;
  }

  /**
   * True if a prompt gets a tile, whatever the limits, because it has got no tokens for `waitedMs`. If the tile
   * would exceed the limit of offline work, no other offline prompt may have got one for as long either.
   */
  #isStarving(waitedMs: number, { isOffline }: ObjectiveRules): boolean {
    const isNoticed = isOffline && this.#offlineMs < Number.POSITIVE_INFINITY;
    const tileMs = isNoticed ? Math.min(waitedMs, this.#view.nowMs - this.#history.offlineTileMs) : waitedMs;
    return tileMs >= this.#policy.starvationMs;
  }
}

/**
 * Leaves as few offline decodes out of a step as `limitMs` asks for, and returns them. Those that were left
 * out least of late come first, so that they take turns, and of those the longest. Decodes whose turn must
 * come within `skipsMax` steps are spread over these steps: else they would all come in one.
 */
function leaveOut(
  step: StepPrediction,
  running: readonly SequenceView[],
  skipsMax: number,
  limitMs: number,
): ReadonlySet<SequenceId> {
  const skipped = new Set<SequenceId>();
  if (step.ms <= limitMs) return skipped;
  const offline = running.filter(
    ({ objective, isDecoding, isPaused }) => objective.isOffline && isDecoding && !isPaused,
  );
  const leastSkips = offline.reduce((least, { pacing }) => Math.min(least, pacing.skips), skipsMax);
  const isDue = leastSkips + 1 >= Math.floor((skipsMax + 1) / offline.length);
  const due = isDue ? Math.ceil(offline.length / (skipsMax + 1)) : 0;
  const candidates = offline.filter(({ pacing }) => pacing.skips < skipsMax);
  candidates.sort((a, b) => a.pacing.skips - b.pacing.skips || b.length - a.length || a.id - b.id);
  for (const { id, length } of candidates.slice(0, offline.length - due)) {
    skipped.add(id);
    step.leaveOut(length);
    if (step.ms <= limitMs) break;
  }
  return skipped;
}

/** Opens the rule of a policy. */
export function openStepRule(policy: BatchPolicy, spec: DeviceSpec, costs: EngineCosts): StepRule {
  if (policy.kind === "baseline") return policy.open(policy.stepTokens, spec, costs);
  let lastStreamMs = Number.NEGATIVE_INFINITY;
  const history = {
    quietMs: Number.POSITIVE_INFINITY,
    abortPoints: spec.abortPoints ?? 1,
    offlineTileMs: Number.NEGATIVE_INFINITY,
  };
  const pass: StepPass = {
    hasDecodes: true,
    hasPrompts: true,
    open: (view) => {
      const { running, nowMs } = view;
      if (running.some(({ objective }) => objective.isInteractive)) lastStreamMs = nowMs;
      history.quietMs = nowMs - lastStreamMs;
      return new TimeBudget(policy, costs, view, history);
    },
  };
  const passes = [pass];
  return { passes: () => passes };
}
