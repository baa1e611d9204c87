import { assert } from "../../../base/assert.ts";
import type { Objective } from "../../core.ts";
import { type LaneRules, objectiveOrder } from "../../objective.ts";
import type { LanesPolicy } from "../../policy.ts";
import type { Sequence } from "../sequence.ts";
import { ArrivalList } from "./arrival-list.ts";
import type { ColdGate } from "./cold-gate.ts";
import { FirstCome } from "./first-come.ts";
import { Programs } from "./programs.ts";
import type { QueueOrder } from "./queue-order.ts";
import { Ranks } from "./ranks.ts";
import { hasHigherRatio, ResponseRatio } from "./response-ratio.ts";
import { Tenants } from "./tenants.ts";

interface Lane extends LaneRules {
  readonly objective: Objective;
  readonly tenants: Tenants;
  readonly arrivals: ArrivalList<Sequence>;
  /** Deficit counter: tokens that the lane lacks of its share; below 0: tokens beyond its share. */
  balance: number;
}

/**
 * Set of lanes, one for each objective (objective.ts). Lanes that are not empty share the tokens of prompts by their
 * credits (as deficit round robin does, Shreedhar and Varghese, 1995). A sequence costs its lane the tokens that it
 * computes. All non-empty lanes together receive that number in proportion to their credits. The lane with the largest
 * balance is next, ties to the first. An empty lane saves no balance up, but keeps its debt.
 *
 * In a lane the tenant that has used least is next (tenants.ts), and its sequences are ordered by priority
 * first (ranks.ts). Then the one with the highest response ratio is next (response-ratio.ts), or the one that
 * came first. Calls of programs keep their programs' order (programs.ts).
 *
 * No sequence starves: lanes have their shares, tenants are kept even, and in a tenant a wait makes up for
 * any cost. A sequence that has waited longer than its lane's `ageingMs` is aged. If it lacks room, admission
 * then lets no other overtake it.
 */
export class Lanes implements QueueOrder {
  readonly separatesObjectives = true;
  readonly #lanes: readonly Lane[];
  readonly #gate: ColdGate;
  /** Time of the last `peek`. */
  #nowMs = 0;

  constructor({ lanes, tenantSlack, tenantReach }: LanesPolicy, gate: ColdGate) {
    this.#gate = gate;
    const byRatio = (): QueueOrder =>
      new Programs(new ResponseRatio(gate), (call, other, nowMs) => hasHigherRatio(gate, call, other, nowMs));
    const byArrival = (): QueueOrder => new Programs(new FirstCome());
    this.#lanes = objectiveOrder.map(({ name: objective, isFirstCome }): Lane => {
      const { credits, ageingMs } = lanes[objective];
      assert(credits > 0, "every lane has a share");
      const orderOf = isFirstCome ? byArrival : byRatio;
      const ranks = (): Ranks => new Ranks(orderOf, (sequence, nowMs) => this.isAged(sequence, nowMs));
      const tenants = new Tenants(tenantSlack, tenantReach, ranks, isFirstCome ? null : gate);
      return { objective, credits, ageingMs, tenants, arrivals: new ArrivalList(), balance: 0 };
    });
  }

  get size(): number {
    let size = 0;
    for (const { arrivals } of this.#lanes) size += arrivals.size;
    return size;
  }

  add(sequence: Sequence): void {
    const lane = this.#laneOf(sequence);
    if (lane.arrivals.size === 0) lane.balance = Math.min(0, lane.balance);
    lane.arrivals.add(sequence);
    lane.tenants.add(sequence);
  }

  adopt(sequence: Sequence): void {
    this.#laneOf(sequence).tenants.adopt(sequence);
  }

  remove(sequence: Sequence): boolean {
    const lane = this.#laneOf(sequence);
    if (!lane.arrivals.remove(sequence)) return false;
    assert(lane.tenants.remove(sequence), "a sequence that waits in a lane is known to its tenant");
    return true;
  }

  matched(sequence: Sequence): void {
    this.#laneOf(sequence).tenants.matched(sequence);
  }

  peek(nowMs: number, passed?: ReadonlySet<Objective>): Sequence | null {
    this.#nowMs = nowMs;
    return this.#richest(passed)?.tenants.peek(nowMs) ?? null;
  }

  take(sequence: Sequence, computedTokens: number): void {
    const lane = this.#laneOf(sequence);
    this.#share(lane, computedTokens);
    assert(lane.arrivals.remove(sequence), "the sequence waits");
    lane.tenants.take(sequence, computedTokens);
    this.#gate.taken(sequence, this.#nowMs);
  }

  isAged(sequence: Sequence, nowMs: number): boolean {
    return nowMs - sequence.arrivedMs > this.#laneOf(sequence).ageingMs;
  }

  #laneOf({ objective }: Sequence): Lane {
    return this.#lanes[objective.precedence]!;
  }

  #richest(passed?: ReadonlySet<Objective>): Lane | null {
    let richest: Lane | null = null;
    for (const lane of this.#lanes) {
      if (lane.arrivals.size === 0 || passed?.has(lane.objective) === true) continue;
      if (richest === null || lane.balance > richest.balance) richest = lane;
    }
    return richest;
  }

  #share(taker: Lane, tokens: number): void {
    let total = 0;
    for (const { arrivals, credits } of this.#lanes) if (arrivals.size > 0) total += credits;
    for (const lane of this.#lanes) {
      if (lane.arrivals.size > 0) lane.balance += (tokens * lane.credits) / total;
    }
    taker.balance -= tokens;
  }
}
