import type { CacheNotices } from "../cache/notice.ts";
import { hashPages, keyHash } from "../cache/page-hash.ts";
import { cacheKeyOf, type EngineId, type SequenceId } from "../core.ts";
import type { DeviceSpec } from "../device.ts";
import type { EngineLoad } from "../messages.ts";
import type { BatchPolicy, LanesPolicy } from "../policy.ts";
import { type Asked, Costs, type EngineCost, microseconds, WINDOW_MS } from "./costs.ts";
import { cheapest, chooseE2, type E2Situation } from "./e2-choice.ts";
import { gangOrder } from "./gang.ts";
import { Member } from "./member.ts";
import { OutputEstimate } from "./output-estimate.ts";
import { type Job, Outstanding } from "./outstanding.ts";
import type { Placement, PlacementReason, PlacementRequest } from "./placement.ts";
import type { PlaceableEngine, PlacementRule } from "./placement-rule.ts";
import { PrefixIndex } from "./prefix-index.ts";
import { surplus } from "./surplus.ts";

/** Sequences that an engine may have before it has computed its first step. */
const COLD_SEQUENCES = 4;
/** Of so many engines every cost is told with a placement. */
const TOLD_ENGINES = 8;

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
  readonly #costs: Costs;

  /** All engines have pages of one size. `lanes` and `batch`: by what shares and in which steps engines compute prompts. */
  constructor(engines: readonly PlaceableEngine[], lanes: LanesPolicy["lanes"], batch: BatchPolicy) {
    this.#batch = batch;
    this.#members = engines.map(({ spec, costs }) => new Member(spec, costs, batch, WINDOW_MS));
    this.#work = new Outstanding(engines.length, lanes);
    this.#waiting = engines.map(() => new Map());
    this.#pageTokens = engines[0]!.spec.pageTokens;
    this.index = new PrefixIndex(engines.length, WINDOW_MS);
    this.#costs = new Costs(this.#members, this.#work, this.index);
  }

  place(id: SequenceId, request: PlacementRequest, there: readonly EngineId[], nowMs: number): Placement {
    const asked = this.#ask(request);
    const costs = this.#costs.look(asked, this.#open(asked, there), nowMs);
    const { engine, reason } = chooseE2(costs, this.#situation(asked));
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
      return this.#costs.look(asked, this.#open(asked, there), nowMs);
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

  joined(engine: EngineId, spec: DeviceSpec, epoch: number): void {
    this.#members[engine] = new Member(spec, this.#members[engine]!.costs, this.#batch, WINDOW_MS);
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
    const costs = this.#costs.look(asked, this.#open(asked, there), nowMs);
    const { engine } = cheapest(costs, this.#situation(asked));
    return this.#decide(id, asked, engine, reason, costs, nowMs);
  }

  #ask(request: PlacementRequest): Asked {
    const { promptTokens, drawnTokens, stop } = request;
    const tokens = promptTokens.length;
    const pages = Math.floor(tokens / this.#pageTokens);
    const path = hashPages(promptTokens, 0, pages, this.#pageTokens, keyHash(cacheKeyOf(request)));
    const likely = this.#estimate.expect(path[0], stop.tokensMax);
    const expected = Math.max(likely, drawnTokens.length + 1);
    return { request, tokens, path, expected };
  }

  /** Engines that may have it. Where nobody is ready, or it fits nowhere, that is no reason to choose. */
  #open({ tokens }: Asked, there: readonly EngineId[]): readonly EngineId[] {
    const roomy = there.filter((engine) => this.#members[engine]!.fits(tokens));
    const ready = roomy.filter(
      (engine) => this.#members[engine]!.isWarm || this.#work.sequences(engine) < COLD_SEQUENCES,
    );
    return ready.length > 0 ? ready : roomy.length > 0 ? roomy : there;
  }

  #situation({ tokens }: Asked): E2Situation {
    return {
      promptTokens: tokens,
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
    costs: readonly EngineCost[],
    nowMs: number,
  ): Placement {
    const { cachedTokens } = costs.find((cost) => cost.engine === engine)!;
    const told = costs.filter((cost) => costs.length <= TOLD_ENGINES || cost.isWeighed);
    const placement = { engine, reason, costs: told.map((cost) => cost.copy()) };
    const promptMs = this.#members[engine]!.promptWorkMs(tokens - cachedTokens, cachedTokens);
    const end = this.index.promise(path, engine, nowMs);
    this.#members[engine]!.placed(nowMs);
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
      end,
    };
    this.#work.placed(job);
    this.#jobs.set(id, job);
    this.#waiting[engine]!.set(id, job);
    return placement;
  }
}
