import type { CacheNotices } from "../cache/notice.ts";
import { assert, type EngineId, type SequenceId } from "../core.ts";
import type { CostModel } from "../cost/cost-model.ts";
import type { DeviceSpec } from "../device.ts";
import type { EngineLoad } from "../messages.ts";
import type { Policy } from "../policy.ts";
import { type Decision, E2 } from "./e2.ts";
import { Member } from "./member.ts";
import { OutputEstimate } from "./output-estimate.ts";
import { type Job, Outstanding } from "./outstanding.ts";
import type { Placement, PlacementReason, PlacementRequest } from "./placement.ts";
import type { PrefixIndex } from "./prefix-index.ts";

/** The parts of a policy that say where sequences go, and what becomes of them there. */
export type DispatchPolicy = Pick<Policy, "placement" | "queue" | "batch">;

/** What a dispatcher has done so far, and what it holds now. */
export interface DispatchStats {
  readonly placements: Readonly<Partial<Record<PlacementReason, number>>>;
  /** Of the prefix index. */
  readonly pages: number;
  readonly spans: number;
  /** Prefixes that are moved to another engine. */
  readonly redirects: number;
}

/**
 * Places sequences on engines. It knows each engine's live work, true prefix tree and cost by what it is told: its
 * own placements, and what engines report of starts, tokens, ends, loads and caches. The same calls in the same order
 * give the same placements.
 */
export class Dispatcher {
  readonly #policy: DispatchPolicy;
  readonly #members: Member[];
  readonly #isThere: boolean[];
  readonly #work: Outstanding;
  readonly #estimate = new OutputEstimate();
  readonly #jobs = new Map<SequenceId, Job>();
  /** By engine, those that were placed and have not begun; without those that it was asked to give back. */
  readonly #waiting: readonly Map<SequenceId, Job>[];
  /** Null: the policy looks at no costs, or there is nothing to choose from. */
  readonly #e2: E2 | null;
  readonly #counts: Partial<Record<PlacementReason, number>> = {};
  #turn = 0;

  constructor(
    policy: DispatchPolicy,
    engines: readonly { readonly spec: DeviceSpec; readonly costs: CostModel }[],
  ) {
    this.#policy = policy;
    this.#members = engines.map(({ spec, costs }) => memberOf(policy, spec, costs, 0));
    this.#isThere = engines.map(() => true);
    this.#waiting = engines.map(() => new Map());
    this.#work = new Outstanding(engines.length, policy.queue);
    const { placement } = policy;
    const isChoice = placement.kind === "e2" && engines.length > 1;
    this.#e2 = isChoice ? new E2(placement, this.#members, this.#work, this.#estimate) : null;
  }

  /** Chooses the engine of a new sequence, whose work counts there until it has `ended`. Null: no engine is there. */
  place(id: SequenceId, request: PlacementRequest, nowMs: number): Placement | null {
    const there = this.#there();
    if (there.length === 0) return null;
    const decision = this.#e2?.place(request, there, nowMs) ?? this.#simply(request, there, nowMs);
    return this.#count(id, decision);
  }

