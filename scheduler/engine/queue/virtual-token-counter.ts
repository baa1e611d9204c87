/** Tokens charged for each cached token and millisecond: a hundredth of a token per second. */
export const OCCUPANCY = 0.00001;

/** State that all counters of a lane share: true while any sequence waits. */
export interface Demand {
  isThere: boolean;
}

/** Counts the service of a tenant in tokens (VTC); only differences between tenants mean anything. */
export class VirtualTokenCounter {
  used = 0;
  readonly #demand: Demand;

  constructor(demand: Demand) {
    this.#demand = demand;
  }

  /** Charges one generated token. */
  chargeOutput(): void {
    this.#charge(1);
  }

  /** Charges `tokens` that the cache held for the tenant for `ms`. */
  chargeOccupancy(tokens: number, ms: number): void {
    this.#charge(tokens * ms * OCCUPANCY);
  }

  /** Charges tokens while a sequence waits; else use costs nothing. */
  #charge(tokens: number): void {
    if (this.#demand.isThere) this.used += tokens;
  }
}
