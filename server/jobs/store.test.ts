/** The store's files: the store detects external changes, and a crash at any moment loses nothing. */

import { Database } from "bun:sqlite";
import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import {
  expected,
  lines,
  newFolder,
  recordOf,
  removeFolders,
  resultsOf,
  runToEnd,
  runWhole,
  upload,
} from "../../tests/support/jobs.ts";
import { JobStore } from "./store.ts";
import { DiskFullError, StoreError } from "./store-error.ts";

afterAll(removeFolders);

/** A store in which a job has ended, and its database. */
async function storeToBreak(): Promise<{ readonly folder: string; readonly good: Buffer }> {
  const folder = newFolder();
  await runWhole(folder);
  return { folder, good: readFileSync(join(folder, "jobs.sqlite")) };
}

/** Dump of a version 1 store with user_version 1: a job of two lines, one of which has its answer. */
const firstVersion = `
CREATE TABLE files (
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
CREATE INDEX lines_by_state ON lines (batch, state, line);
PRAGMA user_version = 1;
INSERT INTO files VALUES ('file-in', '', 1000, '{"id":"file-in","owner":"","purpose":"batch","filename":"in","createdAt":1000,"bytes":203,"expiresAt":null,"content":{"kind":"upload","sha256":"fc70acdd539ac2405334501d100d6878393472d9355d8f16e2d662a589295838"}}', '526343021b9801cf');
INSERT INTO batches VALUES ('batch_1', '', 1000, '{"id":"batch_1","owner":"","endpoint":"/v1/completions","completionWindow":"24h","inputFile":"file-in","model":"m","priority":0,"metadata":null,"outputExpiresAfter":null,"status":"in_progress","faults":[],"outputFile":null,"errorFile":null,"total":2,"completed":1,"failed":0,"usage":{"promptTokens":3,"cachedTokens":1,"completionTokens":2},"createdAt":1000,"expiresAt":5000,"inProgressAt":2000,"finalizingAt":null,"completedAt":null,"failedAt":null,"expiredAt":null,"cancellingAt":null,"cancelledAt":null}', '9f58ea3652a95b27');
INSERT INTO lines VALUES ('batch_1', 1, 'id 0', 0, 101, 'e6e8b5db365d6b7a', 1, '{"id":"batch_req_31ec78017a8d45bd9be52eb70274631d","custom_id":"id 0","response":{"status_code":200,"request_id":"req_e76168d5133c466bafb7ec4b4c0e2bf0","body":{"text":"prompt 0"}},"error":null}', '118b203115b79898');
INSERT INTO lines VALUES ('batch_1', 2, 'id 1', 102, 101, 'e8bae00df746ecf1', 0, NULL, 'a1afc9eba464324e');`;

/** True if the store refuses such a database; else it returns only data that it wrote. */
function isNoticed(folder: string, database: Buffer): boolean {
  for (const name of readdirSync(folder)) if (name !== "files") rmSync(join(folder, name));
  writeFileSync(join(folder, "jobs.sqlite"), database);
  let store: JobStore | null = null;
  try {
    store = new JobStore(folder);
    expect(resultsOf(store)).toEqual(expected);
    return false;
  } catch (error) {
    expect(error).toBeInstanceOf(StoreError);
    return true;
  } finally {
    store?.close();
  }
}

/**
 * Files of a process that was killed after its client got the results: database, write-ahead log, and commit
 * count.
 */
interface Killed {
  readonly database: Buffer;
  readonly log: Buffer;
  readonly count: Buffer;
  readonly input: Buffer;
  /** Results as delivered, byte for byte. */
  readonly results: string;
}

function givenOut(store: JobStore): string {
  const { outputFile, errorFile } = store.batch("", "batch_1")!;
  const files = [outputFile, errorFile].filter((id) => id !== null);
  const parts = files.flatMap((id) => [...store.content(store.file("", id)!)]);
  return Buffer.concat(parts).toString();
}

function givenLines(store: JobStore): string[] {
  return givenOut(store).split("\n");
}

async function killed(): Promise<Killed> {
  const folder = newFolder();
  const before = new JobStore(folder);
  before.putBatch(recordOf(upload(before, lines.join("\n"))));
  before.close();
  const store = new JobStore(folder);
  await runToEnd(store);
  const read = (name: string): Buffer => readFileSync(join(folder, name));
  const left = {
    database: read("jobs.sqlite"),
    log: read("jobs.sqlite-wal"),
    count: read("commits"),
    input: read("files/file-in"),
    results: givenOut(store),
  };
  store.close();
  return left;
}

/** Store that a process opens in a folder with exactly these files. */
function foundStore(
  folder: string,
  { database, log, count, input }: Omit<Killed, "results">,
  hasCount = true,
): JobStore {
  for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true });
  mkdirSync(join(folder, "files"));
  writeFileSync(join(folder, "files/file-in"), input);
  writeFileSync(join(folder, "jobs.sqlite"), database);
  writeFileSync(join(folder, "jobs.sqlite-wal"), log);
  if (hasCount) writeFileSync(join(folder, "commits"), count);
  return new JobStore(folder);
}

/** Offsets at which a log can end: before and within each of its frames. */
function cutsOf(log: Buffer): number[] {
  const HEADER = 32;
  const frame = 24 + log.readUInt32BE(8);
  const cuts = [0, HEADER - 1];
  for (let at = HEADER; at < log.length; at += frame) cuts.push(at, at + 100, at + frame - 1);
  return cuts;
}

