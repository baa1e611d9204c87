/** Batch jobs over a store on disk, with a door that answers by itself. */

import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { badRequest } from "../../server/http/errors.ts";
import { defaultJsonLimits } from "../../server/http/limits.ts";
import type { LineDoor, LineRequest, PreparedLine } from "../../server/jobs/door.ts";
import { openaiForm } from "../../server/jobs/openai-form.ts";
import { PreparedLines } from "../../server/jobs/prepared-lines.ts";
import { type BatchRecord, unreadBatch } from "../../server/jobs/records.ts";
import { JobRunner } from "../../server/jobs/runner.ts";
import { JobStore } from "../../server/jobs/store.ts";
import type { Traces } from "../../server/trace/traces.ts";

const folders: string[] = [];

export function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "bunting-store-"));
  folders.push(folder);
  return folder;
}

/** Removes all folders made here. */
export function removeFolders(): void {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
}

/** Door that answers a body's prompt with the prompt itself. */
export const door: LineDoor = async ({ body: { prompt } }) => {
  if (prompt === "bad") throw badRequest("the prompt is bad", "prompt");
  const tokens = Int32Array.from(String(prompt), (letter) => letter.charCodeAt(0));
  const answer = async () => {
    await Bun.sleep(0);
    const usage = { promptTokens: 3, cachedTokens: 1, completionTokens: 2 };
    return { body: { text: prompt }, usage, ignored: "" };
  };
  return { tokens, cacheKey: "", answerTokensMax: 10, answer };
};

/** The door, with another answer. */
export function doorAnswering(
  answer: (line: LineRequest, usual: PreparedLine["answer"]) => PreparedLine["answer"],
): LineDoor {
  return async (line) => {
    const prepared = await door(line);
    return { ...prepared, answer: answer(line, prepared.answer) };
  };
}

export function lineOf(index: number, prompt = `prompt ${index}`): string {
  const body = { model: "m", prompt };
  return JSON.stringify({ custom_id: `id ${index}`, method: "POST", url: "/v1/completions", body });
}

export const lines = [...Array.from({ length: 12 }, (_, index) => lineOf(index)), lineOf(12, "bad")];

export function recordOf(inputFile: string, changes: Partial<BatchRecord> = {}): BatchRecord {
  return {
    ...unreadBatch,
    id: "batch_1",
    owner: "",
    endpoint: "/v1/completions",
    completionWindow: "24h",
    inputFile,
    priority: 0,
    metadata: null,
    outputExpiresAfter: null,
    createdAt: 1000,
    expiresAt: 5000,
    ...changes,
  };
}

export function upload(store: JobStore, text: string): string {
  const file = store.upload({ id: "file-in", owner: "", purpose: "batch", filename: "in", createdAt: 1000 });
  file.write(Buffer.from(text));
  return file.finish(null).id;
}

export function runnerOf(
  store: JobStore,
  changes: {
    readonly door?: LineDoor;
    readonly now?: number;
    readonly preparedBytes?: number;
    readonly traces?: Traces;
  } = {},
): JobRunner {
  return new JobRunner(
    {
      store,
      door: changes.door ?? door,
      formOf: openaiForm,
      prepared: new PreparedLines(changes.preparedBytes),
      limits: { linesMax: 100, lineBytesMax: 1000, ...defaultJsonLimits },
      models: ["m"],
      nowSeconds: () => changes.now ?? 2000,
      retentionSeconds: 100,
      traces: changes.traces ?? null,
      commitMs: 0,
      retryMs: 1,
    },
    () => ({ tokens: 1000, sequences: 4, stepTokens: 100 }),
  );
}

/** Returns results by state, without their random ids. */
export function resultsOf(store: JobStore): unknown[] {
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

export const expected = [
  Array.from({ length: 12 }, (_, index) => [`id ${index}`, { text: `prompt ${index}` }, null]),
  [
    [
      "id 12",
      { error: { message: "the prompt is bad", type: "invalid_request_error", param: "prompt", code: null } },
      "invalid_request_error",
    ],
  ],
];

export async function runWhole(folder: string, onWrite: (what: string) => void = () => {}): Promise<void> {
  const store = new JobStore(folder, onWrite);
  store.putBatch(recordOf(upload(store, lines.join("\r\n"))));
  await runToEnd(store);
  store.close();
}

/** Runs the unfinished jobs of a store. */
export async function runToEnd(store: JobStore): Promise<void> {
  const runner = runnerOf(store);
  await runner.ended("batch_1");
  await runner.stop();
}
