import type { KvEvents } from "../../scheduler/cache/kv-event-log.ts";
import { hashPrompt } from "../../scheduler/cache/page-hash.ts";
import { type EngineId, type SequenceId, type SequenceSpec, sharingOf } from "../../scheduler/core.ts";
import { decodeStepMs, promptMs } from "../../scheduler/cost/cost-model.ts";
import {
  type Placement,
  type PlacementCost,
  type PlacementReason,
  totalMs,
} from "../../scheduler/fleet/placement.ts";
import type { PlaceableEngine, PlacementRule } from "../../scheduler/fleet/placement-rule.ts";
import type { PlacementBaseline } from "../../scheduler/policy.ts";
import { autoscale } from "./preble-autoscale.ts";
import { type PrebleNode, PrebleTree } from "./preble-tree.ts";
import { PrebleWindow } from "./preble-window.ts";

/** Enabled parts of Preble. */
export interface PrebleOptions {
  /** Post-assignment load adjustment: rebalancing and autoscaling. */
  readonly adjusts: boolean;
  /** Prefill-decoding balancing. */
  readonly balances: boolean;
  /** True if the scheduler knows the engines' evictions and their costs. */
  readonly knowsEvictions: boolean;
}

/** Thresholds Th_bal and ImbalR, as in the authors' code; the paper leaves them to profiles. */
const TH_BAL = 1.5;
const IMBAL_R = 0.7;
/** Decodes per step assumed for DT. The paper's Figure 10 assumes one, which gives worse placement. */
const DECODES = 32;
/** Milliseconds between two searches for prefixes to replicate. */
const REVIEW_MS = 1000;

/** Makes Preble's placement as a policy. */
export function prebleE2(options: PrebleOptions): PlacementBaseline {
  return {
    kind: "baseline",
    readsKvEvents: options.knowsEvictions,
    open: (engines) => new Preble(options, engines),
  };
}

/** Chosen GPU with the reason. */
interface Choice {
  readonly cost: PlacementCost;
  readonly reason: PlacementReason;
}

/** Prompt as the global scheduler sees it. */
interface Prompt {
  /** Hashes of its whole pages. */
  readonly path: Float64Array;
  readonly tokens: number;
  /** Tree nodes along its path. */
  readonly nodes: readonly PrebleNode[];
  /** Leading tokens that each GPU caches. */
  readonly cached: readonly number[];
}

/**
 * E2, the global scheduler of Preble as published (Srivatsa et al., ICLR 2025, arXiv:2407.00023 §3.2,
 * algorithms 1 and 2). If more of a prompt is cached than must be computed, it exploits: among the GPUs that
 * cache most of it, it takes the one with the least load cost. Else it explores: it takes the GPU with the
 * least load cost of all. The load cost is L + M + P, in predicted milliseconds.
 *
 * Open points of the paper are decided in Preble's favour; docs/papers/preble.md lists them.
 */
class Preble implements PlacementRule {
  readonly #options: PrebleOptions;
  readonly #engines: readonly PlaceableEngine[];
  readonly #pageTokens: number;
  readonly #tree: PrebleTree;
  readonly #window: PrebleWindow;
  /** Epoch and next KV event number, by engine. */
  readonly #streams: { epoch: number; next: number }[];
  #reviewedMs = 0;

