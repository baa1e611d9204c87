/** Tokens charged for each cached token and millisecond: a hundredth of a token per second. */
export const OCCUPANCY = 0.00001;

/** Whether any sequence waits, as all accounts of a lane know it. */
export interface Demand {
  isThere: boolean;
}

/** What a tenant has used, in tokens; only differences between tenants mean anything. */
export class VirtualTokenCounter {
  used = 0;
  readonly #demand: Demand;

  constructor(demand: Demand) {
    this.#demand = demand;
  }

  /** One token was generated. */
  chargeOutput(): void {
    this.#charge(1);
  }

  /** `tokens` that it did not compute were held in the cache for it for `ms`. */
  chargeOccupancy(tokens: number, ms: number): void {
    this.#charge(tokens * ms * OCCUPANCY);
  }

  /** While no sequence waits, use costs nothing. */
  #charge(tokens: number): void {
    if (this.#demand.isThere) this.used += tokens;
  }
}
