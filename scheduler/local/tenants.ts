import { assert } from "../core.ts";
import { FirstCome } from "./first-come.ts";
import type { QueueOrder } from "./queue-order.ts";
import type { Sequence } from "./sequence.ts";

/** Debt grows by generated tokens and by occupancy to so many turns' worth at most: what a tenant used while nobody
 *  else wanted it must not keep it out for long. */
const DEBT_TURNS_MAX = 8;
/** Tokens charged for each cached token and millisecond: a hundredth of a token per second. */
const OCCUPANCY = 0.00001;

/** What a tenant may still use before others have their turn, in tokens; below 0 it is in debt. */
export class Account {
  tokens = 0;
  readonly #debtMax: number;

  constructor(quantum: number) {
    this.#debtMax = quantum * DEBT_TURNS_MAX;
  }

  /** One token was generated. */
  chargeOutput(): void {
    this.#charge(1);
  }

  /** `tokens` that it did not compute were held in the cache for it for `ms`. */
  chargeOccupancy(tokens: number, ms: number): void {
    this.#charge(tokens * ms * OCCUPANCY);
  }

  #charge(tokens: number): void {
    if (this.tokens - tokens >= -this.#debtMax) this.tokens -= tokens;
    else if (this.tokens > -this.#debtMax) this.tokens = -this.#debtMax;
  }
}

interface Tenant {
  readonly account: Account;
  readonly order: QueueOrder;
}

/**
 * Fair shares of one lane: a deficit round robin over the tenants that wait. A turn is worth a quantum of tokens, and
 * lasts while there are tokens left; a sequence costs what it computes: its prompt without what is cached, and, as they
 * come, the tokens that it generates. What is cached is charged for the room that it takes, which is a hundredth of a
 * token for each second. As costs are known only afterwards, an account may be overdrawn; the debt is paid from the
 * turns to come. Between tenants that always wait, what they computed differs by a quantum and a sequence at most.
 *
 * Nobody saves up: whoever has nothing waiting loses what is left, but keeps debts.
 */
export class Tenants {
  readonly #quantum: number;
  readonly #orderOf: () => QueueOrder;
  readonly #byName = new Map<string, Tenant>();
  /** Those that wait, in the order of their turns; `#next` has the next one. */
  readonly #ring: Tenant[] = [];
  #next = 0;
  #current: Tenant | null = null;
  #size = 0;

  /** `orderOf` makes the order of one tenant's sequences. */
  constructor(quantum: number, orderOf: () => QueueOrder = () => new FirstCome()) {
    assert(quantum > 0, "a turn is worth something");
    this.#quantum = quantum;
    this.#orderOf = orderOf;
  }

  get size(): number {
    return this.#size;
  }

  add(sequence: Sequence): void {
    const tenant = this.#tenantOf(sequence);
    sequence.account = tenant.account;
    if (tenant.order.size === 0) this.#ring.push(tenant);
    tenant.order.add(sequence);
    this.#size += 1;
  }

  /** False if it does not wait. */
  remove(sequence: Sequence): boolean {
    const tenant = this.#tenantOf(sequence);
    if (!tenant.order.remove(sequence)) return false;
    this.#left(tenant);
    return true;
  }

  /** Whose turn it is; null: nobody waits. */
  peek(nowMs: number): Sequence | null {
    if (this.#size === 0) return null;
    let tenant = this.#current;
    for (let turns = 0; tenant === null || tenant.order.size === 0 || tenant.account.tokens <= 0; turns++) {
      if (turns === this.#ring.length) this.#forgiveRounds();
      tenant = this.#ring[this.#next]!;
      this.#next = (this.#next + 1) % this.#ring.length;
      tenant.account.tokens += this.#quantum;
    }
    this.#current = tenant;
    return tenant.order.peek(nowMs, 0);
  }

  /** Takes out the one that `peek` returned, for so many tokens. */
  take(sequence: Sequence, computedTokens: number): void {
    const tenant = this.#tenantOf(sequence);
    tenant.order.take(sequence, computedTokens);
    this.#spend(tenant, computedTokens);
  }

  /** Takes out any that waits, for so many tokens. */
  takeOutOfTurn(sequence: Sequence, computedTokens: number): void {
    const tenant = this.#tenantOf(sequence);
    assert(tenant.order.remove(sequence), "the sequence waits");
    this.#spend(tenant, computedTokens);
  }

  #spend(tenant: Tenant, tokens: number): void {
    tenant.account.tokens -= tokens;
    this.#left(tenant);
  }

  #left(tenant: Tenant): void {
    this.#size -= 1;
    if (tenant.order.size > 0) return;
    const index = this.#ring.indexOf(tenant);
    this.#ring.splice(index, 1);
    if (index < this.#next) this.#next -= 1;
    if (this.#next >= this.#ring.length) this.#next = 0;
    if (tenant.account.tokens > 0) tenant.account.tokens = 0;
  }

  /** When everybody is in debt: the whole rounds that would go by without a pick, at once. */
  #forgiveRounds(): void {
    let rounds = Number.POSITIVE_INFINITY;
    for (const { account } of this.#ring) {
      rounds = Math.min(rounds, Math.floor(-account.tokens / this.#quantum));
    }
    for (const { account } of this.#ring) account.tokens += rounds * this.#quantum;
  }

  #tenantOf(sequence: Sequence): Tenant {
    const name = sequence.spec.service.tenant;
    let tenant = this.#byName.get(name);
    if (tenant === undefined) {
      tenant = { account: new Account(this.#quantum), order: this.#orderOf() };
      this.#byName.set(name, tenant);
    }
    return tenant;
  }
}
