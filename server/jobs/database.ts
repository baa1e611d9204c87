/** Database of the store: its tables, their schema versions, and checksums of rows. */

import { Database } from "bun:sqlite";
import { createHash } from "node:crypto";
import { ownDatabase } from "../own-files.ts";
import { asStoreTrouble, StoreError } from "./store-error.ts";

/**
 * Migrations; each takes a database from the version of its index to the next one. Never changed after a
 * release.
 */
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
  // Number of commits (commit-mark.ts).
  `CREATE TABLE commits (count INTEGER NOT NULL);
   INSERT INTO commits VALUES (0);`,
];

/** Schema version that this program writes. */
export const STORE_VERSION = migrations.length;

/**
 * Opens and migrates the database for this process alone. Every commit is on the disk when it returns, so a
 * power failure loses nothing that clients saw. `isFirst`: the database may be new. Throws StoreError if it
 * is damaged, newer, in use, or empty without `isFirst`.
 */
export function openDatabase(path: string, isFirst: boolean): Database {
  let database: Database | null = null;
  try {
    ownDatabase(path);
    database = new Database(path, { create: true, readwrite: true });
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

/** Checksum of a row's values: 64 bits, to detect accidental changes. */
export function sumOf(...values: readonly (string | number | null)[]): string {
  return createHash("sha256").update(JSON.stringify(values)).digest("hex").slice(0, 16);
}
