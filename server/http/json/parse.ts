/** JSON from outside: parsed as `JSON.parse` does, but within limits and with stricter rules. */

import { rememberJsonText } from "../../../text/json-text.ts";
import { badRequest, quote } from "../errors.ts";

/** Upper bounds on JSON. Each bounds a cost that grows with this number and not with the bytes. */
export interface JsonLimits {
  /** Nesting of arrays and objects. */
  readonly jsonDepthMax: number;
  /** Keys of all objects together. */
  readonly jsonKeysMax: number;
  /** Different keys: objects with few different keys share their layout, others cost far more. */
  readonly jsonNamesMax: number;
  /** Elements of all arrays together. */
  readonly jsonItemsMax: number;
}

/** Value with the text that it was parsed from. */
export interface ParsedJson {
  readonly value: unknown;
  readonly text: string;
  /** Arrays and objects directly in the outermost object. */
  readonly members: readonly Member[];
}

/**
 * Parses like `JSON.parse`, and refuses three things that it accepts. They are: more than the limits, the key
 * `__proto__`, and a key given twice in one object (parsers differ in which value wins). Half a surrogate
 * pair becomes U+FFFD. Throws 400; `what` is the text's name in its message. Remembers the text of the whole
 * value and of its members (text/json-text.ts).
 */
export function parseJson(text: string, limits: JsonLimits, what?: string): unknown {
  return remembered(readJson(text, limits, what));
}

/** Returns the value after remembering its text and those of its members. */
export function remembered({ value, text, members }: ParsedJson): unknown {
  rememberJsonText(value, text);
  for (const { key, start, end } of members) {
    const member = (value as Readonly<Record<string, unknown>>)[JSON.parse(key) as string];
    rememberJsonText(member, text.slice(start, end));
  }
  return value;
}

/** `parseJson` without remembering. */
export function readJson(given: string, limits: JsonLimits, what = "the request body"): ParsedJson {
  const text = /\\u[dD][89a-fA-F]/.test(given) ? wellFormed(given) : given;
  const members = checkStructure(text, limits, what);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    throw badRequest(`${what} is not valid JSON: ${error instanceof Error ? error.message : String(error)}`);
  }
  return { value, text, members };
}

const QUOTE = 0x22;
const COMMA = 0x2c;
const OPEN_ARRAY = 0x5b;
const BACKSLASH = 0x5c;
const CLOSE_ARRAY = 0x5d;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;

/** Array or object directly in the outermost object. */
interface Member {
  /** As written, with its quotes. */
  readonly key: string;
  /** Range of its text: [start, end). */
  readonly start: number;
  end: number;
}

/**
 * Scans the text once before it is parsed, so that deep nesting never causes recursion. Text that is not JSON
 * may pass; `JSON.parse` refuses it afterwards.
 */
function checkStructure(text: string, limits: JsonLimits, what: string): Member[] {
  const { jsonDepthMax, jsonKeysMax, jsonNamesMax, jsonItemsMax } = limits;
  const names = new Set<string>();
  const members: Member[] = [];
  let key = "";
  /** Per open bracket: the keys seen so far, or null for an array. */
  const open: (Set<string> | null)[] = [];
  let keys = 0;
  let items = 0;
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
          names.add(literal);
          if (names.size > jsonNamesMax) {
            throw badRequest(`${what} may hold ${jsonNamesMax} different keys at most, and holds more`);
          }
        }
        keyIsNext = false;
        at = end;
        break;
      }
      case COMMA:
        keyIsNext = open[open.length - 1] instanceof Set;
        if (!keyIsNext && ++items > jsonItemsMax) {
          throw badRequest(
            `${what} may hold arrays of ${jsonItemsMax} elements together at most, and holds more`,
          );
        }
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

/**
 * Index of the quote that ends the string whose first quote is at `start`; the last index if there is none.
 */
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
      return; // not JSON: the parser will report it, better than we could
    }
  }
  if (key === "__proto__") throw badRequest("the key __proto__ is not allowed in a request body");
  if (keys.has(key)) throw badRequest(`the key ${quote(key)} appears twice in one object`, key);
  keys.add(key);
}

/**
 * JSON with each unpaired surrogate escape replaced by U+FFFD; the length stays the same. Programs that cut
 * texts by UTF-16 units write such halves, which are not valid Unicode.
 */
function wellFormed(json: string): string {
  const escapes =
    /\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|[\s\S])/g;
  return json.replace(escapes, (one) => (one.length === 6 ? "\\ufffd" : one));
}
