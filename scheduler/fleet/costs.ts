import type { EngineId, Objective, SequenceSpec } from "../core.ts";
import { COLD_PART } from "../engine/queue/cold-gate.ts";
import { isMostly } from "./e2-choice.ts";
import type { EngineView, Standing } from "./engine-view.ts";
import type { Outstanding } from "./outstanding.ts";
import type { PlacementCost } from "./placement.ts";
import type { PrefixIndex } from "./prefix-index.ts";

/** Time for which a placement counts as a hit of its prefix, and as work of its engine. */
export const WINDOW_MS = 180_000;

/**
 * Share of an engine's sequences that a prompt delays by its whole time: others end before its turn, or wait
 * for others anyway.
 */
const DELAYED_SHARE = 0.5;

/**
 * Share of the sequences with a prefix, per engine that has it and one more, among which the delay of
 * computing it is divided: as many will find the new copy.
 */
const SHARED_WEIGHT = 0.5;

/** A sequence to be placed, and its estimates. */
export interface Incoming {
  readonly spec: SequenceSpec;
  /** Number of tokens of its prompt. */
  readonly tokens: number;
  /** Hashes of the whole pages of its prompt. */
  readonly path: Float64Array;
  /** Expected tokens of its answer. */
  readonly expected: number;
  /** True for a prefix hint, which has no waiting client yet. */
  readonly isHint: boolean;
}

/** Values of the sequence that are the same on every engine. */
interface Known {
  /** Pages of its prompt and answer. */
  readonly pages: number;
  /** Whole pages of its prompt that may be cached: the last token is always computed. */
  readonly cacheable: number;
  /** Length of its prefix that some engine has. */
  readonly tokens: number;
  /** Number of live sequences with that prefix, per engine that has some of it and one more. */
  readonly sharers: number;
}

/**
 * Costs of a sequence on each engine: Preble's L, M and P (placement.ts), and more. M needs a walk over the pages
 * that would be evicted, so it is computed on first use. A choice among many engines uses it for few (e2-choice.ts).
 */
export class Costs {
  readonly #views: readonly EngineView[];
  readonly #work: Outstanding;
  readonly #index: PrefixIndex;
  readonly #tenantReach: number;
  readonly #pageTokens: number;
  /** Pages per engine that the last look-up found: cached or in flight. */
  readonly #found: Int32Array;
  /** Pages among them that are cached now. */
  readonly #cached: Int32Array;
  readonly #costs: readonly EngineCost[];
  /** Costs of the last look-up whose M was computed. */
  readonly weighed: EngineCost[] = [];
  #nowMs = 0;

  /**
   * `views` by engine; an engine that comes back has a new one. `tenantReach`: fair-share tolerance in
   * tokens.
   */
  constructor(views: readonly EngineView[], work: Outstanding, index: PrefixIndex, tenantReach: number) {
    this.#views = views;
    this.#work = work;
    this.#index = index;
    this.#tenantReach = tenantReach;
    this.#pageTokens = views[0]!.spec.pageTokens;
    this.#found = new Int32Array(views.length);
    this.#cached = new Int32Array(views.length);
    this.#costs = views.map((_, engine) => new EngineCost(engine as EngineId, this));
  }

