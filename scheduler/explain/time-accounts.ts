import type { Clock } from "../../base/clock.ts";
import type { Objective, SequenceId, StepResult } from "../core.ts";
import type { CostModel, StepShape } from "../cost/cost-model.ts";
import { objectiveOrder, objectives } from "../objective.ts";
import { Blockers } from "./blockers.ts";
import { causeIndex } from "./causes.ts";
import { LaneWaits, type WaitReason } from "./lane-waits.ts";
import { StepSplit } from "./step-split.ts";
import type { TimeAccount } from "./time-account.ts";

/** The fields of a sequence that its account is made from. */
export interface TimedSequence {
  readonly id: SequenceId;
  readonly account: TimeAccount;
  readonly service: { readonly objective: Objective; readonly tenant: string; readonly tbtMs: number | null };
  readonly isPaused: boolean;
  readonly isDecoding: boolean;
  readonly wasStarted: boolean;
  readonly isReturning: boolean;
  readonly generated: number;
  /** 0, 1, 2 … in order of arrival. */
  readonly arrival: number;
}

/** Chunk of a sequence in a step that has ended. */
export interface TimedChunk {
  readonly start: number;
  /** Tokens without drafts, and drafts behind them. */
  readonly tokens: number;
  readonly drafted: number;
}

/** The step that is being accounted for. */
interface EndedStep {
  readonly startMs: number;
  readonly split: StepSplit | null;
}

/**
 * Keeps the accounts of an engine's sequences: for every instant of a sequence the cause (causes.ts). The engine calls
 * it on each transition of a sequence and at the end of each step. No call costs more the longer sequences wait.
 */
export class TimeAccounts {
  readonly #clock: Pick<Clock, "nowMs">;
  readonly #costs: CostModel;
  /** Target of streams that ask for none; null: none. */
  readonly #defaultTbtMs: number | null;
  /** Lanes by precedence. */
  readonly #lanes = objectiveOrder.map(() => new LaneWaits());
  readonly #fresh = new Set<TimedSequence>();
  readonly #blockers = new Blockers();
  /** Lanes whose reason the current plan has found, and the reason of the others. */
  readonly #found = new Set<LaneWaits>();
  /** Sequences that the current plan has admitted. */
  readonly #admitted: TimedSequence[] = [];
  #reason: WaitReason = "other_prompts";
  #step: EndedStep = { startMs: 0, split: null };

  constructor(clock: Pick<Clock, "nowMs">, costs: CostModel, defaultTbtMs: number | null) {
    this.#clock = clock;
    this.#costs = costs;
    this.#defaultTbtMs = defaultTbtMs;
  }

  /* ---- waiting ---- */

  /** Records that a sequence waits in the queue's order, or among those that return. */
  waits(sequence: TimedSequence): void {
    const { account, isReturning, wasStarted } = sequence;
    this.#spend(sequence);
    account.waitingMs = this.#nowMs;
    if (wasStarted) this.#fix(account, causeIndex.preempted);
    else if (isReturning) this.#fix(account, causeIndex.step_in_flight);
    else {
      account.kind = "fresh";
      this.#fresh.add(sequence);
    }
  }

  /** Records that a sequence waits for `owner`, which computes or loads a prefix that it needs. */
  waitsFor(sequence: TimedSequence, owner: SequenceId | null): void {
    const { account } = sequence;
    this.#spend(sequence);
    account.waitingMs = this.#nowMs;
    if (owner !== null) account.prefixOwner = { sequence: owner, ms: account.prefixOwner?.ms ?? 0 };
    this.#fix(account, owner === null ? causeIndex.disk : causeIndex.same_prefix);
  }

  /** Records that a sequence leaves the queue. */
  leaves(sequence: TimedSequence): void {
    this.#spend(sequence);
    sequence.account.kind = "out";
  }

