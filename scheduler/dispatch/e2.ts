import type { CacheNotices } from "../cache/notice.ts";
import type { EngineId, SequenceId } from "../core.ts";
import type { DeviceSpec } from "../device.ts";
import type { EngineLoad } from "../messages.ts";
import type { BatchPolicy, QueuePolicy } from "../policy.ts";
import { cheapest, chooseE2, type E2Situation, isMostly } from "./e2-choice.ts";
import { gangOrder } from "./gang.ts";
import { Member } from "./member.ts";
import { OutputEstimate } from "./output-estimate.ts";
import { type Job, Outstanding } from "./outstanding.ts";
import { hashPages, saltHash } from "./page-hash.ts";
import type { Placement, PlacementCost, PlacementReason, PlacementRequest } from "./placement.ts";
import type { PlaceableEngine, PlacementRule } from "./placement-rule.ts";
import { PrefixIndex } from "./prefix-index.ts";
import { surplus } from "./surplus.ts";

/** How long a placement counts as a hit of its prefix, and as work of its engine. */
export const WINDOW_MS = 180_000;

/** Sequences that an engine may have before it has computed its first step. */
const COLD_SEQUENCES = 4;
/** Of the sequences on an engine, and the one that comes next, the part that a prompt delays by as long as it takes: others
 *  end before its turn comes, or are behind others all the same. */
const DELAYED_SHARE = 0.5;

/** How much of the work of the window counts where a prompt is new to all engines. Live work alone would put new prefixes where the
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
  /** Whether some engine has more of its prompt than is missing there. */
  readonly isKnown: boolean;
}

/**
 * E2 (Preble, arXiv:2407.00023 §3.2) over live state: what each engine would cost, which one is chosen, and what that
 * changes. Differences from the paper are in docs/papers/preble.md; the paper's own rule is baselines/preble.ts.
 */
export class E2 implements PlacementRule {
  readonly index: PrefixIndex;
  readonly #batch: BatchPolicy;
  /** By engine; one that comes back is another member. */
  readonly #members: Member[];
  readonly #work: Outstanding;
  readonly #estimate = new OutputEstimate();
  readonly #jobs = new Map<SequenceId, Job>();
  /** By engine, those that were placed and have not begun; without those that it was asked to give back. */
  readonly #waiting: readonly Map<SequenceId, Job>[];
  readonly #pageTokens: number;
  /** Pages found per engine by the last look at the index. */
  readonly #found: Int32Array;
  /** Of the first placement. */
  #sinceMs: number | null = null;

  /** All engines have pages of one size. `queue` and `batch`: in which order and steps engines compute prompts. */
  constructor(engines: readonly PlaceableEngine[], queue: QueuePolicy, batch: BatchPolicy) {
    this.#batch = batch;
    this.#members = engines.map(({ spec, costs }) => new Member(spec, costs, batch, WINDOW_MS, 0));
    this.#work = new Outstanding(engines.length, queue);
    this.#waiting = engines.map(() => new Map());
    this.#pageTokens = engines[0]!.spec.pageTokens;
    this.index = new PrefixIndex(engines.length, WINDOW_MS);
    this.#found = new Int32Array(engines.length);
  }

