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

/** Sums of the use of requests. */
export interface UseSums {
  answered: number;
  failed: number;
  cancelled: number;
  promptTokens: number;
  cachedTokens: number;
  completionTokens: number;
  deviceMs: number;
}

/** Use of one key on one day. */
export interface UsageRow extends UseSums {
  readonly tenant: string;
  /** Days since 1970, UTC. */
  readonly day: number;
}

export function noUse(): UseSums {
  const requests = { answered: 0, failed: 0, cancelled: 0 };
  return { ...requests, promptTokens: 0, cachedTokens: 0, completionTokens: 0, deviceMs: 0 };
}

/** Adds the use of a request to sums. */
export function addUse(sums: UseSums, entry: UsageEntry): void {
  sums[entry.outcome] += 1;
  sums.promptTokens += entry.promptTokens;
  sums.cachedTokens += entry.cachedTokens;
  sums.completionTokens += entry.completionTokens;
  sums.deviceMs += entry.deviceMs;
}

/** First characters of a key's digest, which name it where it has no name. */
export function keyId(tenant: string): string {
  return tenant.slice(0, 16);
}

/** The same; null: the server needs no keys. */
export function keyName(tenant: string): string | null {
  return tenant === "" ? null : keyId(tenant);
}

/** Most tokens of a key on a day, prompts and answers together; cached ones do not count. */
export interface Quota {
  readonly tenant: string;
  readonly tokensPerDay: number;
}

/** Use of keys by label. */
export interface LabelledUse {
  byLabel(): ReadonlyMap<string, UseSums>;
}

/** Counts what keys use, and refuses those that have used up their quota. */
export interface KeyUse {
  /** Use of each key since the start; null: keys are not told apart. */
  readonly totals: LabelledUse | null;
  /** Adds a request's use to its key. */
  charge(tenant: string, entry: UsageEntry): void;
  /** Throws 429 if the key has used up its quota of today. */
  expectWithin(tenant: string): void;
  /** Use of the last `days` days, oldest first. `tenant` null: of all keys. */
  rows(tenant: string | null, days: number): readonly UsageRow[];
}
