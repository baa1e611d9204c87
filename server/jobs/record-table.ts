import type { Database } from "bun:sqlite";
import { sumOf } from "./database.ts";
import { timeOfId } from "./records.ts";
import { onDisk, StoreError } from "./store-error.ts";

/** Page of a listing. */
export interface Page<Record> {
  readonly records: readonly Record[];
  readonly hasMore: boolean;
}

export interface PageQuery {
  /** Id after which the page starts; null for the first page. */
  readonly after: string | null;
  readonly limit: number;
  /** "desc": newest first. */
  readonly order: "asc" | "desc";
  /** Beginning of the ids to list; absent: all. */
  readonly idPrefix?: string;
}

/** Fields by which records are found. */
interface Kept {
  readonly id: string;
  readonly owner: string;
  readonly createdAt: number;
}

interface Row {
  readonly id: string;
  readonly owner: string;
  readonly created: number;
  readonly record: string;
  readonly sum: string;
}

/**
 * Position of a deleted record, such as the last one of a page that a client deletes while it lists. null if
 * the id has no time.
 */
function placeOf(id: string): Pick<Kept, "id" | "createdAt"> | null {
  const time = timeOfId(id);
  return time === null ? null : { id, createdAt: time };
}

/** Files or batches of a store. Reads throw StoreError if a record fails its checksum. */
export class RecordTable<Record extends Kept> {
  readonly #database: Database;
  readonly #name: "files" | "batches";

  constructor(database: Database, name: "files" | "batches") {
    this.#database = database;
    this.#name = name;
  }

  /** Adds a record, or replaces the one with its id. */
  put(record: Record): void {
    const { id, owner, createdAt } = record;
    const text = JSON.stringify(record);
    this.#database.run(
      `INSERT OR REPLACE INTO ${this.#name} (id, owner, created, record, sum) VALUES (?, ?, ?, ?, ?)`,
      [id, owner, createdAt, text, sumOf(id, owner, createdAt, text)],
    );
  }

  delete(id: string): void {
    this.#database.run(`DELETE FROM ${this.#name} WHERE id = ?`, [id]);
  }

  get(id: string, owner: string): Record | null {
    return this.#read("WHERE id = ? AND owner = ?", id, owner)[0] ?? null;
  }

  /** Records of all owners, oldest first. */
  all(): Record[] {
    return this.#read("ORDER BY created, id");
  }

  /** Page of one owner's records. */
  list(owner: string, { after, limit, order, idPrefix = "" }: PageQuery): Page<Record> {
    const from = after === null ? null : (this.get(after, owner) ?? placeOf(after));
    const behind = `AND (created, id) ${order === "desc" ? "<" : ">"} (?, ?)`;
    const found = this.#read(
      `WHERE owner = ? AND id GLOB ? ${from === null ? "" : behind} ORDER BY created ${order}, id ${order} LIMIT ?`,
      owner,
      `${idPrefix}*`,
      ...(from === null ? [] : [from.createdAt, from.id]),
      limit + 1,
    );
    return { records: found.slice(0, limit), hasMore: found.length > limit };
  }

  #read(which: string, ...values: (string | number)[]): Record[] {
    const query = this.#database.query<Row, (string | number)[]>(`SELECT * FROM ${this.#name} ${which}`);
    return onDisk(() => query.all(...values)).map(({ id, owner, created, record, sum }) => {
      if (sum === sumOf(id, owner, created, record)) return JSON.parse(record) as Record;
      throw new StoreError(`The record ${id} of ${this.#name} in the store is not what was written.`);
    });
  }
}