  /** Costs on the `live` engines. Valid until the next look-up. */
  look(incoming: Incoming, live: readonly EngineId[], nowMs: number): readonly EngineCost[] {
    this.#nowMs = nowMs;
    this.weighed.length = 0;
    const match = this.#index.match(incoming.path, this.#found, this.#cached);
    const { tokens, expected } = incoming;
    const known: Known = {
      pages: Math.ceil((tokens + expected) / this.#pageTokens),
      cacheable: Math.floor((tokens - 1) / this.#pageTokens),
      tokens: Math.min((match?.pages ?? 0) * this.#pageTokens, tokens - 1),
      sharers: match === null ? 0 : match.node.sequences / (match.node.holders + 1),
    };
    return live.map((engine) => this.#price(engine, incoming, known));
  }

  /**
   * M: cost of room for `needed` pages. Evicted pages are recomputed by the sequences that come back for them. Pages
   * in use are waited for until as large a share of the work there is done. The cold gate lets sequences with
   * cached prefixes overtake one without (engine/queue/cold-gate.ts), which multiplies its wait. A copy of a prefix
   * that evicts others pays only for its first use.
   */
  roomMs({ engine, pages: needed, offlinePages, tokenMs, forOthersMs, isSpill }: EngineCost): number {
    const view = this.#views[engine]!;
    const { pagesFree, pagesCached, spec } = view;
    const coming = this.#work.pages(engine);
    const pages = needed - offlinePages - Math.max(0, pagesFree - coming);
    if (pages <= 0) return 0;
    const size = this.#pageTokens;
    const recomputeMs = (count: number, first: number): number =>
      view.promptWorkMs(count * size, first * size);
    const hits = view.hits.at(this.#nowMs);
    const evictMs = this.#index.evictionMs(engine, pages, hits, this.#nowMs, recomputeMs);
    const held = spec.pages - pagesFree - pagesCached + coming;
    const missing = Math.min(held, needed - (spec.pages - held));
    const times = isSpill ? COLD_PART : 1;
    const waitMs = missing <= 0 ? 0 : times * (missing / held) * this.#work.workMs(engine, tokenMs);
    return evictMs + waitMs === 0 ? 0 : evictMs + waitMs + forOthersMs;
  }

  /** Load that a new sequence of `objective` meets on an engine; its `tokens` are the context where it is alone. */
  #stand(view: EngineView, engine: EngineId, objective: Objective, tokens: number): Standing {
    const { standing } = view;
    const work = this.#work;
    const changes = work.changes(engine);
    if (standing.changes === changes && standing.objective === objective) return standing;
    const running = work.sequences(engine, objective);
    const context = work.meanContext(engine, objective) || tokens;
    standing.running = running;
    standing.context = context;
    standing.tokenMs = view.decodeMs(running + 1, context);
    standing.offlineMs = work.offlineMs(engine, standing.tokenMs);
    standing.stretch = view.stretch(work.decoding(engine, objective), context);
    standing.offlinePages = Math.floor(work.offlineContext(engine, objective) / this.#pageTokens);
    standing.objective = objective;
    standing.changes = running === 0 ? -1 : changes;
    return standing;
  }

  #price(engine: EngineId, { spec, tokens, expected, isHint }: Incoming, known: Known): EngineCost {
    const cost = this.#costs[engine]!;
    const view = this.#views[engine]!;
    const work = this.#work;
    const { objective, tenant, tbtMs } = spec.service;
    const cachedPages = Math.min(this.#found[engine]!, known.cacheable);
    const cachedTokens = cachedPages * this.#pageTokens;
    const cachedNow = Math.min(this.#cached[engine]!, cachedPages) * this.#pageTokens;
    const { running, context, tokenMs, offlineMs, stretch, offlinePages } = this.#stand(
      view,
      engine,
      objective,
      tokens,
    );
    const isHarmed = tbtMs !== null && offlineMs > 0 && work.targets(engine) === 0;
    const workMs = view.promptWorkMs(tokens - cachedTokens, cachedTokens);
    // Bound on each other tenant's prompts that go first, beyond the total of this tenant: this prompt plus
    // the fair-share tolerance.
    const turnMs = workMs + view.promptWorkMs(this.#tenantReach, 0);
    cost.cachedTokens = cachedTokens;
    cost.isSpill = isMostly(known.tokens, tokens) && !isMostly(cachedTokens, tokens);
    cost.pages = known.pages - cachedPages;
    cost.offlinePages = offlinePages;
    cost.tokenMs = tokenMs;
    const beforeMs = work.promptsMs(engine, {
      objective,
      tenant,
      workUs: microseconds(workMs),
      turnUs: microseconds(turnMs),
    });
    // It may overtake prompts of others, but not the sequence in flight that computes its prefix.
    const awaitedMs = isHint ? 0 : view.promptWorkMs(cachedTokens - cachedNow, cachedNow);
    cost.loadMs =
      stretch * Math.max(beforeMs, awaitedMs) + work.tokensBeside(engine, objective, expected) * tokenMs;
    cost.promptMs = stretch * workMs;
    const sharedMs = view.promptWorkMs(Math.max(0, known.tokens - cachedTokens), cachedTokens);
    const delayed = DELAYED_SHARE * (running + 1) * stretch;
    cost.forOthersMs = delayed * (sharedMs - sharedMs / (1 + SHARED_WEIGHT * known.sharers));
    cost.delayMs = delayed * workMs - cost.forOthersMs;
    cost.decodeMs = expected * tokenMs;
    cost.harmMs = isHarmed ? (1 - view.promptShare(tbtMs, running, context)) * offlineMs : 0;
    cost.forget();
    return cost;
  }
}

/** Cost of a sequence on one engine; the next sequence overwrites it. */
export class EngineCost implements PlacementCost {
  readonly engine: EngineId;
  cachedTokens = 0;
  /** True if most of its prompt must be computed here, and is cached elsewhere. */
  isSpill = false;
  loadMs = 0;
  promptMs = 0;
  delayMs = 0;
  decodeMs = 0;
  harmMs = 0;
  /** Number of pages that it needs besides cached ones. */
  pages = 0;
  /** Number of pages for which offline sequences are preempted. */
  offlinePages = 0;
  /** Time of one token of an answer. */
  tokenMs = 0;
  /** Share of its delay that later sequences with the same prefix bear. */
  forOthersMs = 0;
  readonly #costs: Costs;
  #evictMs: number | null = null;

  constructor(engine: EngineId, costs: Costs) {
    this.engine = engine;
    this.#costs = costs;
  }

  get evictMs(): number {
    if (this.#evictMs === null) {
      this.#evictMs = this.#costs.roomMs(this);
      this.#costs.weighed.push(this);
    }
    return this.#evictMs;
  }

  /** Drops M, so that the next use computes it. */
  forget(): void {
    this.#evictMs = null;
  }

  /** A copy of the current values. */
  copy(): PlacementCost {
    const { engine, cachedTokens, loadMs, evictMs, promptMs, delayMs, decodeMs, harmMs } = this;
    return { engine, cachedTokens, loadMs, evictMs, promptMs, delayMs, decodeMs, harmMs };
  }
}

/** Whole microseconds: sums of them are exact. */
export function microseconds(ms: number): number {
  return Math.round(1000 * ms);
}
