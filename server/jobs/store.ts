import type { Database } from "bun:sqlite";
import { join } from "node:path";
import { CommitMark } from "./commit-mark.ts";
import { openDatabase, sumOf } from "./database.ts";
import {
  type BatchRecord,
  type FileRecord,
  type LineRecord,
  type LineResult,
  type LineState,
  OPEN,
} from "./records.ts";
import { asStoreTrouble, StoreError } from "./store-error.ts";
import type { Upload } from "./upload.ts";
import { UploadFolder } from "./upload-folder.ts";

/** Rows that are read at a time. */
const ROWS = 256;

/** Part of a listing, newest first. */
export interface Page<Record> {
  readonly records: readonly Record[];
  readonly hasMore: boolean;
}

export interface PageQuery {
  /** Records behind this one. */
  readonly after: string | null;
  readonly limit: number;
  readonly order: "asc" | "desc";
}

interface Row {
  readonly id: string;
  readonly owner: string;
  readonly created: number;
  readonly record: string;
  readonly sum: string;
}

interface LineRow {
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
 * Everything that jobs keep, in one folder: uploads as files, the rest in one database. A change is on the disk when its call returns, or
 * has not happened: the process may end at any moment. Each row carries a sum of its values and each upload a digest: what was changed
 * behind the store's back is never given out, but told with its place (StoreError), and so are changes that are gone (commit-mark.ts). A full disk throws
 * DiskFullError, and changes nothing.
 */
export class JobStore {
  readonly #uploads: UploadFolder;
  readonly #database: Database;
  readonly #mark: CommitMark;
  /** Changes that were committed, since there is a store. */
  #commits: number;
  readonly #onWrite: (what: string) => void;

  /** `onWrite` is told before anything is written, and may throw instead: tests fail writes with it. */
  constructor(folder: string, onWrite: (what: string) => void = () => {}) {
    this.#onWrite = onWrite;
    this.#uploads = new UploadFolder(join(folder, "files"), (write) => this.#guarded("upload", write));
    this.#database = openDatabase(join(folder, "jobs.sqlite"), this.#uploads.isEmpty);
    try {
      this.#commits = this.#committed();
      this.#mark = new CommitMark(join(folder, "commits"), this.#commits);
      this.#checkRecords();
      this.#removeStrays();
    } catch (error) {
      this.#database.close();
      throw asStoreTrouble(error);
    }
  }

  close(): void {
    this.#database.close();
    this.#mark.close();
  }

  /** The database takes no more than so many pages from now on, or than it has. */
  limitPages(pages: number): void {
    this.#database.run(`PRAGMA max_page_count = ${pages}`);
  }

  /* ---- files ---- */

