import { Database } from "bun:sqlite";
import { yieldIfSpent } from "../../../base/time-slice.ts";
import { ownDatabase } from "../../own-files.ts";
import type { ResponseObject } from "./codec.ts";
import type { Item } from "./items.ts";

/** Limits on stored responses: count and bytes for each API key, age and chain length for all. */
export interface StoreLimits {
  readonly countMax: number;
  readonly bytesMax: number;
  readonly ageSecondsMax: number;
  /** Length of a chain of responses that continue one another. */
  readonly chainMax: number;
}

export const defaultStoreLimits: StoreLimits = Object.freeze({
  countMax: 10_000,
  bytesMax: 64 * 2 ** 20,
  ageSecondsMax: 30 * 86_400,
  chainMax: 1_000,
});

/** A response with its input. */
export interface KeptResponse {
  readonly response: ResponseObject;
  /** The request's own items, without those of the response that it continues. */
  readonly input: readonly Item[];
  readonly previousId: string | null;
}

/** A conversation with its items, oldest first. */
export interface KeptConversation {
  readonly id: string;
  /** Unix time in seconds. */
  readonly createdAt: number;
  readonly metadata: Readonly<Record<string, string>>;
  readonly items: readonly Item[];
}

const CONVERSATION = "conv_";

export function newConversationId(): string {
  return `${CONVERSATION}${crypto.randomUUID().replaceAll("-", "")}`;
}

/** True for the id of a conversation. Its row is in the table of responses, whose limits they share. */
export function isConversation(id: string): boolean {
  return id.startsWith(CONVERSATION);
}

interface Row {
  readonly id: string;
  readonly record: string;
}

interface Held {
  count: number;
  bytes: number;
}

/** Chain of responses, oldest first; or the missing id that breaks it; or `tooLong` if it exceeds `chainMax`. */
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
 * Store of responses and conversations that clients may fetch or continue, in a file or in memory. Each key sees
 * its own. A key beyond its limits loses the least recently used ones. Continuing a response uses it and all its
 * predecessors.
 */
export class ResponseStore {
  readonly #database: Database;
  readonly limits: StoreLimits;
  readonly #nowSeconds: () => number;
  /** Counter that orders uses: a later use is greater. */
  #uses: number;
  /** Number and bytes of stored responses by key. */
  readonly #held = new Map<string, Held>();

  /** `path` null: in memory. Throws if the file is unusable. */
  constructor(path: string | null, nowSeconds: () => number, limits: StoreLimits = defaultStoreLimits) {
    if (path !== null) ownDatabase(path);
    this.#database = new Database(path ?? ":memory:", { create: true, readwrite: true });
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

  /** Stores a response in place of its earlier version. Throws if it is too large or the disk is full. */
  put(owner: string, kept: KeptResponse): void {
    const { id, status } = kept.response;
    this.#put(owner, id, kept, kept.previousId, status === "in_progress");
  }

  /** Stores a conversation in place of its earlier version. Throws if it is too large or the disk is full. */
  putConversation(owner: string, kept: KeptConversation): void {
    this.#put(owner, kept.id, kept, null, false);
  }

  #put(owner: string, id: string, kept: object, previousId: string | null, isRunning: boolean): void {
    const record = JSON.stringify(kept);
    const bytes = Buffer.byteLength(record);
    if (bytes > this.limits.bytesMax)
      throw new Error(`it has ${bytes} bytes, but ${this.limits.bytesMax} are kept of a key at most`);
    const put = this.#database.query(
      `INSERT INTO responses (id, owner, previous, created, used, bytes, running, record)
       VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
    );
    try {
      this.#database.transaction(() => {
        this.#drop("owner = ? AND id = ?", owner, id);
        put.run(id, owner, previousId, this.#nowSeconds(), ++this.#uses, bytes, isRunning ? 1 : 0, record);
        this.#count(owner, 1, bytes);
        this.#makeRoom(owner);
      })();
    } catch (error) {
      this.#countAll(); // the transaction was rolled back
      throw error;
    }
  }

  /** Responses that ran when an earlier process ended, with their owners. */
  interrupted(): readonly (KeptResponse & { readonly owner: string })[] {
    return this.#database
      .query<Row & { readonly owner: string }, []>(
        "SELECT owner, id, record FROM responses WHERE running = 1",
      )
      .all()
      .map((row) => ({ owner: row.owner, ...read(row) }));
  }

  /** Returns a response; null if there is none, it is too old, or it belongs to another key. */
  get(owner: string, id: string): KeptResponse | null {
    const row = isConversation(id) ? null : this.#row(owner, id);
    return row === null ? null : read(row);
  }

  /** Returns a conversation and marks it as used; null as for `get`. */
  conversation(owner: string, id: string): KeptConversation | null {
    const row = isConversation(id) ? this.#row(owner, id) : null;
    if (row === null) return null;
    this.#use([id]);
    return JSON.parse(row.record) as KeptConversation;
  }

  #row(owner: string, id: string): Row | null {
    return this.#database
      .query<Row, [string, string, number]>(
        "SELECT id, record FROM responses WHERE id = ? AND owner = ? AND created > ?",
      )
      .get(id, owner, this.#oldest);
  }

  /**
   * Reads the response and all its predecessors, and marks them as used. Reads long chains in slices, and yields
   * to other work on this thread in between.
   */
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
      const row: (Row & { readonly previous: string | null }) | null = isConversation(next)
        ? null
        : one.get(next, owner, this.#oldest);
      if (row === null) return { missing: next };
      kept.push(read(row));
      ids.push(row.id);
      next = row.previous;
      await yieldIfSpent();
    }
    this.#use(ids.reverse());
    return { kept: kept.reverse() };
  }

  /** Marks responses as used. Their order of use is no reason to refuse them: a failure is logged. */
  #use(ids: readonly string[]): void {
    const use = this.#database.query("UPDATE responses SET used = ? WHERE id = ?");
    try {
      this.#database.transaction(() => {
        for (const id of ids) use.run(++this.#uses, id);
      })();
    } catch (error) {
      console.error(`the use of responses is not kept: ${String(error)}`);
    }
  }

  /** Deletes a response or a conversation. Returns false if there was none. */
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

  /** Deletes the rows that match the condition. Returns their number. */
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
