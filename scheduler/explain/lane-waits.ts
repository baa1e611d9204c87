import { causeIndex } from "./causes.ts";
import type { TimeAccount } from "./time-account.ts";

/** Reasons for which the next sequence of a lane is not admitted, by cause. */
const REASONS = [
  causeIndex.memory,
  causeIndex.slots,
  causeIndex.other_prompts,
  causeIndex.other_lane,
  causeIndex.other_tenants,
];

/** Reason for which no sequence of a lane is admitted. */
export type WaitReason = "memory" | "slots" | "other_prompts" | "other_lane" | "other_tenants";

const placeOf: Readonly<Record<WaitReason, number>> = {
  memory: 0,
  slots: 1,
  other_prompts: 2,
  other_lane: 3,
  other_tenants: 4,
};

/**
 * Reasons for which the sequences of one lane wait. All of them wait for the one that is next, so the lane has one
 * reason at a time, and running sums of milliseconds by reason. A sequence stores the sums when it joins, and adds
 * the differences when it leaves. So its cost does not grow with the number of steps that it waits.
 *
 * While the next sequence is of another tenant, a sequence waits for its tenant's turn.
 */
export class LaneWaits {
  #size = 0;
  #place = placeOf.other_prompts;
  /** Tenant of the next sequence; null: not known, so that the reason counts for all tenants. */
  #tenant: string | null = null;
  #sinceMs = 0;
  /** Sums while the tenant was not known, and by tenant. */
  readonly #shared = new Float64Array(REASONS.length);
  readonly #own = new Map<string, Float64Array>();

  get isEmpty(): boolean {
    return this.#size === 0;
  }

  /** Sets the reason from now on. `tenant`: that of the next sequence; null: not known. */
  set(reason: WaitReason, tenant: string | null, nowMs: number): void {
    this.#advance(nowMs);
    this.#place = placeOf[reason];
    this.#tenant = tenant;
  }

  join(account: TimeAccount, tenant: string, nowMs: number): void {
    this.#advance(nowMs);
    this.#size += 1;
    const joined = account.joined ?? new Float64Array(2 * REASONS.length);
    joined.set(this.#shared);
    joined.set(this.#ownOf(tenant), REASONS.length);
    account.joined = joined;
  }

  /** Accounts for the wait of a sequence that leaves the lane. */
  leave(account: TimeAccount, tenant: string, nowMs: number): void {
    this.#advance(nowMs);
    const own = this.#ownOf(tenant);
    const joined = account.joined!;
    let leftMs = Math.max(0, nowMs - account.sinceMs);
    for (const [place, cause] of REASONS.entries()) {
      const passedMs = this.#shared[place]! - joined[place]! + own[place]! - joined[REASONS.length + place]!;
      const spentMs = Math.min(leftMs, Math.max(0, passedMs));
      account.ms[cause]! += spentMs;
      leftMs -= spentMs;
    }
    account.ms[causeIndex.other_tenants]! += leftMs;
    account.sinceMs = nowMs;
    this.#size -= 1;
    if (this.#size === 0) this.#own.clear();
  }

  #advance(nowMs: number): void {
    const passedMs = Math.max(0, nowMs - this.#sinceMs);
    this.#sinceMs = nowMs;
    if (this.#size === 0) return;
    const sums = this.#tenant === null ? this.#shared : this.#ownOf(this.#tenant);
    sums[this.#place]! += passedMs;
  }

  #ownOf(tenant: string): Float64Array {
    let own = this.#own.get(tenant);
    if (own === undefined) {
      own = new Float64Array(REASONS.length);
      this.#own.set(tenant, own);
    }
    return own;
  }
}
