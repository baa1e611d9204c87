import type { EvictionReason } from "./eviction-log.ts";
import { LruList, type RadixNode } from "./radix-tree.ts";

/**
 * Port: the order in which unlocked nodes are evicted. The cache adds a node when its last lock ends, and
 * removes it when it is locked.
 */
export interface EvictionPolicy {
  /** Pages of protected nodes. */
  readonly pagesProtected: number;
  /** The node to evict next; null: there is none. */
  readonly first: RadixNode | null;
  /** True for a protected node: evicted after all that are not. */
  isProtected(node: RadixNode): boolean;
  /** Reason why a node of the order is where it is; absent: its last use alone. */
  reasonOf?(node: RadixNode): EvictionReason;
  /** Adds a node as the most recently used one. */
  add(node: RadixNode): void;
  /** Moves a node to the front: it is evicted next. */
  giveUp(node: RadixNode): void;
  /** Removes a node of the order. */
  remove(node: RadixNode): void;
  /** Records that a node, in the order or not, has one waiter more. */
  tracked(node: RadixNode): void;
  /** Records that a node, in the order or not, may have fewer waiters or checkpoints. */
  changed(node: RadixNode): void;
  /** Records that a node, in the order or not, has `pages` fewer pages. */
  shrank(node: RadixNode, pages: number): void;
  /** All nodes of the order, the first to be evicted first. */
  [Symbol.iterator](): Iterator<RadixNode>;
}

/**
 * Evicts the least recently used node; nodes that waiters wait for are protected. With states, nodes that no
 * checkpoint follows are evicted before all others: a prompt can only begin from a checkpoint.
 */
export class ProtectedLast implements EvictionPolicy {
  readonly #hasStates: boolean;
  readonly #useless = new LruList();
  readonly #idle = new LruList();
  readonly #protected = new LruList();
  #pagesProtected = 0;

  constructor(hasStates = false) {
    this.#hasStates = hasStates;
  }

  get pagesProtected(): number {
    return this.#pagesProtected;
  }

  get first(): RadixNode | null {
    return this.#useless.oldest ?? this.#idle.oldest ?? this.#protected.oldest;
  }

  isProtected(node: RadixNode): boolean {
    return node.waiters > 0 && !this.#isUseless(node);
  }

  reasonOf(node: RadixNode): EvictionReason {
    if (node.order === this.#useless) return "no_checkpoint";
    return node.order === this.#protected ? "awaited" : "least_recent";
  }

  add(node: RadixNode): void {
    if (this.isProtected(node)) this.#pagesProtected += node.pages.length;
    this.#listOf(node).append(node);
  }

  giveUp(node: RadixNode): void {
    this.remove(node);
    this.#listOf(node).prepend(node);
  }

  remove(node: RadixNode): void {
    this.shrank(node, node.pages.length);
    node.order?.remove(node);
  }

  /** Counts the waiter as a use of the node. */
  tracked(node: RadixNode): void {
    if (node.order !== null) this.#addAgain(node);
  }

  changed(node: RadixNode): void {
    if (node.order !== null && node.order !== this.#listOf(node)) this.#addAgain(node);
  }

  shrank({ order }: RadixNode, pages: number): void {
    if (order === this.#protected) this.#pagesProtected -= pages;
  }

  *[Symbol.iterator](): Generator<RadixNode> {
    yield* this.#useless;
    yield* this.#idle;
    yield* this.#protected;
  }

  #isUseless({ kept }: RadixNode): boolean {
    return this.#hasStates && kept === 0;
  }

  #listOf(node: RadixNode): LruList {
    if (this.#isUseless(node)) return this.#useless;
    return node.waiters === 0 ? this.#idle : this.#protected;
  }

  #addAgain(node: RadixNode): void {
    this.remove(node);
    this.add(node);
  }
}
