import { afterEach, beforeEach, expect, test } from "bun:test";
import { mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  checkStored,
  openStored,
  STORED_PAGE_BYTES,
  storedId,
  storedPage,
} from "../../tests/support/stored-pages.ts";
import type { PageStore } from "./page-store.ts";

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "bunting-store-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

function put(store: PageStore, first: number, count: number): boolean[] {
  return Array.from({ length: count }, (_, i) =>
    store.put(storedId(first + i), storedPage(storedId(first + i))),
  );
}

function get(store: PageStore, number: number): boolean {
  const page = new Uint8Array(new ArrayBuffer(STORED_PAGE_BYTES));
  const isThere = store.get(storedId(number), page);
  if (isThere) expect(page).toEqual(storedPage(storedId(number)));
  return isThere;
}

function segmentsOf(): string[] {
  return readdirSync(folder).filter((name) => name.endsWith(".kv"));
}

test("pages are there after the folder is opened again", () => {
  const store = openStored(folder);
  expect(put(store, 0, 200)).toEqual(Array(200).fill(true));
  expect(get(store, 7)).toBe(true);
  expect(get(store, 200)).toBe(false);
  store.close();
  const again = openStored(folder);
  expect(checkStored(again)).toBe(200);
  expect(put(again, 150, 100)).toEqual(Array(100).fill(true));
  again.close();
  const third = openStored(folder);
  expect(checkStored(third)).toBe(250);
  third.close();
});

test("folder and files are private", () => {
  const store = openStored(folder);
  put(store, 0, 1);
  expect(statSync(folder).mode & 0o777).toBe(0o700);
  for (const name of readdirSync(folder)) expect(statSync(join(folder, name)).mode & 0o777).toBe(0o600);
  store.close();
});

test("the least recently used segments are dropped, and used ones stay", () => {
  const bytesMax = 2 ** 18;
  const store = openStored(folder, { bytesMax });
  put(store, 0, 1);
  for (let number = 1; number < 1000; number += 1) {
    put(store, number, 1);
    store.touch([storedId(0)]);
    expect(store.bytes).toBeLessThanOrEqual(bytesMax);
  }
  const onDisk = segmentsOf().reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
  expect(onDisk).toBeLessThanOrEqual(bytesMax);
  expect(get(store, 0)).toBe(true);
  expect(get(store, 500)).toBe(false);
  expect(get(store, 999)).toBe(true);
  expect(store.takeGone()).toContain(storedId(500));
  expect(store.takeGone()).toEqual([]);
  store.close();
});

test("a smaller limit at the next start drops what is too much", () => {
  const store = openStored(folder);
  put(store, 0, 1000);
  store.close();
  const again = openStored(folder, { bytesMax: 2 ** 17 });
  expect(again.bytes).toBeLessThanOrEqual(2 ** 17);
  expect(get(again, 999)).toBe(true);
  again.close();
});

test("pages of another identity or size are none", () => {
  const store = openStored(folder);
  put(store, 0, 10);
  store.close();
  const other = openStored(folder, { identity: "cd".repeat(32) });
  expect([...other.ids()]).toEqual([]);
  other.close();
});

test("a full disk is a page that is not there, said once, until some time has passed", () => {
  let isFull = false;
  let nowMs = 0;
  const said: string[] = [];
  const store = openStored(folder, {
    onWrite: () => {
      if (isFull) throw Object.assign(new Error("ENOSPC: no space left on device"), { code: "ENOSPC" });
    },
    say: (sentence) => said.push(sentence),
    nowMs: () => nowMs,
  });
  put(store, 0, 3);
  isFull = true;
  expect(put(store, 3, 3)).toEqual([false, false, false]);
  expect(store.counts).toMatchObject({ stored: 3, failedWrites: 1 });
  isFull = false;
  expect(put(store, 3, 1)).toEqual([false]);
  nowMs = 60_000;
  expect(put(store, 3, 3)).toEqual([true, true, true]);
  isFull = true;
  expect(put(store, 6, 1)).toEqual([false]);
  expect(said).toEqual([`a page could not be written to ${folder}: ENOSPC: no space left on device`]);
  expect(checkStored(store)).toBe(6);
  store.close();
  const again = openStored(folder);
  expect(checkStored(again)).toBe(6);
  again.close();
});

test("a damaged page is left out, counted and said once", () => {
  const store = openStored(folder);
  put(store, 0, 20);
  store.close();
  const path = join(folder, segmentsOf()[0]!);
  const bytes = readFileSync(path);
  for (const number of [3, 4]) bytes[bytes.indexOf(storedPage(storedId(number)))]! ^= 1;
  writeFileSync(path, bytes);
  const said: string[] = [];
  const again = openStored(folder, { say: (sentence) => said.push(sentence) });
  expect([2, 3, 4, 5].map((number) => get(again, number))).toEqual([true, false, false, true]);
  expect(again.counts.damaged).toBe(2);
  expect(said).toEqual([`${path} is damaged; its pages are checked and left out`]);
  expect(again.takeGone()).toEqual([storedId(3), storedId(4)]);
  expect(put(again, 3, 1)).toEqual([true]);
  expect(get(again, 3)).toBe(true);
  again.close();
});

test("the second one on a folder reads and says so; it writes once the first is closed", () => {
  const first = openStored(folder);
  put(first, 0, 5);
  const said: string[] = [];
  const second = openStored(folder, { say: (sentence) => said.push(sentence) });
  expect([first.isReadOnly, second.isReadOnly]).toEqual([false, true]);
  expect(said).toEqual([
    `${folder} is in use by another server; until it ends, this one reads pages there and writes none`,
  ]);
  expect(checkStored(second)).toBe(5);
  expect(put(second, 5, 1)).toEqual([false]);
  put(first, 5, 2);
  expect(second.tryWrite()).toBe(false);
  first.close();
  expect([second.tryWrite(), second.isReadOnly]).toEqual([true, false]);
  expect([...second.ids()].length).toBe(7);
  expect(put(second, 7, 1)).toEqual([true]);
  expect(checkStored(second)).toBe(8);
  second.close();
});

test("encrypted pages are not in the files in plain, and need their secret", () => {
  const secret = Buffer.alloc(32, 1);
  const store = openStored(folder, { secret });
  put(store, 0, 10);
  expect(checkStored(store)).toBe(10);
  store.close();
  const bytes = readFileSync(join(folder, segmentsOf()[0]!));
  expect(bytes.indexOf(storedPage(storedId(3)).subarray(0, 16))).toBe(-1);
  for (const other of [Buffer.alloc(32, 2), null]) {
    const wrong = openStored(folder, { secret: other });
    expect([0, 1].map((number) => get(wrong, number))).toEqual([false, false]);
    wrong.close();
  }
  const plain = openStored(folder);
  put(plain, 20, 1);
  plain.close();
  const right = openStored(folder, { secret });
  expect(get(right, 5)).toBe(true);
  expect(get(right, 20)).toBe(false); // it was not encrypted
  right.close();
});
