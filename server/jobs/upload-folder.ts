import { createHash } from "node:crypto";
import {
  closeSync,
  fsyncSync,
  lstatSync,
  openSync,
  readdirSync,
  readSync,
  renameSync,
  rmSync,
  statSync,
} from "node:fs";
import { join } from "node:path";
import { ownFolder, readOwnFile } from "../own-files.ts";
import type { FileRecord } from "./records.ts";
import { asStoreTrouble, StoreError } from "./store-error.ts";
import { openUpload, type Upload } from "./upload.ts";

/** Bytes per read. */
const PART_BYTES = 1024 * 1024;

/** Folder of uploads, one file each, named by id. */
export class UploadFolder {
  readonly #path: string;
  readonly #write: <Value>(write: () => Value) => Value;
  /** Bytes of each file by its id, also while it is uploaded. */
  readonly #sizes = new Map<string, number>();

  /** `write` runs an I/O function and maps its errors. */
  constructor(path: string, write: <Value>(write: () => Value) => Value) {
    this.#path = path;
    this.#write = write;
    ownFolder(path);
  }

  get isEmpty(): boolean {
    return readdirSync(this.#path).length === 0;
  }

  /** Bytes of all files, with those of unfinished uploads. */
  get bytes(): number {
    return this.#sizes.values().reduce((sum, bytes) => sum + bytes, 0);
  }

  /** Begins an upload; the file exists only once it is finished, when `keep` creates its record. */
  begin(id: string, keep: (bytes: number, sha256: string, expiresAt: number | null) => FileRecord): Upload {
    const part = `${this.#pathOf(id)}.part`;
    const file = this.#write(() => openSync(part, "wx", 0o600));
    return openUpload(file, part, {
      write: this.#write,
      grown: (bytes) => this.#sizes.set(id, bytes),
      discarded: () => this.#sizes.delete(id),
      finish: (bytes, sha256, expiresAt) => {
        this.#write(() => {
          renameSync(part, this.#pathOf(id));
          const folder = openSync(this.#path, "r");
          fsyncSync(folder);
          closeSync(folder);
        });
        return keep(bytes, sha256, expiresAt);
      },
    });
  }

  /** Removes a file; does nothing if there is none. */
  remove(id: string): void {
    rmSync(this.#pathOf(id), { force: true });
    this.#sizes.delete(id);
  }

  /**
   * Removes all other files: unfinished uploads, and bytes of deleted ones. Removes a link itself, not its
   * target.
   */
  removeAllBut(ids: ReadonlySet<string>): void {
    for (const entry of readdirSync(this.#path, { withFileTypes: true })) {
      if (ids.has(entry.name)) this.#sizes.set(entry.name, lstatSync(this.#pathOf(entry.name)).size);
      else if (!entry.isDirectory()) this.remove(entry.name);
    }
  }

  /** Bytes [start, start + bytes) of a file, fewer at its end; null if it is gone. */
  read(id: string, start: number, bytes: number): Uint8Array | null {
    let open: number;
    try {
      open = readOwnFile(this.#pathOf(id));
    } catch (error) {
      if ((error as { readonly code?: string }).code === "ENOENT") return null;
      throw asStoreTrouble(error);
    }
    try {
      const buffer = new Uint8Array(bytes);
      const read = readSync(open, buffer, 0, bytes, start);
      return read === bytes ? buffer : buffer.subarray(0, read);
    } finally {
      closeSync(open);
    }
  }

  /**
   * Whole file in pieces. Throws StoreError if it differs from the written bytes, at the latest at its end.
   */
  *content({ id, bytes }: FileRecord, sha256: string): Generator<Uint8Array> {
    const hash = createHash("sha256");
    const size = statSync(this.#pathOf(id), { throwIfNoEntry: false })?.size;
    if (size !== bytes)
      throw new StoreError(`The file ${id} has ${size ?? "no"} bytes, but ${bytes} were written.`);
    for (let start = 0; start < bytes; start += PART_BYTES) {
      const part = this.read(id, start, Math.min(PART_BYTES, bytes - start)) ?? new Uint8Array(0);
      hash.update(part);
      yield part;
    }
    if (hash.digest("hex") !== sha256) throw new StoreError(`The file ${id} is not what was written.`);
  }

  #pathOf(id: string): string {
    return join(this.#path, id);
  }
}
