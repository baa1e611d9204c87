/**
 * How many changes a store has committed, kept in a file beside its database. A write-ahead log that lost its end looks like one that was
 * never longer: only what is noted elsewhere tells that a client was told more.
 */

import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { openOwnFile, readOwnFile } from "../own-files.ts";
import { sumOf } from "./database.ts";
import { asStoreTrouble, StoreError } from "./store-error.ts";

/** Digits of a count: the file never changes its length, so that writing it anew needs no room and leaves nothing half done. */
const DIGITS = 16;

export class CommitMark {
  readonly #file: number;

  /**
   * Goes on from `committed` changes, of which the database knows. Throws StoreError when more were noted, or when what is noted is not
   * what was written. Without the file whatever the database knows is taken for all there was.
   */
  constructor(path: string, committed: number) {
    const isNew = noted(path, committed) === null;
    try {
      this.#file = openOwnFile(path);
      this.#put(committed);
      if (isNew) this.#keep(dirname(path));
    } catch (error) {
      throw asStoreTrouble(error);
    }
  }

  /**
   * Notes a change that is on the disk. It does not wait for the disk, and a disk that fails here is nobody's trouble: a count that is too
   * low only means that the loss of as many changes would not be noticed.
   */
  write(committed: number): void {
    try {
      this.#put(committed);
    } catch {
      // The change itself is kept.
    }
  }

  close(): void {
    closeSync(this.#file);
  }

  /** A file that is there has its full length, also after a power failure. */
  #keep(folder: string): void {
    fsyncSync(this.#file);
    const open = openSync(folder, "r");
    fsyncSync(open);
    closeSync(open);
  }

  #put(committed: number): void {
    writeSync(this.#file, textOf(committed), 0);
  }
}

function textOf(committed: number): string {
  return `${String(committed).padStart(DIGITS, "0")} ${sumOf(committed)}\n`;
}

/** Changes that were noted, at most `committed`; null: there is no file. Throws StoreError. */
function noted(path: string, committed: number): number | null {
  let text: string;
  try {
    const file = readOwnFile(path);
    try {
      text = readFileSync(file, "latin1");
    } finally {
      closeSync(file);
    }
  } catch (error) {
    if ((error as { readonly code?: string }).code === "ENOENT") return null;
    throw asStoreTrouble(error);
  }
  const count = Number(text.slice(0, DIGITS));
  const way = `Remove ${path} to go on from what is left`;
  if (text !== textOf(count)) {
    throw new StoreError(
      `The store of jobs has a count of its changes that is not what was written. ${way}.`,
    );
  }
  if (count <= committed) return count;
  const lost = count - committed === 1 ? "its last change" : `its last ${count - committed} changes`;
  throw new StoreError(
    `The store of jobs has lost ${lost}. ${way}: lines whose results were lost run again, and files and batches that were lost are gone.`,
  );
}
