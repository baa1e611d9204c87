/** Ledger of the use of each key, by day (UTC). */
import { Database } from "bun:sqlite";
import { ApiError } from "../http/errors.ts";
import { ownDatabase } from "../own-files.ts";
import type { KeyTotals } from "./key-totals.ts";
import { addUse, type KeyUse, noUse, type Quota, type UsageEntry, type UsageRow } from "./use.ts";

const DAY_MS = 86_400_000;
/** Days that are kept. */
const DAYS_KEPT = 400;
const FLUSH_MS = 1000;

const table = `CREATE TABLE IF NOT EXISTS usage (
  tenant TEXT NOT NULL, day INTEGER NOT NULL, record TEXT NOT NULL, PRIMARY KEY (tenant, day)
) WITHOUT ROWID`;

/** Counts use, in a file or in memory, and refuses keys that have used up their quota of the day. */
export class UsageLedger implements KeyUse {
  readonly totals: KeyTotals | null;
  readonly #database: Database;
  /** True while writes fail, which is logged once. */
  #isFailing = false;
  readonly #quotas: ReadonlyMap<string, number>;
  readonly #nowMs: () => number;
  /** Rows of today by tenant. */
  readonly #today = new Map<string, UsageRow>();
  readonly #changed = new Set<UsageRow>();
  #flush: ReturnType<typeof setTimeout> | undefined;

  /** `path` null: in memory. Throws if the file is unusable. */
  constructor(
    path: string | null,
    quotas: readonly Quota[] = [],
    totals: KeyTotals | null = null,
    nowMs: () => number = () => Date.now(),
  ) {
    this.totals = totals;
    if (path !== null) ownDatabase(path);
    this.#database = new Database(path ?? ":memory:", { create: true, readwrite: true });
    this.#database.run("PRAGMA journal_mode = WAL");
    this.#database.run(table);
    this.#quotas = new Map(quotas.map(({ tenant, tokensPerDay }) => [tenant, tokensPerDay]));
    this.#nowMs = nowMs;
    this.#database.run("DELETE FROM usage WHERE day < ?", [this.#day - DAYS_KEPT]);
  }

  /** Adds a request's use to its key. */
  charge(tenant: string, entry: UsageEntry): void {
    const row = this.#rowOf(tenant);
    addUse(row, entry);
    this.totals?.charge(tenant, entry);
    this.#changed.add(row);
    this.#flush ??= setTimeout(() => this.flush(), FLUSH_MS);
  }

  /** Throws 429 if the key has used up its quota of today. */
  expectWithin(tenant: string): void {
    const most = this.#quotas.get(tenant);
    if (most === undefined) return;
    const { promptTokens, cachedTokens, completionTokens } = this.#rowOf(tenant);
    const used = promptTokens - cachedTokens + completionTokens;
    if (used < most) return;
    const endMs = (this.#day + 1) * DAY_MS;
    const message = `this key has used ${used} tokens today, and its quota is ${most} a day; it begins anew at ${new Date(endMs).toISOString().slice(0, 16)}Z`;
    throw new ApiError(429, "rate_limit_error", message, {
      apiCode: "insufficient_quota",
      retryAfterSeconds: Math.max(1, Math.ceil((endMs - this.#nowMs()) / 1000)),
      shouldRetry: false,
    });
  }

  /** Use of the last `days` days, oldest first. `tenant` null: of all keys. */
  rows(tenant: string | null, days: number): readonly UsageRow[] {
    this.flush();
    const rows = this.#database
      .query<{ readonly record: string }, [number]>(
        "SELECT record FROM usage WHERE day > ? ORDER BY day, tenant",
      )
      .all(this.#day - days)
      .map(({ record }) => JSON.parse(record) as UsageRow);
    return tenant === null ? rows : rows.filter((row) => row.tenant === tenant);
  }

  /** Writes changes. A failure is logged, and the counts stay in memory. */
  flush(): void {
    clearTimeout(this.#flush);
    this.#flush = undefined;
    try {
      this.#database.transaction(() => {
        for (const row of this.#changed)
          this.#database.run("INSERT OR REPLACE INTO usage VALUES (?, ?, ?)", [
            row.tenant,
            row.day,
            JSON.stringify(row),
          ]);
      })();
      this.#changed.clear();
      this.#isFailing = false;
    } catch (error) {
      if (!this.#isFailing)
        console.error(`the use of keys is not kept until the disk takes it: ${String(error)}`);
      this.#isFailing = true;
    }
  }

  close(): void {
    this.flush();
    this.#database.close();
  }

  get #day(): number {
    return Math.floor(this.#nowMs() / DAY_MS);
  }

  #rowOf(tenant: string): UsageRow {
    const day = this.#day;
    const known = this.#today.get(tenant);
    if (known?.day === day) return known;
    const kept = this.#database
      .query<{ readonly record: string }, [string, number]>(
        "SELECT record FROM usage WHERE tenant = ? AND day = ?",
      )
      .get(tenant, day);
    const row: UsageRow = kept === null ? { tenant, day, ...noUse() } : JSON.parse(kept.record);
    this.#today.set(tenant, row);
    return row;
  }
}
