import type { Clock } from "./clock.ts";
import {
  assert,
  type Chunk,
  type Finish,
  type PageCopy,
  type Sampled,
  type SequenceId,
  type SequenceSpec,
  type Step,
  type StepResult,
} from "./core.ts";
import { type EngineCosts, shapeOf } from "./cost/cost-model.ts";
import { linearCost } from "./cost/linear.ts";
import type { Device } from "./device.ts";
import { type EngineOptions, type EngineSettings, resolveOptions } from "./engine-options.ts";
import { checkEngine, checkPageCounts } from "./integrity.ts";
import { Journal, type Snapshot } from "./journal.ts";
import { type Admission, admitNext, lengthLimit, refusal } from "./local/admission.ts";
import { insertByArrival } from "./local/arrival-list.ts";
import { backOffSteps, securePages, youngestPaused } from "./local/preemption.ts";
import { Residency } from "./local/residency.ts";
import { Sequence } from "./local/sequence.ts";
import { openBudget, type StepBudget, WholePrompts } from "./local/step-budget.ts";
import { type PlannedChunk, planDecodes, planPrompts } from "./local/step-planner.ts";
import { orderOf, WaitQueue } from "./local/wait-queue.ts";
import type { EngineMessage, EngineReport } from "./messages.ts";

/** An idle engine walks through all its records this often at most: whoever comes next would wait for it. */
const CHECK_EVERY_MS = 10_000;

interface StepInFlight {
  readonly step: Step;
  readonly planned: readonly PlannedChunk<Sequence>[];
  readonly startMs: number;
  readonly pagesUsed: number;
  /** When the first stream will have waited longer than its target. */
  readonly deadlineMs: number;
  retries: number;
}

/** Sequences that one step sets aside at most, to wait for another's prefix: so that a crowd does not hold a step up. */
const PARKED_MAX = 64;

/**
 * The loop of one device: admit, plan, start; apply, tell, and again.
 *
 * Its inputs are messages, the results of its device and the time of its clock; its output is reports. One
 * step is in flight at a time, and while it is, nothing that the step reads changes: messages only take note,
 * pages change hands when it is done. So a client that goes away has its pages back within one step.
 */
export class Engine {
  readonly #device: Device;
  readonly #clock: Clock;
  readonly #options: EngineOptions;
  readonly #emit: (report: EngineReport) => void;
  readonly #costs: EngineCosts;

  readonly #sequences = new Map<SequenceId, Sequence>();
  /** Those that hold pages, paused ones included, in order of arrival. */
  readonly #running: Sequence[] = [];
  readonly #residency: Residency;
  readonly #queue: WaitQueue;

  readonly #hasLanes: boolean;

  #inFlight: StepInFlight | null = null;
  /** Known tokens of those that hold no pages, and how many are paused, whether they hold any or not. */
  #tokensWaiting = 0;
  #paused = 0;
  #lostReason: string | null = null;
  /** Somebody could not be admitted for want of a slot or of pages: paused sequences give theirs up. */
  #isBlocked = false;
  /** No step has run since the records were checked. */
  #isChecked = true;
  /** No pause or preemption has changed the load since it was told. */
  #isTold = true;
  #nextCheckMs = Number.NEGATIVE_INFINITY;
  #arrivals = 0;
  readonly #journal: Journal;

  constructor(
    device: Device,
    clock: Clock,
    options: EngineSettings,
    emit: (report: EngineReport) => void,
    costs: EngineCosts = linearCost(5, 0.02),
  ) {
    this.#device = device;
    this.#clock = clock;
    this.#options = resolveOptions(options, device.spec);
    this.#emit = emit;
    this.#costs = costs;
    const { admission, epoch } = this.#options;
    this.#residency = new Residency(device.spec.pages, device.spec.pageTokens, admission.cache, epoch);
    const { queue, ageingMs, trace } = this.#options;
    this.#journal = new Journal(trace);
    this.#hasLanes = queue.kind === "lanes";
    this.#queue = new WaitQueue(orderOf(queue, ageingMs, (sequence) => this.#residency.lookUp(sequence)));
  }