/** True if the store refuses these files by name; else it returns the delivered results. */
function isRefused(folder: string, left: Killed): boolean {
  let store: JobStore;
  try {
    store = foundStore(folder, left);
  } catch (error) {
    expect(error).toBeInstanceOf(StoreError);
    return true;
  }
  try {
    expect(givenOut(store)).toBe(left.results);
    return false;
  } catch (error) {
    expect(error).toBeInstanceOf(StoreError);
    return true;
  } finally {
    store.close();
  }
}

function withFlip(bytes: Buffer, at: number): Buffer {
  const flipped = Buffer.from(bytes);
  flipped[at]! ^= 1 << (at % 8);
  return flipped;
}

describe("the store", () => {
  test("notices a byte that was changed, names it, and never gives it out", async () => {
    const { folder, good } = await storeToBreak();
    let noticed = 0;
    for (let at = 0; at < good.length; at += 37) {
      const bad = Buffer.from(good);
      bad[at]! ^= 1 << (at % 8);
      if (isNoticed(folder, bad)) noticed += 1;
    }
    expect(noticed).toBeGreaterThan(0);
  });

  test("notices a database that was cut off, wherever, and leaves the files beside it alone", async () => {
    const { folder, good } = await storeToBreak();
    for (let bytes = 0; bytes < good.length; bytes += 511) {
      expect([bytes, isNoticed(folder, good.subarray(0, bytes))]).toEqual([bytes, true]);
      expect(readdirSync(join(folder, "files"))).toEqual(["file-in"]);
    }
  });

  test("notices a log that was cut off, wherever, after its results were given out", async () => {
    const [folder, left] = [newFolder(), await killed()];
    const cuts = cutsOf(left.log);
    expect(cuts.length).toBeGreaterThan(60);
    for (const cut of cuts) {
      const log = left.log.subarray(0, cut);
      expect(() => foundStore(folder, { ...left, log })).toThrow(
        /has lost its last( \d+)? changes?\. Remove .*commits to go on/,
      );
    }
    const whole = foundStore(folder, left);
    expect(givenOut(whole)).toBe(left.results);
    whole.close();
  });

  test("with a log that was cut off comes to the same answers, one for each line, once a person lets it go on", async () => {
    const [folder, left] = [newFolder(), await killed()];
    for (const cut of cutsOf(left.log).filter((_, index) => index % 4 === 0)) {
      const store = foundStore(folder, { ...left, log: left.log.subarray(0, cut) }, false);
      await runToEnd(store);
      expect(resultsOf(store)).toEqual(expected);
      store.close();
    }
  });

  test("notices a byte that was changed in the log, in the database below it, and in the count", async () => {
    const [folder, left] = [newFolder(), await killed()];
    const refused = { log: 0, database: 0, count: 0 };
    for (const part of ["log", "database", "count"] as const) {
      for (let at = 0; at < left[part].length; at += part === "count" ? 1 : 211) {
        if (isRefused(folder, { ...left, [part]: withFlip(left[part], at) })) refused[part] += 1;
      }
    }
    expect(refused.count).toBe(left.count.length);
    expect(refused.log).toBeGreaterThan(left.log.length / 211 / 2);
    expect(refused.database).toBeGreaterThan(0);
  });

  test("goes on with what was kept by the first version", async () => {
    const folder = newFolder();
    mkdirSync(join(folder, "files"));
    writeFileSync(join(folder, "files/file-in"), lines.slice(0, 2).join("\n"));
    const database = new Database(join(folder, "jobs.sqlite"));
    database.run(firstVersion);
    database.close();
    const store = new JobStore(folder);
    await runToEnd(store);
    expect(resultsOf(store)).toEqual([(expected[0] as unknown[]).slice(0, 2), []]);
    expect(givenLines(store)[0]).toContain("batch_req_31ec78017a8d45bd9be52eb70274631d");
    store.close();
    new JobStore(folder).close();
  });

  test("notices an upload that was cut off or changed", async () => {
    const folder = newFolder();
    await runWhole(folder);
    const path = join(folder, "files", "file-in");
    const store = new JobStore(folder);
    const file = store.file("", "file-in")!;
    const { size } = statSync(path);
    const bytes = readFileSync(path);
    bytes[7]! ^= 4;
    writeFileSync(path, bytes);
    expect(() => [...store.content(file)]).toThrow("The file file-in is not what was written.");
    writeFileSync(path, bytes.subarray(1));
    expect(() => [...store.content(file)]).toThrow(`has ${size - 1} bytes, but ${size} were written`);
    store.close();
  });

  test("of a newer version is left alone", () => {
    const folder = newFolder();
    new JobStore(folder).close();
    const database = new Database(join(folder, "jobs.sqlite"));
    database.run("PRAGMA user_version = 99");
    database.close();
    expect(() => new JobStore(folder)).toThrow("has version 99, but this program knows versions up to 2");
  });

  test("is one process's alone", () => {
    const folder = newFolder();
    const store = new JobStore(folder);
    expect(() => new JobStore(folder)).toThrow("is used by another server");
    store.close();
    new JobStore(folder).close();
  });
});

test("a store whose folder is gone takes no upload, and names no path to the client", () => {
  const folder = newFolder();
  const store = new JobStore(folder);
  rmSync(folder, { recursive: true });
  const message = "the disk takes no more: ENOENT: no such file or directory, open";
  expect(() => upload(store, "text")).toThrow(new DiskFullError(message));
  store.close();
});
