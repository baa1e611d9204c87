import type { Database } from "bun:sqlite";
import { join } from "node:path";
import { CommitMark } from "./commit-mark.ts";
import { openDatabase } from "./database.ts";
import { LineTable } from "./line-table.ts";
import { type Page, type PageQuery, RecordTable } from "./record-table.ts";
import {
  type BatchRecord,
  type FileRecord,
  isEnded,
  type LineRecord,
  type LineResult,
  type LineState,
} from "./records.ts";
import { asStoreTrouble, onDisk, StoreError } from "./store-error.ts";
import type { Upload } from "./upload.ts";
import { UploadFolder } from "./upload-folder.ts";

/**
 * Everything that jobs keep, in one folder: uploads as files, the rest in one database. A change is on the disk when its call returns, or
 * has not happened: the process may end at any moment. Each row carries a sum of its values and each upload a digest: what was changed
 * behind the store's back is never given out, but told with its place (StoreError), and so are changes that are gone (commit-mark.ts). A full disk throws
 * DiskFullError, and changes nothing.
 */
export class JobStore {
  readonly #uploads: UploadFolder;
  readonly #database: Database;
  readonly #files: RecordTable<FileRecord>;
  readonly #batches: RecordTable<BatchRecord>;
  readonly #lines: LineTable;
  readonly #mark: CommitMark;
  /** Changes that were committed, since there is a store. */
  #commits: number;
  readonly #onWrite: (what: string) => void;

  /** `onWrite` is told before anything is written, and may throw instead: tests fail writes with it. */
  constructor(folder: string, onWrite: (what: string) => void = () => {}) {
    this.#onWrite = onWrite;
    this.#uploads = new UploadFolder(join(folder, "files"), (write) => this.#writing("upload", write));
    this.#database = openDatabase(join(folder, "jobs.sqlite"), this.#uploads.isEmpty);
    this.#files = new RecordTable(this.#database, "files");
    this.#batches = new RecordTable(this.#database, "batches");
    this.#lines = new LineTable(this.#database);
    try {
      this.#commits = this.#committed();
      this.#mark = new CommitMark(join(folder, "commits"), this.#commits);
      // Every record is read once, so that a damaged one is told at the start; lines are checked as they are read.
      this.#batches.all();
      // Uploads that were not finished, or were deleted but for their bytes, are removed.
      this.#uploads.removeAllBut(new Set(this.#files.all().map(({ id }) => id)));
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
      this.#commit(() => this.#files.put(whole));
      return whole;
    });
  }

  file(owner: string, id: string): FileRecord | null {
    return this.#files.get(id, owner);
  }

  files(owner: string, query: PageQuery): Page<FileRecord> {
    return this.#files.list(owner, query);
  }

  /** Deletes a file, and with it the results that it is made of. */
  deleteFile({ id, content }: FileRecord): void {
    this.#commit(() => {
      this.#files.delete(id);
      if (content.kind === "results") this.#lines.clearState(content.batch, content.state);
    });
    if (content.kind === "upload") this.#uploads.remove(id);
  }

  /** Deletes files whose time is over, but for those that a batch which goes on reads. */
  deleteExpired(nowSeconds: number): void {
    const running = this.allBatches().filter((batch) => !isEnded(batch));
    const inputs = new Set(running.map(({ inputFile }) => inputFile));
    for (const file of this.#files.all()) {
      const isOver = file.expiresAt !== null && file.expiresAt <= nowSeconds;
      if (isOver && !inputs.has(file.id)) this.deleteFile(file);
    }
  }

  /** The bytes of a file, piece by piece. Throws StoreError when they are not what was written, with the last piece at the latest. */
  *content(file: FileRecord): Generator<Uint8Array> {
    if (file.content.kind === "upload") yield* this.#uploads.content(file, file.content.sha256);
    else {
      const { batch, state } = file.content;
      const bytes = this.resultBytes(batch, state);
      if (bytes !== file.bytes) {
        throw new StoreError(`The results of ${batch} have ${bytes} bytes, but ${file.bytes} were written.`);
      }
      for (const result of this.#lines.results(batch, state)) yield Buffer.from(`${result}\n`);
    }
  }

  /** The bytes [start, start + bytes) of an upload, as far as there are so many; null: it is gone. */
  readUpload(file: string, start: number, bytes: number): Uint8Array | null {
    return this.#uploads.read(file, start, bytes);
  }

  /* ---- batches ---- */

  batch(owner: string, id: string): BatchRecord | null {
    return this.#batches.get(id, owner);
  }

  batches(owner: string, query: PageQuery): Page<BatchRecord> {
    return this.#batches.list(owner, query);
  }

  /** Of all keys, oldest first. */
  allBatches(): BatchRecord[] {
    return this.#batches.all();
  }

  /** Adds a batch, or changes what is known of it; with it, the files that come of it. */
  putBatch(batch: BatchRecord, files: readonly FileRecord[] = []): void {
    this.#commit(() => {
      this.#batches.put(batch);
      for (const file of files) this.#files.put(file);
    });
  }

  /* ---- lines ---- */

  addLines(batch: string, lines: readonly LineRecord[]): void {
    this.#commit(() => this.#lines.add(batch, lines));
  }

  /** Forgets the lines that were read before: they are read again. */
  clearLines(batch: string): void {
    this.#commit(() => this.#lines.clear(batch));
  }

  /** The lines of a batch that have no result yet, in order. */
  openLines(batch: string): Generator<LineRecord> {
    return this.#lines.allOpen(batch);
  }

  /** A line of a batch that has no result yet. */
  openLine(batch: string, line: number): LineRecord {
    return this.#lines.open(batch, line);
  }

  /** Writes results and what they change of their batch: all of it or nothing. A line has one result for ever. */
  settle(batch: BatchRecord, results: readonly LineResult[]): void {
    this.#commit(() => {
      this.#lines.settle(batch.id, results);
      this.#batches.put(batch);
    });
  }

  /** Bytes of the file that a batch's results of a state make; 0: there are none. */
  resultBytes(batch: string, state: LineState): number {
    return this.#lines.resultBytes(batch, state);
  }

  /* ---- */

  #commit(change: () => void): void {
    const whole = this.#database.transaction(() => {
      change();
      this.#database.run("UPDATE commits SET count = count + 1");
    });
    this.#writing("commit", () => whole.immediate());
    this.#commits += 1;
    this.#mark.write(this.#commits);
  }

  #committed(): number {
    const row = this.#database.query<{ readonly count: unknown }, []>("SELECT count FROM commits").get();
    const count = row?.count;
    if (typeof count === "number") return count;
    throw new StoreError("The store of jobs is damaged: it does not know how many changes it has.");
  }

  #writing<Value>(what: string, write: () => Value): Value {
    return onDisk(() => {
      this.#onWrite(what);
      return write();
    });
  }
}
