import { createHash } from "node:crypto";
import { closeSync, fsyncSync, openSync, readdirSync, readSync, renameSync, rmSync, statSync } from "node:fs";
import { join } from "node:path";
import { ownFolder, readOwnFile } from "../own-files.ts";
import type { FileRecord } from "./records.ts";
import { asStoreTrouble, StoreError } from "./store-error.ts";
import { openUpload, type Upload } from "./upload.ts";

/** Bytes that are read at a time. */
const PART_BYTES = 1024 * 1024;

/** What was uploaded, a file each, by id. */
export class UploadFolder {
  readonly #path: string;
  readonly #write: <Value>(write: () => Value) => Value;

  /** `write` runs what writes, and turns a full disk into what it is. */
  constructor(path: string, write: <Value>(write: () => Value) => Value) {
    this.#path = path;
    this.#write = write;
    ownFolder(path);
  }

  get isEmpty(): boolean {
    return readdirSync(this.#path).length === 0;
  }

  /** Begins a file; nothing of it is there until it is finished, when `keep` makes its record. */
  begin(id: string, keep: (bytes: number, sha256: string, expiresAt: number | null) => FileRecord): Upload {
    const part = `${this.#pathOf(id)}.part`;
    const file = this.#write(() => openSync(part, "wx", 0o600));
    return openUpload(file, part, {
      write: this.#write,
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

  /** Does nothing for one that is not there. */
  remove(id: string): void {
    rmSync(this.#pathOf(id), { force: true });
  }

  /** Removes all files but these: what was not finished, or was deleted but for its bytes. A link is removed, not what it points to. */
  removeAllBut(ids: ReadonlySet<string>): void {
    for (const entry of readdirSync(this.#path, { withFileTypes: true }))
      if (!entry.isDirectory() && !ids.has(entry.name)) this.remove(entry.name);
  }

  /** The bytes [start, start + bytes) of a file, as far as there are so many; null: it is gone. */
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

  /** A whole file, piece by piece. Throws StoreError when it is not what was written, at its end if its bytes tell no sooner. */
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
