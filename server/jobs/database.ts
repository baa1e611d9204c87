/** The database of the store: its tables, their versions, and sums that tell whether a row is what was written. */

import { Database } from "bun:sqlite";
import { createHash } from "node:crypto";
import { closeSync, openSync } from "node:fs";
import { asStoreTrouble, StoreError } from "./store-error.ts";

/** Each brings a database from the version of its index to the next one. Never changed once it was released. */
const migrations: readonly string[] = [
  `CREATE TABLE files (
     id TEXT PRIMARY KEY, owner TEXT NOT NULL, created INTEGER NOT NULL, record TEXT NOT NULL, sum TEXT NOT NULL
   ) WITHOUT ROWID;
   CREATE INDEX files_of ON files (owner, created, id);
   CREATE TABLE batches (
     id TEXT PRIMARY KEY, owner TEXT NOT NULL, created INTEGER NOT NULL, record TEXT NOT NULL, sum TEXT NOT NULL
   ) WITHOUT ROWID;
   CREATE INDEX batches_of ON batches (owner, created, id);
   CREATE TABLE lines (
     batch TEXT NOT NULL, line INTEGER NOT NULL, custom_id TEXT NOT NULL,
     start INTEGER NOT NULL, bytes INTEGER NOT NULL, digest TEXT NOT NULL,
     state INTEGER NOT NULL, result TEXT, sum TEXT NOT NULL,
     PRIMARY KEY (batch, line)
   ) WITHOUT ROWID;
   CREATE INDEX lines_by_state ON lines (batch, state, line);`,
  // How many changes were committed (commit-mark.ts).
  `CREATE TABLE commits (count INTEGER NOT NULL);
   INSERT INTO commits VALUES (0);`,
];

/** The version that this program writes. */
export const STORE_VERSION = migrations.length;

/**
 * Opens the database, which this process alone may use, and brings it up to date. Every commit is on the disk when it returns: a power
 * failure loses nothing that was told. `isFirst`: there may be none yet. Throws StoreError for one that is damaged, newer, or in use, or
 * that is empty without `isFirst`.
 */
export function openDatabase(path: string, isFirst: boolean): Database {
  let database: Database | null = null;
  try {
    database = openOwned(path);
    database.run("PRAGMA locking_mode = EXCLUSIVE");
    database.run("PRAGMA journal_mode = WAL");
    database.run("PRAGMA synchronous = FULL");
    migrate(database, path, isFirst);
    const [problem] = database.query<{ readonly quick_check: string }, []>("PRAGMA quick_check(1)").all();
    if (problem?.quick_check !== "ok") {
      throw new StoreError(`The store of jobs at ${path} is damaged: ${problem?.quick_check}.`);
    }
    return database;
  } catch (error) {
    database?.close();
    const { code, message } = error as { readonly code?: string; readonly message: string };
    if (code?.startsWith("SQLITE_BUSY") === true) {
      throw new StoreError(`The store of jobs at ${path} is used by another server.`);
    }
    if (code?.startsWith("SQLITE_") === true) {
      throw new StoreError(`The store of jobs at ${path} cannot be used: ${message}.`);
    }
    throw asStoreTrouble(error);
  }
}

/** Opens a database that nobody but its owner may read, nor the log that SQLite puts beside it with the same rights. */
export function openOwned(path: string): Database {
  closeSync(openSync(path, "a", 0o600));
  return new Database(path, { create: true, readwrite: true });
}

function migrate(database: Database, path: string, isFirst: boolean): void {
  const { user_version: version } = database
    .query<{ readonly user_version: number }, []>("PRAGMA user_version")
    .get()!;
  if (version > STORE_VERSION) {
    throw new StoreError(
      `The store of jobs at ${path} has version ${version}, but this program knows versions up to ${STORE_VERSION}.`,
    );
  }
  if (version === 0 && !isFirst) {
    throw new StoreError(`The store of jobs at ${path} is empty, but there are files beside it.`);
  }
  for (let from = version; from < STORE_VERSION; from++) {
    database.transaction(() => {
      database.run(migrations[from]!);
      database.run(`PRAGMA user_version = ${from + 1}`);
    })();
  }
}

/** The sum of a row's values: 64 bits, so that a row which was changed by accident is noticed. */
export function sumOf(...values: readonly (string | number | null)[]): string {
  return createHash("sha256").update(JSON.stringify(values)).digest("hex").slice(0, 16);
}
