import { assert } from "../../base/assert.ts";
import { hashPrompt } from "../../scheduler/cache/page-hash.ts";
import { type EngineId, type SequenceId, type SequenceSpec, sharingOf } from "../../scheduler/core.ts";
import { FirstCome } from "../../scheduler/engine/queue/first-come.ts";
import { Programs } from "../../scheduler/engine/queue/programs.ts";
import type { Placement } from "../../scheduler/fleet/placement.ts";
import type { PlaceableEngine, PlacementRule } from "../../scheduler/fleet/placement-rule.ts";
import type { PlacementBaseline, Policy, QueueBaseline } from "../../scheduler/policy.ts";
import { capOf, capped, type TokenCaps } from "./capped.ts";
import { cached, promptsFirst } from "./vllm.ts";

/** Tokens of a prefill step, as in the authors' engines. */
const STEP_TOKENS = 8000;

/**
 * First come, first served among single calls; programs in order of arrival; within a program the longest
 * path first.
 */
export const appOrder: QueueBaseline = { kind: "baseline", open: () => new Programs(new FirstCome()) };

/**
 * Parrot as published (Lin et al., OSDI 2024, arXiv:2405.19888 §5.4, algorithm 1). Programs keep their order,
 * task groups and shared prefixes are placed together, and engines hold no more tokens than `caps` allow. The
 * authors' artifact decides where the paper is silent; docs/papers/parrot.md lists these points. Needs
 * workloads with program graphs.
 */
export function parrot(caps: TokenCaps): Policy {
  return {
    name: "parrot",
    placement: parrotPlacement(caps),
    queue: appOrder,
    batch: capped(promptsFirst(STEP_TOKENS), caps),
    ...cached,
  };
}

/** Makes algorithm 1 as a placement policy. */
export function parrotPlacement(caps: TokenCaps): PlacementBaseline {
  return { kind: "baseline", readsKvEvents: false, open: (engines) => new Algorithm1(engines, caps) };
}

/** Placed sequence that has not ended. */
interface Resident {
  readonly engine: EngineId;
  readonly tokens: number;
  readonly isLatency: boolean;
}

class Algorithm1 implements PlacementRule {
  readonly #caps: TokenCaps;
  readonly #pageTokens: number;
  readonly #capacity: readonly number[];
  readonly #residents = new Map<SequenceId, Resident>();
  /** Engines that had a context with a prefix of whole pages, by the prefix's hash. */
  readonly #contexts = new Map<number, Set<EngineId>>();

  constructor(engines: readonly PlaceableEngine[], caps: TokenCaps) {
    this.#caps = caps;
    this.#pageTokens = engines[0]!.spec.pageTokens;
    this.#capacity = engines.map(({ spec }) => spec.pages * spec.pageTokens);
  }

  place(spec: SequenceSpec, there: readonly EngineId[]): Placement {
    const path = this.#pathOf(spec);
    const holders = this.#holdersOf(path, there);
    const engine = this.#find([spec], holders) ?? this.#find([spec], there) ?? this.#emptiest(there);
    return this.#put(spec, path, engine);
  }

  /** Places a task group on one engine. */
  placeTaskGroup(specs: readonly SequenceSpec[], there: readonly EngineId[]): readonly Placement[] {
    const engine = this.#find(specs, there) ?? this.#emptiest(there);
    return specs.map((spec) => this.#put(spec, this.#pathOf(spec), engine));
  }

  ended(id: SequenceId): void {
    this.#residents.delete(id);
  }

  lost(engine: EngineId): void {
    for (const holders of this.#contexts.values()) holders.delete(engine);
  }

  /** FindEngine: among engines with room, the one whose residents lose least, then the fullest. */
  #find(specs: readonly SequenceSpec[], engines: readonly EngineId[]): EngineId | null {
    const isLatency = specs.some(isLatencySpec);
    const needed = specs.reduce((sum, spec) => sum + tokensOf(spec), 0);
    let best: { readonly engine: EngineId; readonly loss: number; readonly left: number } | null = null;
    for (const engine of engines) {
      const { tokens, hasLatency } = this.#loadOf(engine);
      const before = this.#capOf(engine, hasLatency);
      const cap = this.#capOf(engine, hasLatency || isLatency);
      if (tokens > 0 && tokens + needed > cap) continue;
      const loss = tokens > 0 ? before - cap : 0;
      const left = cap - tokens;
      if (best === null || loss < best.loss || (loss === best.loss && left < best.left))
        best = { engine, loss, left };
    }
    return best?.engine ?? null;
  }

  /**
   * Returns the engine with fewest tokens, for a call when no engine has room. In Parrot it would wait in a
   * global queue.
   */
  #emptiest(engines: readonly EngineId[]): EngineId {
    const [first, ...others] = engines;
    assert(first !== undefined, "there is an engine");
    return others.reduce(
      (least, engine) => (this.#loadOf(engine).tokens < this.#loadOf(least).tokens ? engine : least),
      first,
    );
  }

  /** Engines with a context that shares the longest prefix with this one. */
  #holdersOf(path: Float64Array, there: readonly EngineId[]): readonly EngineId[] {
    for (let page = path.length - 1; page >= 0; page--) {
      const holders = there.filter((engine) => this.#contexts.get(path[page]!)?.has(engine) ?? false);
      if (holders.length > 0) return holders;
    }
    return [];
  }

  #put(spec: SequenceSpec, path: Float64Array, engine: EngineId): Placement {
    this.#residents.set(spec.id, { engine, tokens: tokensOf(spec), isLatency: isLatencySpec(spec) });
    for (const hash of path) {
      const holders = this.#contexts.get(hash);
      if (holders === undefined) this.#contexts.set(hash, new Set([engine]));
      else holders.add(engine);
    }
    return { engine, reason: spec.service.taskGroup === null ? "explore" : "gang", costs: [] };
  }

  #loadOf(engine: EngineId): { readonly tokens: number; readonly hasLatency: boolean } {
    let tokens = 0;
    let hasLatency = false;
    for (const resident of this.#residents.values()) {
      if (resident.engine !== engine) continue;
      tokens += resident.tokens;
      hasLatency ||= resident.isLatency;
    }
    return { tokens, hasLatency };
  }

  #capOf(engine: EngineId, hasLatency: boolean): number {
    return Math.min(this.#capacity[engine]!, capOf(this.#caps, hasLatency));
  }

  #pathOf(spec: SequenceSpec): Float64Array {
    const { promptTokens } = spec;
    const pages = Math.floor(promptTokens.length / this.#pageTokens);
    return hashPrompt(promptTokens, pages, this.#pageTokens, sharingOf(spec, this.#pageTokens));
  }
}

function tokensOf({ promptTokens, stop }: SequenceSpec): number {
  return promptTokens.length + stop.tokensMax;
}

function isLatencySpec({ service }: SequenceSpec): boolean {
  return service.objective === "latency";
}