  /** Begins a plan: sequences that have arrived since the last one join their lanes. */
  beginPlan(): void {
    this.#found.clear();
    this.#admitted.length = 0;
    this.#reason = "other_prompts";
    if (this.#fresh.size === 0) return;
    for (const sequence of [...this.#fresh]) {
      this.#spend(sequence);
      const { account, service } = sequence;
      account.kind = "queued";
      this.#laneOf(sequence).join(account, service.tenant, account.sinceMs);
    }
  }

  /** Records why the current plan does not admit the next sequence of its lane. */
  refused(sequence: TimedSequence, reason: WaitReason): void {
    const lane = this.#laneOf(sequence);
    this.#found.add(lane);
    if (reason === "memory" || reason === "slots") this.#reason = reason;
    lane.set(this.#overtaken(sequence) ?? reason, sequence.service.tenant, this.#nowMs);
  }

  /** The reason for which the plan admitted a later sequence first; null: it did not, or only for its lower cost. */
  #overtaken({ arrival, service: { objective, tenant } }: TimedSequence): WaitReason | null {
    for (const { arrival: theirs, service } of this.#admitted) {
      if (theirs < arrival) continue;
      if (service.objective !== objective) return "other_lane";
      if (service.tenant !== tenant) return "other_tenants";
    }
    return null;
  }

  /** Records that the current plan has admitted a sequence. */
  admits(sequence: TimedSequence): void {
    this.#admitted.push(sequence);
  }

  /** Records that the plan may admit none: the step preempted sequences for lack of pages. */
  admitsNone(): void {
    this.#reason = "memory";
  }

  /** Ends a plan: lanes whose next sequence it did not consider get the reason found for the others. */
  endPlan(): void {
    for (const lane of this.#lanes) {
      if (!lane.isEmpty && !this.#found.has(lane)) lane.set(this.#reason, null, this.#nowMs);
    }
  }

  /* ---- running ---- */

  /** Records that a pause of the sequence is over. Called while it is still paused. */
  resumes(sequence: TimedSequence): void {
    this.#spend(sequence);
  }

  /** Records that a running sequence is preempted. */
  preempts(sequence: TimedSequence): void {
    this.#spend(sequence);
    sequence.account.preemptions += 1;
  }

  /** Records the end of a sequence, in any state. */
  ends(sequence: TimedSequence): void {
    this.#spend(sequence);
    sequence.account.kind = "out";
  }

  /** Brings the account of a sequence up to now, whatever its state. */
  settle(sequence: TimedSequence): void {
    const { account, service } = sequence;
    this.#spend(sequence);
    if (account.kind === "queued") this.#laneOf(sequence).join(account, service.tenant, account.sinceMs);
    if (account.kind === "fresh") this.#fresh.add(sequence);
  }

  /** Records that a step has ended, whose chunks follow. `largest`: the sequence with most tokens of a prompt. */
  stepEnded(startMs: number, shape: StepShape, result: StepResult["kind"], largest: SequenceId | null): void {
    const tookMs = this.#nowMs - startMs;
    const isDone = result === "done" && tookMs > 0;
    this.#step = { startMs, split: isDone ? new StepSplit(this.#costs, shape, tookMs) : null };
    this.#blockers.add(largest, startMs, this.#nowMs);
  }

  /**
   * Accounts for a chunk of the step that has ended, before the sequence advances. `isDeferred`: the device drew no
   * token, since the token mask was not ready.
   */
  chunkEnded(sequence: TimedSequence, chunk: TimedChunk, isDeferred: boolean): void {
    const { account, generated, isDecoding } = sequence;
    const { startMs, split } = this.#step;
    // Before this step it was running without a chunk.
    if (account.sinceMs < startMs) account.spend(idleCause(sequence), startMs);
    const spentMs = Math.max(0, this.#nowMs - account.sinceMs);
    account.sinceMs = this.#nowMs;
    account.draftMs = 0;
    if (spentMs === 0) this.#advance(account, chunk, isDecoding && generated > 0);
    else if (split === null) account.ms[causeIndex.given_up]! += spentMs;
    else if (isDeferred && chunk.tokens === 1) account.ms[causeIndex.grammar]! += spentMs;
    else {
      const { start: context, tokens, drafted } = chunk;
      if (isDecoding && generated > 0) split.answer(account, { tokens, context, drafted }, spentMs);
      const again = this.#advance(account, chunk, isDecoding && generated > 0);
      if (!isDecoding || generated === 0)
        split.prompt(account, { tokens, context, drafted }, again / tokens, spentMs);
    }
  }

  /** Records how many of a sequence's draft tokens in the step that has ended were accepted. */
  checked({ account }: TimedSequence, drafted: number, accepted: number): void {
    const lostMs = Math.min(
      account.ms[causeIndex.decode]!,
      (account.draftMs * (drafted - accepted)) / Math.max(1, drafted),
    );
    account.ms[causeIndex.decode]! -= lostMs;
    account.ms[causeIndex.drafts_lost]! += lostMs;
    account.draftMs = 0;
  }

  /** Records a drawn token. `lastMs`: time of the token before. */
  drew({ account, service }: TimedSequence, lastMs: number): void {
    const { isInteractive, isOffline } = objectives[service.objective];
    const targetMs = isOffline ? null : (service.tbtMs ?? (isInteractive ? this.#defaultTbtMs : null));
    if (targetMs === null) return;
    const lateMs = this.#nowMs - lastMs - targetMs;
    if (!(lateMs > 0 && lateMs < Number.POSITIVE_INFINITY)) return;
    account.lateTokens += 1;
    account.lateMs += lateMs;
  }

  /** Notes computed tokens. Returns how many of them were computed before. */
  #advance(account: TimeAccount, { start, tokens }: TimedChunk, isAnswer: boolean): number {
    const end = start + tokens;
    const again = Math.max(0, Math.min(end, account.computedMost) - start);
    account.computedMost = Math.max(account.computedMost, end);
    account.recomputedTokens += again;
    if (!isAnswer) account.computedTokens += tokens - again;
    return again;
  }

  /** Accounts for the time up to now, in any state. */
  #spend(sequence: TimedSequence): void {
    const { account } = sequence;
    const nowMs = this.#nowMs;
    switch (account.kind) {
      case "fresh":
        this.#fresh.delete(sequence);
        account.spend(causeIndex.step_in_flight, nowMs);
        break;
      case "queued":
        this.#laneOf(sequence).leave(account, sequence.service.tenant, nowMs);
        account.behind = this.#blockers.longest(account.waitingMs, nowMs, account.behind);
        break;
      case "fixed": {
        const spentMs = account.spend(account.cause, nowMs);
        const { prefixOwner, cause } = account;
        if (cause === causeIndex.same_prefix && prefixOwner !== null)
          account.prefixOwner = { ...prefixOwner, ms: prefixOwner.ms + spentMs };
        break;
      }
      case "out":
        account.spend(idleCause(sequence), nowMs);
    }
  }

  #fix(account: TimeAccount, cause: number): void {
    account.kind = "fixed";
    account.cause = cause;
  }

  #laneOf({ service }: TimedSequence): LaneWaits {
    return this.#lanes[objectives[service.objective].precedence]!;
  }

  get #nowMs(): number {
    return this.#clock.nowMs();
  }
}

/** Cause of time in which a running sequence had no chunk. */
function idleCause({ isPaused, isDecoding, generated }: TimedSequence): number {
  if (isPaused) return causeIndex.paused;
  return isDecoding && generated > 0 ? causeIndex.left_out : causeIndex.prompt_others;
}
