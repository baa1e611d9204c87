import { assert } from "../../base/assert.ts";
import type { StateSlot } from "../core.ts";
import type { EvictionPolicy } from "./eviction.ts";
import { IdPool } from "./id-pool.ts";
import { Checkpoint, type CheckpointKind, deepest, type PrefixWaiter, type RadixNode } from "./radix-tree.ts";
import { ReadShares } from "./read-shares.ts";

/** A slot with the state after the first `depth` tokens. */
export interface SavedState {
  readonly depth: number;
  readonly slot: StateSlot;
  readonly kind: CheckpointKind;
}

/** A prompt that is about to be computed, as far as it decides where its checkpoints are. */
export interface PromptToSave {
  readonly length: number;
  /** Tokens that need not be computed. */
  readonly computed: number;
  /** Tokens that match the tree. More than `computed` if there is no checkpoint where the prompt branches off. */
  readonly matched: number;
  readonly publicTokens: number;
}

/** Properties of a checkpoint that decide its worth. */
export type Valued = Pick<Checkpoint, "kind" | "reads" | "savedMs" | "usedAt">;

/** Port: where prompts leave checkpoints, and the worth by which they are evicted: the lowest first. */
export interface CheckpointPolicy {
  /** Returns positions at which a prompt leaves checkpoints if they are worth it, in any order. */
  positions(prompt: PromptToSave): readonly (readonly [position: number, kind: CheckpointKind])[];
  /** Records that a checkpoint is made or read, and returns the time of this use. `before`: its reads so far. */
  used(kind: CheckpointKind, before: number | null): number;
  /** The time of a use that would happen now. */
  readonly now: number;
  worth(checkpoint: Valued): number;
  /** Probability that a checkpoint is read, or read again. */
  chance(checkpoint: Pick<Valued, "kind" | "reads">): number;
  /** Records that a checkpoint of this worth was evicted. */
  evicted(worth: number): void;
}

/** State slots of a cache's device. */
export interface CacheStates {
  readonly slots: number;
  readonly policy: CheckpointPolicy;
  /** Milliseconds to compute `tokens` tokens after `context` others. */
  computeMs(tokens: number, context: number): number;
}

/** Synchronous callbacks on a new checkpoint, and on one that leaves the tree. */
export interface CheckpointObserver {
  saved(checkpoint: Checkpoint): void;
  dropped(checkpoint: Checkpoint): void;
}

/** Tokens from the end of a prompt to its nearest `distant` checkpoint; each further one is `DISTANCE_TIMES` as far. */
const DISTANCE = 64;
const DISTANCE_TIMES = 4;
/** A prompt leaves a checkpoint at a distance only if it computes at least this many times the distance. */
const DISTANCES_MIN = 8;
/** Checkpoints after which the counts of a kind are halved: later ones weigh more. */
const COUNTED_MAX = 64;

/**
 * GreedyDual (Cao and Irani, USENIX 1997): a checkpoint's worth is the clock at its last use plus the likely
 * saving in milliseconds. The clock rises to the worth of each victim. All states have one
 * size. The likelihood is learnt per kind: the share of checkpoints that were read, and read again.
 *
 * A prompt leaves checkpoints at the end of its match (Marconi, arXiv:2411.19379 §4.1), of public text, and of
 * itself. Another prompt may branch off before its end, most likely near it: for example, behind a document that
 * precedes the question. So a long prefill leaves more checkpoints, at growing distances from the end.
 */
export class GreedyDual implements CheckpointPolicy {
  #clock = 0;
  readonly #shares = new ReadShares(1, COUNTED_MAX);

  positions({
    length,
    computed,
    matched,
    publicTokens,
  }: PromptToSave): ReturnType<CheckpointPolicy["positions"]> {
    const last = length - 1;
    const distant: [number, CheckpointKind][] = [];
    for (let distance = DISTANCE; DISTANCES_MIN * distance < last - computed; distance *= DISTANCE_TIMES)
      distant.push([last - distance, "distant"]);
    return [[matched, "branch"], [publicTokens, "public"], [last, "prompt"], ...distant];
  }

  get now(): number {
    return this.#clock;
  }

  used(kind: CheckpointKind, before: number | null): number {
    this.#shares.used(kind, before);
    return this.#clock;
  }

