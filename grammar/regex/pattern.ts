import { digits, spaces, wordCharacters } from "../../base/character-classes.ts";
import { ConstraintError } from "../error.ts";
import type { Regex, Regexes } from "./regexes.ts";
import { allCharacters, type CodePoints, codePoints, otherThan, type TextEncoding } from "./text.ts";

/**
 * Regular expressions in the syntax of ECMA 262 with the flag u, as far as they are regular: characters,
 * classes, groups, quantifiers, anchors, lookaheads. Features that need memory or look back (back references,
 * lookbehinds, word boundaries) are refused by name.
 */

/** Node of the syntax tree. `max` may be Infinity. */
type Pattern =
  | { readonly kind: "set"; readonly set: CodePoints }
  | { readonly kind: "sequence" | "choice"; readonly parts: readonly Pattern[] }
  | { readonly kind: "repeat"; readonly of: Pattern; readonly min: number; readonly max: number }
  | { readonly kind: "ahead"; readonly of: Pattern; readonly isNegative: boolean }
  | { readonly kind: "start" | "end" };

/**
 * Expression of the whole texts that a pattern matches. `pattern` in JSON Schema searches anywhere; other
 * constraints match the whole text.
 */
export function compilePattern(
  regexes: Regexes,
  source: string,
  encoding: TextEncoding,
  where: "anywhere" | "whole",
): Regex {
  const pattern = new PatternParser(source).parse();
  const builder = new Builder(regexes, encoding, source);
  if (where === "whole") return builder.build(pattern, regexes.epsilon, "start");
  const { anyText } = encoding;
  const atStart = builder.build(pattern, anyText, "start");
  const later = builder.build(pattern, anyText, "later");
  if (atStart === later) return regexes.cat(anyText, later);
  return regexes.alt([atStart, regexes.cat(encoding.oneOf(allCharacters), anyText, later)]);
}

const DEPTH_MAX = 64;
/** Length limit of a pattern, in UTF-16 units. */
export const PATTERN_UNITS_MAX = 8192;

const lineEnds: CodePoints = codePoints([
  [10, 10],
  [13, 13],
  [0x2028, 0x2029],
]);
const classEscapes: Readonly<Record<string, CodePoints>> = {
  d: digits,
  D: otherThan(digits),
  w: wordCharacters,
  W: otherThan(wordCharacters),
  s: spaces,
  S: otherThan(spaces),
};
const controlEscapes: Readonly<Record<string, number>> = { t: 9, n: 10, v: 11, f: 12, r: 13 };

class PatternParser {
  readonly #characters: readonly string[];
  readonly #source: string;
  #at = 0;
  #depth = 0;

  constructor(source: string) {
    if (source.length > PATTERN_UNITS_MAX) {
      throw new ConstraintError(
        `a regular expression may have ${PATTERN_UNITS_MAX} characters at most, but has ${source.length}`,
      );
    }
    this.#source = source;
    this.#characters = [...source];
  }

