import { Database } from "bun:sqlite";
import { openOwned } from "../../jobs/database.ts";
import { yieldIfSpent } from "../../time-slice.ts";
import type { ResponseObject } from "./codec.ts";
import type { Item } from "./items.ts";

/** What is kept of each key's responses at most. */
export interface StoreLimits {
  readonly countMax: number;
  readonly bytesMax: number;
  readonly ageSecondsMax: number;
  /** Responses that one may go on from, one behind the other. */
  readonly chainMax: number;
}

export const defaultStoreLimits: StoreLimits = Object.freeze({
  countMax: 10_000,
  bytesMax: 64 * 2 ** 20,
  ageSecondsMax: 30 * 86_400,
  chainMax: 1_000,
});

/** A response, and what it was made from. */
export interface KeptResponse {
  readonly response: ResponseObject;
  /** The request's own items, not those of the response that it goes on from. */
  readonly input: readonly Item[];
  readonly previousId: string | null;
}

interface Row {
  readonly id: string;
  readonly record: string;
}

interface Held {
  count: number;
  bytes: number;
}

/** A chain of responses, or the id at which it breaks. */
export type Chain =
  | { readonly kept: readonly KeptResponse[] }
  | { readonly missing: string }
  | { readonly tooLong: true };

const tables = `
  CREATE TABLE IF NOT EXISTS responses (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, previous TEXT, created INTEGER NOT NULL, used INTEGER NOT NULL,
    bytes INTEGER NOT NULL, running INTEGER NOT NULL, record TEXT NOT NULL
  ) WITHOUT ROWID;
  CREATE INDEX IF NOT EXISTS responses_by_use ON responses (owner, used);
  CREATE INDEX IF NOT EXISTS responses_by_age ON responses (created);`;

/**
 * Responses that clients may ask for again or go on from: in a file, or in memory. Each key sees its own. When a key has more than it
 * may, those go first that were not used for longest; a response that is gone on from is used, and so is all that it goes on from.
 */
export class ResponseStore {
  readonly #database: Database;
  readonly limits: StoreLimits;
  readonly #nowSeconds: () => number;
  /** Orders uses: a later one is greater. */
  #uses: number;
  /** What is kept of each key's. */
  readonly #held = new Map<string, Held>();

