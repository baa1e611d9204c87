import type { EngineId, Objective, SequenceSpec } from "../core.ts";
import { COLD_PART } from "../engine/queue/cold-gate.ts";
import { isMostly } from "./e2-choice.ts";
import type { EngineView, Standing } from "./engine-view.ts";
import type { Outstanding } from "./outstanding.ts";
import type { PlacementCost } from "./placement.ts";
import type { PrefixIndex } from "./prefix-index.ts";

/** How long a placement counts as a hit of its prefix, and as work of its engine. */
export const WINDOW_MS = 180_000;

/** Of the sequences on an engine, and the one that comes next, the part that a prompt delays by as long as it takes: others
 *  end before its turn comes, or are behind others all the same. */
const DELAYED_SHARE = 0.5;

/** What computing a prefix delays is counted once for this part of those sequences that begin with it now, on each engine
 *  that has it and one more: as many will find the new copy. */
const SHARED_WEIGHT = 0.5;

/** A sequence that is to be placed, and what is known of it beforehand. */
export interface Incoming {
  readonly spec: SequenceSpec;
  /** Of its prompt. */
  readonly tokens: number;
  /** Hashes of the whole pages of its prompt. */
  readonly path: Float64Array;
  /** Tokens that its answer is expected to have. */
  readonly expected: number;
  /** Nobody waits for it yet. */
  readonly isHint: boolean;
}

/** What engines have of its prompt. */
interface Known {
  /** Of its beginning, that some engine has. */
  readonly tokens: number;
  /** Sequences that are there now and begin like that, for each engine that has some of it and one more. */
  readonly sharers: number;
}

/**
 * What a sequence would cost on each engine. M, whose price is a walk through what would be evicted, is looked up when it
 * is read: a choice among many engines reads it of few (e2-choice.ts).
 */
export class Costs {
  readonly #views: readonly EngineView[];
  readonly #work: Outstanding;
  readonly #index: PrefixIndex;
  readonly #tenantReach: number;
  readonly #pageTokens: number;
  /** Pages found per engine by the last look at the index: there or promised, and there. */
  readonly #found: Int32Array;
  readonly #there: Int32Array;
  readonly #costs: readonly EngineCost[];
  #nowMs = 0;

  /** `views` by engine; one that comes back is another. `tenantReach`: tokens by which tenants are apart and still even. */
  constructor(views: readonly EngineView[], work: Outstanding, index: PrefixIndex, tenantReach: number) {
    this.#views = views;
    this.#work = work;
    this.#index = index;
    this.#tenantReach = tenantReach;
    this.#pageTokens = views[0]!.spec.pageTokens;
    this.#found = new Int32Array(views.length);
    this.#there = new Int32Array(views.length);
    this.#costs = views.map((_, engine) => new EngineCost(engine as EngineId, this));
  }

  /** By engine, of all that are `there`. Good until the next look. */
  look(incoming: Incoming, there: readonly EngineId[], nowMs: number): readonly EngineCost[] {
    this.#nowMs = nowMs;
    const match = this.#index.match(incoming.path, this.#found, this.#there);
    const known: Known = {
      tokens: Math.min((match?.pages ?? 0) * this.#pageTokens, incoming.tokens - 1),
      sharers: match === null ? 0 : match.node.sequences / (match.node.holders + 1),
    };
    return there.map((engine) => this.#price(engine, incoming, known));
  }

  /** What it costs to make room for `needed` pages: evicting what others come back for; and for pages that the
   *  sequences there hold, waiting until as large a part of their work is done. Where sequences find their prefixes they go
   *  on doing so, and the gate lets them pass one that does not (engine/queue/cold-gate.ts): it waits so many times as long. A copy of
   *  a prefix that pushes others out is worth no more than its first use. */
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

  /** What a sequence of `objective` finds there; `tokens` long, which counts where it is alone. */
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
    // The last token is always computed.
    const cachedPages = Math.min(this.#found[engine]!, Math.floor((tokens - 1) / this.#pageTokens));
    const cachedTokens = cachedPages * this.#pageTokens;
    const thereTokens = Math.min(this.#there[engine]!, cachedPages) * this.#pageTokens;
    const { running, context, tokenMs, offlineMs, stretch, offlinePages } = this.#stand(
      view,
      engine,
      objective,
      tokens,
    );
    const isHarmed = tbtMs !== null && offlineMs > 0 && work.targets(engine) === 0;
    const workMs = view.promptWorkMs(tokens - cachedTokens, cachedTokens);
    // Of another tenant's prompts as many come before its own as its tenant asks for, and those of even ones besides.
    const turnMs = workMs + view.promptWorkMs(this.#tenantReach, 0);
    cost.cachedTokens = cachedTokens;
    cost.isSpill = isMostly(known.tokens, tokens) && !isMostly(cachedTokens, tokens);
    cost.pages = Math.ceil((tokens + expected) / this.#pageTokens) - cachedPages;
    cost.offlinePages = offlinePages;
    cost.tokenMs = tokenMs;
    const beforeMs = work.promptsMs(engine, {
      objective,
      tenant,
      workUs: microseconds(workMs),
      turnUs: microseconds(turnMs),
    });
    // It passes others' prompts, but not the one that computes its own beginning.
    const awaitedMs = isHint ? 0 : view.promptWorkMs(cachedTokens - thereTokens, thereTokens);
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

/** What a sequence would cost on one engine; the next one's is written over it. */
export class EngineCost implements PlacementCost {
  readonly engine: EngineId;
  cachedTokens = 0;
  /** Whether most of its prompt must be computed here, and is cached elsewhere. */
  isSpill = false;
  loadMs = 0;
  promptMs = 0;
  delayMs = 0;
  decodeMs = 0;
  harmMs = 0;
  /** Pages that it needs besides those that are cached. */
  pages = 0;
  /** Pages that offline work gives up for it. */
  offlinePages = 0;
  /** Of one token of an answer. */
  tokenMs = 0;
  /** Of what its prompt delays, the part that is put down to others that will find the prefix there. */
  forOthersMs = 0;
  readonly #costs: Costs;
  #evictMs: number | null = null;

  constructor(engine: EngineId, costs: Costs) {
    this.engine = engine;
    this.#costs = costs;
  }

  get evictMs(): number {
    this.#evictMs ??= this.#costs.roomMs(this);
    return this.#evictMs;
  }

  /** Whether M was looked up. */
  get isWeighed(): boolean {
    return this.#evictMs !== null;
  }

  /** M is another now. */
  forget(): void {
    this.#evictMs = null;
  }

  /** As it is now. */
  copy(): PlacementCost {
    const { engine, cachedTokens, loadMs, evictMs, promptMs, delayMs, decodeMs, harmMs } = this;
    return { engine, cachedTokens, loadMs, evictMs, promptMs, delayMs, decodeMs, harmMs };
  }
}

/** Whole microseconds: sums of them are exact. */
export function microseconds(ms: number): number {
  return Math.round(1000 * ms);
}
