import type { Database } from "bun:sqlite";
import { sumOf } from "./database.ts";
import { type LineRecord, type LineResult, type LineState, OPEN } from "./records.ts";
import { onDisk, StoreError } from "./store-error.ts";

/** Rows per read. */
const ROWS = 256;

interface Row {
  readonly line: number;
  readonly custom_id: string;
  readonly start: number;
  readonly bytes: number;
  readonly digest: string;
  readonly state: LineState;
  readonly result: string | null;
  readonly sum: string;
}

/**
 * Lines of all batches of a store, with their results. Reads throw StoreError if a row fails its checksum.
 */
export class LineTable {
  readonly #database: Database;

  constructor(database: Database) {
    this.#database = database;
  }

  /** Adds lines without results. */
  add(batch: string, lines: readonly LineRecord[]): void {
    const insert = this.#database.query(
      "INSERT INTO lines (batch, line, custom_id, start, bytes, digest, state, result, sum) VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?)",
    );
    for (const { line, customId, start, bytes, digest } of lines) {
      const sum = sumOfRow(batch, {
        line,
        custom_id: customId,
        start,
        bytes,
        digest,
        state: OPEN,
        result: null,
      });
      insert.run(batch, line, customId, start, bytes, digest, OPEN, sum);
    }
  }

  clear(batch: string): void {
    this.#database.run("DELETE FROM lines WHERE batch = ?", [batch]);
  }

  clearState(batch: string, state: LineState): void {
    this.#database.run("DELETE FROM lines WHERE batch = ? AND state = ?", [batch, state]);
  }

  /** Sets the results of lines. Throws StoreError for a line that already has one. */
  settle(batch: string, results: readonly LineResult[]): void {
    const update = this.#database.query(
      "UPDATE lines SET state = ?, result = ?, sum = ? WHERE batch = ? AND line = ?",
    );
    for (const { line, state, result } of results) {
      const row = this.#find(batch, line);
      if (row?.state !== OPEN) throw new StoreError(`Line ${line} of ${batch} cannot have a second result.`);
      update.run(state, result, sumOfRow(batch, { ...row, state, result }), batch, line);
    }
  }

  /** Line without a result. Throws StoreError if it has one. */
  open(batch: string, line: number): LineRecord {
    const row = onDisk(() => this.#find(batch, line));
    if (row?.state !== OPEN) throw new StoreError(`Line ${line} of ${batch} in the store is not open.`);
    expectKept(batch, row);
    return recordOf(row);
  }

  /** All lines without a result, in order. */
  *allOpen(batch: string): Generator<LineRecord> {
    for (const row of this.#rows(batch, OPEN)) yield recordOf(row);
  }

  /** All lines in order, each with its result; null if it has none. */
  *all(batch: string): Generator<readonly [line: LineRecord, result: string | null]> {
    for (const row of this.#rows(batch, null)) yield [recordOf(row), row.result];
  }

  /** Results of one state, in order of the lines. */
  *results(batch: string, state: LineState): Generator<string> {
    for (const { result } of this.#rows(batch, state)) yield result!;
  }

  /** Total bytes of the results of one state, with a line end each; 0 if there are none. */
  resultBytes(batch: string, state: LineState): number {
    const query = this.#database.query<{ readonly bytes: number | null }, [string, number]>(
      "SELECT SUM(OCTET_LENGTH(result) + 1) AS bytes FROM lines WHERE batch = ? AND state = ?",
    );
    return onDisk(() => query.get(batch, state))!.bytes ?? 0;
  }

  #find(batch: string, line: number): Row | null {
    return this.#database
      .query<Row, [string, number]>("SELECT * FROM lines WHERE batch = ? AND line = ?")
      .get(batch, line);
  }

  /** `state`: null for lines of any. */
  *#rows(batch: string, state: LineState | null): Generator<Row> {
    const query = this.#database.query<Row, (string | number)[]>(
      `SELECT * FROM lines WHERE batch = ? ${state === null ? "" : "AND state = ?"} AND line > ? ORDER BY line LIMIT ?`,
    );
    for (let after = 0; ; ) {
      const rows = onDisk(() => query.all(...[batch, state ?? []].flat(), after, ROWS));
      for (const row of rows) {
        expectKept(batch, row);
        yield row;
      }
      if (rows.length < ROWS) return;
      after = rows.at(-1)!.line;
    }
  }
}

function recordOf({ line, custom_id, start, bytes, digest }: Row): LineRecord {
  return { line, customId: custom_id, start, bytes, digest };
}

function expectKept(batch: string, row: Row): void {
  if (row.sum === sumOfRow(batch, row)) return;
  throw new StoreError(`Line ${row.line} of ${batch} in the store is not what was written.`);
}

function sumOfRow(batch: string, row: Omit<Row, "sum">): string {
  const { line, custom_id, start, bytes, digest, state, result } = row;
  return sumOf(batch, line, custom_id, start, bytes, digest, state, result);
}
