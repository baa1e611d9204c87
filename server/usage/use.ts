/** Use of keys, as it is counted and told. */

/** End of a request. */
export type UsageOutcome = "answered" | "failed" | "cancelled";

/** Use of one request. */
export interface UsageEntry {
  readonly outcome: UsageOutcome;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  /** Device time that its steps would have taken alone. */
  readonly deviceMs: number;
}

/** Use of one key on one day. */
export interface UsageRow {
  readonly tenant: string;
  /** Days since 1970, UTC. */
  readonly day: number;
  answered: number;
  failed: number;
  cancelled: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  deviceMs: number;
}

/** Most tokens of a key on a day, prompts and answers together; cached ones do not count. */
export interface Quota {
  readonly tenant: string;
  readonly tokensPerDay: number;
}

/** Name of a key for people, from its tenant; null: the server needs no keys. */
export function keyName(tenant: string): string | null {
  return tenant === "" ? null : tenant.slice(0, 16);
}

/** Counts what keys use, and refuses those that have used up their quota. */
export interface KeyUse {
  /** Adds a request's use to its key. */
  charge(tenant: string, entry: UsageEntry): void;
  /** Throws 429 if the key has used up its quota of today. */
  expectWithin(tenant: string): void;
  /** Use of the last `days` days, oldest first. `tenant` null: of all keys. */
  rows(tenant: string | null, days: number): readonly UsageRow[];
}
