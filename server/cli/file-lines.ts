/** Files a piece at a time: memory holds a line, however many there are. */

import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { ConfigError } from "../config.ts";

const PIECE_BYTES = 256 * 1024;

/** The lines of a text file, without their LF, from its beginning each time. Throws ConfigError when it cannot be read. */
export function* linesOf(path: string): Generator<string> {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  let rest = "";
  for (const piece of piecesOf(path)) {
    const lines = (rest + decoder.decode(piece, { stream: true })).split("\n");
    rest = lines.pop()!;
    yield* lines;
  }
  rest += decoder.decode();
  if (rest !== "") yield rest;
}

function* piecesOf(path: string): Generator<Uint8Array> {
  const file = opened(path);
  try {
    const buffer = new Uint8Array(PIECE_BYTES);
    for (let at = 0; ; ) {
      const bytes = readSync(file, buffer, 0, buffer.length, at);
      if (bytes === 0) return;
      yield buffer.subarray(0, bytes);
      at += bytes;
    }
  } finally {
    closeSync(file);
  }
}

function opened(path: string): number {
  try {
    const file = openSync(path, "r");
    if (fstatSync(file).isFile()) return file;
    closeSync(file);
  } catch (error) {
    throw new ConfigError(`${path} cannot be read: ${error instanceof Error ? error.message : error}`);
  }
  throw new ConfigError(`${path} is not a file: it is read more than once.`);
}
