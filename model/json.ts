/**
 * Reads JSON of model folders, which is untrusted: caps its size, checks types and ranges, and names file and
 * field in errors.
 */
import { closeSync, constants, fstatSync, openSync, readSync } from "node:fs";
import { ioReason, ModelError } from "./model-error.ts";

const depthMax = 64;

export type JsonObject = Readonly<Record<string, unknown>>;

/** Reads exactly [offset, offset + count) of an open file; throws ModelError if the file ends earlier. */
export function readExactly(file: string, descriptor: number, offset: number, count: number): Uint8Array {
  const bytes = new Uint8Array(count);
  let done = 0;
  while (done < count) {
    const read = readSync(descriptor, bytes, done, count - done, offset + done);
    if (read === 0)
      throw new ModelError(file, null, `ends at byte ${offset + done}, ${offset + count} expected`);
    done += read;
  }
  return bytes;
}

/** Opens a regular file, passes descriptor and size in bytes to `use`, then closes it. */
export function withFile<T>(file: string, use: (descriptor: number, bytes: number) => T): T {
  let descriptor: number;
  try {
    // Without O_NONBLOCK, opening a named pipe would block.
    descriptor = openSync(file, constants.O_RDONLY | constants.O_NONBLOCK);
  } catch (error) {
    throw new ModelError(file, null, ioReason(error));
  }
  try {
    const stat = fstatSync(descriptor);
    if (!stat.isFile()) throw new ModelError(file, null, "is not a regular file");
    return use(descriptor, stat.size);
  } catch (error) {
    throw error instanceof ModelError ? error : new ModelError(file, null, ioReason(error));
  } finally {
    closeSync(descriptor);
  }
}

/** Reads a JSON object from a file of at most `bytesMax` bytes. */
export function readJsonObject(file: string, bytesMax: number): JsonObject {
  return objectIn(file, readJson(file, bytesMax));
}

/** Reads any JSON of bounded depth without repeated keys from a file of at most `bytesMax` bytes. */
export function readJson(file: string, bytesMax: number): unknown {
  const bytes = withFile(file, (descriptor, size) => {
    if (size > bytesMax) throw new ModelError(file, null, `has ${size} bytes; at most ${bytesMax} are read`);
    return readExactly(file, descriptor, 0, size);
  });
  return parseJson(file, bytes);
}

/**
 * Parses UTF-8 bytes to a JSON object of bounded depth without repeated keys (parsers disagree about which of
 * two wins).
 */
export function parseJsonObject(file: string, bytes: Uint8Array): JsonObject {
  return objectIn(file, parseJson(file, bytes));
}

function objectIn(file: string, value: unknown): JsonObject {
  if (!isObject(value)) throw new ModelError(file, null, `is not a JSON object but ${show(value)}`);
  return value;
}

function parseJson(file: string, bytes: Uint8Array): unknown {
  let text: string;
  let value: unknown;
  try {
    text = withoutInfinities(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    value = JSON.parse(text);
  } catch (error) {
    throw new ModelError(file, null, `is not valid JSON (${error instanceof Error ? error.message : error})`);
  }
  checkNesting(file, text);
  return value;
}

/** Text in which infinities, as Python writes them, are numbers too large for a double. */
function withoutInfinities(text: string): string {
  if (!text.includes("Infinity")) return text;
  return text.replaceAll(/"[^"\\]*(?:\\.[^"\\]*)*"|\bInfinity\b/g, (piece) =>
    piece === "Infinity" ? "1e999" : piece,
  );
}

export function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Formats a value for an error message: short, on one line. */
export function show(value: unknown): string {
  if (value === undefined) return "missing";
  const text = JSON.stringify(value) ?? String(value);
  return text.length > 80 ? `${text.slice(0, 77)}...` : text;
}

/**
 * Refuses (valid) JSON text that nests too deeply for recursive code, or has an object with a repeated key.
 */
function checkNesting(file: string, text: string): void {
  const open: (Set<string> | null)[] = []; // one entry per open bracket: an object's keys, or null for an array
  for (const [piece, string, colon] of text.matchAll(/("[^"\\]*(?:\\.[^"\\]*)*")(\s*:)?|[{}[\]]/g)) {
    if (piece === "{") open.push(new Set());
    else if (piece === "[") open.push(null);
    else if (string === undefined) open.pop();
    else if (colon !== undefined) {
      const key = JSON.parse(string) as string;
      const keys = open.at(-1);
      if (keys?.has(key)) throw new ModelError(file, key, "the key appears twice in one object");
      keys?.add(key);
    }
    if (open.length > depthMax) throw new ModelError(file, null, `nests more than ${depthMax} levels deep`);
  }
}
