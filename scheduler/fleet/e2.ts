import type { KvEvents } from "../cache/kv-event-log.ts";
import { hashPrompt } from "../cache/page-hash.ts";
import {
  type EngineId,
  type PrefixHint,
  type SequenceId,
  type SequenceSpec,
  type Service,
  sequenceOfHint,
  sharingOf,
} from "../core.ts";
import type { DeviceSpec } from "../device.ts";
import type { EngineLoad } from "../messages.ts";
import type { BatchPolicy, LanesPolicy } from "../policy.ts";
import { Costs, type EngineCost, type Incoming, microseconds, WINDOW_MS } from "./costs.ts";
import { cheapest, chooseE2, type E2Situation, taskGroupOrder } from "./e2-choice.ts";
import { EngineView } from "./engine-view.ts";
import type { IndexNode } from "./index-node.ts";
import { OutputEstimate } from "./output-estimate.ts";
import { Outstanding, type Work } from "./outstanding.ts";
import type { Placement, PlacementReason } from "./placement.ts";
import type { PlaceableEngine, PlacementRule } from "./placement-rule.ts";
import { PrefixIndex } from "./prefix-index.ts";
import { surplus } from "./surplus.ts";

/** Most sequences of an engine that has not computed a step yet. */
const COLD_SEQUENCES = 4;
/** Most engines whose costs are all reported with a placement. */
const REPORTED_ENGINES = 8;

/** Placement of a prefix hint. */
interface InFlight {
  readonly engine: EngineId;
  /** Prefill cost of the uncached part, in microseconds. */
  readonly promptUs: number;
  readonly end: IndexNode | null;
}

/** Rules for the order of turns on an engine, as far as placement uses them. */
export type TurnRules = Pick<LanesPolicy, "lanes" | "tenantReach">;

/**
 * E2 (Preble, arXiv:2407.00023 §3.2) over live state: the costs of each engine, the choice, and its effects.
 * Differences from the paper are in docs/papers/preble.md; the paper's own rule is
 * simulation/baselines/preble.ts.
 */
export class E2 implements PlacementRule {
  readonly index: PrefixIndex;
  readonly #batch: BatchPolicy;
  /** Views by engine; an engine that comes back has a new one. */
  readonly #views: EngineView[];
  readonly #outstanding: Outstanding;
  readonly #estimate = new OutputEstimate();
  /** Work of every sequence that was placed and has not ended. */
  readonly #work = new Map<SequenceId, Work>();
  /** Placed prefix hints that are computed ahead. */
  readonly #inFlight = new Map<SequenceId, InFlight>();
  /** Total of their prefill costs, by engine. */
  readonly #inFlightUs: number[];
  /** Waiting sequences by engine, except those that it was asked to return. */
  readonly #waiting: readonly Map<SequenceId, Work>[];
  readonly #pageTokens: number;
  readonly #costs: Costs;

  /**
   * All engines have pages of one size. `turns` and `batch`: by what shares and in which steps engines
   * compute prompts.
   */
  constructor(engines: readonly PlaceableEngine[], turns: TurnRules, batch: BatchPolicy) {
    this.#batch = batch;
    this.#views = engines.map(({ spec, costs }) => new EngineView(spec, costs, batch, WINDOW_MS));
    this.#outstanding = new Outstanding(engines.length, turns.lanes);
    this.#waiting = engines.map(() => new Map());
    this.#inFlightUs = engines.map(() => 0);
    this.#pageTokens = engines[0]!.spec.pageTokens;
    this.index = new PrefixIndex(engines.length, WINDOW_MS);
    this.#costs = new Costs(this.#views, this.#outstanding, this.index, turns.tenantReach);
  }