  /** A step is in flight, or `run` would start one. */
  get busy(): boolean {
    if (this.#inFlight !== null) return true;
    return this.#queue.size > 0 || this.#running.some((sequence) => !sequence.isPaused);
  }

  /** Takes note of a message. Never starts a step and never reports: `run` does. */
  receive(message: EngineMessage): void {
    if (message.kind === "submit") this.#submit(message.sequence);
    else if (message.kind === "resync") {
      this.#residency.notices.resync();
      this.#isTold = false;
    } else {
      // Whoever sent the message may not know yet that the sequence has ended.
      const sequence = this.#sequences.get(message.sequence);
      if (sequence === undefined) return;
      if (message.kind === "abort") this.#abort(sequence);
      else if (message.kind === "pause") this.#pause(sequence);
      else this.#resume(sequence);
    }
    if (this.#options.integrity === "always") this.checkIntegrity();
  }

  /** Reports what messages have changed and starts a step, unless one is in flight or there is nothing to do.
   *  From then on the engine goes on by itself for as long as there is work; calling again does no harm. */
  run(): void {
    if (!this.#journal.isEmpty) this.#tell();
    if (this.#inFlight !== null) return;
    const planned = this.#plan();
    if (planned !== null) {
      this.#isChecked = false;
      this.#inFlight = planned;
      this.#device.start(planned.step, this.#done);
      return;
    }
    if (!this.#isTold) this.#tell();
    if (!this.#isChecked) this.#checkIdle();
  }

  /** Throws InvariantError if the engine's records contradict each other. */
  checkIntegrity(): void {
    checkEngine(this.#residency, this.#queue, this.#running, this.#sequences);
    let tokensWaiting = 0;
    let paused = 0;
    for (const { state, length, isPaused } of this.#sequences.values()) {
      if (state !== "running") tokensWaiting += length;
      if (isPaused) paused += 1;
    }
    assert(tokensWaiting === this.#tokensWaiting && paused === this.#paused, "running totals are right");
  }

  #checkIdle(): void {
    this.#isChecked = true;
    checkPageCounts(this.#residency, this.#running);
    const nowMs = this.#clock.nowMs();
    if (nowMs < this.#nextCheckMs) return;
    this.#nextCheckMs = nowMs + CHECK_EVERY_MS;
    this.checkIntegrity();
  }

  /* ---- messages ---- */

  #submit(spec: SequenceSpec): void {
    assert(!this.#sequences.has(spec.id), "a sequence is submitted once");
    const refused: Finish | null =
      this.#lostReason === null
        ? refusal(spec, this.#device.spec, this.#queue.size, this.#options.queueMax)
        : { kind: "failed", reason: this.#lostReason };
    if (refused !== null) {
      this.#journal.ended(spec.id, refused);
      return;
    }
    const nowMs = this.#clock.nowMs();
    const sequence = new Sequence(spec, this.#arrivals, nowMs);
    this.#arrivals += 1;
    this.#sequences.set(spec.id, sequence);
    this.#tokensWaiting += sequence.length;
    this.#queue.add(sequence);
  }

  #abort(sequence: Sequence): void {
    const isInFlight = this.#inFlight?.planned.some((chunk) => chunk.sequence === sequence) ?? false;
    if (isInFlight) sequence.isAborted = true;
    else this.#end(sequence, { kind: "aborted" }, true);
  }

  #pause(sequence: Sequence): void {
    if (sequence.isPaused) return;
    if (sequence.state === "running") this.#wake(sequence, Number.POSITIVE_INFINITY);
    else this.#queue.remove(sequence);
    sequence.isPaused = true;
    this.#paused += 1;
    this.#isTold = false;
  }

  #resume(sequence: Sequence): void {
    if (!sequence.isPaused) return;
    sequence.isPaused = false;
    this.#paused -= 1;
    if (sequence.state !== "running") this.#queue.add(sequence);
  }

  /* ---- plan ---- */

  /** Decides the next step; null if there is nothing to compute. */
  #plan(): StepInFlight | null {
    for (;;) {
      if (this.#isBlocked) this.#reclaimPaused();
      const nowMs = this.#clock.nowMs();
      this.#queue.beginStep();
      const copies: PageCopy[] = [];
      const isPromptsFirst = this.#isPromptsFirst();
      if (isPromptsFirst) {
        const budget = new WholePrompts(this.#wholeTokens(), this.#device.spec.stepTokensMax);
        const prompts = this.#planPrompts(budget, nowMs, copies);
        if (prompts.length > 0) return this.#step(prompts, copies, budget);
      }

      const preemptionsBefore = this.#journal.totals.preemptionsTotal;
      securePages(this.#running, this.#residency, this.#hasLanes, (victim) => this.#preempt(victim));
      // Whoever was just preempted for want of pages must not come back in the same breath.
      const mayAdmit = this.#journal.totals.preemptionsTotal === preemptionsBefore;
      const { batch } = this.#options;
      const budget = openBudget(batch, this.#running, this.#costs, nowMs, this.#promptTokens());
      const planned = planDecodes(this.#running, budget.skipped);
      if (!isPromptsFirst) planned.push(...this.#planPrompts(budget, nowMs, mayAdmit ? copies : null));
      if (planned.length > 0) return this.#step(planned, copies, budget);
      if (mayAdmit && !this.#isBlocked) return null;
    }
  }

  /** Whether decodes wait for whole prompts. */
  #isPromptsFirst(): boolean {
    const { batch } = this.#options;
    if (batch.kind !== "fixed") return batch.kind === "promptsFirst";
    return this.#residency.pagesAvailable > batch.bypass * this.#residency.pool.pagesTotal;
  }

  /** Tokens of a step of whole prompts. */
  #wholeTokens(): number {
    const { batch } = this.#options;
    return batch.kind === "promptsFirst" ? batch.stepTokens : this.#device.spec.stepTokensMax;
  }

  /** Chunks of prompts; nobody is admitted if `copies` is null. */
  #planPrompts(budget: StepBudget, nowMs: number, copies: PageCopy[] | null): PlannedChunk<Sequence>[] {
    const admit = (): PlannedChunk<Sequence> | null =>
      copies === null ? null : this.#admit(budget, nowMs, copies);
    return planPrompts(this.#running, admit, budget, { hasLanes: this.#hasLanes, nowMs });
  }

  /** Tokens that all prompts have still to compute, at most: what is cached of the waiting is not looked up. */
  #promptTokens(): number {
    let tokens = this.#tokensWaiting;
    for (const { behind } of this.#running) if (behind > 1) tokens += behind;
    return tokens;
  }

  #step(
    planned: readonly PlannedChunk<Sequence>[],
    copies: readonly PageCopy[],
    budget: StepBudget,
  ): StepInFlight {
    const { pool } = this.#residency;
    const startMs = this.#clock.nowMs();
    const chunks = planned.map(({ sequence, count }): Chunk => {
      const start = sequence.computed;
      const end = start + count;
      sequence.lastChunkMs = startMs;
      sequence.skips = 0;
      return {
        sequence: sequence.id,
        start,
        tokens: sequence.tokens.subarray(start, end),
        pages: sequence.pageTable(Math.ceil(end / pool.pageTokens)),
        sample: end === sequence.length ? sequence.sampleRow() : null,
      };
    });
    for (const id of budget.skipped) this.#sequences.get(id)!.skips += 1;
    this.#journal.skipped(budget.skipped.size);
    const step = { number: this.#journal.stepBegins(), copies, chunks };
    const pagesUsed = pool.pagesTotal - this.#residency.pagesAvailable;
    return { step, planned, startMs, deadlineMs: budget.deadlineMs, pagesUsed, retries: 0 };
  }

  /** Admits the next sequence that can run now; null if there is none. */
  #admit(budget: StepBudget, nowMs: number, copies: PageCopy[]): PlannedChunk<Sequence> | null {
    for (let parked = 0; parked < PARKED_MAX; parked++) {
      const admission = this.#nextAdmission(budget, nowMs);
      if (admission.kind === "parked") {
        this.#journal.waits(admission.sequence.id, admission.owner.id);
        continue;
      }
      this.#isBlocked = admission.kind === "blocked" && youngestPaused(this.#running) !== undefined;
      if (admission.kind !== "admitted") return null;
      const { sequence, tokens, copy } = admission;
      if (copy !== null) copies.push(copy);
      this.#begin(sequence, nowMs);
      return { sequence, count: tokens };
    }
    return null;
  }

  #nextAdmission(budget: StepBudget, nowMs: number): Admission {
    return admitNext({
      queue: this.#queue,
      running: this.#running,
      residency: this.#residency,
      options: this.#options,
      budget,
      nowMs,
      step: this.#journal.totals.stepsTotal + 1,
    });
  }

  #begin(sequence: Sequence, nowMs: number): void {
    sequence.state = "running";
    sequence.admittedMs = nowMs;
    sequence.admittedTokens = sequence.computed;
    this.#tokensWaiting -= sequence.length;
    insertByArrival(this.#running, sequence);
    this.#journal.admitted(sequence);
    sequence.wasStarted = true;
  }

  #reclaimPaused(): void {
    this.#isBlocked = false;
    if (this.#queue.size === 0) return;
    const victim = youngestPaused(this.#running);
    if (victim !== undefined) this.#preempt(victim);
  }

  #preempt(victim: Sequence): void {
    this.#isTold = false;
    this.#journal.preempted(victim.id);
    victim.preemptions += 1;
    const staysOut = this.#options.admission.backOff ? backOffSteps(victim.preemptions) : 0;
    victim.stepsUntil = this.#journal.totals.stepsTotal + 1 + staysOut;
    this.#leave(victim, true);
    victim.state = "waiting";
    this.#tokensWaiting += victim.length;
    if (!victim.isPaused) this.#queue.add(victim);
  }

  /* ---- apply ---- */

  readonly #done = (result: StepResult): void => {
    const inFlight = this.#inFlight;
    assert(inFlight !== null, "a device answers each step once");
    if (result.kind === "retry" && inFlight.retries < this.#options.retriesMax) {
      inFlight.retries += 1;
      this.#device.start(inFlight.step, this.#done);
      return;
    }
    this.#inFlight = null;
    this.#residency.endCopies();
    if (result.kind === "done") this.#apply(inFlight, result.sampled);
    else if (result.kind === "lost") this.#lose(result.reason);
    else
      this.#fail(
        inFlight.planned.map((chunk) => chunk.sequence),
        result.reason,
      );
    this.#record(inFlight, result.kind === "done" ? result.deviceMs : 0);
    if (this.#options.integrity === "always") this.checkIntegrity();
    this.#tell();
    this.run();
  };

  #apply({ planned, step }: StepInFlight, sampled: readonly Sampled[]): void {
    let row = 0;
    for (let i = 0; i < planned.length; i++) {
      const { sequence, count } = planned[i]!;
      sequence.computed += count;
      const drawn = step.chunks[i]!.sample === null ? null : sampled[row++];
      assert(drawn !== undefined, "a device answers every row");
      assert(drawn === null || drawn.sequence === sequence.id, "a device answers in the order of the chunks");
      if (sequence.isAborted) this.#end(sequence, { kind: "aborted" }, drawn?.kind !== "failed");
      else this.#advance(sequence, count, drawn);
    }
    assert(row === sampled.length, "a device answers no more than was asked");
  }

  #advance(sequence: Sequence, count: number, drawn: Sampled | null): void {
    if (drawn?.kind === "failed") {
      this.#end(sequence, { kind: "failed", reason: drawn.reason }, false);
      return;
    }
    if (sequence.computed - count < sequence.promptEnd) {
      this.#residency.publish(sequence);
      this.#wake(sequence, sequence.computed);
    }
    if (drawn === null) return;
    const nowMs = this.#clock.nowMs();
    this.#journal.drew(sequence, drawn.token, drawn.logprobs, nowMs);
    sequence.lastTokenMs = nowMs;
    sequence.account?.chargeOutput();
    sequence.append(drawn.token);
    const finish = this.#finish(sequence, drawn.token);
    if (finish !== null) this.#end(sequence, finish, true);
  }

  #finish(sequence: Sequence, token: number): Finish | null {
    const { stop } = sequence.spec;
    if (stop.stopTokens.includes(token)) return { kind: "stop", token };
    if (sequence.generated >= stop.tokensMax) return { kind: "length" };
    return sequence.length >= lengthLimit(this.#device.spec) ? { kind: "length" } : null;
  }

  #lose(reason: string): void {
    this.#lostReason = reason;
    this.#fail([...this.#sequences.values()], reason);
  }

  #fail(sequences: readonly Sequence[], reason: string): void {
    for (const sequence of sequences) {
      this.#end(sequence, sequence.isAborted ? { kind: "aborted" } : { kind: "failed", reason }, false);
    }
  }

  #record({ step, startMs, planned, pagesUsed, retries, deadlineMs }: StepInFlight, deviceMs: number): void {
    const { pagesTotal } = this.#residency.pool;
    const endMs = this.#clock.nowMs();
    if (endMs > deadlineMs) this.#journal.isLate();
    if (deviceMs > 0 && retries === 0) this.#costs.observe?.(shapeOf(step), endMs - startMs);
    const times = { startMs, endMs, deviceMs, pagesUsed, pagesTotal };
    this.#journal.stepDone(step, times, (index) => {
      const { start, tokens } = step.chunks[index]!;
      return tokens.length === 1 && start >= planned[index]!.sequence.spec.promptTokens.length;
    });
  }

  /* ---- ends ---- */

  /** Ends a sequence in whatever state it is. `keep`: what it computed is good, and goes to the cache. */
  #end(sequence: Sequence, finish: Finish, keep: boolean): void {
    if (sequence.state === "running") this.#leave(sequence, keep);
    else {
      this.#tokensWaiting -= sequence.length;
      if (!sequence.isPaused) this.#queue.remove(sequence);
    }
    if (sequence.isPaused) this.#paused -= 1;
    sequence.state = "ended";
    this.#sequences.delete(sequence.id);
    this.#journal.ended(sequence.id, finish);
  }

  /** Takes a running sequence's pages away; who waited for its prefix looks again. */
  #leave(sequence: Sequence, keep: boolean): void {
    const { account, admittedTokens, admittedMs } = sequence;
    account?.chargeOccupancy(admittedTokens, this.#clock.nowMs() - admittedMs);
    this.#residency.leave(sequence, keep);
    this.#running.splice(this.#running.indexOf(sequence), 1);
    this.#wake(sequence, Number.POSITIVE_INFINITY);
  }

  #wake(owner: Sequence, tokens: number): void {
    this.#queue.wake(owner, tokens);
  }

  #tell(): void {
    this.#isTold = true;
    const { notices, cache } = this.#residency;
    this.#emit(this.#journal.report(this.#snapshot(), notices.take(cache)));
  }

  #snapshot(): Snapshot {
    let tokensPending = this.#tokensWaiting;
    for (const { computed, promptEnd } of this.#running) {
      if (computed < promptEnd) tokensPending += promptEnd - computed;
    }
    const { pool, cache } = this.#residency;
    return {
      waiting: this.#queue.size,
      running: this.#running.length,
      paused: this.#paused,
      pagesTotal: pool.pagesTotal,
      pagesFree: pool.pagesFree,
      pagesCached: cache.pagesEvictable,
      evictedPagesTotal: cache.pagesEvictedTotal,
      tokensPending,
    };
  }
}