  /** Places a sequence anew that its engine has given back. Null: no engine is there. */
  placeAgain(id: SequenceId, request: PlacementRequest, nowMs: number): Placement | null {
    const there = this.#there();
    if (this.#e2 === null || there.length < 2) return this.place(id, request, nowMs);
    return this.#count(id, this.#e2.placeAgain(request, there, nowMs));
  }

  /** Sequences that wait where they would begin later than elsewhere, and should be taken back; each is told once. */
  surplus(requestOf: (id: SequenceId) => PlacementRequest, nowMs: number): readonly SequenceId[] {
    const there = this.#there();
    if (this.#e2 === null || there.length < 2) return [];
    const ids = this.#e2.surplus(this.#waiting, requestOf, there, nowMs);
    for (const id of ids) this.#waiting[this.#jobs.get(id)!.engine]!.delete(id);
    return ids;
  }

  /** Places sequences that belong together, as the policy says. */
  placeGang(
    ids: readonly SequenceId[],
    requests: readonly PlacementRequest[],
    nowMs: number,
  ): readonly (Placement | null)[] {
    const there = this.#there();
    if (this.#e2 === null || there.length === 0) {
      return ids.map((id, index) => this.place(id, requests[index]!, nowMs));
    }
    const decisions = this.#e2.placeGang(requests, there, nowMs);
    return decisions.map((decision, index) => this.#count(ids[index]!, decision));
  }

  /** The sequence was admitted by its engine, with that much of its prompt cached. */
  started(id: SequenceId, cachedTokens: number, nowMs: number): void {
    const job = this.#jobs.get(id);
    if (job === undefined) return;
    this.#waiting[job.engine]!.delete(id);
    this.#e2?.started(job, cachedTokens, nowMs);
  }

  /** The sequence drew a token. The notices of the same report come first. */
  drew(id: SequenceId): void {
    const job = this.#jobs.get(id);
    if (job === undefined) return;
    if (!job.isDecoding) this.#e2?.settled(job);
    this.#work.drew(job);
  }

  /** The sequence ended, or leaves its engine in another way. `isWhole`: its answer was as long as it wanted. */
  ended(id: SequenceId, isWhole: boolean): void {
    const job = this.#jobs.get(id);
    if (job === undefined) return;
    this.#jobs.delete(id);
    this.#waiting[job.engine]!.delete(id);
    this.#work.ended(job);
    this.#e2?.ended(job);
    if (isWhole) this.#estimate.ended(job.prefix, job.drawn);
  }

  /** An engine reported. The answer is what to send back to it. */
  reported(engine: EngineId, load: EngineLoad, notices: CacheNotices | null): "resync" | null {
    this.#members[engine]!.reported(load);
    if (notices === null || this.#e2 === null) return null;
    return this.#e2.apply(engine, notices) ? null : "resync";
  }

  /** The engine is gone: nothing is placed there, and what was there counts no longer. */
  lost(engine: EngineId): void {
    this.#isThere[engine] = false;
    for (const [id, job] of this.#jobs) if (job.engine === engine) this.ended(id, false);
    this.#e2?.lost(engine);
  }

  /** The engine is back, empty, in its life number `epoch`. */
  joined(engine: EngineId, spec: DeviceSpec, epoch: number, nowMs: number): void {
    assert(!this.#isThere[engine], "only a lost engine comes back");
    this.#isThere[engine] = true;
    this.#members[engine] = memberOf(this.#policy, spec, this.#members[engine]!.costs, nowMs);
    this.#e2?.joined(engine, epoch);
  }

  stats(): DispatchStats {
    const { pages, spans } = this.#e2?.index.size ?? { pages: 0, spans: 0 };
    return { placements: { ...this.#counts }, pages, spans, redirects: this.#e2?.redirects ?? 0 };
  }

  /** Milliseconds of work that were placed on the engine and are not done, as predicted. For checks and pictures. */
  workMs(engine: EngineId): number {
    const member = this.#members[engine]!;
    const decodeMs = member.decodeMs(this.#work.sequences(engine), this.#work.meanContext(engine));
    return this.#work.workMs(engine, decodeMs);
  }

  /** Where prefixes are; null where nobody needs to know. For checks and pictures. */
  get index(): PrefixIndex | null {
    return this.#e2?.index ?? null;
  }

  #there(): EngineId[] {
    const there: EngineId[] = [];
    for (let engine = 0; engine < this.#isThere.length; engine++) {
      if (this.#isThere[engine]) there.push(engine as EngineId);
    }
    return there;
  }

  #count(id: SequenceId, { placement, job }: Decision): Placement {
    assert(!this.#jobs.has(id), "a sequence is in one place");
    this.#jobs.set(id, job);
    this.#waiting[job.engine]!.set(id, job);
    this.#counts[placement.reason] = (this.#counts[placement.reason] ?? 0) + 1;
    return placement;
  }

  /** By turn, or where the fewest sequences are. */
  #simply(request: PlacementRequest, there: readonly EngineId[], nowMs: number): Decision {
    let engine = there[0]!;
    if (this.#policy.placement.kind === "turn") {
      engine = there.find((other) => other >= this.#turn) ?? engine;
      this.#turn = (engine + 1) % this.#members.length;
    } else {
      for (const other of there) {
        if (this.#work.sequences(other) < this.#work.sequences(engine)) engine = other;
      }
    }
    const isOnly = there.length === 1;
    const job = jobOf(request, engine, nowMs);
    this.#work.placed(job);
    const reason = isOnly ? "only" : this.#policy.placement.kind === "turn" ? "turn" : "explore";
    return { placement: { engine, reason, costs: [] }, job };
  }
}

function memberOf(
  { placement, batch }: DispatchPolicy,
  spec: DeviceSpec,
  costs: CostModel,
  nowMs: number,
): Member {
  return new Member(spec, costs, batch, placement.kind === "e2" ? placement.windowMs : 1, nowMs);
}

/** What is counted of a sequence where nobody asks for costs. */
function jobOf(
  { service, stop, promptTokens, drawnTokens }: PlacementRequest,
  engine: EngineId,
  placedMs: number,
): Job {
  return {
    engine,
    objective: service.objective,
    tenant: service.tenant,
    hasTarget: service.tbtMs !== null,
    promptUs: 0,
    pages: 0,
    context: promptTokens.length + drawnTokens.length,
    drawn: drawnTokens.length,
    isDecoding: false,
    expected: drawnTokens.length,
    tokensMax: stop.tokensMax,
    prefix: undefined,
    placedMs,
    end: null,
  };
}