  constructor(options: PrebleOptions, engines: readonly PlaceableEngine[]) {
    this.#options = options;
    this.#engines = engines;
    this.#pageTokens = engines[0]!.spec.pageTokens;
    this.#tree = new PrebleTree(engines.length);
    this.#window = new PrebleWindow(engines.length, ({ end, gpu, prefillUs }) => {
      if (end !== null) this.#tree.expire(end, gpu, prefillUs, !options.knowsEvictions);
    });
    this.#streams = engines.map(() => ({ epoch: 0, next: 0 }));
  }

  /** Runs algorithm 1 and the adjustments after it. */
  place(spec: SequenceSpec, there: readonly EngineId[], nowMs: number): Placement {
    this.#window.advance(nowMs);
    if (this.#options.adjusts && nowMs - this.#reviewedMs >= REVIEW_MS) this.#review(there, nowMs);
    const prompt = this.#lookUp(spec);
    const costs = there.map((engine) => this.#loadCost(engine, prompt));
    const most = Math.max(...costs.map(({ cachedTokens }) => cachedTokens));
    const choice: Choice =
      prompt.tokens - most < most ? this.#exploit(prompt, costs, most) : this.#explore(costs);
    const { engine, cachedTokens } = choice.cost;
    const prefillUs = Math.round(1000 * this.#prefillMs(engine, prompt.tokens - cachedTokens));
    const end = this.#tree.insert(prompt.path, engine, prefillUs);
    this.#window.placed(spec.id, {
      gpu: engine,
      end,
      prefillUs,
      tokens: prompt.tokens,
      placedMs: nowMs,
    });
    return { engine, reason: choice.reason, costs };
  }

  started(id: SequenceId, _cachedTokens: number, nowMs: number): void {
    this.#window.started(id, nowMs);
  }

  drew(id: SequenceId): void {
    this.#window.drew(id);
  }

  ended(id: SequenceId): void {
    this.#window.ended(id);
  }

  /**
   * Applies KV events: "The local scheduler then asynchronously informs the global scheduler about the
   * eviction" (§3.3). A full snapshot follows lost events only, which the paper does not cover.
   */
  noticed(engine: EngineId, { epoch, number, isWhole, events }: KvEvents): boolean {
    const stream = this.#streams[engine]!;
    if (epoch !== stream.epoch) return true;
    const isMissing = !isWhole && number !== stream.next;
    stream.next = number + 1;
    if (isWhole) this.#tree.clear(engine);
    for (const { kind, path, from } of events) {
      if (kind === "evict") this.#tree.evict(path, from, engine);
      else if (isWhole) this.#tree.cache(path, engine);
    }
    return !isMissing;
  }

  lost(engine: EngineId): void {
    this.#tree.clear(engine);
  }

  joined(engine: EngineId, _spec: PlaceableEngine["spec"], epoch: number): void {
    this.#streams[engine] = { epoch, next: 0 };
  }

  #lookUp(spec: SequenceSpec): Prompt {
    const { promptTokens } = spec;
    const tokens = promptTokens.length;
    const pages = Math.floor(tokens / this.#pageTokens);
    const path = hashPrompt(promptTokens, pages, this.#pageTokens, sharingOf(spec, this.#pageTokens));
    const { nodes, found } = this.#tree.match(path);
    return { path, tokens, nodes, cached: found.map((count) => count * this.#pageTokens) };
  }

  /**
   * Exploits: the GPU with the least cost among those that cache most. Rebalancing: if that GPU has more than
   * TH_BAL times the load of the lightest, its exploiting requests go to the lightest, whatever their prefix.
   * This lasts until the loads are closer.
   */
  #exploit({ nodes }: Prompt, costs: readonly PlacementCost[], most: number): Choice {
    const replica = nodes.find((node) => node.replica !== null);
    if (replica !== undefined) {
      const target = costs.find(({ engine }) => engine === replica.replica);
      replica.replica = null;
      if (target !== undefined) return { cost: target, reason: "replicate" };
    }
    const holders = costs.filter(({ cachedTokens }) => cachedTokens === most);
    const cost = least(holders, totalMs);
    const light = least(costs, ({ loadMs }) => loadMs);
    if (this.#options.adjusts && cost.loadMs > TH_BAL * light.loadMs)
      return { cost: light, reason: "redirect" };
    return { cost, reason: "exploit" };
  }

  /** Explores: prefill-decoding balancing first, then the least cost. */
  #explore(costs: readonly PlacementCost[]): Choice {
    if (this.#options.balances) {
      const ratioOf = ({ engine, loadMs }: PlacementCost): number =>
        loadMs === 0 ? 0 : this.#decodesMs(engine) / loadMs;
      const decoder = least(costs, (cost) => -ratioOf(cost));
      if (ratioOf(decoder) > IMBAL_R) return { cost: decoder, reason: "balance" };
    }
    return { cost: least(costs, totalMs), reason: "explore" };
  }

  /** Computes the load cost by algorithm 2. */
  #loadCost(gpu: EngineId, { tokens, cached }: Prompt): PlacementCost {
    const cachedTokens = cached[gpu]!;
    return {
      engine: gpu,
      cachedTokens,
      loadMs: this.#loadMs(gpu),
      evictMs: this.#options.knowsEvictions ? this.#evictMs(gpu, tokens - cachedTokens) : 0,
      promptMs: this.#prefillMs(gpu, tokens - cachedTokens),
      decodeMs: 0,
      harmMs: 0,
      delayMs: 0,
    };
  }

  /** L: prefills and decodes of all requests in the window H, ended or not. */
  #loadMs(gpu: number): number {
    return this.#window.prefillMs(gpu) + this.#decodesMs(gpu);
  }

  /** Sum of DT over all requests in the window. */
  #decodesMs(gpu: number): number {
    return this.#window.requests(gpu) * this.#decodeMs(gpu);
  }

  /** DT: decode time of an answer of this GPU's average length in the window. */
  #decodeMs(gpu: number): number {
    const { costs } = this.#engines[gpu]!;
    const stepMs = decodeStepMs(costs, DECODES, this.#window.promptTokens(gpu));
    return (this.#window.outputTokens(gpu) * stepMs) / DECODES;
  }

  /** M: prefill time of the nodes that would be evicted, weighted by their share of the GPU's requests. */
  #evictMs(gpu: number, missedTokens: number): number {
    const needed = Math.ceil(missedTokens / this.#pageTokens);
    let left = this.#tree.pagesOn(gpu) + needed - this.#engines[gpu]!.spec.pages;
    let sumMs = 0;
    if (left <= 0) return 0;
    for (const { hashes, hits } of this.#tree.leastRecent(gpu)) {
      const pages = Math.min(left, hashes.length);
      const share = hits[gpu]! / Math.max(1, this.#window.requests(gpu));
      if (share > 0) sumMs += share * this.#prefillMs(gpu, pages * this.#pageTokens);
      left -= pages;
      if (left === 0) break;
    }
    return sumMs;
  }

  /** PT: prefill time of the tokens alone in one step. */
  #prefillMs(gpu: number, tokens: number): number {
    return promptMs(this.#engines[gpu]!.costs, tokens, 0);
  }

  #review(there: readonly EngineId[], nowMs: number): void {
    this.#reviewedMs = nowMs;
    const loads = there.map((gpu) => ({ gpu, loadMs: this.#loadMs(gpu), decodeMs: this.#decodeMs(gpu) }));
    autoscale(this.#tree, this.#window.waits(nowMs), loads, nowMs);
  }
}

function least(costs: readonly PlacementCost[], costOf: (cost: PlacementCost) => number): PlacementCost {
  return costs.reduce((best, cost) => (costOf(cost) < costOf(best) ? cost : best));
}
