/** Jobs over a store on the disk, with a door that answers by itself. */

import { Database } from "bun:sqlite";
import { afterAll, describe, expect, test } from "bun:test";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ApiError, badRequest } from "../http/errors.ts";
import { defaultJsonLimits } from "../http/limits.ts";
import type { LineDoor } from "./door.ts";
import { ANSWERED, type BatchRecord, FAILED } from "./records.ts";
import { JobRunner } from "./runner.ts";
import { JobStore } from "./store.ts";
import { StoreError } from "./store-error.ts";

const root = mkdtempSync(join(tmpdir(), "bunting-store-"));
afterAll(() => rmSync(root, { recursive: true, force: true }));
let folders = 0;
function newFolder(): string {
  folders += 1;
  const folder = join(root, String(folders));
  mkdirSync(folder);
  return folder;
}

/** Answers a body's prompt with itself. */
const door: LineDoor = {
  prompt: async (_endpoint, { prompt }) => {
    if (prompt === "bad") throw badRequest("the prompt is bad", "prompt");
    const tokens = Int32Array.from(String(prompt), (letter) => letter.charCodeAt(0));
    return { tokens, cacheKey: "", answerTokensMax: 10 };
  },
  answer: async (_endpoint, { prompt }) => {
    await Bun.sleep(0);
    const usage = { promptTokens: 3, cachedTokens: 1, completionTokens: 2 };
    return { body: JSON.stringify({ text: prompt }), usage };
  },
};

function lineOf(index: number, prompt = `prompt ${index}`): string {
  const body = { model: "m", prompt };
  return JSON.stringify({ custom_id: `id ${index}`, method: "POST", url: "/v1/completions", body });
}

const lines = [...Array.from({ length: 12 }, (_, index) => lineOf(index)), lineOf(12, "bad")];

function recordOf(inputFile: string, changes: Partial<BatchRecord> = {}): BatchRecord {
  return {
    id: "batch_1",
    owner: "",
    endpoint: "/v1/completions",
    completionWindow: "24h",
    inputFile,
    model: null,
    priority: 0,
    metadata: null,
    outputExpiresAfter: null,
    status: "validating",
    faults: [],
    outputFile: null,
    errorFile: null,
    total: 0,
    completed: 0,
    failed: 0,
    usage: { promptTokens: 0, cachedTokens: 0, completionTokens: 0 },
    createdAt: 1000,
    expiresAt: 5000,
    inProgressAt: null,
    finalizingAt: null,
    completedAt: null,
    failedAt: null,
    expiredAt: null,
    cancellingAt: null,
    cancelledAt: null,
    ...changes,
  };
}

function upload(store: JobStore, text: string): string {
  const file = store.upload({ id: "file-in", owner: "", purpose: "batch", filename: "in", createdAt: 1000 });
  file.write(Buffer.from(text));
  return file.finish(null).id;
}

function runnerOf(
  store: JobStore,
  changes: { readonly door?: LineDoor; readonly now?: number } = {},
): JobRunner {
  return new JobRunner(
    {
      store,
      door: changes.door ?? door,
      limits: { linesMax: 100, lineBytesMax: 1000, ...defaultJsonLimits },
      models: ["m"],
      nowSeconds: () => changes.now ?? 2000,
      retentionSeconds: 100,
      commitMs: 0,
      retryMs: 1,
    },
    () => ({ tokens: 1000, sequences: 4 }),
  );
}

/** Results by state, without their random ids. */
function resultsOf(store: JobStore): unknown[] {
  const batch = store.batch("", "batch_1")!;
  return [batch.outputFile, batch.errorFile].map((id) => {
    if (id === null) return [];
    const text = Buffer.concat([...store.content(store.file("", id)!)]).toString();
    return text
      .trimEnd()
      .split("\n")
      .map((line) => {
        const { custom_id, response, error } = JSON.parse(line);
        return [custom_id, response?.body, error?.code ?? null];
      });
  });
}

const expected = [
  Array.from({ length: 12 }, (_, index) => [`id ${index}`, { text: `prompt ${index}` }, null]),
  [
    [
      "id 12",
      { error: { message: "the prompt is bad", type: "invalid_request_error", param: "prompt", code: null } },
      "invalid_request_error",
    ],
  ],
];

async function runWhole(folder: string, onWrite: (what: string) => void = () => {}): Promise<void> {
  const store = new JobStore(folder, onWrite);
  store.createBatch(recordOf(upload(store, lines.join("\r\n"))));
  const runner = runnerOf(store);
  await runner.ended("batch_1");
  await runner.stop();
  store.close();
}

