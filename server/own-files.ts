/** Folders and files for clients' data: readable by this user alone, and never accessed through a link. */
import { chmodSync, closeSync, constants, fchmodSync, lstatSync, mkdirSync, openSync } from "node:fs";

/** Permission bits of other users. */
const OTHERS = 0o077;

/**
 * Creates the folder if it is missing, and closes it to others. Throws for a link: its target may belong to
 * another program, and the server removes unknown files from its own folders.
 */
export function ownFolder(path: string): void {
  mkdirSync(path, { recursive: true, mode: 0o700 });
  const found = lstatSync(path);
  if (found.isSymbolicLink()) throw new Error(`${path} is a link, which is not followed here`);
  if ((found.mode & OTHERS) !== 0) chmodSync(path, 0o700);
}

/**
 * Opens a file to read and write, creates it if it is missing, and closes it to others. Throws for a link.
 */
export function openOwnFile(path: string): number {
  const file = notLinked(path, () =>
    openSync(path, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o600),
  );
  fchmodSync(file, 0o600);
  return file;
}

/** Opens a file to read. Throws for a link. */
export function readOwnFile(path: string): number {
  return notLinked(path, () => openSync(path, constants.O_RDONLY | constants.O_NOFOLLOW));
}

/**
 * Creates the file of a SQLite database if it is missing, and closes it to others: SQLite's files beside it
 * get the same mode.
 */
export function ownDatabase(path: string): void {
  closeSync(openOwnFile(path));
  for (const suffix of ["-wal", "-shm"]) {
    const found = lstatSync(path + suffix, { throwIfNoEntry: false });
    if (found?.isSymbolicLink()) throw new Error(`${path}${suffix} is a link, which is not followed here`);
    if (found !== undefined && (found.mode & OTHERS) !== 0) chmodSync(path + suffix, 0o600);
  }
}

function notLinked<Value>(path: string, open: () => Value): Value {
  try {
    return open();
  } catch (error) {
    if ((error as { readonly code?: string }).code !== "ELOOP") throw error;
    throw new Error(`${path} is a link, which is not followed here`);
  }
}