  /** `path` null: in memory. Throws when the file cannot be used. */
  constructor(path: string | null, nowSeconds: () => number, limits: StoreLimits = defaultStoreLimits) {
    this.#database = path === null ? new Database(":memory:") : openOwned(path);
    this.limits = limits;
    this.#nowSeconds = nowSeconds;
    this.#database.run("PRAGMA locking_mode = EXCLUSIVE");
    this.#database.run("PRAGMA journal_mode = WAL");
    this.#database.run("PRAGMA synchronous = NORMAL");
    this.#database.run(tables);
    const last = this.#database.query<{ readonly last: number | null }, []>(
      "SELECT MAX(used) AS last FROM responses",
    );
    this.#uses = last.get()!.last ?? 0;
    this.#countAll();
  }

  /** Keeps a response, in place of what was kept of it before. Throws when it is too large, or the disk takes no more. */
  put(owner: string, kept: KeptResponse): void {
    const { response, previousId } = kept;
    const record = JSON.stringify(kept);
    const bytes = Buffer.byteLength(record);
    if (bytes > this.limits.bytesMax)
      throw new Error(`it has ${bytes} bytes, but ${this.limits.bytesMax} are kept of a key at most`);
    const put = this.#database.query(
      `INSERT INTO responses (id, owner, previous, created, used, bytes, running, record)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
    );
    const { id, status } = response;
    const isRunning = status === "in_progress" ? 1 : 0;
    try {
      this.#database.transaction(() => {
        this.#drop("owner = ? AND id = ?", owner, id);
        put.run(id, owner, previousId, this.#nowSeconds(), ++this.#uses, bytes, isRunning, record);
        this.#count(owner, 1, bytes);
        this.#makeRoom(owner);
      })();
    } catch (error) {
      this.#countAll(); // nothing of it was done
      throw error;
    }
  }

  /** Responses that were running when the process that ran them ended, with their owners. */
  interrupted(): readonly (KeptResponse & { readonly owner: string })[] {
    return this.#database
      .query<Row & { readonly owner: string }, []>(
        "SELECT owner, id, record FROM responses WHERE running = 1",
      )
      .all()
      .map((row) => ({ owner: row.owner, ...read(row) }));
  }

  /** null: there is none of this id, or it is another key's. */
  get(owner: string, id: string): KeptResponse | null {
    const row = this.#database
      .query<Row, [string, string, number]>(
        "SELECT id, record FROM responses WHERE id = ? AND owner = ? AND created > ?",
      )
      .get(id, owner, this.#oldest);
    return row === null ? null : read(row);
  }

  /** The response of this id and all that it goes on from, the first one first. Uses them. A long one is read in slices, between
   *  which others on this thread have their turn. */
  async chain(owner: string, id: string): Promise<Chain> {
    const { chainMax } = this.limits;
    const one = this.#database.query<Row & { readonly previous: string | null }, [string, string, number]>(
      "SELECT id, previous, record FROM responses WHERE id = ? AND owner = ? AND created > ?",
    );
    const kept: KeptResponse[] = [];
    const ids: string[] = [];
    let next: string | null = id;
    while (next !== null) {
      if (kept.length === chainMax) return { tooLong: true };
      const row = one.get(next, owner, this.#oldest);
      if (row === null) return { missing: next };
      kept.push(read(row));
      ids.push(row.id);
      next = row.previous;
      await yieldIfSpent();
    }
    const use = this.#database.query("UPDATE responses SET used = ? WHERE id = ?");
    this.#database.transaction(() => {
      for (const used of ids.reverse()) use.run(++this.#uses, used);
    })();
    return { kept: kept.reverse() };
  }

  /** False: there was none. */
  delete(owner: string, id: string): boolean {
    return this.#drop("owner = ? AND id = ?", owner, id) > 0;
  }

  close(): void {
    this.#database.close();
  }

  get #oldest(): number {
    return this.#nowSeconds() - this.limits.ageSecondsMax;
  }

  #makeRoom(owner: string): void {
    const { countMax, bytesMax } = this.limits;
    this.#drop("created <= ?", this.#oldest);
    for (;;) {
      const { count, bytes } = this.#held.get(owner)!;
      if (count <= countMax && bytes <= bytesMax) return;
      this.#drop("id = (SELECT id FROM responses WHERE owner = ? ORDER BY used LIMIT 1)", owner);
    }
  }

  /** Deletes what `condition` holds for. Returns how many there were. */
  #drop(condition: string, ...values: (string | number)[]): number {
    const dropped = this.#database
      .query<{ readonly owner: string; readonly bytes: number }, (string | number)[]>(
        `DELETE FROM responses WHERE ${condition} RETURNING owner, bytes`,
      )
      .all(...values);
    for (const { owner, bytes } of dropped) this.#count(owner, -1, -bytes);
    return dropped.length;
  }

  #countAll(): void {
    this.#held.clear();
    const totals = this.#database.query<Held & { readonly owner: string }, []>(
      "SELECT owner, COUNT(*) AS count, SUM(bytes) AS bytes FROM responses GROUP BY owner",
    );
    for (const { owner, count, bytes } of totals.all()) this.#held.set(owner, { count, bytes });
  }

  #count(owner: string, count: number, bytes: number): void {
    const held = this.#held.get(owner) ?? { count: 0, bytes: 0 };
    this.#held.set(owner, { count: held.count + count, bytes: held.bytes + bytes });
  }
}

function read({ record }: Row): KeptResponse {
  return JSON.parse(record) as KeptResponse;
}
