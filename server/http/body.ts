import { rememberJsonText } from "../text/json-text.ts";
import { ApiError, badRequest, quote } from "./errors.ts";

/** What a body may be at most. */
export interface BodyLimits {
  readonly bodyBytesMax: number;
  /** Nesting of arrays and objects. */
  readonly jsonDepthMax: number;
  /** Keys of all objects together; parsing slows down with them more than with anything else. */
  readonly jsonKeysMax: number;
  /** The whole body must have come within this time of being asked for. */
  readonly bodyTimeoutMs: number;
}

export type JsonLimits = Pick<BodyLimits, "jsonDepthMax" | "jsonKeysMax">;

/** Reads a request's JSON object, or throws 400, 408, 413 or 415. Nothing beyond the limits is ever held in memory. */
export async function readJsonBody(request: Request, limits: BodyLimits): Promise<Record<string, unknown>> {
  expectJson(request.headers.get("content-type"));
  expectPlain(request.headers.get("content-encoding"));
  const value = parseJson(decodeUtf8(await readBytes(request, limits)), limits);
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw badRequest(`the request body must be a JSON object, but is ${quote(value)}`);
  }
  return value as Record<string, unknown>;
}

function expectJson(contentType: string | null): void {
  const [type = "", ...parameters] = (contentType ?? "").toLowerCase().split(";");
  const charset = parameters
    .map((parameter) => parameter.trim())
    .find((parameter) => parameter.startsWith("charset="));
  const charsetFits = charset === undefined || /^charset="?utf-?8"?$/.test(charset);
  if (type.trim() === "application/json" && charsetFits) return;
  throw new ApiError(
    415,
    "invalid_request_error",
    `the content-type must be application/json in UTF-8, but is ${contentType === null ? "missing" : quote(contentType)}`,
  );
}

function expectPlain(contentEncoding: string | null): void {
  if (contentEncoding === null || contentEncoding.trim().toLowerCase() === "identity") return;
  throw new ApiError(
    415,
    "invalid_request_error",
    `the request body must come uncompressed, but the content-encoding is ${quote(contentEncoding)}`,
  );
}

async function readBytes(request: Request, limits: BodyLimits): Promise<Uint8Array> {
  const announced = Number(request.headers.get("content-length") ?? 0);
  if (announced > limits.bodyBytesMax) throw bodyTooLarge(`${announced} bytes`, limits);
  if (request.body === null) return new Uint8Array(0);

  const reader = request.body.getReader();
  let timer: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_resolve, reject) => {
    timer = setTimeout(() => reject(bodyTooLate(limits)), limits.bodyTimeoutMs);
  });
  const parts: Uint8Array[] = [];
  let bytes = 0;
  try {
    for (;;) {
      const { done, value } = await Promise.race([reader.read(), late]);
      if (done) return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
      bytes += value.byteLength;
      if (bytes > limits.bodyBytesMax) throw bodyTooLarge("more", limits);
      parts.push(value);
    }
  } catch (error) {
    reader.cancel().catch(() => {});
    if (error instanceof ApiError) throw error;
    throw badRequest("the request body ended too early");
  } finally {
    clearTimeout(timer);
  }
}

function bodyTooLarge(given: string, limits: BodyLimits): ApiError {
  const message = `the request body may have ${limits.bodyBytesMax} bytes at most, but has ${given}`;
  return new ApiError(413, "invalid_request_error", message, { headers: { connection: "close" } });
}

function bodyTooLate(limits: BodyLimits): ApiError {
  const message = `the request body did not arrive within ${limits.bodyTimeoutMs} ms`;
  return new ApiError(408, "timeout_error", message, { headers: { connection: "close" } });
}

function decodeUtf8(bytes: Uint8Array): string {
  if (bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf) {
    throw badRequest("the request body starts with a byte order mark; JSON is sent without one");
  }
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    throw badRequest("the request body is not valid UTF-8");
  }
}

/**
 * `JSON.parse`, and besides refuses what it lets pass: too much depth, too many keys, a key given twice in one object (whose
 * value would win differs between parsers), the key `__proto__`, and text that is not well-formed Unicode. The text is remembered
 * for the whole value and for its members (server/text/json-text.ts).
 */
