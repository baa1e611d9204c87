/**
 * Sketch of a model: its JSON files, and weight files with the right length and header but no tensor data. A
 * model is planned from it before its weights are fetched.
 */

import {
  closeSync,
  copyFileSync,
  ftruncateSync,
  mkdirSync,
  mkdtempSync,
  openSync,
  rmSync,
  writeSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { type GgufFile, parseGguf } from "../../model/gguf-file.ts";
import { ModelError } from "../../model/model-error.ts";
import { headerLength } from "../../model/safetensors.ts";
import type { FileReader } from "./ranges.ts";

const LENGTH_BYTES = 8;
/** Maximum bytes of a tensor that is read for a GGUF file's configuration. */
const SMALL_TENSOR_BYTES = 4096;

/**
 * Runs `use` on the path of a sketch: the folder, or the first GGUF file. Errors name the model instead of
 * the sketch.
 */
export async function withSketch<Value>(
  name: string,
  descriptions: readonly { readonly path: string; readonly source: string }[],
  weights: readonly FileReader[],
  signal: AbortSignal,
  use: (path: string) => Promise<Value>,
): Promise<Value> {
  const folder = mkdtempSync(join(tmpdir(), "bunting-sketch-"));
  try {
    for (const { path, source } of descriptions) {
      mkdirSync(dirname(join(folder, path)), { recursive: true });
      copyFileSync(source, join(folder, path));
    }
    for (const reader of weights) await sketchWeights(folder, reader, signal);
    const first = weights[0]!.file.path;
    return await use(first.endsWith(".gguf") ? join(folder, first) : folder);
  } catch (error) {
    if (!(error instanceof ModelError)) throw error;
    const file = error.file.startsWith(folder) ? `${name}${error.file.slice(folder.length)}` : error.file;
    throw new ModelError(file, error.subject, error.reason.replaceAll(folder, name));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

async function sketchWeights(folder: string, reader: FileReader, signal: AbortSignal): Promise<void> {
  const { path, bytes } = reader.file;
  const parts = path.endsWith(".gguf")
    ? await ggufParts(reader, signal)
    : [{ offset: 0, content: await safetensorsHead(reader, signal) }];
  mkdirSync(dirname(join(folder, path)), { recursive: true });
  const descriptor = openSync(join(folder, path), "w");
  try {
    ftruncateSync(descriptor, bytes);
    for (const { offset, content } of parts) writeSync(descriptor, content, 0, content.length, offset);
  } finally {
    closeSync(descriptor);
  }
}

async function safetensorsHead(reader: FileReader, signal: AbortSignal): Promise<Uint8Array> {
  const { path, bytes } = reader.file;
  const head = await reader.range(0, Math.min(bytes, reader.limits.headBytes), signal);
  const wanted = LENGTH_BYTES + headerLength(path, head.subarray(0, LENGTH_BYTES), bytes);
  if (wanted <= head.length) return head;
  return Buffer.concat([head, await reader.range(head.length, wanted, signal)]);
}

/** Thrown by a byte source that does not hold enough of the file yet. */
class Further extends Error {
  readonly end: number;
  constructor(end: number) {
    super("more bytes are needed");
    this.end = end;
  }
}

/** Header of a GGUF file, and the small tensors on which its configuration depends. */
async function ggufParts(
  reader: FileReader,
  signal: AbortSignal,
): Promise<readonly { readonly offset: number; readonly content: Uint8Array }[]> {
  const { path, bytes } = reader.file;
  let head = await reader.range(0, Math.min(bytes, reader.limits.headBytes), signal);
  let read: GgufFile | null = null;
  while (read === null) {
    try {
      read = parseGguf(path, { bytes, read: (offset, count) => within(head, bytes, offset, count) });
    } catch (error) {
      if (!(error instanceof Further)) throw error;
      const end = Math.min(bytes, Math.max(error.end, 2 * head.length));
      head = Buffer.concat([head, await reader.range(head.length, end, signal)]);
    }
  }
  const small = read.tensors.filter(
    ({ name, bytes }) => /^rope_f/.test(name) && bytes <= SMALL_TENSOR_BYTES && bytes > 0,
  );
  const parts = [{ offset: 0, content: head }];
  for (const { offset, bytes: count } of small)
    parts.push({ offset, content: await reader.range(offset, offset + count, signal) });
  return parts;
}

function within(head: Uint8Array, bytes: number, offset: number, count: number): Uint8Array {
  const end = offset + count;
  if (end > head.length && head.length < bytes) throw new Further(end);
  return head.subarray(offset, end);
}