  place(spec: SequenceSpec, live: readonly EngineId[], nowMs: number): Placement {
    const incoming = this.#incoming(spec);
    const costs = this.#costs.look(incoming, this.#open(incoming, live), nowMs);
    const { engine, reason } = chooseE2(costs, this.#situation(incoming));
    return this.#decide(incoming, engine, reason, costs, nowMs);
  }

  /** Places a sequence where it costs least. */
  placeAgain(spec: SequenceSpec, live: readonly EngineId[], nowMs: number): Placement {
    return this.#placeCheapest(spec, "move", live, nowMs);
  }

  /** Places a task group by list scheduling (`taskGroupOrder`). */
  placeTaskGroup(
    specs: readonly SequenceSpec[],
    live: readonly EngineId[],
    nowMs: number,
  ): readonly Placement[] {
    const placements: Placement[] = [];
    const tokens = specs.map(({ promptTokens, stop }) => promptTokens.length + stop.tokensMax);
    for (const index of taskGroupOrder(tokens)) {
      placements[index] = this.#placeCheapest(specs[index]!, "gang", live, nowMs);
    }
    return placements;
  }

  /**
   * Places a prefix hint like a sequence. Its work counts for other hints, but not for sequences, which go
   * before it. So waiting calls are spread as if they ran, and each finds its prefix where it has room to
   * run.
   */
  expect(hint: PrefixHint, live: readonly EngineId[], nowMs: number): EngineId {
    const incoming = this.#incoming(sequenceOfHint(hint, hint.tokens), true);
    const costs = this.#costs.look(incoming, this.#open(incoming, live), nowMs);
    for (const cost of costs) cost.loadMs += this.#inFlightUs[cost.engine]! / 1000;
    const { engine, cachedTokens } = cheapest(costs, this.#situation(incoming));
    this.#addInFlight(hint, incoming, { engine, cachedTokens, nowMs });
    return engine;
  }

  extended(hint: PrefixHint, nowMs: number): void {
    const inFlight = this.#inFlight.get(hint.id);
    if (inFlight === undefined) return;
    const { engine } = inFlight;
    this.forgot(hint.id);
    const incoming = this.#incoming(sequenceOfHint(hint, hint.tokens), true);
    const [{ cachedTokens }] = this.#costs.look(incoming, [engine], nowMs) as [EngineCost];
    this.#addInFlight(hint, incoming, { engine, cachedTokens, nowMs });
  }

  forgot(id: SequenceId): void {
    const inFlight = this.#inFlight.get(id);
    if (inFlight === undefined) return;
    this.#inFlight.delete(id);
    this.#inFlightUs[inFlight.engine]! -= inFlight.promptUs;
    if (inFlight.end !== null) this.index.release(inFlight.end, inFlight.engine, false);
  }

  surplus(
    specOf: (id: SequenceId) => SequenceSpec,
    live: readonly EngineId[],
    nowMs: number,
  ): readonly SequenceId[] {
    const crowds = live.map((engine) => {
      const view = this.#views[engine]!;
      const context = this.#outstanding.meanContext(engine);
      const decodeMs = view.decodeMs(this.#outstanding.sequences(engine), context);
      const promptsMs =
        view.stretch(this.#outstanding.decoding(engine), context) * this.#outstanding.allPromptsMs(engine);
      const workMs = promptsMs + this.#outstanding.allDecodesMs(engine, decodeMs);
      return { engine, workMs, waiting: [...this.#waiting[engine]!.keys()] };
    });
    const ids = surplus(crowds, (id) => {
      const spec = specOf(id);
      const incoming = this.#incoming(spec);
      return this.#costs.look(incoming, this.#open(incoming, live), nowMs);
    });
    for (const id of ids) this.#waiting[this.#work.get(id)!.engine]!.delete(id);
    return ids;
  }

  started(id: SequenceId, cachedTokens: number): void {
    const work = this.#work.get(id)!;
    this.#waiting[work.engine]!.delete(id);
    const ms = this.#views[work.engine]!.promptWorkMs(work.context - cachedTokens, cachedTokens);
    this.#outstanding.started(work, microseconds(ms));
  }

  drew(id: SequenceId): void {
    const work = this.#work.get(id)!;
    // The engine's KV events have reported its prefix before its first token.
    if (!work.isDecoding && work.end !== null) this.index.settle(work.end, work.engine);
    this.#outstanding.drew(work);
  }

  raised(id: SequenceId, { objective, tbtMs }: Service): void {
    this.#outstanding.raised(this.#work.get(id)!, objective, tbtMs !== null);
  }

  ended(id: SequenceId, isWhole: boolean): void {
    const work = this.#work.get(id)!;
    this.#work.delete(id);
    this.#waiting[work.engine]!.delete(id);
    this.#outstanding.ended(work);
    if (work.end !== null) this.index.release(work.end, work.engine, work.isDecoding);
    if (isWhole) this.#estimate.ended(work.prefix, work.drawn);
  }

  reported(engine: EngineId, load: EngineLoad): void {
    this.#views[engine]!.reported(load);
  }

  noticed(engine: EngineId, kvEvents: KvEvents): boolean {
    return this.index.apply(engine, kvEvents);
  }

  lost(engine: EngineId): void {
    this.index.restart(engine, Number.NaN);
  }

  joined(engine: EngineId, spec: DeviceSpec, epoch: number): void {
    this.#views[engine] = new EngineView(spec, this.#views[engine]!.costs, this.#batch, WINDOW_MS);
    this.index.restart(engine, epoch);
  }

  workMs(engine: EngineId): number {
    const decodeMs = this.#views[engine]!.decodeMs(
      this.#outstanding.sequences(engine),
      this.#outstanding.meanContext(engine),
    );
    return this.#outstanding.workMs(engine, decodeMs);
  }

  #placeCheapest(
    spec: SequenceSpec,
    reason: PlacementReason,
    live: readonly EngineId[],
    nowMs: number,
  ): Placement {
    const incoming = this.#incoming(spec);
    const costs = this.#costs.look(incoming, this.#open(incoming, live), nowMs);
    const { engine } = cheapest(costs, this.#situation(incoming));
    return this.#decide(incoming, engine, reason, costs, nowMs);
  }

  #addInFlight(
    { id, isWarmed }: PrefixHint,
    { path, tokens }: Incoming,
    { engine, cachedTokens, nowMs }: { engine: EngineId; cachedTokens: number; nowMs: number },
  ): void {
    if (!isWarmed) return;
    const promptUs = microseconds(this.#views[engine]!.promptWorkMs(tokens - cachedTokens, cachedTokens));
    this.#inFlightUs[engine]! += promptUs;
    this.#inFlight.set(id, { engine, promptUs, end: this.index.addInFlight(path, engine, nowMs) });
  }

  #incoming(spec: SequenceSpec, isHint = false): Incoming {
    const { promptTokens, drawnTokens, stop } = spec;
    const tokens = promptTokens.length;
    const pages = Math.floor(tokens / this.#pageTokens);
    const path = hashPrompt(promptTokens, pages, this.#pageTokens, sharingOf(spec, this.#pageTokens));
    const likely = this.#estimate.expect(path[0], stop.tokensMax);
    const expected = Math.max(likely, drawnTokens.length + 1);
    return { spec, tokens, path, expected, isHint };
  }

  /** Candidates: engines where it fits and that are ready; if there are none, all where it fits; else all. */
  #open({ tokens }: Incoming, live: readonly EngineId[]): readonly EngineId[] {
    const fits = (engine: EngineId): boolean => this.#views[engine]!.fits(tokens);
    const isReady = (engine: EngineId): boolean =>
      this.#views[engine]!.isWarm || this.#outstanding.sequences(engine) < COLD_SEQUENCES;
    const roomy = live.every(fits) ? live : live.filter(fits);
    const ready = roomy.every(isReady) ? roomy : roomy.filter(isReady);
    return ready.length > 0 ? ready : roomy.length > 0 ? roomy : live;
  }

  #situation({ tokens }: Incoming): E2Situation {
    return {
      promptTokens: tokens,
      isWarm: (engine) => this.#views[engine]!.isWarm,
      pagesUsed: (engine) => {
        const view = this.#views[engine]!;
        return view.spec.pages - view.pagesFree + this.#outstanding.pages(engine);
      },
    };
  }

  #decide(
    { spec, tokens, path, expected }: Incoming,
    engine: EngineId,
    reason: PlacementReason,
    costs: readonly EngineCost[],
    nowMs: number,
  ): Placement {
    const { id, drawnTokens, service, stop } = spec;
    const { cachedTokens } = costs.find((cost) => cost.engine === engine)!;
    const { weighed } = this.#costs;
    const reported =
      costs.length <= REPORTED_ENGINES ? costs : [...weighed].sort((a, b) => a.engine - b.engine);
    const placement = { engine, reason, costs: reported.map((cost) => cost.copy()) };
    const promptMs = this.#views[engine]!.promptWorkMs(tokens - cachedTokens, cachedTokens);
    const end = this.index.addInFlight(path, engine, nowMs);
    this.#views[engine]!.placed(nowMs);
    const work: Work = {
      engine,
      objective: service.objective,
      tenant: service.tenant,
      hasTarget: service.tbtMs !== null,
      promptUs: microseconds(promptMs),
      pages: Math.ceil((tokens + expected - cachedTokens) / this.#pageTokens),
      context: tokens + drawnTokens.length,
      drawn: drawnTokens.length,
      isDecoding: false,
      expected,
      tokensMax: stop.tokensMax,
      prefix: path[0],
      end,
    };
    this.#outstanding.placed(work);
    this.#work.set(id, work);
    this.#waiting[engine]!.set(id, work);
    return placement;
  }
}
