/**
 * Reads a batch's input: one JSON object per line. All lines of a file must pass these checks before any
 * runs.
 */

import { createHash } from "node:crypto";
import { ApiError, quote } from "../http/errors.ts";
import { type JsonLimits, parseJson } from "../http/json/parse.ts";
import { type InputLine, LineFault, type LineForm } from "./line-form.ts";
import type { BatchFault, LineRecord } from "./records.ts";

export interface InputLimits extends JsonLimits {
  readonly linesMax: number;
  readonly lineBytesMax: number;
}

/** Maximum faults to report in detail; the rest is reported as a count. */
const FAULTS_MAX = 100;
/** Bytes per read. */
const READ_BYTES = 256 * 1024;
const BYTE_ORDER_MARK = [0xef, 0xbb, 0xbf];

/** Rules that all lines of a file must obey. */
export interface InputRules {
  readonly form: LineForm;
  /** Model names of this server; null to accept any. */
  readonly models: readonly string[] | null;
  readonly limits: InputLimits;
}

/** Random-access bytes of a file. */
export interface InputSource {
  readonly bytes: number;
  read(start: number, bytes: number): Uint8Array;
}

/**
 * Reads and checks a file line by line. Fills `faults`; a file with faults does not run. Memory holds one line
 * and the ids of all earlier lines.
 */
export class InputReader {
  readonly faults: BatchFault[] = [];
  #faultCount = 0;
  readonly #source: InputSource;
  readonly #rules: InputRules;
  readonly #checker: LineChecker;

  constructor(source: InputSource, rules: InputRules) {
    this.#source = source;
    this.#rules = rules;
    this.#checker = new LineChecker(rules);
  }

  /** Model named by the first line that names one. */
  get model(): string | null {
    return this.#checker.model;
  }

  /** Yields a record for each line; null for a blank or faulty one, so that its reader can pause there too. */
  *lines(): Generator<LineRecord | null> {
    const { linesMax } = this.#rules.limits;
    let line = 0;
    let filled = 0;
    for (const { start, bytes } of splitLines(this.#source, this.#rules.limits.lineBytesMax)) {
      line += 1;
      const isFilled = bytes === null || !isBlank(bytes);
      if (isFilled) filled += 1;
      if (filled > linesMax || line - filled > linesMax) {
        const message = `The file may have ${linesMax} lines at most, and as many blank ones, and has more.`;
        this.#fault(null, new LineFault("too_many_tasks", message));
        break;
      }
      yield isFilled ? this.#checked(line, start, bytes) : null;
    }
    if (filled === 0 && this.#faultCount === 0)
      this.#fault(null, new LineFault("empty_file", "The file has no lines."));
    if (this.#faultCount > this.faults.length) {
      const more = this.#faultCount - this.faults.length;
      this.faults.push({
        code: "more_errors",
        line: null,
        message: `${more} more lines have errors.`,
        param: null,
      });
    }
  }

  /** Checks a line; counts its fault and returns null if it has one. */
  #checked(line: number, start: number, bytes: Uint8Array | null): LineRecord | null {
    try {
      return this.#checker.check(line, start, bytes);
    } catch (error) {
      if (!(error instanceof LineFault)) throw error;
      this.#fault(line, error);
      return null;
    }
  }

  #fault(line: number | null, { code, message, param }: LineFault): void {
    this.#faultCount += 1;
    if (this.faults.length < FAULTS_MAX) this.faults.push({ code, line, message, param });
  }
}

/** Checks the lines of a file one after the other. Memory holds the ids of all checked lines. */
export class LineChecker {
  /** Model named by the first line that names one. */
  model: string | null = null;
  readonly #rules: InputRules;
  readonly #customIds = new Map<string, number>();

  constructor(rules: InputRules) {
    this.#rules = rules;
  }

