import type { Clock } from "../clock.ts";
import type { Chunk, PageMove, Step } from "../core.ts";
import type { EngineCosts } from "../cost/cost-model.ts";
import type { DeviceSpec } from "../device.ts";
import { type Admission, admitNext } from "./admission.ts";
import type { EngineOptions } from "./engine-options.ts";
import type { Journal } from "./journal.ts";
import { securePages, youngestPaused } from "./preemption.ts";
import { insertByArrival } from "./queue/arrival-list.ts";
import type { Roster } from "./roster.ts";
import type { Sequence } from "./sequence.ts";
import type { StepBudget } from "./step/step-budget.ts";
import { type Overtaking, type PlannedChunk, planDecodes, planPrompts } from "./step/step-planner.ts";
import { openStepRule, type StepRule } from "./step/step-rule.ts";

/** A step that was decided, and whose chunks it has. */
export interface PlannedStep {
  readonly step: Step;
  /** By chunk of the step. */
  readonly planned: readonly PlannedChunk<Sequence>[];
  readonly startMs: number;
  readonly pagesUsed: number;
  /** When the first stream will have waited longer than its target. */
  readonly deadlineMs: number;
}

/** What an engine's planner goes by. */
export interface PlannerParts {
  readonly spec: DeviceSpec;
  readonly clock: Clock;
  readonly options: EngineOptions;
  readonly costs: EngineCosts;
  readonly roster: Roster;
  readonly journal: Journal;
}

/** Sequences that one step sets aside at most, to wait for another's prefix: so that a crowd does not hold a step up. */
const PARKED_MAX = 64;

/** Tokens of an engine's first step, at most, and how many times as large as the largest one so far a step may be: what is
 *  believed of a device that has computed little is no more than a guess about large steps. */
const FIRST_TOKENS = 64;
const GROWTH = 4;

/**
 * Decides an engine's steps: gives decodes their pages, preempting for them if need be, opens the budget of the
 * policy's step rule, and fills it with decodes, unfinished prompts and newly admitted ones. Each of these is a file of its own;
 * this one says in which order they come.
 */
export class Planner {
  readonly #parts: PlannerParts;
  readonly #rule: StepRule;
  /** Somebody could not be admitted for want of a slot or of pages: paused sequences give theirs up. */
  #isBlocked = false;
  /** Of the largest step so far. */
  #tokensLargest = FIRST_TOKENS / GROWTH;

  constructor(parts: PlannerParts) {
    this.#parts = parts;
    this.#rule = openStepRule(parts.options.batch, parts.spec, parts.costs);
  }

