/** The store's files: what was changed behind its back is told, and nothing is lost by an end at any moment. */

import { Database } from "bun:sqlite";
import { afterAll, describe, expect, test } from "bun:test";
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expected, newFolder, removeFolders, resultsOf, runWhole } from "../../tests/support/jobs.ts";
import { JobStore } from "./store.ts";
import { StoreError } from "./store-error.ts";

afterAll(removeFolders);

/** A store in which a job has ended, and its database. */
async function storeToBreak(): Promise<{ readonly folder: string; readonly good: Buffer }> {
  const folder = newFolder();
  await runWhole(folder);
  return { folder, good: readFileSync(join(folder, "jobs.sqlite")) };
}

/** Whether a store with such a database is refused; else it gives out nothing that was not written. */
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

  test("of a newer version is left alone", async () => {
    const folder = newFolder();
    new JobStore(folder).close();
    const database = new Database(join(folder, "jobs.sqlite"));
    database.run("PRAGMA user_version = 99");
    database.close();
    expect(() => new JobStore(folder)).toThrow("has version 99, but this program knows versions up to 1");
  });

  test("is one process's alone", () => {
    const folder = newFolder();
    const store = new JobStore(folder);
    expect(() => new JobStore(folder)).toThrow("is used by another server");
    store.close();
    new JobStore(folder).close();
  });
});