  /** Begins a file; nothing of it is there until it is finished. */
  upload(record: Omit<FileRecord, "bytes" | "content" | "expiresAt">): Upload {
    return this.#uploads.begin(record.id, (bytes, sha256, expiresAt) => {
      const whole: FileRecord = { ...record, bytes, expiresAt, content: { kind: "upload", sha256 } };
      this.#write(() => this.#put("files", whole.id, whole.owner, whole.createdAt, whole));
      return whole;
    });
  }

  file(owner: string, id: string): FileRecord | null {
    return this.#get<FileRecord>("files", id, owner);
  }

  files(owner: string, query: PageQuery): Page<FileRecord> {
    return this.#list<FileRecord>("files", owner, query);
  }

  /** Deletes a file, and with it the results that it is made of. */
  deleteFile({ id, content }: FileRecord): void {
    this.#write(() => {
      this.#database.run("DELETE FROM files WHERE id = ?", [id]);
      if (content.kind === "results") {
        this.#database.run("DELETE FROM lines WHERE batch = ? AND state = ?", [content.batch, content.state]);
      }
    });
    if (content.kind === "upload") this.#uploads.remove(id);
  }

  /** Deletes files whose time is over. */
  deleteExpired(nowSeconds: number): void {
    const rows = this.#database.query<Row, []>("SELECT * FROM files").all();
    for (const row of rows) {
      const file = this.#read<FileRecord>("files", row);
      if (file.expiresAt !== null && file.expiresAt <= nowSeconds) this.deleteFile(file);
    }
  }

  /** The bytes of a file, piece by piece. Throws StoreError when they are not what was written. */
  *content(file: FileRecord): Generator<Uint8Array> {
    if (file.content.kind === "upload") yield* this.#uploads.content(file, file.content.sha256);
    else {
      const { batch, state } = file.content;
      const bytes = this.resultBytes(batch, state);
      if (bytes !== file.bytes) {
        throw new StoreError(`The results of ${batch} have ${bytes} bytes, but ${file.bytes} were written.`);
      }
      for (const { result } of this.#lineRows(batch, state)) yield Buffer.from(`${result}\n`);
    }
  }

  /* ---- batches ---- */

  createBatch(batch: BatchRecord): void {
    this.#write(() => this.#putBatch(batch));
  }

  batch(owner: string, id: string): BatchRecord | null {
    return this.#get<BatchRecord>("batches", id, owner);
  }

  batches(owner: string, query: PageQuery): Page<BatchRecord> {
    return this.#list<BatchRecord>("batches", owner, query);
  }

  /** Of all keys, oldest first. */
  allBatches(): BatchRecord[] {
    const rows = this.#database.query<Row, []>("SELECT * FROM batches ORDER BY created, id").all();
    return rows.map((row) => this.#read<BatchRecord>("batches", row));
  }

  /** Changes what is known of a batch; with it, the files that come of it. */
  updateBatch(batch: BatchRecord, files: readonly FileRecord[] = []): void {
    this.#write(() => {
      this.#putBatch(batch);
      for (const file of files) this.#put("files", file.id, file.owner, file.createdAt, file);
    });
  }

  /** Forgets the lines that were read before: they are read again. */
  clearLines(batch: string): void {
    this.#write(() => this.#database.run("DELETE FROM lines WHERE batch = ?", [batch]));
  }

  addLines(batch: string, lines: readonly LineRecord[]): void {
    const insert = this.#database.query(
      "INSERT INTO lines (batch, line, custom_id, start, bytes, digest, state, result, sum) VALUES (?, ?, ?, ?, ?, ?, ?, NULL, ?)",
    );
    this.#write(() => {
      for (const { line, customId, start, bytes, digest } of lines) {
        const sum = lineSum(batch, {
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
    });
  }

  /** The lines of a batch that have no result yet, in order. */
  *openLines(batch: string): Generator<LineRecord> {
    for (const row of this.#lineRows(batch, OPEN)) yield lineOf(row);
  }

  /** A line of a batch that has no result yet. */
  openLine(batch: string, line: number): LineRecord {
    const query = this.#database.query<LineRow, [string, number]>(
      "SELECT * FROM lines WHERE batch = ? AND line = ?",
    );
    const row = this.#guarded("", () => query.get(batch, line));
    if (row?.state !== OPEN) throw new StoreError(`Line ${line} of ${batch} in the store is not open.`);
    expectKept(batch, row);
    return lineOf(row);
  }

  /** Writes results and what they change of their batch: all of it or nothing. A line has one result for ever. */
  commit(batch: BatchRecord, results: readonly LineResult[]): void {
    const find = this.#database.query<LineRow, [string, number]>(
      "SELECT * FROM lines WHERE batch = ? AND line = ?",
    );
    const update = this.#database.query(
      "UPDATE lines SET state = ?, result = ?, sum = ? WHERE batch = ? AND line = ?",
    );
    this.#write(() => {
      for (const { line, state, result } of results) {
        const row = find.get(batch.id, line);
        if (row === null || row.state !== OPEN) {
          throw new StoreError(`Line ${line} of ${batch.id} cannot have a second result.`);
        }
        update.run(state, result, lineSum(batch.id, { ...row, state, result }), batch.id, line);
      }
      this.#putBatch(batch);
    });
  }

  /** Bytes of the file that a batch's results of a state make; 0: there are none. */
  resultBytes(batch: string, state: LineState): number {
    const query = this.#database.query<{ readonly bytes: number | null }, [string, number]>(
      "SELECT SUM(OCTET_LENGTH(result) + 1) AS bytes FROM lines WHERE batch = ? AND state = ?",
    );
    const { bytes } = this.#guarded("", () => query.get(batch, state)!);
    return bytes ?? 0;
  }

  /** How many lines of a batch are in a state. */
  countLines(batch: string, state: LineState): number {
    return this.#database
      .query<{ readonly count: number }, [string, number]>(
        "SELECT COUNT(*) AS count FROM lines WHERE batch = ? AND state = ?",
      )
      .get(batch, state)!.count;
  }

  /** The bytes [start, start + bytes) of an upload, as far as there are so many; null: it is gone. */
  readUpload(file: string, start: number, bytes: number): Uint8Array | null {
    return this.#uploads.read(file, start, bytes);
  }

  /* ---- */

  *#lineRows(batch: string, state: LineState): Generator<LineRow> {
    const query = this.#database.query<LineRow, [string, number, number, number]>(
      "SELECT * FROM lines WHERE batch = ? AND state = ? AND line > ? ORDER BY line LIMIT ?",
    );
    for (let after = 0; ; ) {
      const rows = this.#guarded("", () => query.all(batch, state, after, ROWS));
      for (const row of rows) {
        expectKept(batch, row);
        yield row;
      }
      if (rows.length < ROWS) return;
      after = rows.at(-1)!.line;
    }
  }

  #putBatch(batch: BatchRecord): void {
    this.#put("batches", batch.id, batch.owner, batch.createdAt, batch);
  }

  #put(table: "files" | "batches", id: string, owner: string, created: number, record: object): void {
    const text = JSON.stringify(record);
    this.#database.run(
      `INSERT OR REPLACE INTO ${table} (id, owner, created, record, sum) VALUES (?, ?, ?, ?, ?)`,
      [id, owner, created, text, sumOf(id, owner, created, text)],
    );
  }

  #get<Record>(table: "files" | "batches", id: string, owner: string): Record | null {
    const row = this.#guarded("", () =>
      this.#database
        .query<Row, [string, string]>(`SELECT * FROM ${table} WHERE id = ? AND owner = ?`)
        .get(id, owner),
    );
    return row === null ? null : this.#read<Record>(table, row);
  }

  #read<Record>(table: string, { id, owner, created, record, sum }: Row): Record {
    if (sum !== sumOf(id, owner, created, record)) {
      throw new StoreError(`The record ${id} of ${table} in the store is not what was written.`);
    }
    return JSON.parse(record) as Record;
  }

  #list<Record>(table: "files" | "batches", owner: string, { after, limit, order }: PageQuery): Page<Record> {
    const from = after === null ? null : this.#get<{ readonly createdAt: number }>(table, after, owner);
    const isBehind = order === "desc" ? "<" : ">";
    const where = from === null ? "" : `AND (created, id) ${isBehind} (${from.createdAt}, ?)`;
    const values = from === null ? [owner, limit + 1] : [owner, after!, limit + 1];
    const rows = this.#database
      .query<Row, (string | number)[]>(
        `SELECT * FROM ${table} WHERE owner = ? ${where} ORDER BY created ${order}, id ${order} LIMIT ?`,
      )
      .all(...values);
    const records = rows.slice(0, limit).map((row) => this.#read<Record>(table, row));
    return { records, hasMore: rows.length > limit };
  }

  #write(change: () => void): void {
    const whole = this.#database.transaction(() => {
      change();
      this.#database.run("UPDATE commits SET count = count + 1");
    });
    this.#guarded("commit", () => whole.immediate());
    this.#commits += 1;
    this.#mark.write(this.#commits);
  }

  #committed(): number {
    const row = this.#database.query<{ readonly count: unknown }, []>("SELECT count FROM commits").get();
    const count = row?.count;
    if (typeof count === "number") return count;
    throw new StoreError("The store of jobs is damaged: it does not know how many changes it has.");
  }

  #guarded<Value>(what: string, run: () => Value): Value {
    try {
      if (what !== "") this.#onWrite(what);
      return run();
    } catch (error) {
      throw asStoreTrouble(error);
    }
  }

  /** Every file and batch is what was written; lines are checked as they are read. */
  #checkRecords(): void {
    for (const table of ["files", "batches"]) {
      for (const row of this.#database.query<Row, []>(`SELECT * FROM ${table}`).all()) this.#read(table, row);
    }
  }

  /** Uploads that were not finished, or were deleted but for their bytes. */
  #removeStrays(): void {
    const known = new Set(
      this.#database
        .query<Row, []>("SELECT id FROM files")
        .all()
        .map(({ id }) => id),
    );
    this.#uploads.removeAllBut(known);
  }
}

function lineOf({ line, custom_id, start, bytes, digest }: LineRow): LineRecord {
  return { line, customId: custom_id, start, bytes, digest };
}

function expectKept(batch: string, row: LineRow): void {
  if (row.sum === lineSum(batch, row)) return;
  throw new StoreError(`Line ${row.line} of ${batch} in the store is not what was written.`);
}

function lineSum(batch: string, row: Omit<LineRow, "sum">): string {
  const { line, custom_id, start, bytes, digest, state, result } = row;
  return sumOf(batch, line, custom_id, start, bytes, digest, state, result);
}