  place(id: SequenceId, request: PlacementRequest, there: readonly EngineId[], nowMs: number): Placement {
    this.#sinceMs ??= nowMs;
    const asked = this.#ask(request);
    const costs = there.map((engine) => this.#cost(engine, asked, nowMs));
    const { engine, reason } = chooseE2(costs, this.#situation(asked, there));
    return this.#decide(id, asked, engine, reason, costs, nowMs);
  }

  /** Where it costs least. */
  placeAgain(
    id: SequenceId,
    request: PlacementRequest,
    there: readonly EngineId[],
    nowMs: number,
  ): Placement {
    return this.#placeCheapest(id, request, "move", there, nowMs);
  }

  /** By list scheduling (gang.ts). */
  placeGang(
    ids: readonly SequenceId[],
    requests: readonly PlacementRequest[],
    there: readonly EngineId[],
    nowMs: number,
  ): readonly Placement[] {
    const placements: Placement[] = [];
    for (const index of gangOrder(
      requests.map(({ promptTokens, stop }) => promptTokens.length + stop.tokensMax),
    )) {
      placements[index] = this.#placeCheapest(ids[index]!, requests[index]!, "gang", there, nowMs);
    }
    return placements;
  }

  surplus(
    requestOf: (id: SequenceId) => PlacementRequest,
    there: readonly EngineId[],
    nowMs: number,
  ): readonly SequenceId[] {
    const crowds = there.map((engine) => {
      const member = this.#members[engine]!;
      const context = this.#work.meanContext(engine);
      const decodeMs = member.decodeMs(this.#work.sequences(engine), context);
      const promptsMs =
        member.stretch(this.#work.decoding(engine), context) * this.#work.allPromptsMs(engine);
      const workMs = promptsMs + this.#work.decodesMs(engine, "throughput", decodeMs);
      return { engine, workMs, waiting: [...this.#waiting[engine]!.keys()] };
    });
    const ids = surplus(crowds, (id) => {
      const asked = this.#ask(requestOf(id));
      const { isOpen } = this.#situation(asked, there);
      return there.filter(isOpen).map((engine) => this.#cost(engine, asked, nowMs));
    });
    for (const id of ids) this.#waiting[this.#jobs.get(id)!.engine]!.delete(id);
    return ids;
  }

  started(id: SequenceId, cachedTokens: number): void {
    const job = this.#jobs.get(id)!;
    this.#waiting[job.engine]!.delete(id);
    const ms = this.#members[job.engine]!.promptWorkMs(job.context - cachedTokens, cachedTokens);
    this.#work.started(job, microseconds(ms));
  }

  drew(id: SequenceId): void {
    const job = this.#jobs.get(id)!;
    // With its first token its prefix is where the engine says that it is.
    if (!job.isDecoding && job.end !== null) this.index.settle(job.end, job.engine);
    this.#work.drew(job);
  }

  ended(id: SequenceId, isWhole: boolean): void {
    const job = this.#jobs.get(id)!;
    this.#jobs.delete(id);
    this.#waiting[job.engine]!.delete(id);
    this.#work.ended(job);
    if (job.end !== null) this.index.release(job.end, job.engine, job.isDecoding);
    if (isWhole) this.#estimate.ended(job.prefix, job.drawn);
  }

  reported(engine: EngineId, load: EngineLoad): void {
    this.#members[engine]!.reported(load);
  }

  noticed(engine: EngineId, notices: CacheNotices): boolean {
    return this.index.apply(engine, notices);
  }

  lost(engine: EngineId): void {
    this.index.restart(engine, Number.NaN);
  }

  joined(engine: EngineId, spec: DeviceSpec, epoch: number, nowMs: number): void {
    this.#members[engine] = new Member(spec, this.#members[engine]!.costs, this.#batch, WINDOW_MS, nowMs);
    this.index.restart(engine, epoch);
  }

  workMs(engine: EngineId): number {
    const decodeMs = this.#members[engine]!.decodeMs(
      this.#work.sequences(engine),
      this.#work.meanContext(engine),
    );
    return this.#work.workMs(engine, decodeMs);
  }

  #placeCheapest(
    id: SequenceId,
    request: PlacementRequest,
    reason: PlacementReason,
    there: readonly EngineId[],
    nowMs: number,
  ): Placement {
    const asked = this.#ask(request);
    const costs = there.map((engine) => this.#cost(engine, asked, nowMs));
    const situation = this.#situation(asked, there);
    const open = costs.filter(({ engine }) => situation.isOpen(engine));
    return this.#decide(id, asked, cheapest(open, situation).engine, reason, costs, nowMs);
  }

  #ask(request: PlacementRequest): Asked {
    const { promptTokens, drawnTokens, cacheSalt, stop } = request;
    const tokens = promptTokens.length;
    const pages = Math.floor(tokens / this.#pageTokens);
    const path = hashPages(promptTokens, 0, pages, this.#pageTokens, saltHash(cacheSalt));
    const likely = this.#estimate.expect(path[0], stop.tokensMax);
    const expected = Math.max(likely, drawnTokens.length + 1);
    this.index.match(path, this.#found);
    const isKnown = this.#found.some((found) => isMostly(found * this.#pageTokens, tokens));
    return { request, tokens, path, expected, isKnown };
  }

  #cost(engine: EngineId, { request, tokens, expected, isKnown }: Asked, nowMs: number): PlacementCost {
    const member = this.#members[engine]!;
    const work = this.#work;
    const { objective, tenant, tbtMs } = request.service;
    // The last token is always computed.
    const cachedPages = Math.min(this.#found[engine]!, Math.floor((tokens - 1) / this.#pageTokens));
    const cachedTokens = cachedPages * this.#pageTokens;
    const running = work.sequences(engine);
    const context = work.meanContext(engine) || tokens;
    const decodeMs = member.decodeMs(running + 1, context);
    const bulkMs = work.laneMs(engine, "throughput", decodeMs);
    const isHarmed = tbtMs !== null && bulkMs > 0 && work.targets(engine) === 0;
    const workMs = member.promptWorkMs(tokens - cachedTokens, cachedTokens);
    const newcomer = { objective, tenant, promptUs: microseconds(workMs) };
    const stretch = member.stretch(work.decoding(engine), context);
    const loadMs = stretch * work.promptsMs(engine, newcomer) + work.decodesMs(engine, objective, decodeMs);
    const pages = Math.ceil((tokens + expected) / this.#pageTokens) - cachedPages;
    return {
      engine,
      cachedTokens,
      loadMs,
      evictMs: this.#roomMs(engine, pages, decodeMs, nowMs),
      promptMs: stretch * workMs,
      delayMs: DELAYED_SHARE * (running + 1) * stretch * workMs,
      decodeMs: expected * decodeMs,
      harmMs: isHarmed ? (1 - member.promptShare(tbtMs, running, context)) * bulkMs : 0,
      followMs: isKnown
        ? 0
        : FOLLOW_SHARE * member.busyShare(nowMs) * Math.min(nowMs - (this.#sinceMs ?? nowMs), WINDOW_MS),
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
    const evictMs = this.index.evictionMs(engine, pages, member.hits.at(nowMs), nowMs, recomputeMs);
    const held = spec.pages - pagesFree - pagesCached + coming;
    const missing = Math.min(held, needed - (spec.pages - held));
    if (missing <= 0) return evictMs;
    return evictMs + (missing / held) * this.#work.workMs(engine, decodeMs);
  }

  #situation({ tokens }: Asked, there: readonly EngineId[]): E2Situation {
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
    };
  }

  #decide(
    id: SequenceId,
    { request, tokens, path, expected }: Asked,
    engine: EngineId,
    reason: PlacementReason,
    costs: readonly PlacementCost[],
    nowMs: number,
  ): Placement {
    const { decodeMs, cachedTokens } = costs.find((cost) => cost.engine === engine)!;
    const promptMs = this.#members[engine]!.promptWorkMs(tokens - cachedTokens, cachedTokens);
    const end = this.index.promise(path, engine, nowMs);
    this.#members[engine]!.placed(promptMs, decodeMs, nowMs);
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
    this.#jobs.set(id, job);
    this.#waiting[engine]!.set(id, job);
    return { engine, reason, costs };
  }
}

/** Whole microseconds: sums of them are exact. */
function microseconds(ms: number): number {
  return Math.round(1000 * ms);
}