  parse(): Pattern {
    const pattern = this.#choice();
    if (this.#at < this.#characters.length) throw this.#error(`an unexpected ${this.#peek()}`);
    return pattern;
  }

  #choice(): Pattern {
    this.#depth++;
    if (this.#depth > DEPTH_MAX) throw this.#error(`more than ${DEPTH_MAX} groups in each other`);
    const parts = [this.#sequence()];
    while (this.#take("|")) parts.push(this.#sequence());
    this.#depth--;
    return parts.length === 1 ? parts[0]! : { kind: "choice", parts };
  }

  #sequence(): Pattern {
    const parts: Pattern[] = [];
    while (this.#at < this.#characters.length && this.#peek() !== "|" && this.#peek() !== ")") {
      parts.push(this.#quantified());
    }
    return parts.length === 1 ? parts[0]! : { kind: "sequence", parts };
  }

  #quantified(): Pattern {
    const of = this.#atom();
    const range = this.#quantifier();
    if (range === null) return of;
    this.#take("?"); // lazy quantifiers match the same texts
    if (of.kind === "start" || of.kind === "end" || of.kind === "ahead")
      throw this.#error("a repeated assertion");
    return { kind: "repeat", of, min: range[0], max: range[1] };
  }

  #quantifier(): readonly [number, number] | null {
    if (this.#take("*")) return [0, Number.POSITIVE_INFINITY];
    if (this.#take("+")) return [1, Number.POSITIVE_INFINITY];
    if (this.#take("?")) return [0, 1];
    if (this.#peek() !== "{") return null;
    const rest = this.#characters.slice(this.#at, this.#at + 24).join("");
    const match = /^\{(\d{1,7})(,?)(\d{0,7})\}/.exec(rest);
    if (match === null) throw this.#error("a { that is no quantifier");
    this.#at += match[0].length;
    const min = Number(match[1]);
    const max = match[2] === "" ? min : match[3] === "" ? Number.POSITIVE_INFINITY : Number(match[3]);
    if (max < min) throw this.#error(`a quantifier from ${min} to ${max}`);
    return [min, max];
  }

  #atom(): Pattern {
    const character = this.#next();
    switch (character) {
      case "^":
        return { kind: "start" };
      case "$":
        return { kind: "end" };
      case ".":
        return { kind: "set", set: otherThan(lineEnds) };
      case "(":
        return this.#group();
      case "[":
        return { kind: "set", set: this.#class() };
      case "\\":
        return { kind: "set", set: this.#escape(false) };
      case "*":
      case "+":
      case "?":
      case "{":
        throw this.#error(`nothing before ${character}`);
      default:
        return { kind: "set", set: single(character) };
    }
  }

  #group(): Pattern {
    let ahead: boolean | null = null;
    if (this.#take("?")) {
      if (this.#take(":")) ahead = null;
      else if (this.#take("=")) ahead = false;
      else if (this.#take("!")) ahead = true;
      else if (this.#take("<")) {
        if (this.#peek() === "=" || this.#peek() === "!")
          throw this.#error("a lookbehind, which is not supported");
        while (this.#peek() !== ">") this.#next();
        this.#next();
      } else throw this.#error(`a group that begins with (?${this.#peek()}`);
    }
    const of = this.#choice();
    if (!this.#take(")")) throw this.#error("a group without its )");
    return ahead === null ? of : { kind: "ahead", of, isNegative: ahead };
  }

  #class(): CodePoints {
    const isNegated = this.#take("^");
    const ranges: (readonly [number, number])[] = [];
    while (!this.#take("]")) {
      const low = this.#classMember();
      const isRange = this.#peek() === "-" && this.#characters[this.#at + 1] !== "]";
      // A hyphen after a class such as \w stands for itself.
      if (!isRange || !isSingle(low)) {
        ranges.push(...low);
        continue;
      }
      this.#next();
      const high = this.#classMember();
      if (!isSingle(high)) {
        ranges.push(...low, ...single("-"), ...high);
        continue;
      }
      if (high[0]![0] < low[0]![0]) throw this.#error("a range of characters that ends before it begins");
      ranges.push([low[0]![0], high[0]![0]]);
    }
    const set = codePoints(ranges);
    return isNegated ? otherThan(set) : set;
  }

  #classMember(): CodePoints {
    const character = this.#next();
    return character === "\\" ? this.#escape(true) : single(character);
  }

  #escape(isInClass: boolean): CodePoints {
    const character = this.#next();
    const named = classEscapes[character];
    if (named !== undefined) return named;
    const control = controlEscapes[character];
    if (control !== undefined) return [[control, control]];
    switch (character) {
      case "b":
        if (isInClass) return [[8, 8]];
        throw this.#error("\\b, a word boundary, which is not supported");
      case "B":
        throw this.#error("\\B, which is not supported");
      case "k":
        throw this.#error("a back reference, which is not supported");
      case "c": {
        const letter = this.#next();
        if (!/^[A-Za-z]$/.test(letter)) throw this.#error("a \\c without a letter");
        const code = letter.codePointAt(0)! % 32;
        return [[code, code]];
      }
      case "x":
        return this.#hexadecimal(2);
      case "u": {
        if (this.#take("{")) {
          let text = "";
          while (this.#peek() !== "}") text += this.#next();
          this.#next();
          const code = Number.parseInt(text, 16);
          if (!/^[0-9A-Fa-f]{1,6}$/.test(text) || code > 0x10ffff) throw this.#error(`\\u{${text}}`);
          return codePoints([[code, code]]);
        }
        const high = this.#hexadecimal(4, true)[0]![0];
        if (high < 0xd800 || high > 0xdbff || this.#peek() !== "\\") return codePoints([[high, high]]);
        const before = this.#at;
        this.#next();
        if (!this.#take("u")) {
          this.#at = before;
          return [];
        }
        const low = this.#hexadecimal(4, true)[0]![0];
        if (low < 0xdc00 || low > 0xdfff) throw this.#error("half of a surrogate pair");
        const code = 0x10000 + (high - 0xd800) * 0x400 + (low - 0xdc00);
        return [[code, code]];
      }
      case "p":
      case "P":
        return this.#property(character === "P");
      case "0":
        if (!/^[0-9]$/.test(this.#peek())) return [[0, 0]];
        throw this.#error("an octal escape, which is not supported");
      default:
        if (/^[1-9]$/.test(character)) throw this.#error("a back reference, which is not supported");
        if (/^[A-Za-z]$/.test(character)) throw this.#error(`\\${character}, which means nothing`);
        return single(character);
    }
  }

  #hexadecimal(length: number, isUnit = false): CodePoints {
    const text = this.#characters.slice(this.#at, this.#at + length).join("");
    if (text.length !== length || !/^[0-9A-Fa-f]+$/.test(text))
      throw this.#error("an escape without its digits");
    this.#at += length;
    const code = Number.parseInt(text, 16);
    return isUnit ? [[code, code]] : codePoints([[code, code]]);
  }

  #property(isNegated: boolean): CodePoints {
    if (!this.#take("{")) throw this.#error("a \\p without its name");
    let name = "";
    while (this.#peek() !== "}") name += this.#next();
    this.#next();
    const set = propertyOf(name);
    if (set === null) throw this.#error(`\\p{${name}}, which is no property of characters`);
    return isNegated ? otherThan(set) : set;
  }

  #peek(): string {
    return this.#characters[this.#at] ?? "";
  }

  #next(): string {
    const character = this.#characters[this.#at++];
    if (character === undefined) throw this.#error("an unexpected end");
    return character;
  }

  #take(character: string): boolean {
    if (this.#peek() !== character) return false;
    this.#at++;
    return true;
  }

  #error(what: string): ConstraintError {
    const shown = this.#source.length > 60 ? `${this.#source.slice(0, 57)}…` : this.#source;
    return new ConstraintError(`the regular expression ${JSON.stringify(shown)} has ${what}`);
  }
}

const properties = new Map<string, CodePoints>();
const PROPERTIES_MAX = 64;

/**
 * Characters with a Unicode property, found by testing every character with the JavaScript engine. Null if
 * there is no such property.
 */
function propertyOf(name: string): CodePoints | null {
  const known = properties.get(name);
  if (known !== undefined) return known;
  if (!/^[A-Za-z_]+(=[A-Za-z_]+)?$/.test(name)) return null;
  let test: RegExp;
  try {
    test = new RegExp(`^\\p{${name}}$`, "u");
  } catch {
    return null;
  }
  const ranges: [number, number][] = [];
  for (const [from, to] of allCharacters) {
    for (let code = from; code <= to; code++) {
      if (!test.test(String.fromCodePoint(code))) continue;
      const last = ranges.at(-1);
      if (last !== undefined && last[1] === code - 1) last[1] = code;
      else ranges.push([code, code]);
    }
  }
  if (properties.size >= PROPERTIES_MAX) properties.clear();
  properties.set(name, ranges);
  return ranges;
}

function isSingle(set: CodePoints): boolean {
  return set.length === 1 && set[0]![0] === set[0]![1];
}

function single(character: string): CodePoints {
  const code = character.codePointAt(0)!;
  return codePoints([[code, code]]);
}

/** Position in the text: at its start, or where something may have been matched before. */
type Place = "start" | "later";

/** Compiles patterns together with their continuation, which anchors and lookaheads depend on. */
class Builder {
  readonly #regexes: Regexes;
  readonly #encoding: TextEncoding;
  readonly #source: string;
  readonly #sets = new Map<CodePoints, Regex>();

  constructor(regexes: Regexes, encoding: TextEncoding, source: string) {
    this.#regexes = regexes;
    this.#encoding = encoding;
    this.#source = source;
  }

  /** Expression of the pattern at the place, followed by `rest`. */
  build(pattern: Pattern, rest: Regex, place: Place): Regex {
    const regexes = this.#regexes;
    switch (pattern.kind) {
      case "set":
        return regexes.cat(this.#oneOf(pattern.set), rest);
      case "choice":
        return regexes.alt(pattern.parts.map((part) => this.build(part, rest, place)));
      case "sequence": {
        const places = this.#placesOf(pattern.parts, place);
        let built = rest;
        for (let i = pattern.parts.length - 1; i >= 0; i--) {
          built = this.build(pattern.parts[i]!, built, places[i]!);
        }
        return built;
      }
      case "repeat": {
        const { of, min, max } = pattern;
        if (!hasAssertion(of)) {
          const once = this.build(of, regexes.epsilon, "later");
          // Further iterations are covered by the `anyText` that follows.
          return regexes.cat(regexes.repeat(once, min, rest === this.#encoding.anyText ? min : max), rest);
        }
        if (max > 1) throw this.#error("an assertion inside of a repetition");
        const once = this.build(of, rest, place);
        return min === 1 ? once : regexes.alt([once, rest]);
      }
      case "ahead": {
        const wanted = this.build(pattern.of, this.#encoding.anyText, place);
        return regexes.and([pattern.isNegative ? regexes.not(wanted) : wanted, rest]);
      }
      case "start":
        return place === "start" ? rest : regexes.empty;
      case "end":
        return regexes.and([rest, regexes.epsilon]);
    }
  }

  #oneOf(set: CodePoints): Regex {
    let built = this.#sets.get(set);
    if (built === undefined) {
      built = this.#encoding.oneOf(set);
      this.#sets.set(set, built);
    }
    return built;
  }

  /** Place of each part of a sequence. */
  #placesOf(parts: readonly Pattern[], place: Place): Place[] {
    let now: Place | "either" = place;
    return parts.map((part) => {
      if (now === "either" && hasStart(part)) throw this.#error("a ^ after what may be empty");
      const here: Place = now === "either" ? "later" : now;
      if (now !== "later" && !isZeroWidth(part)) now = canBeEmpty(part) ? "either" : "later";
      return here;
    });
  }

  #error(what: string): ConstraintError {
    const shown = this.#source.length > 60 ? `${this.#source.slice(0, 57)}…` : this.#source;
    return new ConstraintError(
      `the regular expression ${JSON.stringify(shown)} has ${what}, which is not supported`,
    );
  }
}

function partsOf(pattern: Pattern): readonly Pattern[] {
  if (pattern.kind === "sequence" || pattern.kind === "choice") return pattern.parts;
  return pattern.kind === "repeat" || pattern.kind === "ahead" ? [pattern.of] : [];
}

function hasAssertion(pattern: Pattern): boolean {
  if (pattern.kind === "start" || pattern.kind === "end" || pattern.kind === "ahead") return true;
  return partsOf(pattern).some(hasAssertion);
}

function hasStart(pattern: Pattern): boolean {
  return pattern.kind === "start" || partsOf(pattern).some(hasStart);
}

function isZeroWidth(pattern: Pattern): boolean {
  if (pattern.kind === "set") return false;
  if (pattern.kind === "sequence" || pattern.kind === "choice") return pattern.parts.every(isZeroWidth);
  return pattern.kind !== "repeat" || isZeroWidth(pattern.of);
}

function canBeEmpty(pattern: Pattern): boolean {
  switch (pattern.kind) {
    case "set":
      return false;
    case "sequence":
      return pattern.parts.every(canBeEmpty);
    case "choice":
      return pattern.parts.some(canBeEmpty);
    case "repeat":
      return pattern.min === 0 || canBeEmpty(pattern.of);
    default:
      return true;
  }
}
