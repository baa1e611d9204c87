import type { CacheNotices } from "../cache/notice.ts";
import type { EngineId, SequenceId } from "../core.ts";
import type { E2Policy } from "../policy.ts";
import { cheapest, chooseE2, type E2Situation } from "./e2-choice.ts";
import { gangOrder } from "./gang.ts";
import type { IndexSpan } from "./index-span.ts";
import type { Member } from "./member.ts";
import type { OutputEstimate } from "./output-estimate.ts";
import type { Job, Outstanding } from "./outstanding.ts";
import { hashPages, saltHash } from "./page-hash.ts";
import type { Placement, PlacementCost, PlacementReason, PlacementRequest } from "./placement.ts";
import { type Match, PrefixIndex } from "./prefix-index.ts";
import { Rebalancer } from "./rebalance.ts";
import { surplus } from "./surplus.ts";

/** Sequences that an engine may have before it has computed its first step. */
const COLD_SEQUENCES = 4;
/** Placements or milliseconds between two looks at the balance; and placements per engine before the first. */
const REVIEW_PLACEMENTS = 50;
const REVIEW_MS = 1000;

/** How much of the work of the window counts where placements explore. Live work alone would put new prefixes where the
 *  queue happens to be short just now; but others will follow them there for long. */
const FOLLOW_SHARE = 0.3;

/** A sequence as E2 sees it. */
interface Asked {
  readonly request: PlacementRequest;
  readonly tokens: number;
  /** Hashes of the whole pages of its prompt. */
  readonly path: Float64Array;
  /** Tokens that its answer is expected to have. */
  readonly expected: number;
  /** What of its path others had before. */
  readonly known: Match | null;
}

/** A placement, and what counts on its engine from now on. */
export interface Decision {
  readonly placement: Placement;
  readonly job: Job;
}

/** E2 over live state: what each engine would cost, who is chosen, and what that changes. */
export class E2 {
  readonly #policy: E2Policy;
  /** By engine; whoever comes back is another member. */
  readonly #members: readonly Member[];
  readonly #work: Outstanding;
  readonly #estimate: OutputEstimate;
  readonly #pageTokens: number;
  readonly #index: PrefixIndex;
  readonly #rebalancer: Rebalancer;
  /** Pages found per engine by the last look at the index. */
  readonly #found: Int32Array;
  /** Without notices: promises and when they end, oldest first. */
  #expiries: { readonly end: IndexSpan; readonly engine: number; readonly atMs: number }[] = [];
  #expired = 0;
  /** Of the first placement. */
  #sinceMs = 0;
  #placements = 0;
  #reviewedAt = 0;
  #reviewedMs = 0;

  /** All engines have pages of one size. */
  constructor(policy: E2Policy, members: readonly Member[], work: Outstanding, estimate: OutputEstimate) {
    this.#policy = policy;
    this.#members = members;
    this.#work = work;
    this.#estimate = estimate;
    this.#pageTokens = members[0]!.spec.pageTokens;
    this.#index = new PrefixIndex(members.length, policy.windowMs);
    this.#rebalancer = new Rebalancer(policy, members.length);
    this.#found = new Int32Array(members.length);
  }

  get index(): PrefixIndex {
    return this.#index;
  }

  get redirects(): number {
    return this.#rebalancer.redirects;
  }