  /** Decides the next step; null if there is nothing to compute. */
  plan(): PlannedStep | null {
    const { clock, journal, roster } = this.#parts;
    const { running, residency, queue } = roster;
    for (;;) {
      if (this.#isBlocked) this.#reclaimPaused();
      const nowMs = clock.nowMs();
      queue.beginStep();
      const moves: PageMove[] = [];
      let mayAdmit = true;
      for (const pass of this.#rule.passes(residency.pagesAvailable, residency.pool.pagesTotal)) {
        if (pass.hasDecodes) {
          const preemptionsBefore = journal.totals.preemptionsTotal;
          securePages(running, residency, queue.hasLanes, (victim) => roster.preempt(victim));
          // A sequence that was just preempted for want of pages must not come back in the same step.
          mayAdmit = journal.totals.preemptionsTotal === preemptionsBefore;
        }
        const { backlog } = roster;
        const budget = pass.open({ running, backlog, nowMs, tokensMax: this.#tokensMax });
        const planned = pass.hasDecodes ? planDecodes(running, budget.skipped) : [];
        if (pass.hasPrompts) planned.push(...this.#planPrompts(budget, nowMs, mayAdmit ? moves : null));
        if (planned.length > 0) return this.#step(planned, moves, budget);
      }
      if (mayAdmit && !this.#isBlocked) return null;
    }
  }

  /** Most tokens of a step whose size the cost model decides. */
  get #tokensMax(): number {
    return Math.min(GROWTH * this.#tokensLargest, this.#parts.spec.stepTokensMax);
  }

  /** Chunks of prompts; nobody is admitted if `moves` is null. */
  #planPrompts(budget: StepBudget, nowMs: number, moves: PageMove[] | null): PlannedChunk<Sequence>[] {
    const { options, roster } = this.#parts;
    const { running, queue } = roster;
    const prompts = running.filter(({ isDecoding, isPaused }) => !isDecoding && !isPaused);
    const admit = (overtaking: Overtaking<Sequence> | null): PlannedChunk<Sequence> | null =>
      moves === null ? null : this.#admit(prompts, budget, nowMs, moves, overtaking);
    return planPrompts(prompts, admit, budget, {
      hasLanes: queue.hasLanes,
      overtakes: options.admission.overtakes,
      isAged: (sequence) => queue.isAged(sequence, nowMs),
      nowMs,
    });
  }

  /** Admits the next sequence that can run now; null if there is none. `prompts`: unfinished ones, by arrival. */
  #admit(
    prompts: Sequence[],
    budget: StepBudget,
    nowMs: number,
    moves: PageMove[],
    overtaking: Overtaking<Sequence> | null,
  ): PlannedChunk<Sequence> | null {
    const { roster, journal } = this.#parts;
    for (let parked = 0; parked < PARKED_MAX; parked++) {
      const admission = this.#nextAdmission(prompts, budget, nowMs, overtaking);
      if (admission.kind === "parked") {
        journal.waits(admission.sequence.id, admission.owner.id);
        continue;
      }
      this.#isBlocked = admission.kind === "blocked" && youngestPaused(roster.running) !== undefined;
      if (admission.kind !== "admitted") return null;
      const { sequence, tokens, move } = admission;
      if (move !== null) moves.push(move);
      roster.admitted(sequence);
      insertByArrival(prompts, sequence);
      return { sequence, count: tokens };
    }
    return null;
  }

  #nextAdmission(
    prompts: readonly Sequence[],
    budget: StepBudget,
    nowMs: number,
    overtaking: Overtaking<Sequence> | null,
  ): Admission {
    const { roster, options, journal } = this.#parts;
    const { queue, running, residency } = roster;
    const step = journal.totals.stepsTotal + 1;
    return admitNext({ queue, running, prompts, residency, options, budget, nowMs, step, overtaking });
  }

  #reclaimPaused(): void {
    const { roster } = this.#parts;
    this.#isBlocked = false;
    if (roster.queue.size === 0) return;
    const victim = youngestPaused(roster.running);
    if (victim !== undefined) roster.preempt(victim);
  }

  /** Writes down what was planned as a step for the device. */
  #step(
    planned: readonly PlannedChunk<Sequence>[],
    moves: readonly PageMove[],
    { skipped, deadlineMs }: StepBudget,
  ): PlannedStep {
    const { clock, journal, roster } = this.#parts;
    const { pool, pagesAvailable } = roster.residency;
    const startMs = clock.nowMs();
    const chunks = planned.map(({ sequence, count }): Chunk => {
      const start = sequence.computed;
      const end = start + count;
      sequence.lastChunkMs = startMs;
      sequence.skips = 0;
      return {
        sequence: sequence.id,
        start,
        tokens: sequence.tokensOf(start, end),
        pages: sequence.pageTable(Math.ceil(end / pool.pageTokens)),
        samples: end === sequence.length ? [sequence.sampleRow(count - 1)] : [],
        adapter: sequence.spec.adapter,
      };
    });
    const tokens = planned.reduce((sum, { count }) => sum + count, 0);
    this.#tokensLargest = Math.max(this.#tokensLargest, tokens);
    for (const id of skipped) roster.find(id)!.skips += 1;
    journal.skipped(skipped.size);
    const step = { number: journal.stepBegins(), moves, chunks };
    return { step, planned, startMs, deadlineMs, pagesUsed: pool.pagesTotal - pagesAvailable };
  }
}
