import { assert } from "../../core.ts";
import type { LanesPolicy } from "../../policy.ts";
import type { Sequence } from "../sequence.ts";
import { ArrivalList } from "./arrival-list.ts";
import type { ColdGate } from "./cold-gate.ts";
import { FirstCome } from "./first-come.ts";
import type { QueueOrder } from "./queue-order.ts";
import { Ranks } from "./ranks.ts";
import { ResponseRatio } from "./response-ratio.ts";
import { Tenants } from "./tenants.ts";

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
 * In a lane the tenant that has used least is next (tenants.ts), and of a tenant's sequences, by priority (ranks.ts), the one with the
 * highest response ratio (response-ratio.ts); but gangs, whose members arrive together, are first come, first served, so that one is finished
 * before the next begins.
 *
 * Nobody starves: lanes have their shares, tenants are kept even, and in a tenant a wait makes up for any cost. A sequence that
 * has waited longer than its lane allows is aged: admission then lets nobody pass it for want of room.
 */
export class Lanes implements QueueOrder {
  readonly hasLanes = true;
  readonly #lanes: readonly Lane[];
  readonly #ageingMs: readonly [number, number, number];
  readonly #gate: ColdGate;
  /** When `peek` looked. */
  #nowMs = 0;

  constructor(policy: LanesPolicy, ageingMs: readonly [number, number, number], gate: ColdGate) {
    this.#ageingMs = ageingMs;
    this.#gate = gate;
    const byRatio = (): QueueOrder => new ResponseRatio(gate);
    const byArrival = (): QueueOrder => new FirstCome();
    this.#lanes = policy.credits.map((weight, lane): Lane => {
      assert(weight > 0, "every lane has a share");
      const orderOf = lane === GANG ? byArrival : byRatio;
      const ranks = (): Ranks => new Ranks(orderOf, (sequence, nowMs) => this.isAged(sequence, nowMs));
      const tenants = new Tenants(policy.tenantSlack, ranks, lane === GANG ? null : gate);
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

  matched(sequence: Sequence): void {
    this.#lanes[sequence.lane]!.tenants.matched(sequence);
  }

  peek(nowMs: number, passed: number): Sequence | null {
    this.#nowMs = nowMs;
    return this.#richest(passed)?.tenants.peek(nowMs) ?? null;
  }

  take(sequence: Sequence, computedTokens: number): void {
    const lane = this.#lanes[sequence.lane]!;
    this.#share(lane, computedTokens);
    assert(lane.arrivals.remove(sequence), "the sequence waits");
    lane.tenants.take(sequence, computedTokens);
    this.#gate.taken(sequence, this.#nowMs);
  }

  isAged({ lane, arrivedMs }: Sequence, nowMs: number): boolean {
    return nowMs - arrivedMs > this.#ageingMs[lane]!;
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
