/** Reads files in pieces; memory holds one line. */

import { closeSync, fstatSync, openSync, readSync } from "node:fs";
import { ioReason } from "../../model/model-error.ts";
import { ConfigError } from "../config.ts";

const PIECE_BYTES = 256 * 1024;
const LF = 0x0a;

/**
 * Lines of a text file, without LF and byte order mark, from its beginning on each call. Throws ConfigError,
 * with `name` for the file, if it is unreadable.
 */
export function* linesOf(path: string, name = path): Generator<string> {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  let line = 0;
  const textOf = (bytes: Uint8Array): string => {
    line += 1;
    try {
      const text = decoder.decode(bytes);
      return line === 1 ? text.replace(/^\ufeff/, "") : text;
    } catch {
      throw new ConfigError(`Line ${line} of ${name} is not valid UTF-8.`);
    }
  };
  let rest: Uint8Array[] = [];
  for (const piece of piecesOf(path)) {
    let from = 0;
    for (let end = piece.indexOf(LF); end >= 0; end = piece.indexOf(LF, from)) {
      yield textOf(Buffer.concat([...rest, piece.subarray(from, end)]));
      rest = [];
      from = end + 1;
    }
    if (from < piece.length) rest.push(piece.slice(from));
  }
  if (rest.length > 0) yield textOf(Buffer.concat(rest));
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
    throw new ConfigError(`${path} ${ioReason(error)}.`);
  }
  throw new ConfigError(`${path} is not a file: it is read more than once; - reads standard input.`);
}