  /** `bytes`: null for a line that is too long. Throws LineFault. */
  check(line: number, start: number, bytes: Uint8Array | null): LineRecord {
    const { limits, form, models } = this.#rules;
    if (bytes === null) {
      throw new LineFault(
        "line_too_long",
        `A line may have ${limits.lineBytesMax} bytes at most, and this one has more.`,
      );
    }
    const { customId, body } = parseLine(bytes, line, form, limits);
    const earlier = this.#customIds.get(customId);
    if (earlier !== undefined) {
      const message = `The custom_id ${quote(customId)} was used in line ${earlier} before.`;
      throw new LineFault("duplicate_custom_id", message, "custom_id");
    }
    const { model } = body;
    if (typeof model === "string" && models?.includes(model) === false) {
      const message = `The model ${quote(model)} does not exist, or is a program; for batches there are: ${models.join(", ")}.`;
      throw new LineFault("model_not_found", message, "body.model");
    }
    if (typeof model === "string") {
      if (this.model !== null && this.model !== model) {
        const message = `A file names one model, but this line has ${quote(model)} and others have ${quote(this.model)}.`;
        throw new LineFault("mismatched_model", message, "body.model");
      }
      this.model = model;
    }
    this.#customIds.set(customId, line);
    return { line, customId, start, bytes: bytes.length, digest: digestOf(bytes) };
  }
}

/** Parses a line's request. Throws LineFault. */
export function parseLine(bytes: Uint8Array, line: number, form: LineForm, limits: JsonLimits): InputLine {
  return form.read(parseObject(bytes, limits), line);
}

function parseObject(bytes: Uint8Array, limits: JsonLimits): Readonly<Record<string, unknown>> {
  let value: unknown;
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
    value = parseJson(text, limits, "the line");
  } catch (error) {
    if (error instanceof ApiError) throw new LineFault("invalid_json_line", `${capital(error.message)}.`);
    throw new LineFault("invalid_json_line", "The line is not valid UTF-8.");
  }
  if (typeof value === "object" && value !== null && !Array.isArray(value)) {
    return value as Readonly<Record<string, unknown>>;
  }
  throw new LineFault("invalid_json_line", `The line must be a JSON object, but is ${quote(value)}.`);
}

function capital(text: string): string {
  return `${text[0]?.toUpperCase()}${text.slice(1)}`;
}

/** Digest that shows whether a line's bytes are still those that were checked. */
export function digestOf(bytes: Uint8Array): string {
  return createHash("sha256").update(bytes).digest("hex").slice(0, 16);
}

function isBlank(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte === 0x20 || byte === 0x09);
}

/**
 * Splits lines at LF or CR LF and drops a byte order mark at the start of the file; null for a line longer
 * than `bytesMax`.
 */
export function* splitLines(
  source: InputSource,
  bytesMax: number,
): Generator<{ readonly start: number; readonly bytes: Uint8Array | null }> {
  let rest = new Uint8Array(0);
  /** Offset of the line that `rest` begins. */
  let start = 0;
  let isLong = false;
  const whole = (line: Uint8Array) => {
    const mark =
      start === 0 && BYTE_ORDER_MARK.every((byte, at) => line[at] === byte) ? BYTE_ORDER_MARK.length : 0;
    const bytes = line.subarray(mark, line.at(-1) === 0x0d ? -1 : undefined);
    return { start: start + mark, bytes: isLong || bytes.length > bytesMax ? null : bytes };
  };
  for (let at = 0; at < source.bytes; ) {
    const read = source.read(at, Math.min(READ_BYTES, source.bytes - at));
    if (read.length === 0) break;
    let from = 0;
    for (let end = read.indexOf(0x0a); end >= 0; end = read.indexOf(0x0a, from)) {
      const tail = read.subarray(from, end);
      const line = rest.length === 0 ? tail : Buffer.concat([rest, tail]);
      yield whole(line);
      from = end + 1;
      start = at + from;
      rest = new Uint8Array(0);
      isLong = false;
    }
    if (!isLong) rest = new Uint8Array(Buffer.concat([rest, read.subarray(from)]));
    if (rest.length > bytesMax + 1) {
      isLong = true;
      rest = rest.slice(0, 1);
    }
    at += read.length;
  }
  if (rest.length > 0) yield whole(rest);
}
