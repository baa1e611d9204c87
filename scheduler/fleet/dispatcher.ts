import { assert } from "../../base/assert.ts";
import type { KvEvents } from "../cache/kv-event-log.ts";
import type { EngineId, PrefixHint, SequenceId, SequenceSpec, Service } from "../core.ts";
import type { DeviceSpec } from "../device.ts";
import type { EngineLoad } from "../messages.ts";
import type { Policy, QueuePolicy } from "../policy.ts";
import { E2, type TurnRules } from "./e2.ts";
import type { Placement, PlacementReason } from "./placement.ts";
import type { PlaceableEngine, PlacementRule } from "./placement-rule.ts";
import type { PrefixIndex } from "./prefix-index.ts";

/** The parts of a policy on which placement depends. */
export type DispatchPolicy = Pick<Policy, "placement" | "queue" | "batch">;

/** Counters of a dispatcher. */
export interface DispatchStats {
  readonly placements: Readonly<Partial<Record<PlacementReason, number>>>;
  /** Nodes and pages of the prefix index. */
  readonly pages: number;
  readonly nodes: number;
}

/**
 * Places sequences on engines by the policy's rule (placement-rule.ts), and knows which engines are live.
 * The fleet reports the starts, tokens and ends of placed sequences to it, and the engines' loads and KV
 * events. The same calls in the same order give the same placements.
 */
export class Dispatcher {
  /** Live engines: neither lost nor coming back; ascending. */
  #live: readonly EngineId[];
  /** Engines of all sequences that were placed and have not ended. */
  readonly #placed = new Map<SequenceId, EngineId>();
  /** The policy's rule; null: there is only one engine. */
  readonly #rule: PlacementRule | null;
  readonly #counts: Partial<Record<PlacementReason, number>> = {};

  constructor({ placement, queue, batch }: DispatchPolicy, engines: readonly PlaceableEngine[]) {
    this.#live = engines.map((_, engine) => engine as EngineId);
    if (engines.length === 1) this.#rule = null;
    else if (placement.kind === "e2") this.#rule = new E2(engines, turnsOf(queue), batch);
    else this.#rule = placement.open(engines);
  }

  /**
   * Chooses the engine of a new sequence, whose work counts there until it has `ended`. Null: no engine is live.
   */
  place(spec: SequenceSpec, nowMs: number): Placement | null {
    const live = this.#live;
    if (live.length === 0) return null;
    return this.#count(spec.id, this.#rule?.place(spec, live, nowMs) ?? only(live[0]!), live);
  }

  /** Places a sequence on the engine of the held one that it continues. */
  placeAt(engine: EngineId, spec: SequenceSpec, nowMs: number): Placement {
    const live = this.#live;
    assert(live.includes(engine), "a lost engine holds no sequence");
    const placement = this.#rule?.place(spec, [engine], nowMs) ?? only(engine);
    return this.#count(spec.id, { ...placement, reason: "continues" }, live);
  }