  worth(checkpoint: Valued): number {
    return checkpoint.usedAt + checkpoint.savedMs * this.chance(checkpoint);
  }

  chance({ kind, reads }: Pick<Valued, "kind" | "reads">): number {
    return this.#shares.shareOf(kind, reads);
  }

  evicted(worth: number): void {
    this.#clock = worth;
  }
}

const none: readonly Checkpoint[] = [];

/**
 * The state slots of one device, and the checkpoints of its radix tree. A slot is free, a running sequence's,
 * or a checkpoint's.
 *
 * A checkpoint saves the time to compute the tokens between the checkpoint above it on its path and itself.
 */
export class Checkpoints {
  readonly pool: IdPool<StateSlot>;
  readonly policy: CheckpointPolicy;
  readonly #eviction: EvictionPolicy;
  readonly #observer: Partial<CheckpointObserver> | null;
  readonly #computeMs: (tokens: number, context: number) => number;
  readonly #kept = new Set<Checkpoint>();
  #unpinned = 0;

  constructor(states: CacheStates, eviction: EvictionPolicy, observer: Partial<CheckpointObserver> | null) {
    this.pool = new IdPool(states.slots);
    this.policy = states.policy;
    this.#eviction = eviction;
    this.#observer = observer;
    this.#computeMs = (tokens, context) => states.computeMs(tokens, context);
  }

  /** All checkpoints of the tree. */
  get kept(): ReadonlySet<Checkpoint> {
    return this.#kept;
  }

  /** Slots that are free, or that eviction can free. */
  get available(): number {
    return this.pool.freeCount + this.#unpinned;
  }

  /** Takes a slot; evicts the cheapest checkpoint if none is free. One must be available. */
  take(): StateSlot {
    if (this.pool.freeCount === 0) this.#evict(this.cheapest!);
    return this.pool.take();
  }

  /**
   * Takes a slot for a new checkpoint at `depth` below the checkpoint at `above`; null: all kept ones are
   * worth as much.
   */
  takeFor(kind: CheckpointKind, depth: number, above: number): StateSlot | null {
    return this.isWorth(kind, depth, above) ? this.take() : null;
  }

  /** True if a slot is free for such a checkpoint, or it would be worth more than the cheapest one. */
  isWorth(kind: CheckpointKind, depth: number, above: number): boolean {
    if (this.pool.freeCount > 0) return true;
    const savedMs = this.#computeMs(depth - above, above);
    const worth = this.policy.worth({ kind, savedMs, reads: 0, usedAt: this.policy.now });
    const { cheapest } = this;
    return cheapest !== null && this.policy.worth(cheapest) < worth;
  }

  /**
   * Takes a slot for a sequence that begins from a checkpoint, and pins that. If it is the cheapest one and no
   * slot is free, the sequence takes it over. A slot must be available.
   */
  begin(from: Checkpoint | null): { readonly slot: StateSlot; readonly from: Checkpoint | null } {
    if (from === null) return { slot: this.take(), from };
    this.#read(from);
    if (this.pool.freeCount === 0 && this.cheapest === from) {
      this.#remove(from);
      return { slot: from.slot, from: null };
    }
    this.pin(from);
    return { slot: this.take(), from };
  }

  /** The checkpoint to evict next; null: none can be evicted. */
  get cheapest(): Checkpoint | null {
    let cheapest: Checkpoint | null = null;
    let least = Number.POSITIVE_INFINITY;
    for (const checkpoint of this.#kept) {
      if (checkpoint.pins > 0) continue;
      const worth = this.policy.worth(checkpoint);
      if (worth >= least) continue;
      [cheapest, least] = [checkpoint, worth];
    }
    return cheapest;
  }

