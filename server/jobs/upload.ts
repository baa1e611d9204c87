import { createHash, type Hash } from "node:crypto";
import { closeSync, fsync, fsyncSync, rmSync, writeSync } from "node:fs";
import { promisify } from "node:util";
import type { FileRecord } from "./records.ts";

/** Upload in progress. */
export interface Upload {
  readonly bytes: number;
  write(part: Uint8Array): void;
  /** Brings the written bytes to the disk on another thread, so that `finish` has none to wait for. */
  sync(): Promise<void>;
  /** Completes the file: it is on the disk and in the store, until `expiresAt` (null: for ever). */
  finish(expiresAt: number | null): FileRecord;
  /** Discards the upload; does nothing once it is finished. */
  discard(): void;
}

/** Callbacks of the store for an upload. */
export interface UploadEnds {
  /** Runs an I/O function and maps its errors. */
  write(write: () => void): void;
  /** Reports the bytes written so far. */
  grown(bytes: number): void;
  finish(bytes: number, sha256: string, expiresAt: number | null): FileRecord;
  discarded(): void;
}

const syncFile = promisify(fsync);

/** Starts an upload into an open file with this path. */
export function openUpload(file: number, path: string, ends: UploadEnds): Upload {
  return new RunningUpload(file, path, ends);
}

class RunningUpload implements Upload {
  readonly #file: number;
  readonly #path: string;
  readonly #ends: UploadEnds;
  readonly #hash: Hash = createHash("sha256");
  #bytes = 0;
  #isOpen = true;

  constructor(file: number, path: string, ends: UploadEnds) {
    this.#file = file;
    this.#path = path;
    this.#ends = ends;
  }

  get bytes(): number {
    return this.#bytes;
  }

  write(part: Uint8Array): void {
    this.#ends.write(() => {
      for (let at = 0; at < part.length; ) at += writeSync(this.#file, part, at);
    });
    this.#hash.update(part);
    this.#bytes += part.length;
    this.#ends.grown(this.#bytes);
  }

  async sync(): Promise<void> {
    try {
      await syncFile(this.#file);
    } catch (error) {
      this.#ends.write(() => {
        throw error;
      });
    }
  }

  finish(expiresAt: number | null): FileRecord {
    this.#ends.write(() => fsyncSync(this.#file));
    closeSync(this.#file);
    this.#isOpen = false;
    return this.#ends.finish(this.#bytes, this.#hash.digest("hex"), expiresAt);
  }

  discard(): void {
    if (!this.#isOpen) return;
    this.#isOpen = false;
    closeSync(this.#file);
    rmSync(this.#path, { force: true });
    this.#ends.discarded();
  }
}
