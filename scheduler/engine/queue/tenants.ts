import { assert } from "../../../base/assert.ts";
import type { Sequence } from "../sequence.ts";
import type { ColdGate } from "./cold-gate.ts";
import { FirstCome } from "./first-come.ts";
import type { QueueOrder } from "./queue-order.ts";
import { goesBefore } from "./response-ratio.ts";
import { type Demand, VirtualTokenCounter } from "./virtual-token-counter.ts";

/** Most tenants that are compared, so that planning stays short. */
const COMPARED_MAX = 32;

interface Tenant {
  readonly counter: VirtualTokenCounter;
  readonly order: QueueOrder;
  /** Number of its last turn. */
  turn: number;
  /** Its key in the heap; the current values are never less. */
  key: number;
  keyTurn: number;
  isListed: boolean;
}

/**
 * Fair shares of one lane: the waiting tenant that has used least is next; ties go to the one whose turn is
 * longer ago. This is a virtual token counter (Sheng et al., "Fairness in Serving Large Language Models",
 * OSDI 2024). A sequence costs its tenant the uncached part of its prompt, and each generated token as it
 * comes. Cached tokens are charged for the room that they use, at a hundredth of a token for each second. The
 * use of tenants that always wait differs by one sequence at most. A new tenant waits for one sequence of
 * each other's at most.
 *
 * Tenants that have used up to `reach` tokens more than that one are even with it. Among them the sequence
 * with the highest response ratio is next (response-ratio.ts). A lead of a few short prompts is no reason to
 * serve a long one first. Tenants' use differs by at most that much more. Lanes that are first come, first
 * served have no reach.
 *
 * Returning tenants keep up to `slack` tokens of credit or debt. So a tenant that asks for little goes before
 * a crowd of another tenant's, but credit is not saved up for long. A new tenant begins like the others.
 * Tokens used while no sequence waits are free.
 *
 * Some sequences would evict pages that others wait to read. Until the gate opens (cold-gate.ts), tenants
 * without such sequences overtake a tenant that has one. Otherwise tenants that share prefixes would evict
 * them in turn.
 */
export class Tenants {
  readonly #slack: number;
  readonly #reach: number;
  readonly #orderOf: () => QueueOrder;
  readonly #gate: ColdGate | null;
  readonly #byName = new Map<string, Tenant>();
  readonly #demand: Demand = { isThere: false };
  /** A heap by `key`, then `keyTurn`. Both only grow, so they are updated when they come to the top. */
  readonly #heap: Tenant[] = [];
  /** The most that a tenant had used when it was next. */
  #level = 0;
  #turns = 0;
  #size = 0;

  /**
   * `slack` > 0 and `reach` ≥ 0 in tokens. `orderOf` makes the order of one tenant's sequences. `gate`: the gate
   * that all sequences share; null: they are first come, first served.
   */
  constructor(
    slack: number,
    reach: number,
    orderOf: () => QueueOrder = () => new FirstCome(),
    gate: ColdGate | null = null,
  ) {
    assert(slack > 0, "tenants may be apart");
    this.#gate = gate;
    this.#slack = slack;
    this.#reach = reach;
    this.#orderOf = orderOf;
  }

  get size(): number {
    return this.#size;
  }

