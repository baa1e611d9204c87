/**
 * Writes a batch's results from the server to files. Memory holds one result at a time, and the file position
 * of each.
 */

import { closeSync, openSync, readSync, renameSync, rmSync, statSync, writeSync } from "node:fs";
import { join } from "node:path";
import { splitLines } from "../jobs/input.ts";
import type { BatchObject, JobsClient } from "./jobs-client.ts";

/** Writes completions to `output`, and failures to `output.errors`. */
export async function writeResults(client: JobsClient, ended: BatchObject, output: string): Promise<void> {
  const { output_file_id: answers, error_file_id: failures } = ended;
  if (failures != null) await writeWhole(`${output}.errors`, client.content(failures));
  await writeWhole(output, answers == null ? [] : client.content(answers));
}

/** Name that means standard output or standard input in place of a file. */
export const STANDARD = "-";

/** Writes one result per line of `lines` to `output`, in their order; uses `folder` for temporary files. */
export async function writeOrdered(
  client: JobsClient,
  { output_file_id: answers, error_file_id: failures }: BatchObject,
  lines: Iterable<string>,
  output: string,
  folder: string,
): Promise<void> {
  const path = join(folder, "results.jsonl");
  await writeWhole(path, contentOf(client, [answers, failures]));
  const file = openSync(path, "r");
  try {
    await writeWhole(output, inOrder(file, statSync(path).size, lines));
  } finally {
    closeSync(file);
    rmSync(path);
  }
}

async function* contentOf(
  client: JobsClient,
  files: readonly (string | null | undefined)[],
): AsyncGenerator<Uint8Array> {
  for (const file of files) if (file != null) yield* client.content(file);
}

function* inOrder(file: number, bytes: number, lines: Iterable<string>): Generator<Uint8Array> {
  const read = (start: number, length: number): Uint8Array => {
    const buffer = new Uint8Array(length);
    return buffer.subarray(0, readSync(file, buffer, 0, length, start));
  };
  const places = new Map<unknown, readonly [start: number, bytes: number]>();
  for (const { start, bytes: line } of splitLines({ bytes, read }, Number.POSITIVE_INFINITY)) {
    if (line !== null && line.length > 0)
      places.set(customIdOf(new TextDecoder().decode(line)), [start, line.length]);
  }
  for (const line of lines) {
    if (line.trim() === "") continue;
    const id = customIdOf(line);
    const place = places.get(id);
    if (place !== undefined) yield read(...place);
    else yield Buffer.from(JSON.stringify({ custom_id: id, response: null, error: noResult }));
    yield LINE_END;
  }
}

const noResult = { code: "no_result", message: "The server gave no result for this line." };
const LINE_END = Buffer.from("\n");

function customIdOf(line: string): unknown {
  return (JSON.parse(line) as { readonly custom_id: unknown }).custom_id;
}

/** Writes a file completely or not at all; standard output is written piece by piece. */
export async function writeWhole(
  path: string,
  content: Iterable<Uint8Array> | AsyncIterable<Uint8Array>,
): Promise<void> {
  if (path === STANDARD) {
    await print(content);
    return;
  }
  const part = `${path}.part`;
  const file = openSync(part, "w");
  try {
    for await (const piece of content) {
      for (let at = 0; at < piece.length; ) at += writeSync(file, piece, at);
    }
  } finally {
    closeSync(file);
  }
  renameSync(part, path);
}

/** Writes to standard output; stops silently if the reader has closed the pipe, as `head` does. */
async function print(content: Iterable<Uint8Array> | AsyncIterable<Uint8Array>): Promise<void> {
  try {
    for await (const piece of content) await Bun.write(Bun.stdout, piece);
  } catch (error) {
    if ((error as { readonly code?: string }).code !== "EPIPE") throw error;
  }
}
