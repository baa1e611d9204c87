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
 * Persistent state of jobs in one folder: uploads as files, the rest in one database. A change is on the disk
 * when its call returns, or has not happened, so the process may end at any moment. Rows carry checksums and
 * uploads a digest. The store reports external changes with their place (StoreError) and never returns
 * changed data; it also detects lost commits (commit-mark.ts). A full disk throws DiskFullError and changes
 * nothing.
 */
export class JobStore {
  readonly #uploads: UploadFolder;
  readonly #database: Database;
  readonly #files: RecordTable<FileRecord>;
  readonly #batches: RecordTable<BatchRecord>;
  readonly #lines: LineTable;
  readonly #mark: CommitMark;
  /** Number of commits since the store was created. */
  #commits: number;
  readonly #onWrite: (what: string) => void;

  /** `onWrite` is called before each write and may throw instead, so that tests can fail writes. */
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
      // Reads every record once, so that a damaged one is reported at the start; lines are checked when they
      // are read.
      this.#batches.all();
      // Removes unfinished uploads, and bytes of deleted ones.
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

  /** Limits the database to `pages` pages, or to its current size if larger. */
  limitPages(pages: number): void {
    this.#database.run(`PRAGMA max_page_count = ${pages}`);
  }

  /** Bytes of the disk that files, batches and results take, with those of unfinished uploads. */
  get bytes(): number {
    const { bytes } = this.#database
      .query<{ readonly bytes: number }, []>(
        "SELECT (page_count - freelist_count) * page_size AS bytes FROM pragma_page_count, pragma_freelist_count, pragma_page_size",
      )
      .get()!;
    return this.#uploads.bytes + bytes;
  }

  /* ---- files ---- */

  /** Begins an upload; the file exists only once it is finished. */
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

  /** Deletes a file, and for a result file the results that it consists of. */
  deleteFile({ id, owner, content }: FileRecord, nowSeconds: number): void {
    this.#commit(() => {
      this.#files.delete(id);
      if (content.kind !== "results") return;
      this.#lines.clearState(content.batch, content.state);
      const batch = this.#batches.get(content.batch, owner);
      if (batch !== null) this.#batches.put({ archivedAt: nowSeconds, ...batch });
    });
    if (content.kind === "upload") this.#uploads.remove(id);
  }

  /** Deletes expired files, except inputs of unfinished batches. */
  deleteExpired(nowSeconds: number): void {
    const running = this.allBatches().filter((batch) => !isEnded(batch));
    const inputs = new Set(running.map(({ inputFile }) => inputFile));
    for (const file of this.#files.all()) {
      const isOver = file.expiresAt !== null && file.expiresAt <= nowSeconds;
      if (isOver && !inputs.has(file.id)) this.deleteFile(file, nowSeconds);
    }
  }

  /**
   * Bytes of a file in pieces. Throws StoreError, at the latest after the last piece, if they differ from the
   * written bytes.
   */
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

  /** Bytes [start, start + bytes) of an upload, fewer at its end; null if it is gone. */
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

  /** Batches of all keys, oldest first. */
  allBatches(): BatchRecord[] {
    return this.#batches.all();
  }

  /** Adds or updates a batch, and stores its result files in the same commit. */
  putBatch(batch: BatchRecord, files: readonly FileRecord[] = []): void {
    this.#commit(() => {
      this.#batches.put(batch);
      for (const file of files) this.#files.put(file);
    });
  }

  /** Deletes a batch with its lines and files. */
  deleteBatch({ id, owner, inputFile, outputFile, errorFile }: BatchRecord): void {
    const files = [inputFile, outputFile, errorFile].filter((file) => file !== null);
    this.#commit(() => {
      this.#batches.delete(id);
      this.#lines.clear(id);
      for (const file of files) if (this.#files.get(file, owner) !== null) this.#files.delete(file);
    });
    this.#uploads.remove(inputFile);
  }

  /* ---- lines ---- */

  addLines(batch: string, lines: readonly LineRecord[]): void {
    this.#commit(() => this.#lines.add(batch, lines));
  }

  /** Deletes the lines of a batch, which are read again. */
  clearLines(batch: string): void {
    this.#commit(() => this.#lines.clear(batch));
  }

  /** Lines of a batch without a result, in order. */
  openLines(batch: string): Generator<LineRecord> {
    return this.#lines.allOpen(batch);
  }

  /** All lines of a batch in order, each with its result; null if it has none. */
  resultLines(batch: string): ReturnType<LineTable["all"]> {
    return this.#lines.all(batch);
  }

  /** Line of a batch without a result. */
  openLine(batch: string, line: number): LineRecord {
    return this.#lines.open(batch, line);
  }

  /** Stores results and the updated batch in one commit. A line's result never changes. */
  settle(batch: BatchRecord, results: readonly LineResult[]): void {
    this.#commit(() => {
      this.#lines.settle(batch.id, results);
      this.#batches.put(batch);
    });
  }

  /** Bytes of the result file of one state; 0 if there is none. */
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
