import { assert } from "../../base/assert.ts";
import type { StateSlot } from "../core.ts";
import type { EvictionPolicy } from "./eviction.ts";
import { IdPool } from "./id-pool.ts";
import { Checkpoint, deepest, type PrefixWaiter, type RadixNode } from "./radix-tree.ts";

/** A slot with the state after the first `depth` tokens. */
export interface SavedState {
  readonly depth: number;
  readonly slot: StateSlot;
}

/** Port: the worth of checkpoints. The one of the lowest worth is evicted first. */
export interface CheckpointPolicy {
  /** Returns the time of a use that happens now. */
  use(): number;
  /** Returns the worth of a checkpoint last used at `usedAt`, that saves `savedMs` of computing. */
  worth(usedAt: number, savedMs: number): number;
  /** Records that a checkpoint of this worth was evicted. */
  evicted(worth: number): void;
}

/**
 * GreedyDual (Cao and Irani, USENIX 1997): a checkpoint's worth is the clock at its last use plus the
 * milliseconds that it saves. The clock rises to the worth of each victim. All states have one size.
 */
export class GreedyDual implements CheckpointPolicy {
  #clock = 0;

  use(): number {
    return this.#clock;
  }

  worth(usedAt: number, savedMs: number): number {
    return usedAt + savedMs;
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
  readonly #policy: CheckpointPolicy;
  readonly #eviction: EvictionPolicy;
  readonly #computeMs: (tokens: number, context: number) => number;
  readonly #kept = new Set<Checkpoint>();
  #unpinned = 0;

  /** `computeMs`: milliseconds to compute `tokens` tokens after `context` others. */
  constructor(
    slots: number,
    policy: CheckpointPolicy,
    eviction: EvictionPolicy,
    computeMs: (tokens: number, context: number) => number,
  ) {
    this.pool = new IdPool(slots);
    this.#policy = policy;
    this.#eviction = eviction;
    this.#computeMs = computeMs;
  }

  /** The checkpoints of the tree. */
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
  takeFor(depth: number, above: number): StateSlot | null {
    return this.isWorth(depth, above) ? this.take() : null;
  }

  /** True if a slot is free for such a checkpoint, or it would be worth more than the cheapest one. */
  isWorth(depth: number, above: number): boolean {
    if (this.pool.freeCount > 0) return true;
    const worth = this.#policy.worth(this.#policy.use(), this.#computeMs(depth - above, above));
    const { cheapest } = this;
    return cheapest !== null && cheapest.worth < worth;
  }

  /**
   * Takes a slot for a sequence that begins from a checkpoint, and pins that. If it is the cheapest one and no
   * slot is free, the sequence takes it over. A slot must be available.
   */
  begin(from: Checkpoint | null): { readonly slot: StateSlot; readonly from: Checkpoint | null } {
    if (from === null) return { slot: this.take(), from };
    this.#renew(from);
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
    for (const checkpoint of this.#kept) {
      if (checkpoint.pins === 0 && (cheapest === null || checkpoint.worth < cheapest.worth))
        cheapest = checkpoint;
    }
    return cheapest;
  }

  /**
   * Makes a checkpoint of a slot, at `depth` in `node` or above it; where there is one, it frees the slot.
   * Locks pin the path to `node`.
   */
  add(node: RadixNode, depth: number, slot: StateSlot): void {
    let at = node;
    while (at.start >= depth) at = at.parent!;
    const before = at.checkpoints.findIndex((other) => other.depth >= depth);
    if (before >= 0 && at.checkpoints[before]!.depth === depth) {
      this.pool.release(slot);
      this.#renew(at.checkpoints[before]!);
      return;
    }
    const checkpoint = new Checkpoint(at, depth, slot);
    at.checkpoints = at.checkpoints.toSpliced(before < 0 ? at.checkpoints.length : before, 0, checkpoint);
    for (let above: RadixNode | null = at; above !== null; above = above.parent) above.kept += 1;
    this.#kept.add(checkpoint);
    this.#unpinned += 1;
    this.#renew(checkpoint);
    for (const below of nextBelow(at, depth)) this.#value(below);
    for (const waiter of waitersFrom(at, depth)) {
      if ((waiter.checkpoint?.depth ?? 0) >= depth) continue;
      waiter.checkpoint = checkpoint;
      waiter.onChange();
    }
  }

  /** Pins a checkpoint that a sequence reads or holds, and counts it as used now. */
  pin(checkpoint: Checkpoint): void {
    this.#renew(checkpoint);
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
    this.#policy.evicted(checkpoint.worth);
    this.drop(checkpoint);
  }

  #remove(checkpoint: Checkpoint): void {
    const { node, depth } = checkpoint;
    assert(node !== null, "the tree has the checkpoint");
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

  #renew(checkpoint: Checkpoint): void {
    checkpoint.usedAt = this.#policy.use();
    if (checkpoint.node !== null) this.#value(checkpoint);
  }

  #value(checkpoint: Checkpoint): void {
    const { depth, node, usedAt } = checkpoint;
    const above = deepest(node!, depth - 1)?.depth ?? 0;
    checkpoint.worth = this.#policy.worth(usedAt, this.#computeMs(depth - above, above));
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
