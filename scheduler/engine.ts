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
import { backOffSteps, securePages, youngestPaused } from "./local/preemption.ts";
import { insertByArrival } from "./local/priority-groups.ts";
import { Residency } from "./local/residency.ts";
import { Sequence } from "./local/sequence.ts";
import { type PlannedChunk, planChunks } from "./local/step-planner.ts";
import { WaitQueue } from "./local/wait-queue.ts";
import type { EngineMessage, EngineReport } from "./messages.ts";

/** An idle engine walks through all its records this often at most: whoever comes next would wait for it. */
const CHECK_EVERY_MS = 10_000;

interface StepInFlight {
  readonly step: Step;
  readonly planned: readonly PlannedChunk<Sequence>[];
  readonly startMs: number;
  readonly pagesUsed: number;
  retries: number;
}

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

  #inFlight: StepInFlight | null = null;
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
    this.#residency = new Residency(device.spec.pages, device.spec.pageTokens, this.#options.epoch);
    const { queue, ageingMs, trace } = this.#options;
    this.#journal = new Journal(trace);
    this.#queue = new WaitQueue(queue.kind === "groups" ? queue.groups : 1, ageingMs[0], (sequence) =>
      this.#residency.lookUp(sequence),
    );
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
    this.#queue.add(sequence, nowMs);
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
    this.#isTold = false;
  }

  #resume(sequence: Sequence): void {
    if (!sequence.isPaused) return;
    sequence.isPaused = false;
    if (sequence.state !== "running") this.#queue.add(sequence, this.#clock.nowMs());
  }

  /* ---- plan ---- */

  /** Decides the next step; null if there is nothing to compute. */
  #plan(): StepInFlight | null {
    for (;;) {
      if (this.#isBlocked) this.#reclaimPaused();
      const copies: PageCopy[] = [];
      const preemptionsBefore = this.#journal.totals.preemptionsTotal;
      securePages(this.#running, this.#residency, (victim) => this.#preempt(victim));
      // Whoever was just preempted for want of pages must not come back in the same breath.
      const mayAdmit = this.#journal.totals.preemptionsTotal === preemptionsBefore;
      const admit = (): Sequence | null => (mayAdmit ? this.#admit(copies) : null);
      const planned = planChunks(this.#running, admit, this.#options.batch.stepTokens);
      if (planned.length > 0) return this.#step(planned, copies);
      if (mayAdmit && !this.#isBlocked) return null;
    }
  }

  #step(planned: readonly PlannedChunk<Sequence>[], copies: readonly PageCopy[]): StepInFlight {
    const { pool } = this.#residency;
    const chunks = planned.map(({ sequence, count }): Chunk => {
      const start = sequence.computed;
      const end = start + count;
      return {
        sequence: sequence.id,
        start,
        tokens: sequence.tokens.subarray(start, end),
        pages: sequence.pageTable(Math.ceil(end / pool.pageTokens)),
        sample: end === sequence.length ? sequence.sampleRow() : null,
      };
    });
    const step = { number: this.#journal.stepBegins(), copies, chunks };
    const pagesUsed = pool.pagesTotal - this.#residency.pagesAvailable;
    return { step, planned, startMs: this.#clock.nowMs(), pagesUsed, retries: 0 };
  }

  /** Admits the next sequence that can run now; null if there is none. */
  #admit(copies: PageCopy[]): Sequence | null {
    for (;;) {
      const admission = this.#nextAdmission();
      if (admission.kind === "parked") {
        this.#journal.waits(admission.sequence.id, admission.owner.id);
        continue;
      }
      this.#isBlocked = admission.kind === "blocked" && youngestPaused(this.#running) !== undefined;
      if (admission.kind !== "admitted") return null;
      if (admission.copy !== null) copies.push(admission.copy);
      this.#begin(admission.sequence);
      return admission.sequence;
    }
  }

  #nextAdmission(): Admission {
    const nowMs = this.#clock.nowMs();
    const step = this.#journal.totals.stepsTotal + 1;
    return admitNext(this.#queue, this.#running, this.#residency, this.#options, nowMs, step);
  }

  #begin(sequence: Sequence): void {
    sequence.state = "running";
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
    victim.stepsUntil = this.#journal.totals.stepsTotal + 1 + backOffSteps(victim.preemptions);
    this.#leave(victim, true);
    victim.state = "waiting";
    if (!victim.isPaused) this.#queue.add(victim, this.#clock.nowMs());
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
    this.#journal.drew(sequence, drawn.token, drawn.logprobs, this.#clock.nowMs());
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

  #record({ step, startMs, planned, pagesUsed, retries }: StepInFlight, deviceMs: number): void {
    const { pagesTotal } = this.#residency.pool;
    const endMs = this.#clock.nowMs();
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
    else if (!sequence.isPaused) this.#queue.remove(sequence);
    sequence.state = "ended";
    this.#sequences.delete(sequence.id);
    this.#journal.ended(sequence.id, finish);
  }

  /** Takes a running sequence's pages away; who waited for its prefix looks again. */
  #leave(sequence: Sequence, keep: boolean): void {
    this.#residency.leave(sequence, keep);
    this.#running.splice(this.#running.indexOf(sequence), 1);
    this.#wake(sequence, Number.POSITIVE_INFINITY);
  }

  #wake(owner: Sequence, tokens: number): void {
    this.#queue.wake(owner, tokens, this.#clock.nowMs());
  }

  #tell(): void {
    this.#isTold = true;
    const { notices, cache } = this.#residency;
    this.#emit(this.#journal.report(this.#snapshot(), notices.take(cache)));
  }

  #snapshot(): Snapshot {
    let paused = 0;
    let tokensPending = 0;
    for (const { isPaused, state, length, computed, promptEnd } of this.#sequences.values()) {
      if (isPaused) paused += 1;
      tokensPending += state === "running" ? Math.max(0, promptEnd - computed) : length;
    }
    const { pool, cache } = this.#residency;
    return {
      waiting: this.#queue.size,
      running: this.#running.length,
      paused,
      pagesTotal: pool.pagesTotal,
      pagesFree: pool.pagesFree,
      pagesCached: cache.pagesEvictable,
      evictedPagesTotal: cache.pagesEvictedTotal,
      tokensPending,
    };
  }
}
