import { assert } from "../../../base/assert.ts";
import type { KvCacheManager } from "../../cache/kv-cache-manager.ts";
import type { Objective, Service } from "../../core.ts";
import type { TimeAccounts } from "../../explain/time-accounts.ts";
import type { QueuePolicy } from "../../policy.ts";
import type { Sequence } from "../sequence.ts";
import { ArrivalList } from "./arrival-list.ts";
import type { ColdGate } from "./cold-gate.ts";
import { InFlightPrefixes } from "./in-flight-prefixes.ts";
import { Lanes } from "./lanes.ts";
import type { QueueOrder } from "./queue-order.ts";

/**
 * All sequences that wait and are not paused, each in one of three places:
 *
 *   returning   preempted, or continuing a held one: in order of arrival before all others, once their back-off is over;
 *               offline ones that have not aged come after all others
 *   order       see queue-order.ts
 *   pending     out of the order until a running sequence has computed their shared prefix (in-flight-prefixes.ts)
 */
export class WaitQueue {
  readonly #order: QueueOrder;
  readonly #kvCache: KvCacheManager;
  readonly #accounts: TimeAccounts;
  readonly #pending = new InFlightPrefixes();
  #offlineSize = 0;
  readonly #returning = new ArrivalList<Sequence>();
  /** Objectives of which a sequence could not be admitted in this step. */
  readonly #passed = new Set<Objective>();

  constructor(order: QueueOrder, kvCache: KvCacheManager, accounts: TimeAccounts) {
    this.#order = order;
    this.#kvCache = kvCache;
    this.#accounts = accounts;
  }

  get size(): number {
    return this.#order.size + this.#pending.size + this.#returning.size;
  }

  /** Sequences that wait for a prefix which another one computes or loads. */
  get deferred(): number {
    return this.#pending.size;
  }

  /** Number of offline sequences among them. */
  get offlineSize(): number {
    return this.#offlineSize;
  }

  /** True if sequences of other objectives may overtake one for which there is no room. */
  get separatesObjectives(): boolean {
    return this.#order.separatesObjectives ?? false;
  }

  /** True if a sequence was overtaken in this step. */
  get hasPassed(): boolean {
    return this.#passed.size > 0;
  }

  /** Begins a step, in which no objective is passed yet. */
  beginStep(): void {
    this.#passed.clear();
    this.#order.beginStep?.();
  }

  add(sequence: Sequence): void {
    if (sequence.objective.isOffline) this.#offlineSize += 1;
    this.#join(sequence);
  }

  /** Changes the service of a sequence, which may run or be paused; a waiting one takes its new place. */
  serve(sequence: Sequence, service: Service): void {
    const isHere = sequence.state === "waiting" && !sequence.isPaused;
    if (isHere) this.remove(sequence);
    sequence.serve(service);
    if (isHere) this.add(sequence);
    else if (sequence.state === "running") this.#order.adopt?.(sequence);
  }

  #join(sequence: Sequence): void {
    this.#accounts.waits(sequence);
    this.#kvCache.track(sequence, () => this.#order.matched?.(sequence));
    if (sequence.isReturning) {
      if (!sequence.wasStarted) this.#order.adopt?.(sequence);
      this.#returning.add(sequence);
    } else this.#order.add(sequence);
  }

  remove(sequence: Sequence): void {
    if (sequence.objective.isOffline) this.#offlineSize -= 1;
    this.#takeOut(sequence);
    this.#accounts.leaves(sequence);
    this.#kvCache.untrack(sequence);
  }

  /**
   * The next sequence, not of the `declined` objectives; null: none may run now. `step` is the number of the
   * step being planned; Infinity disregards back-off.
   */
  peek(nowMs: number, step: number, declined: ReadonlySet<Objective>): Sequence | null {
    const passed = declined.size === 0 ? this.#passed : this.#passed.union(declined);
    let offline: Sequence | null = null;
    for (const sequence of this.#returning) {
      if (sequence.stepsUntil > step || passed.has(sequence.objective.name)) continue;
      if (!sequence.objective.isOffline || this.isAged(sequence, nowMs)) return sequence;
      offline ??= sequence;
    }
    if (offline === null) return this.#order.peek(nowMs, passed);
    // The offline sequence may have been preempted for one that waits.
    return this.#order.peek(nowMs, new Set([...passed, offline.objective.name])) ?? offline;
  }

  /** Removes the sequence that `peek` returned, which will compute `computedTokens`. */
  take(sequence: Sequence, computedTokens: number): void {
    if (sequence.objective.isOffline) this.#offlineSize -= 1;
    if (!this.#returning.remove(sequence)) this.#order.take(sequence, computedTokens);
    this.#accounts.leaves(sequence);
  }

  /**
   * Lets sequences of other objectives pass one that cannot be admitted in this step. False if the order has
   * no lanes.
   */
  pass(sequence: Sequence): boolean {
    if (!this.separatesObjectives) return false;
    this.#passed.add(sequence.objective.name);
    return true;
  }

  /** True if it has waited so long that none may overtake it when it lacks room. */
  isAged(sequence: Sequence, nowMs: number): boolean {
    return this.#order.isAged?.(sequence, nowMs) ?? false;
  }

  /**
   * Sets a waiting sequence aside until `owner` has published `tokens` tokens. `isLoad`: the owner stands for a load from
   * the lower tier.
   */
  park(sequence: Sequence, owner: Sequence, tokens: number, isLoad: boolean): void {
    this.#takeOut(sequence);
    this.#accounts.waitsFor(sequence, isLoad ? null : owner.id);
    this.#pending.park(sequence, owner, tokens);
  }

  /**
   * Puts sequences back that wait for at most the owner's first `tokens` tokens, which it has published.
   * Infinity: it will publish no more.
   */
  wake(owner: Sequence, tokens: number): void {
    for (const sequence of this.#pending.wake(owner, tokens)) this.#join(sequence);
  }

  /** Sequences that wait for prefixes, for checks. */
  prefixWaits(): ReturnType<InFlightPrefixes["waits"]> {
    return this.#pending.waits();
  }

  #takeOut(sequence: Sequence): void {
    if (sequence.queued.owner !== null) this.#pending.remove(sequence);
    else if (!this.#returning.remove(sequence)) assert(this.#order.remove(sequence), "the sequence waits");
  }
}

/** Makes the order of a policy. */
export function orderOf(policy: QueuePolicy, gate: ColdGate): QueueOrder {
  return policy.kind === "lanes" ? new Lanes(policy, gate) : policy.open((sequence) => sequence.cachedTokens);
}