describe("a job", () => {
  test("has one result for each line, in order of the lines, and tells what it used", async () => {
    const folder = newFolder();
    await runWhole(folder);
    const store = new JobStore(folder);
    expect(resultsOf(store)).toEqual(expected);
    const { status, total, completed, failed, usage } = store.batch("", "batch_1")!;
    expect({ status, total, completed, failed }).toEqual({
      status: "completed",
      total: 13,
      completed: 12,
      failed: 1,
    });
    expect(usage).toEqual({ promptTokens: 36, cachedTokens: 12, completionTokens: 24 });
    store.close();
  });

  test("comes to the same end whichever write fails", async () => {
    let writes = 0;
    await runWhole(newFolder(), () => {
      writes += 1;
    });
    expect(writes).toBeGreaterThan(5);
    for (let failing = 0; failing < writes; failing++) {
      const folder = newFolder();
      let count = 0;
      const onWrite = (): void => {
        count += 1;
        if (count === failing + 1) throw Object.assign(new Error("no space"), { code: "ENOSPC" });
      };
      try {
        await runWhole(folder, onWrite);
      } catch {
        // The client was told that the file or the batch could not be kept, and comes again.
        rmSync(folder, { recursive: true });
        mkdirSync(folder);
        await runWhole(folder);
      }
      const store = new JobStore(folder);
      expect(resultsOf(store)).toEqual(expected);
      store.close();
    }
  });

  test("waits for room in a database that is full, and then goes on", async () => {
    const folder = newFolder();
    const store = new JobStore(folder);
    const long = Array.from({ length: 40 }, (_, index) => lineOf(index, `${index}${"x".repeat(800)}`));
    store.createBatch(recordOf(upload(store, long.join("\n"))));
    store.limitPages(1);
    const runner = runnerOf(store);
    const batch = store.batch("", "batch_1")!;
    while (runner.pausedBy(batch) === null) await Bun.sleep(1);
    expect(runner.pausedBy(batch)).toContain("the disk takes no more");
    store.limitPages(1_000_000);
    await runner.ended("batch_1");
    expect(store.batch("", "batch_1")!.completed).toBe(40);
    store.close();
  });

  test("tries again what is refused for now", async () => {
    const folder = newFolder();
    const store = new JobStore(folder);
    store.createBatch(recordOf(upload(store, lines.join("\n"))));
    const tried = new Set<unknown>();
    const busy: LineDoor = {
      ...door,
      answer: async (endpoint, body, call) => {
        if (tried.has(body.prompt)) return door.answer(endpoint, body, call);
        tried.add(body.prompt);
        throw new ApiError(503, "overloaded_error", "the queue is full");
      },
    };
    await runnerOf(store, { door: busy }).ended("batch_1");
    expect(resultsOf(store)).toEqual(expected);
    store.close();
  });

  test("that expires keeps what is done, and each other line says so", async () => {
    const store = new JobStore(newFolder());
    store.createBatch(recordOf(upload(store, lines.join("\n"))));
    await runnerOf(store, { now: 6000, door: { ...door, answer: () => new Promise(() => {}) } }).ended(
      "batch_1",
    );
    expect(store.batch("", "batch_1")!.status).toBe("expired");
    store.close();
  });

  test("of a model that is not served waits", async () => {
    const store = new JobStore(newFolder());
    const record = recordOf(upload(store, lines.join("\n")), { model: "other" });
    store.createBatch(record);
    const runner = runnerOf(store);
    expect([runner.active, runner.pausedBy(record)]).toEqual([0, "its model other is not served now"]);
    store.close();
  });

  test("results go when their time is over", async () => {
    const folder = newFolder();
    await runWhole(folder);
    const store = new JobStore(folder);
    store.deleteExpired(2099);
    expect(store.files("", { after: null, limit: 9, order: "asc" }).records).toHaveLength(3);
    store.deleteExpired(2100);
    expect(store.files("", { after: null, limit: 9, order: "asc" }).records.map(({ id }) => id)).toEqual([
      "file-in",
    ]);
    expect(([ANSWERED, FAILED] as const).map((state) => store.countLines("batch_1", state))).toEqual([0, 0]);
    store.close();
  });
});

describe("the store", () => {
  test("notices a byte that was changed, names it, and never gives it out", async () => {
    const folder = newFolder();
    await runWhole(folder);
    const path = join(folder, "jobs.sqlite");
    const good = readFileSync(path);
    const copy = newFolder();
    mkdirSync(join(copy, "files"));
    for (const name of readdirSync(join(folder, "files"))) {
      writeFileSync(join(copy, "files", name), readFileSync(join(folder, "files", name)));
    }
    let noticed = 0;
    for (let at = 0; at < good.length; at += 37) {
      const bad = Buffer.from(good);
      bad[at]! ^= 1 << (at % 8);
      writeFileSync(join(copy, "jobs.sqlite"), bad);
      let store: JobStore | null = null;
      try {
        store = new JobStore(copy);
        expect(resultsOf(store)).toEqual(expected);
      } catch (error) {
        noticed += 1;
        expect(error).toBeInstanceOf(StoreError);
      } finally {
        store?.close();
        for (const name of readdirSync(copy)) if (name.startsWith("jobs.sqlite-")) rmSync(join(copy, name));
      }
    }
    expect(noticed).toBeGreaterThan(0);
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
