import { assert } from "../core.ts";
import type { LanesPolicy } from "../policy.ts";
import { ArrivalList } from "./arrival-list.ts";
import { PriorityGroups } from "./priority-groups.ts";
import type { QueueOrder } from "./queue-order.ts";
import type { Sequence } from "./sequence.ts";
import { Tenants } from "./tenants.ts";

/** Of so many sequences that are taken, one is the oldest of those that have waited too long. */
const AGED_EVERY = 4;
const GANG = 1;

interface Lane {
  readonly weight: number;
  readonly tenants: Tenants;
  readonly arrivals: ArrivalList<Sequence>;
  /** Tokens that it has had less than its share; below 0 more. */
  credit: number;
}

/**
 * One lane for each objective: latency, gangs, throughput. Lanes that wait share the tokens of prompts as their weights
 * say, and what an empty one leaves goes to the others: each sequence that is taken costs its lane what it computes,
 * and the same amount is handed out to the waiting lanes by weight. The lane with most credit is next, ties to the
 * first. Credit is not saved up: a lane that was empty begins with none, or with its debt.
 *
 * In a lane the tenant that has used least is next (tenants.ts), and a tenant's sequences are in Preble's groups; but gangs, whose
 * members arrive together, are first come, first served, so that one is finished before the next begins.
 *
 * Whoever has waited longer than its lane allows is aged. Of every four that are taken one is the oldest of the aged,
 * so that nobody waits for more than four turns for each that came before; the other three quarters keep the order that
 * saves most, also under a load that makes everybody wait too long. It is four of all, not of a step's: a step admits
 * one prompt or none where prompts are long.
 */
export class Lanes implements QueueOrder {
  readonly hasLanes = true;
  readonly #lanes: readonly Lane[];
  readonly #ageingMs: readonly [number, number, number];
  /** How many were taken since the last one that was aged, as far as it matters. */
  #others = AGED_EVERY - 1;
  /** Whom `peek` returned because it is aged. */
  #aged: Sequence | null = null;

  constructor(
    policy: LanesPolicy,
    ageingMs: readonly [number, number, number],
    lookUp: (sequence: Sequence) => number,
  ) {
    this.#ageingMs = ageingMs;
    const groups = (): PriorityGroups => new PriorityGroups(policy.groups, lookUp);
    this.#lanes = policy.credits.map((weight, lane): Lane => {
      assert(weight > 0, "every lane has a share");
      const tenants = new Tenants(policy.tenantSlack, lane === GANG ? undefined : groups);
      return { weight, tenants, arrivals: new ArrivalList(), credit: 0 };
    });
  }

  get size(): number {
    let size = 0;
    for (const { arrivals } of this.#lanes) size += arrivals.size;
    return size;
  }

  beginStep(): void {}

  add(sequence: Sequence): void {
    const lane = this.#lanes[sequence.lane]!;
    if (lane.arrivals.size === 0) lane.credit = Math.min(0, lane.credit);
    lane.arrivals.add(sequence);
    lane.tenants.add(sequence);
  }

  remove(sequence: Sequence): boolean {
    const lane = this.#lanes[sequence.lane]!;
    if (!lane.arrivals.remove(sequence)) return false;
    assert(lane.tenants.remove(sequence), "who waits in a lane is known to its tenant");
    return true;
  }

  peek(nowMs: number, passed: number): Sequence | null {
    this.#aged = this.#others === AGED_EVERY - 1 ? this.#oldestAged(nowMs, passed) : null;
    return this.#aged ?? this.#richest(passed)?.tenants.peek(nowMs) ?? null;
  }

  take(sequence: Sequence, computedTokens: number): void {
    const lane = this.#lanes[sequence.lane]!;
    this.#share(lane, computedTokens);
    assert(lane.arrivals.remove(sequence), "the sequence waits");
    if (sequence === this.#aged) {
      this.#others = 0;
      lane.tenants.takeOutOfTurn(sequence, computedTokens);
    } else {
      this.#others = Math.min(this.#others + 1, AGED_EVERY - 1);
      lane.tenants.take(sequence, computedTokens);
    }
  }

  isAged({ lane, arrivedMs }: Sequence, nowMs: number): boolean {
    return nowMs - arrivedMs > this.#ageingMs[lane]!;
  }

  #oldestAged(nowMs: number, passed: number): Sequence | null {
    let oldest: Sequence | null = null;
    this.#lanes.forEach(({ arrivals: { first } }, lane) => {
      if (first === undefined || (passed & (1 << lane)) !== 0 || !this.isAged(first, nowMs)) return;
      if (oldest === null || first.arrival < oldest.arrival) oldest = first;
    });
    return oldest;
  }

  #richest(passed: number): Lane | null {
    let richest: Lane | null = null;
    this.#lanes.forEach((lane, index) => {
      if (lane.arrivals.size === 0 || (passed & (1 << index)) !== 0) return;
      if (richest === null || lane.credit > richest.credit) richest = lane;
    });
    return richest;
  }

  #share(taker: Lane, tokens: number): void {
    let weights = 0;
    for (const { arrivals, weight } of this.#lanes) if (arrivals.size > 0) weights += weight;
    for (const lane of this.#lanes) {
      if (lane.arrivals.size > 0) lane.credit += (tokens * lane.weight) / weights;
    }
    taker.credit -= tokens;
  }
}