  add(sequence: Sequence): void {
    const tenant = this.#tenantOf(sequence);
    const { counter, order } = tenant;
    sequence.queued.counter = counter;
    if (order.size === 0) {
      counter.used = Math.min(Math.max(counter.used, this.#level - this.#slack), this.#level + this.#slack);
    }
    order.add(sequence);
    this.#size += 1;
    this.#demand.isThere = true;
    if (!tenant.isListed) this.#list(tenant);
  }

  /** Charges the output of a sequence here from now on that does not wait here. */
  adopt(sequence: Sequence): void {
    sequence.queued.counter = this.#tenantOf(sequence).counter;
  }

  /** Removes a sequence; false if it does not wait here. */
  remove(sequence: Sequence): boolean {
    if (!this.#tenantOf(sequence).order.remove(sequence)) return false;
    this.#left();
    return true;
  }

  /** The next sequence; null: none waits. */
  peek(nowMs: number): Sequence | null {
    const tenant = this.#next();
    if (tenant === null) return null;
    this.#level = Math.max(this.#level, tenant.counter.used);
    const gate = this.#gate;
    if (gate === null) return tenant.order.peek(nowMs);
    const sequence = this.#firstOfEven(tenant, gate, nowMs);
    const isHeldBack = sequence !== null && gate.holdsBack(sequence, nowMs);
    return isHeldBack ? (this.#passing(gate, nowMs) ?? sequence) : sequence;
  }

  /**
   * Removes the sequence that `peek` returned, and charges its tenant for the tokens that it will compute.
   */
  take(sequence: Sequence, computedTokens: number): void {
    const tenant = this.#tenantOf(sequence);
    tenant.order.take(sequence, computedTokens);
    this.#turns += 1;
    tenant.turn = this.#turns;
    tenant.counter.used += computedTokens;
    this.#left();
  }

  /** Records that the cached length of a sequence has changed, whether it waits here or not. */
  matched(sequence: Sequence): void {
    this.#tenantOf(sequence).order.matched?.(sequence);
  }

  /** The sequence that goes first among tenants that are even with the one that has used least. */
  #firstOfEven(least: Tenant, gate: ColdGate, nowMs: number): Sequence | null {
    const most = least.counter.used + this.#reach;
    let best = least.order.peek(nowMs);
    // No descendant in the heap has a smaller key, and no tenant has used less than its key.
    const open = [1, 2];
    for (let next = 0; next < open.length && next < COMPARED_MAX; next++) {
      const at = open[next]!;
      const tenant = this.#heap[at];
      if (tenant === undefined || tenant.key > most) continue;
      open.push(2 * at + 1, 2 * at + 2);
      const sequence = tenant.counter.used > most ? null : tenant.order.peek(nowMs);
      if (sequence === null) continue;
      if (best === null || goesBefore(gate, sequence, best, nowMs)) best = sequence;
    }
    return best;
  }

  #left(): void {
    this.#size -= 1;
    this.#demand.isThere = this.#size > 0;
  }

  /** The sequence, not held back by the gate, whose tenant has used least; null: the gate holds all back. */
  #passing(gate: ColdGate, nowMs: number): Sequence | null {
    let best: Sequence | null = null;
    let least = Number.POSITIVE_INFINITY;
    for (const { order, counter } of this.#heap) {
      if (counter.used >= least) continue;
      const sequence = order.peek(nowMs);
      if (sequence === null || gate.holdsBack(sequence, nowMs)) continue;
      best = sequence;
      least = counter.used;
    }
    return best;
  }

  #next(): Tenant | null {
    for (let top = this.#heap[0]; top !== undefined; top = this.#heap[0]) {
      if (top.order.size === 0) this.#unlistTop();
      else if (top.key === top.counter.used && top.keyTurn === top.turn) return top;
      else {
        top.key = top.counter.used;
        top.keyTurn = top.turn;
        this.#sink(0);
      }
    }
    return null;
  }

  #list(tenant: Tenant): void {
    tenant.isListed = true;
    tenant.key = tenant.counter.used;
    tenant.keyTurn = tenant.turn;
    let at = this.#heap.length;
    for (; at > 0; at = (at - 1) >> 1) {
      const above = this.#heap[(at - 1) >> 1]!;
      if (!isBefore(tenant, above)) break;
      this.#heap[at] = above;
    }
    this.#heap[at] = tenant;
  }

  #unlistTop(): void {
    this.#heap[0]!.isListed = false;
    const last = this.#heap.pop()!;
    if (this.#heap.length === 0) return;
    this.#heap[0] = last;
    this.#sink(0);
  }

  #sink(from: number): void {
    const tenant = this.#heap[from]!;
    let at = from;
    for (;;) {
      let below = 2 * at + 1;
      if (below >= this.#heap.length) break;
      const right = this.#heap[below + 1];
      if (right !== undefined && isBefore(right, this.#heap[below]!)) below += 1;
      if (!isBefore(this.#heap[below]!, tenant)) break;
      this.#heap[at] = this.#heap[below]!;
      at = below;
    }
    this.#heap[at] = tenant;
  }

  #tenantOf(sequence: Sequence): Tenant {
    const name = sequence.service.tenant;
    let tenant = this.#byName.get(name);
    if (tenant === undefined) {
      const counter = new VirtualTokenCounter(this.#demand);
      counter.used = this.#level;
      tenant = { counter, order: this.#orderOf(), turn: 0, key: 0, keyTurn: 0, isListed: false };
      this.#byName.set(name, tenant);
    }
    return tenant;
  }
}

function isBefore(a: Tenant, b: Tenant): boolean {
  return a.key < b.key || (a.key === b.key && a.keyTurn < b.keyTurn);
}