export function parseJson(text: string, limits: JsonLimits, what = "the request body"): unknown {
  const members = checkStructure(text, limits, what);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw badRequest(`${what} is not valid JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  if (/\\u[dD][89a-fA-F]/.test(text)) checkWellFormed(value, "");
  rememberJsonText(value, text);
  for (const { key, start, end } of members) {
    const member = (value as Readonly<Record<string, unknown>>)[JSON.parse(key) as string];
    rememberJsonText(member, text.slice(start, end));
  }
  return value;
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** An array or object in the outermost object. */
interface Member {
  /** As it is written, with its quotes. */
  readonly key: string;
  /** Where its text begins and ends. */
  readonly start: number;
  end: number;
}

/** One pass over the text before it is parsed: recursion never begins on what is too deep. Text that is not JSON may
 *  pass, `JSON.parse` refuses it afterwards. */
function checkStructure(text: string, { jsonDepthMax, jsonKeysMax }: JsonLimits, what: string): Member[] {
  const members: Member[] = [];
  let key = "";
  /** Per open bracket: the keys seen so far, or null for an array. */
  const open: (Set<string> | null)[] = [];
  let keys = 0;
  let keyIsNext = false;
  for (let at = 0; at < text.length; at++) {
    switch (text.charCodeAt(at)) {
      case QUOTE: {
        const end = stringEnd(text, at);
        if (keyIsNext) {
          const literal = text.slice(at, end + 1);
          addKey(open[open.length - 1], literal);
          if (open.length === 1) key = literal;
          if (++keys > jsonKeysMax) {
            throw badRequest(`${what} may hold ${jsonKeysMax} keys at most, and holds more`);
          }
        }
        keyIsNext = false;
        at = end;
        break;
      }
      case COMMA:
        keyIsNext = open[open.length - 1] instanceof Set;
        break;
      case OPEN_OBJECT:
      case OPEN_ARRAY:
        if (open.length === 1 && open[0] instanceof Set) members.push({ key, start: at, end: at });
        keyIsNext = text.charCodeAt(at) === OPEN_OBJECT;
        open.push(keyIsNext ? new Set() : null);
        if (open.length > jsonDepthMax) {
          throw badRequest(`${what} may be nested ${jsonDepthMax} levels deep at most, and is deeper`);
        }
        break;
      case CLOSE_OBJECT:
      case CLOSE_ARRAY:
        keyIsNext = false;
        open.pop();
        if (open.length === 1 && members.length > 0) members[members.length - 1]!.end = at + 1;
        break;
    }
  }
  return members;
}

/** Index of the quote that ends the string whose first quote is at `start`; the last index if there is none. */
function stringEnd(text: string, start: number): number {
  for (let at = start; ; ) {
    at = text.indexOf('"', at + 1);
    if (at < 0) return text.length - 1;
    let backslashes = 0;
    while (text.charCodeAt(at - 1 - backslashes) === BACKSLASH) backslashes++;
    if (backslashes % 2 === 0) return at;
  }
}

function addKey(keys: Set<string> | null | undefined, literal: string): void {
  if (!(keys instanceof Set)) return;
  let key = literal.slice(1, -1);
  if (key.includes("\\")) {
    try {
      key = JSON.parse(literal) as string;
    } catch {
      return; // not JSON: the parser will say so, better than we could
    }
  }
  if (key === "__proto__") throw badRequest("the key __proto__ is not allowed in a request body");
  if (keys.has(key)) throw badRequest(`the key ${quote(key)} appears twice in one object`, key);
  keys.add(key);
}

function checkWellFormed(value: unknown, path: string): void {
  if (typeof value === "string") {
    if (!value.isWellFormed())
      throw badRequest(`${path || "the body"} holds half of a surrogate pair, which is not text`, path);
  } else if (Array.isArray(value)) {
    value.forEach((item, index) => {
      checkWellFormed(item, `${path}[${index}]`);
    });
  } else if (typeof value === "object" && value !== null) {
    for (const [key, item] of Object.entries(value)) {
      if (!key.isWellFormed()) throw badRequest("a key holds half of a surrogate pair, which is not text");
      checkWellFormed(item, path === "" ? key : `${path}.${key}`);
    }
  }
}
