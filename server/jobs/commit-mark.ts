/**
 * Count of a store's commits, in a file beside its database. A write-ahead log that lost its end looks like a
 * shorter valid log, so only this count shows that clients saw later commits.
 */

import { closeSync, fsyncSync, openSync, readFileSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { openOwnFile, readOwnFile } from "../own-files.ts";
import { sumOf } from "./database.ts";
import { asStoreTrouble, StoreError } from "./store-error.ts";

/**
 * Digits of the count. The file's length is constant, so rewriting it needs no space and leaves no partial
 * content.
 */
const DIGITS = 16;

export class CommitMark {
  readonly #file: number;

  /**
   * Continues from the database's `committed` changes. Throws StoreError if the file counts more, or if its
   * content is damaged. Without the file, the database's count is trusted.
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
   * Records a commit that is on the disk. It neither syncs nor throws: a count that is too low only means
   * that the loss of that many commits would go unnoticed.
   */
  write(committed: number): void {
    try {
      this.#put(committed);
    } catch {
      // The commit itself is on the disk.
    }
  }

  close(): void {
    closeSync(this.#file);
  }

  /** Syncs file and folder, so that the file has its full length even after a power failure. */
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

/** Recorded count, at most `committed`; null if there is no file. Throws StoreError. */
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
