import { assert } from "../../base/assert.ts";
import type { KvEvents } from "../cache/kv-event.ts";
import type { EngineId, PrefixHint, SequenceId, SequenceSpec, Service } from "../core.ts";
import type { DeviceSpec } from "../device.ts";
import type { EngineLoad } from "../messages.ts";
import type { Policy, QueuePolicy } from "../policy.ts";
import { E2, type TurnRules } from "./e2.ts";
import type { Placement, PlacementReason } from "./placement.ts";
import type { PlaceableEngine, PlacementRule } from "./placement-rule.ts";
import type { PrefixIndex } from "./prefix-index.ts";

/** The parts of a policy that say where sequences go, and what becomes of them there. */
export type DispatchPolicy = Pick<Policy, "placement" | "queue" | "batch">;

/** What a dispatcher has done so far, and what it holds now. */
export interface DispatchStats {
  readonly placements: Readonly<Partial<Record<PlacementReason, number>>>;
  /** Of the prefix index. */
  readonly pages: number;
  readonly nodes: number;
}

/**
 * Places sequences on engines by the policy's rule (placement-rule.ts), and knows which engines are there. It is told
 * its own placements' starts, tokens and ends, and the engines' loads and caches. The same calls in the same order
 * give the same placements.
 */
export class Dispatcher {
  /** In order. */
  #there: readonly EngineId[];
  /** Where each sequence is that was placed and has not ended. */
  readonly #placed = new Map<SequenceId, EngineId>();
  /** Null: there is nothing to choose from. */
  readonly #rule: PlacementRule | null;
  readonly #counts: Partial<Record<PlacementReason, number>> = {};

  constructor({ placement, queue, batch }: DispatchPolicy, engines: readonly PlaceableEngine[]) {
    this.#there = engines.map((_, engine) => engine as EngineId);
    if (engines.length === 1) this.#rule = null;
    else if (placement.kind === "e2") this.#rule = new E2(engines, turnsOf(queue), batch);
    else this.#rule = placement.open(engines);
  }

  /** Chooses the engine of a new sequence, whose work counts there until it has `ended`. Null: no engine is there. */
  place(spec: SequenceSpec, nowMs: number): Placement | null {
    const there = this.#there;
    if (there.length === 0) return null;
    return this.#count(spec.id, this.#rule?.place(spec, there, nowMs) ?? only(there[0]!), there);
  }

  /** Places a sequence where another is held from which it goes on. */
  placeAt(engine: EngineId, spec: SequenceSpec, nowMs: number): Placement {
    const there = this.#there;
    assert(there.includes(engine), "what is lost is not held");
    const placement = this.#rule?.place(spec, [engine], nowMs) ?? only(engine);
    return this.#count(spec.id, { ...placement, reason: "continues" }, there);
  }