  /**
   * Adds a state as a checkpoint of `node` or an ancestor; frees its slot if there is one at this depth already.
   * Locks pin the path to `node`.
   */
  add(node: RadixNode, { depth, slot, kind }: SavedState): void {
    let at = node;
    while (at.start >= depth) at = at.parent!;
    const before = at.checkpoints.findIndex((other) => other.depth >= depth);
    if (before >= 0 && at.checkpoints[before]!.depth === depth) {
      this.pool.release(slot);
      return;
    }
    const checkpoint = new Checkpoint(at, depth, slot, kind);
    at.checkpoints = at.checkpoints.toSpliced(before < 0 ? at.checkpoints.length : before, 0, checkpoint);
    for (let above: RadixNode | null = at; above !== null; above = above.parent) above.kept += 1;
    this.#kept.add(checkpoint);
    this.#unpinned += 1;
    checkpoint.usedAt = this.policy.used(kind, null);
    this.#value(checkpoint);
    for (const below of nextBelow(at, depth)) this.#value(below);
    this.#observer?.saved?.(checkpoint);
    for (const waiter of waitersFrom(at, depth)) {
      if ((waiter.checkpoint?.depth ?? 0) >= depth) continue;
      waiter.checkpoint = checkpoint;
      waiter.onChange();
    }
  }

  /** Pins a checkpoint that a sequence reads or holds. */
  pin(checkpoint: Checkpoint): void {
    if (checkpoint.pins === 0) this.#unpinned -= 1;
    checkpoint.pins += 1;
  }

  /** Ends a pin; the slot of a checkpoint that the tree has dropped is free after the last one. */
  unpin(checkpoint: Checkpoint): void {
    assert(checkpoint.pins > 0, "a pin ends once");
    checkpoint.pins -= 1;
    if (checkpoint.pins > 0) return;
    if (checkpoint.node === null) this.pool.release(checkpoint.slot);
    else this.#unpinned += 1;
  }

  /** Drops a checkpoint of the tree. */
  drop(checkpoint: Checkpoint): void {
    this.#remove(checkpoint);
    if (checkpoint.pins === 0) this.pool.release(checkpoint.slot);
  }

  /** Drops the checkpoints of a leaf behind token `end`. */
  cut(leaf: RadixNode, end: number): void {
    for (const checkpoint of leaf.checkpoints) if (checkpoint.depth > end) this.drop(checkpoint);
  }

  #evict(checkpoint: Checkpoint): void {
    this.policy.evicted(this.policy.worth(checkpoint));
    this.drop(checkpoint);
  }

  #remove(checkpoint: Checkpoint): void {
    const { node, depth } = checkpoint;
    assert(node !== null, "the tree has the checkpoint");
    this.#observer?.dropped?.(checkpoint);
    node.checkpoints =
      node.checkpoints.length === 1 ? none : node.checkpoints.filter((one) => one !== checkpoint);
    for (let above: RadixNode | null = node; above !== null; above = above.parent) {
      above.kept -= 1;
      if (above.kept === 0) this.#eviction.changed(above);
    }
    checkpoint.node = null;
    this.#kept.delete(checkpoint);
    if (checkpoint.pins === 0) this.#unpinned -= 1;
    for (const below of nextBelow(node, depth)) this.#value(below);
    const above = deepest(node, depth);
    for (const waiter of waitersFrom(node, depth)) {
      if (waiter.checkpoint !== checkpoint) continue;
      waiter.checkpoint = above;
      waiter.onChange();
    }
  }

  #read(checkpoint: Checkpoint): void {
    checkpoint.usedAt = this.policy.used(checkpoint.kind, checkpoint.reads);
    checkpoint.reads += 1;
  }

  #value(checkpoint: Checkpoint): void {
    const { depth, node } = checkpoint;
    const above = deepest(node!, depth - 1)?.depth ?? 0;
    checkpoint.savedMs = this.#computeMs(depth - above, above);
  }
}

/** The first checkpoints behind `depth` on each path through `node`. */
function* nextBelow(node: RadixNode, depth: number): Generator<Checkpoint> {
  const own = node.checkpoints.find((checkpoint) => checkpoint.depth > depth);
  if (own !== undefined) {
    yield own;
    return;
  }
  if (node.kept === node.checkpoints.length) return;
  for (const child of node.children.values()) if (child.kept > 0) yield* nextBelow(child, depth);
}

/** The waiters whose match ends in `node` at `depth` or later, or below the node. */
function* waitersFrom(node: RadixNode, depth: number): Generator<PrefixWaiter> {
  for (const waiter of node.ending ?? []) if (waiter.depth >= depth) yield waiter;
  if (node.waiters === (node.ending?.size ?? 0)) return;
  for (const child of node.children.values()) if (child.waiters > 0) yield* waitersFrom(child, depth);
}