  /** Chooses among `there`, the engines that are there, at least one. */
  place(request: PlacementRequest, there: readonly EngineId[], nowMs: number): Decision {
    if (this.#placements === 0) this.#sinceMs = nowMs;
    this.#expire(nowMs);
    this.#review(there, nowMs);
    const asked = this.#ask(request);
    const costs = there.map((engine) => this.#cost(engine, asked, nowMs));
    if (there.length === 1) return this.#decide(asked, there[0]!, "only", costs, nowMs);
    const { engine, reason } = chooseE2(this.#policy, costs, this.#situation(asked, there, nowMs));
    return this.#decide(asked, engine, reason, costs, nowMs);
  }

  /** Places a sequence anew that waited elsewhere: where it costs least. */
  placeAgain(request: PlacementRequest, there: readonly EngineId[], nowMs: number): Decision {
    const asked = this.#ask(request);
    const costs = there.map((engine) => this.#cost(engine, asked, nowMs));
    const situation = this.#situation(asked, there, nowMs);
    const open = costs.filter(({ engine }) => situation.isOpen(engine));
    return this.#decide(asked, cheapest(open, situation).engine, "move", costs, nowMs);
  }

  /** Those of the waiting that should begin elsewhere. `waiting` by engine, in the order of placement. */
  surplus(
    waiting: readonly ReadonlyMap<SequenceId, Job>[],
    requestOf: (id: SequenceId) => PlacementRequest,
    there: readonly EngineId[],
    nowMs: number,
  ): SequenceId[] {
    const crowds = there.map((engine) => {
      const member = this.#members[engine]!;
      const context = this.#work.meanContext(engine);
      const decodeMs = member.decodeMs(this.#work.sequences(engine), context);
      const promptsMs =
        member.stretch(this.#work.decoding(engine), context) * this.#work.allPromptsMs(engine);
      const workMs = promptsMs + this.#work.decodesMs(engine, "throughput", decodeMs);
      return { engine, workMs, waiting: [...waiting[engine]!.keys()] };
    });
    return surplus(crowds, {
      costs: (id) => {
        const asked = this.#ask(requestOf(id));
        const situation = this.#situation(asked, there, nowMs);
        return there.filter(situation.isOpen).map((engine) => this.#cost(engine, asked, nowMs));
      },
      delayMs: (engine, tokens) => this.#delayMs(engine, tokens),
    });
  }

  /** Places sequences that belong together as the policy says; decisions are in the order of the requests. */
  placeGang(
    requests: readonly PlacementRequest[],
    there: readonly EngineId[],
    nowMs: number,
  ): readonly Decision[] {
    const { gang } = this.#policy;
    if (gang === "alone" || there.length === 1) {
      return requests.map((request) => this.place(request, there, nowMs));
    }
    const decisions: Decision[] = [];
    const works = requests.map(({ promptTokens, stop }) => promptTokens.length + stop.tokensMax);
    for (const index of gang === "list" ? gangOrder(works) : works.keys()) {
      const first = gang === "together" ? decisions[0] : undefined;
      decisions[index] = this.#placeMember(requests[index]!, there, first?.placement.engine ?? null, nowMs);
    }
    return decisions;
  }

  /** It was admitted: the engine had `cachedTokens` of its prompt in truth. */
  started(job: Job, cachedTokens: number, nowMs: number): void {
    const ms = this.#members[job.engine]!.promptWorkMs(job.context - cachedTokens, cachedTokens);
    this.#work.started(job, microseconds(ms));
    if (job.end !== null) this.#rebalancer.waited(job.end, nowMs - job.placedMs, nowMs);
  }

  /** Its first token is there: its prefix is where the engine says that it is. */
  settled({ end, engine }: Job): void {
    if (end !== null && this.#policy.notices) this.#index.settle(end, engine);
  }

  /** It is gone from its engine; `settled` if it had its first token there. */
  ended({ end, engine, isDecoding }: Job): void {
    if (end !== null && this.#policy.notices) this.#index.release(end, engine, isDecoding);
  }

  /** Takes in notices. False: the engine is to tell everything. */
  apply(engine: EngineId, notices: CacheNotices): boolean {
    return !this.#policy.notices || this.#index.apply(engine, notices);
  }

  /** The engine is gone; what was placed there has been settled. */
  lost(engine: EngineId): void {
    this.#rebalancer.lost(engine);
    const kept = this.#expiries.slice(this.#expired);
    for (const { end, engine: at } of kept) if (at === engine) this.#index.release(end, at, false);
    this.#expiries = kept.filter(({ engine: at }) => at !== engine);
    this.#expired = 0;
    this.#index.restart(engine, Number.NaN);
  }

  /** The engine is back, in its life number `epoch`. */
  joined(engine: EngineId, epoch: number): void {
    this.#index.restart(engine, epoch);
  }

  #placeMember(
    request: PlacementRequest,
    there: readonly EngineId[],
    wanted: EngineId | null,
    nowMs: number,
  ): Decision {
    const asked = this.#ask(request);
    const costs = there.map((engine) => this.#cost(engine, asked, nowMs));
    const situation = this.#situation(asked, there, nowMs);
    const open = costs.filter(({ engine }) => situation.isOpen(engine));
    return this.#decide(asked, wanted ?? cheapest(open, situation).engine, "gang", costs, nowMs);
  }

  #ask(request: PlacementRequest): Asked {
    const { promptTokens, drawnTokens, cacheSalt, stop } = request;
    const tokens = promptTokens.length;
    const pages = Math.floor(tokens / this.#pageTokens);
    const path = hashPages(promptTokens, 0, pages, this.#pageTokens, saltHash(cacheSalt));
    const likely = this.#estimate.expect(path[0], stop.tokensMax);
    const expected = Math.max(likely, drawnTokens.length + 1);
    return { request, tokens, path, expected, known: this.#index.match(path, this.#found) };
  }

  #cost(engine: EngineId, { request, tokens, expected }: Asked, nowMs: number): PlacementCost {
    const member = this.#members[engine]!;
    const work = this.#work;
    const { objective, tenant, tbtMs } = request.service;
    // The last token is always computed.
    const cachedPages = Math.min(this.#found[engine]!, Math.floor((tokens - 1) / this.#pageTokens));
    const cachedTokens = cachedPages * this.#pageTokens;
    const running = work.sequences(engine);
    const context = work.meanContext(engine) || tokens;
    const decodeMs = member.decodeMs(running + 1, context);
    const isWindow = this.#policy.load === "window";
    const bulkMs = work.laneMs(engine, "throughput", decodeMs);
    const isHarmed = this.#policy.harm && tbtMs !== null && bulkMs > 0 && work.targets(engine) === 0;
    const workMs = member.promptWorkMs(tokens - cachedTokens, cachedTokens);
    const newcomer = { objective, tenant, promptUs: microseconds(workMs) };
    const stretch = isWindow ? 1 : member.stretch(work.decoding(engine), context);
    const loadMs = isWindow
      ? member.windowMs(nowMs)
      : stretch * work.promptsMs(engine, newcomer) + work.decodesMs(engine, objective, decodeMs);
    const pages = Math.ceil((tokens + expected) / this.#pageTokens) - cachedPages;
    return {
      engine,
      cachedTokens,
      loadMs,
      evictMs: this.#policy.eviction === "none" ? 0 : this.#roomMs(engine, pages, decodeMs, nowMs),
      promptMs: stretch * workMs,
      decodeMs: expected * decodeMs,
      harmMs: isHarmed ? (1 - member.promptShare(tbtMs, running, context)) * bulkMs : 0,
      followMs: isWindow
        ? 0
        : FOLLOW_SHARE * member.busyShare(nowMs) * Math.min(nowMs - this.#sinceMs, this.#policy.windowMs),
    };
  }

  /** What it costs to make room for `needed` pages: evicting what others come back for; and for pages that the
   *  sequences there hold, waiting until as large a part of their work is done. */
  #roomMs(engine: EngineId, needed: number, decodeMs: number, nowMs: number): number {
    const member = this.#members[engine]!;
    const { pagesFree, pagesCached, spec } = member;
    const coming = this.#work.pages(engine);
    const pages = needed - Math.max(0, pagesFree - coming);
    if (pages <= 0) return 0;
    const size = this.#pageTokens;
    const recomputeMs = (count: number, first: number): number =>
      member.promptWorkMs(count * size, first * size);
    const evictMs = this.#index.evictionMs(engine, pages, member.hits.at(nowMs), nowMs, recomputeMs);
    const held = spec.pages - pagesFree - pagesCached + coming;
    const missing = Math.min(held, needed - (spec.pages - held));
    if (missing <= 0) return evictMs;
    return evictMs + (missing / held) * this.#work.workMs(engine, decodeMs);
  }

  #situation({ tokens, known }: Asked, there: readonly EngineId[], nowMs: number): E2Situation {
    const isRoomy = (engine: EngineId): boolean => this.#members[engine]!.fits(tokens);
    const isReady = (engine: EngineId): boolean =>
      isRoomy(engine) && (this.#members[engine]!.isWarm || this.#work.sequences(engine) < COLD_SEQUENCES);
    // Where nobody is ready, or it fits nowhere, that is no reason to choose.
    const isOpen = there.some(isReady) ? isReady : there.some(isRoomy) ? isRoomy : () => true;
    return {
      promptTokens: tokens,
      isOpen,
      isWarm: (engine) => this.#members[engine]!.isWarm,
      pagesUsed: (engine) => {
        const { spec, pagesFree } = this.#members[engine]!;
        return spec.pages - pagesFree + this.#work.pages(engine);
      },
      stepMs: (engine) => this.#members[engine]!.stepMs,
      delayMs: (engine, count) => this.#delayMs(engine, count),
      redirect: known === null ? null : this.#rebalancer.redirectOf(known.span),
      takeReplica: () => known !== null && this.#rebalancer.takeReplica(known.span),
      balance: this.#balance(there, nowMs),
    };
  }

  #delayMs(engine: EngineId, tokens: number): number {
    return this.#members[engine]!.promptWorkMs(tokens, 0) * Math.max(1, this.#work.sequences(engine));
  }

  /** Preble's ImbalR: the engine whose part of decode work is the largest, if it is above the limit. */
  #balance(there: readonly EngineId[], nowMs: number): EngineId | null {
    let most = this.#policy.imbalance ?? 1;
    let chosen: EngineId | null = null;
    if (this.#policy.imbalance === null) return null;
    for (const engine of there) {
      const { promptWork, decodeWork } = this.#members[engine]!;
      const decodeMs = decodeWork.at(nowMs);
      const share = decodeMs === 0 ? 0 : decodeMs / (decodeMs + promptWork.at(nowMs));
      if (share <= most) continue;
      most = share;
      chosen = engine;
    }
    return chosen;
  }

  #decide(
    { request, tokens, path, expected, known }: Asked,
    engine: EngineId,
    reason: PlacementReason,
    costs: readonly PlacementCost[],
    nowMs: number,
  ): Decision {
    const { decodeMs, cachedTokens } = costs.find((cost) => cost.engine === engine)!;
    const promptMs = this.#members[engine]!.promptWorkMs(tokens - cachedTokens, cachedTokens);
    const end = this.#index.promise(path, engine, nowMs);
    this.#placements += 1;
    this.#members[engine]!.placed(promptMs, decodeMs, nowMs);
    if (end !== null) this.#rebalancer.placed(end, known?.pages ?? 0, engine, promptMs + decodeMs, nowMs);
    if (end !== null && !this.#policy.notices) {
      this.#expiries.push({ end, engine, atMs: nowMs + this.#policy.windowMs });
    }
    const drawn = request.drawnTokens.length;
    const job: Job = {
      engine,
      objective: request.service.objective,
      tenant: request.service.tenant,
      hasTarget: request.service.tbtMs !== null,
      promptUs: microseconds(promptMs),
      pages: Math.ceil((tokens + expected - cachedTokens) / this.#pageTokens),
      context: tokens + drawn,
      drawn,
      isDecoding: false,
      expected,
      tokensMax: request.stop.tokensMax,
      prefix: path[0],
      placedMs: nowMs,
      end,
    };
    this.#work.placed(job);
    return { placement: { engine, reason, costs }, job };
  }

  #expire(nowMs: number): void {
    for (; this.#expired < this.#expiries.length; this.#expired++) {
      const { end, engine, atMs } = this.#expiries[this.#expired]!;
      if (atMs > nowMs) break;
      this.#index.release(end, engine, false);
    }
    if (this.#expired < 4096 || this.#expired < this.#expiries.length / 2) return;
    this.#expiries = this.#expiries.slice(this.#expired);
    this.#expired = 0;
  }

  #review(there: readonly EngineId[], nowMs: number): void {
    const { rebalance, replicate } = this.#policy;
    if (rebalance === null && replicate === null) return;
    if (there.length < 2 || this.#placements < REVIEW_PLACEMENTS * this.#members.length) return;
    const isDue =
      this.#placements - this.#reviewedAt >= REVIEW_PLACEMENTS || nowMs - this.#reviewedMs >= REVIEW_MS;
    if (!isDue) return;
    this.#reviewedAt = this.#placements;
    this.#reviewedMs = nowMs;
    const loads = there.map((engine) => {
      const member = this.#members[engine]!;
      const loadMs = member.windowMs(nowMs);
      if (this.#policy.load === "window") return { engine, loadMs, liveMs: loadMs };
      const decodeMs = member.decodeMs(this.#work.sequences(engine), this.#work.meanContext(engine));
      return { engine, loadMs, liveMs: this.#work.workMs(engine, decodeMs) };
    });
    this.#rebalancer.review(loads, nowMs);
  }
}

/** Whole microseconds: sums of them are exact. */
function microseconds(ms: number): number {
  return Math.round(1000 * ms);
}
