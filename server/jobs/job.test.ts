/** A job from its file to its results, with interruptions of every kind. */

import { afterAll, describe, expect, spyOn, test } from "bun:test";
import { mkdirSync, rmSync } from "node:fs";
import {
  door,
  doorAnswering,
  expected,
  lineOf,
  lines,
  newFolder,
  recordOf,
  removeFolders,
  resultsOf,
  runnerOf,
  runWhole,
  upload,
} from "../../tests/support/jobs.ts";
import { ApiError } from "../http/errors.ts";
import type { Traces } from "../trace/traces.ts";
import type { LineDoor, LineRequest } from "./door.ts";
import { ANSWERED, FAILED } from "./records.ts";
import { JobStore } from "./store.ts";

afterAll(removeFolders);

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
        // The client got an error for the upload or the batch, and retries.
        rmSync(folder, { recursive: true });
        mkdirSync(folder);
        await runWhole(folder);
      }
      const store = new JobStore(folder);
      expect(resultsOf(store)).toEqual(expected);
      store.close();
    }
  });

  test("has few of its lines in memory before they run", async () => {
    const store = new JobStore(newFolder());
    const all = Array.from({ length: 100 }, (_, index) => lineOf(index));
    store.putBatch(recordOf(upload(store, all.join("\n"))));
    let reading = 0;
    let readingMost = 0;
    const slow: LineDoor = async (line) => {
      reading += 1;
      readingMost = Math.max(readingMost, reading);
      await Bun.sleep(0);
      reading -= 1;
      return door(line);
    };
    await runnerOf(store, { door: slow }).ended("batch_1");
    expect(store.batch("", "batch_1")!.completed).toBe(100);
    expect(readingMost).toBe(64);
    store.close();
  });

  test("waits for room in a database that is full, and then goes on", async () => {
    const folder = newFolder();
    const store = new JobStore(folder);
    const long = Array.from({ length: 40 }, (_, index) => lineOf(index, `${index}${"x".repeat(800)}`));
    store.putBatch(recordOf(upload(store, long.join("\n"))));
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
    store.putBatch(recordOf(upload(store, lines.join("\n"))));
    const tried = new Set<unknown>();
    const busy = doorAnswering(({ body }, answer) => async (signal, trace) => {
      if (tried.has(body.prompt)) return answer(signal, trace);
      tried.add(body.prompt);
      throw new ApiError(503, "overloaded_error", "the queue is full");
    });
    await runnerOf(store, { door: busy }).ended("batch_1");
    expect(resultsOf(store)).toEqual(expected);
    store.close();
  });

  test("traces a line once, however often it is refused for now", async () => {
    const store = new JobStore(newFolder());
    const all = Array.from({ length: 100 }, (_, index) => lineOf(index));
    store.putBatch(recordOf(upload(store, all.join("\n"))));
    const refusals = new Map<unknown, number>();
    const untraced: unknown[] = [];
    const busy = doorAnswering(({ body }, answer) => async (signal, trace) => {
      const refused = refusals.get(body.prompt) ?? 0;
      refusals.set(body.prompt, refused + 1);
      if (refused < 11) throw new ApiError(503, "overloaded_error", "the model is not loaded yet");
      if (trace === null) untraced.push(body.prompt);
      return await answer(signal, trace);
    });
    const ends: object[] = [];
    const traces: Traces = {
      counts: { exported: 0, failed: 0, dropped: 0 },
      emit: () => {},
      open: () => ({ add: () => {}, end: (attributes) => void ends.push(attributes) }),
      close: async () => {},
    };
    await runnerOf(store, { door: busy, traces }).ended("batch_1");
    expect([store.batch("", "batch_1")!.completed, untraced]).toEqual([100, []]);
    expect(ends).toEqual([
      expect.not.objectContaining({ "bunting.answers_without_spans": expect.anything() }),
    ]);
    store.close();
  });

  test.each([
    ["prepared once while memory has room for it", 2 ** 20, 1],
    ["prepared again when it runs if memory has no room for it", 1, 2],
  ])("has each line %s, and has the same results", async (_, preparedBytes, times) => {
    const store = new JobStore(newFolder());
    store.putBatch(recordOf(upload(store, lines.join("\n"))));
    const prepared = new Map<unknown, number>();
    const counting: LineDoor = (line) => {
      const { prompt } = line.body;
      prepared.set(prompt, (prepared.get(prompt) ?? 0) + 1);
      return door(line);
    };
    await runnerOf(store, { door: counting, preparedBytes }).ended("batch_1");
    expect(resultsOf(store)).toEqual(expected);
    const { bad, ...others } = Object.fromEntries(prepared);
    expect([bad, new Set(Object.values(others))]).toEqual([1, new Set([times])]);
    store.close();
  });

  test("that expires keeps what is done, and each other line says so", async () => {
    const store = new JobStore(newFolder());
    store.putBatch(recordOf(upload(store, lines.join("\n"))));
    let asked = 0;
    const stuck = doorAnswering((_, answer) => (signal, trace) => {
      asked += 1;
      return asked <= 5 ? answer(signal, trace) : new Promise(() => {});
    });
    const before = runnerOf(store, { door: stuck });
    while (store.batch("", "batch_1")!.completed < 5) await Bun.sleep(0);
    await before.stop();
    await runnerOf(store, { now: 6000, door: stuck }).ended("batch_1");
    const { status, completed, failed } = store.batch("", "batch_1")!;
    expect({ status, completed, failed }).toEqual({ status: "expired", completed: 5, failed: 8 });
    const [done, left] = resultsOf(store) as [unknown[][], unknown[][]];
    expect(done).toEqual((expected[0] as unknown[][]).filter(([id]) => done.some(([other]) => other === id)));
    expect(left.map(([, , code]) => code)).toEqual([
      ...Array(7).fill("batch_expired"),
      "invalid_request_error",
    ]);
    store.close();
  });

  test("asks for each line as its owner, with its priority among jobs", async () => {
    const store = new JobStore(newFolder());
    const calls: Pick<LineRequest, "tenant" | "priority">[] = [];
    const noting: LineDoor = (line) => {
      const { tenant, priority } = line;
      calls.push({ tenant, priority });
      return door(line);
    };
    store.putBatch(recordOf(upload(store, lines[0]!), { priority: -3 }));
    await runnerOf(store, { door: noting }).ended("batch_1");
    expect(calls).toEqual([{ tenant: "", priority: -3 }]);
    store.close();
  });

  test("of a model that is not served waits", async () => {
    const store = new JobStore(newFolder());
    const record = recordOf(upload(store, lines.join("\n")), { model: "other" });
    store.putBatch(record);
    const runner = runnerOf(store);
    expect([runner.active, runner.pausedBy(record)]).toEqual([0, "its model other is not served now"]);
    store.close();
  });

  test("results go when their time is over", async () => {
    const folder = newFolder();
    await runWhole(folder);
    const store = new JobStore(folder);
    // A runner deletes expired files when it starts, and once an hour.
    await runnerOf(store, { now: 2099 }).stop();
    expect(store.files("", { after: null, limit: 9, order: "asc" }).records).toHaveLength(3);
    await runnerOf(store, { now: 2100 }).stop();
    expect(store.files("", { after: null, limit: 9, order: "asc" }).records.map(({ id }) => id)).toEqual([
      "file-in",
    ]);
    expect(([ANSWERED, FAILED] as const).map((state) => store.resultBytes("batch_1", state))).toEqual([0, 0]);
    store.close();
  });

  test("an input stays as long as its batch goes on, and then goes when its time is over", async () => {
    const store = new JobStore(newFolder());
    const file = { id: "file-in", owner: "", purpose: "batch", filename: "in", createdAt: 1000 } as const;
    const upload = store.upload(file);
    upload.write(Buffer.from(lines.join("\n")));
    upload.finish(1500);
    store.putBatch(recordOf("file-in"));
    const runner = runnerOf(store, { now: 2000 });
    expect(store.file("", "file-in")).not.toBeNull();
    await runner.ended("batch_1");
    expect(store.batch("", "batch_1")!.status).toBe("completed");
    await runnerOf(store, { now: 2000 }).stop();
    expect(store.file("", "file-in")).toBeNull();
    store.close();
  });

  test("a full disk puts off what is to be deleted, and keeps no server from its start", async () => {
    const folder = newFolder();
    await runWhole(folder);
    let isFull = true;
    const store = new JobStore(folder, () => {
      if (isFull) throw Object.assign(new Error("no space"), { code: "ENOSPC" });
    });
    const log = spyOn(console, "error").mockImplementation(() => {});
    await runnerOf(store, { now: 2100 }).stop();
    log.mockRestore();
    const filesLeft = (): number => store.files("", { after: null, limit: 9, order: "asc" }).records.length;
    expect(filesLeft()).toBe(3);
    isFull = false;
    await runnerOf(store, { now: 2100 }).stop();
    expect(filesLeft()).toBe(1);
    store.close();
  });
});