  /** Places a sequence again that its engine has returned. Null: no engine is live. */
  placeAgain(spec: SequenceSpec, nowMs: number): Placement | null {
    const live = this.#live;
    if (this.#rule?.placeAgain === undefined || live.length < 2) return this.place(spec, nowMs);
    return this.#count(spec.id, this.#rule.placeAgain(spec, live, nowMs), live);
  }

  /** Chooses the engine for a prefix hint. Null: no engine is live. */
  expect(hint: PrefixHint, nowMs: number): EngineId | null {
    const live = this.#live;
    if (live.length === 0) return null;
    if (hint.engine !== undefined && live.includes(hint.engine)) return hint.engine;
    return this.#rule?.expect?.(hint, live, nowMs) ?? live[hint.id % live.length]!;
  }

  /** Records that a prefix hint is longer. */
  extended(hint: PrefixHint, nowMs: number): void {
    this.#rule?.extended?.(hint, nowMs);
  }

  /** Removes a prefix hint, whose engine may be about to be lost. */
  forgot(id: SequenceId): void {
    this.#rule?.forgot?.(id);
  }

  /** Waiting sequences that would begin earlier elsewhere, and should be recalled; each is named once. */
  surplus(specOf: (id: SequenceId) => SequenceSpec, nowMs: number): readonly SequenceId[] {
    const live = this.#live;
    return live.length < 2 ? [] : (this.#rule?.surplus?.(specOf, live, nowMs) ?? []);
  }

  /** Places a task group. Null: no engine is live. */
  placeTaskGroup(specs: readonly SequenceSpec[], nowMs: number): readonly (Placement | null)[] {
    const live = this.#live;
    if (this.#rule?.placeTaskGroup === undefined || live.length < 2) {
      return specs.map((spec) => this.place(spec, nowMs));
    }
    const placements = this.#rule.placeTaskGroup(specs, live, nowMs);
    return placements.map((placement, index) => this.#count(specs[index]!.id, placement, live));
  }

  /** Records that a sequence was admitted, with `cachedTokens` of its prompt cached. */
  started(id: SequenceId, cachedTokens: number, nowMs: number): void {
    if (this.#placed.has(id)) this.#rule?.started?.(id, cachedTokens, nowMs);
  }

  /** Records a token. KV events of the same report come first. */
  drew(id: SequenceId): void {
    if (this.#rule?.drew !== undefined && this.#placed.has(id)) this.#rule.drew(id);
  }

  /** Changes the service of a sequence. */
  raised(id: SequenceId, service: Service): void {
    if (this.#placed.has(id)) this.#rule?.raised?.(id, service);
  }

  /**
   * Records that a sequence has ended, or leaves its engine in another way. `isWhole`: its answer is
   * complete.
   */
  ended(id: SequenceId, isWhole: boolean): void {
    if (this.#placed.delete(id)) this.#rule?.ended?.(id, isWhole);
  }

  /** Records an engine's report; returns the message to send back to it. */
  reported(engine: EngineId, load: EngineLoad, kvEvents: KvEvents | null): "resync" | null {
    this.#rule?.reported?.(engine, load);
    if (kvEvents === null || this.#rule?.noticed === undefined) return null;
    return this.#rule.noticed(engine, kvEvents) ? null : "resync";
  }

  /** Removes a lost engine and its work. */
  lost(engine: EngineId): void {
    this.#live = this.#live.filter((other) => other !== engine);
    for (const [id, at] of this.#placed) if (at === engine) this.ended(id, false);
    this.#rule?.lost?.(engine);
  }

  /** Adds an engine that is back, empty, in incarnation `epoch`. */
  joined(engine: EngineId, spec: DeviceSpec, epoch: number, nowMs: number): void {
    assert(!this.#live.includes(engine), "only a lost engine comes back");
    this.#live = [...this.#live, engine].sort((a, b) => a - b);
    this.#rule?.joined?.(engine, spec, epoch, nowMs);
  }

  stats(): DispatchStats {
    const { pages, nodes } = this.index?.size ?? { pages: 0, nodes: 0 };
    return { placements: { ...this.#counts }, pages, nodes };
  }

  /**
   * Predicted milliseconds of unfinished work on an engine; 0 under rules that do not predict. For checks.
   */
  workMs(engine: EngineId): number {
    return this.#rule?.workMs?.(engine) ?? 0;
  }

  /** The prefix index; null under rules that have none. For checks. */
  get index(): PrefixIndex | null {
    return this.#rule?.index ?? null;
  }

  #count(id: SequenceId, chosen: Placement, live: readonly EngineId[]): Placement {
    assert(!this.#placed.has(id), "a sequence is on one engine");
    const placement: Placement = live.length === 1 ? { ...chosen, reason: "only" } : chosen;
    this.#placed.set(id, placement.engine);
    this.#counts[placement.reason] = (this.#counts[placement.reason] ?? 0) + 1;
    return placement;
  }
}

/**
 * The lanes of a policy; an order without lanes gives every objective the same share, and knows no tenants.
 */
function turnsOf(queue: QueuePolicy): TurnRules {
  if (queue.kind === "lanes") return queue;
  const even = { credits: 1, ageingMs: Number.POSITIVE_INFINITY };
  return { lanes: { latency: even, gang: even, throughput: even }, tenantReach: 0 };
}

function only(engine: EngineId): Placement {
  return { engine, reason: "only", costs: [] };
}