  /** Places a sequence anew that its engine has given back. Null: no engine is there. */
  placeAgain(spec: SequenceSpec, nowMs: number): Placement | null {
    const there = this.#there;
    if (this.#rule?.placeAgain === undefined || there.length < 2) return this.place(spec, nowMs);
    return this.#count(spec.id, this.#rule.placeAgain(spec, there, nowMs), there);
  }

  /** The engine that a prefix hint's sequence should come to. Null: no engine is there. */
  expect(hint: PrefixHint, nowMs: number): EngineId | null {
    const there = this.#there;
    if (there.length === 0) return null;
    return this.#rule?.expect?.(hint, there, nowMs) ?? there[hint.id % there.length]!;
  }

  /** A prefix hint has become longer. */
  extended(hint: PrefixHint, nowMs: number): void {
    this.#rule?.extended?.(hint, nowMs);
  }

  /** A prefix hint was forgotten, or its engine is about to be lost. */
  forgot(id: SequenceId): void {
    this.#rule?.forgot?.(id);
  }

  /** Sequences that wait where they would begin later than elsewhere, and should be taken back; each is told once. */
  surplus(specOf: (id: SequenceId) => SequenceSpec, nowMs: number): readonly SequenceId[] {
    const there = this.#there;
    return there.length < 2 ? [] : (this.#rule?.surplus?.(specOf, there, nowMs) ?? []);
  }

  /** Places sequences that belong together. Null: no engine is there. */
  placeTaskGroup(specs: readonly SequenceSpec[], nowMs: number): readonly (Placement | null)[] {
    const there = this.#there;
    if (this.#rule?.placeTaskGroup === undefined || there.length < 2) {
      return specs.map((spec) => this.place(spec, nowMs));
    }
    const placements = this.#rule.placeTaskGroup(specs, there, nowMs);
    return placements.map((placement, index) => this.#count(specs[index]!.id, placement, there));
  }

  /** The sequence was admitted by its engine, with that much of its prompt cached. */
  started(id: SequenceId, cachedTokens: number, nowMs: number): void {
    if (this.#placed.has(id)) this.#rule?.started?.(id, cachedTokens, nowMs);
  }

  /** The sequence drew a token. The notices of the same report come first. */
  drew(id: SequenceId): void {
    if (this.#rule?.drew !== undefined && this.#placed.has(id)) this.#rule.drew(id);
  }

  /** The sequence is served like this from now on. */
  raised(id: SequenceId, service: Service): void {
    if (this.#placed.has(id)) this.#rule?.raised?.(id, service);
  }

  /** The sequence ended, or leaves its engine in another way. `isWhole`: its answer was as long as it wanted. */
  ended(id: SequenceId, isWhole: boolean): void {
    if (this.#placed.delete(id)) this.#rule?.ended?.(id, isWhole);
  }

  /** An engine reported. The answer is what to send back to it. */
  reported(engine: EngineId, load: EngineLoad, kvEvents: KvEvents | null): "resync" | null {
    this.#rule?.reported?.(engine, load);
    if (kvEvents === null || this.#rule?.noticed === undefined) return null;
    return this.#rule.noticed(engine, kvEvents) ? null : "resync";
  }

  /** The engine is gone: nothing is placed there, and what was there counts no longer. */
  lost(engine: EngineId): void {
    this.#there = this.#there.filter((other) => other !== engine);
    for (const [id, at] of this.#placed) if (at === engine) this.ended(id, false);
    this.#rule?.lost?.(engine);
  }

  /** The engine is back, empty, in its life number `epoch`. */
  joined(engine: EngineId, spec: DeviceSpec, epoch: number, nowMs: number): void {
    assert(!this.#there.includes(engine), "only a lost engine comes back");
    this.#there = [...this.#there, engine].sort((a, b) => a - b);
    this.#rule?.joined?.(engine, spec, epoch, nowMs);
  }

  stats(): DispatchStats {
    const { pages, nodes } = this.index?.size ?? { pages: 0, nodes: 0 };
    return { placements: { ...this.#counts }, pages, nodes };
  }

  /** Predicted milliseconds of work that were placed on the engine and are not done; 0 under rules that do not
   *  predict. For checks and pictures. */
  workMs(engine: EngineId): number {
    return this.#rule?.workMs?.(engine) ?? 0;
  }

  /** Where prefixes are; null under rules that keep no index. For checks and pictures. */
  get index(): PrefixIndex | null {
    return this.#rule?.index ?? null;
  }

  #count(id: SequenceId, chosen: Placement, there: readonly EngineId[]): Placement {
    assert(!this.#placed.has(id), "a sequence is in one place");
    const placement: Placement = there.length === 1 ? { ...chosen, reason: "only" } : chosen;
    this.#placed.set(id, placement.engine);
    this.#counts[placement.reason] = (this.#counts[placement.reason] ?? 0) + 1;
    return placement;
  }
}

/** An order without lanes gives every objective the same share, and knows no tenants. */
function turnsOf(queue: QueuePolicy): TurnRules {
  if (queue.kind === "lanes") return queue;
  const even = { credits: 1, ageingMs: Number.POSITIVE_INFINITY };
  return { lanes: { latency: even, gang: even, throughput: even }, tenantReach: 0 };
}

function only(engine: EngineId): Placement {
  return { engine, reason: "only", costs: [] };
}
