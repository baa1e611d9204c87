/**
 * Regular expressions with bounded time, for patterns from clients. A pattern compiles to a list of
 * instructions. A search runs all their threads in parallel over the text, each instruction at most once per
 * character. This is Thompson's construction with Pike's captures (R. Cox, "Regular Expression Matching: the
 * Virtual Machine Approach", 2009). The time is at most instructions × characters for any pattern. Limits
 * bound both, and the steps of one search.
 *
 * The syntax is JavaScript's without back references and look-around, which cannot be searched like this. It
 * has literals, `.`, classes, \d \w \s \b and their opposites, `^`, `$`, groups, `|`, `*`, `+`, `?`, `{m,n}`
 * and their lazy forms. Flags come at the front: `(?i)`, `(?m)`, `(?s)`. As in JavaScript the first match
 * wins, and within a match the first alternative. Only repetitions of an empty match may differ. Text and
 * pattern are read by code points.
 */

import { digits, spaces, wordCharacters } from "../../../base/character-classes.ts";

export const regexLimits = {
  patternCharactersMax: 1000,
  instructionsMax: 2000,
  repeatMax: 1000,
  /** Instructions that one search executes at most, which bounds its time. */
  stepsMax: 4_000_000,
} as const;

/** Compiled pattern. */
export interface Regex {
  readonly instructions: readonly Instruction[];
  readonly ignoresCase: boolean;
  /** Number of capturing groups. */
  readonly groups: number;
}

/** Error in a pattern. */
export interface BadRegex {
  readonly problem: string;
}

/** Instruction of the virtual machine. */
export type Instruction =
  | { readonly op: "set"; readonly set: CharacterSet }
  | { readonly op: "split"; readonly first: number; readonly second: number }
  | { readonly op: "jump"; readonly to: number }
  | { readonly op: "begin" }
  | { readonly op: "end" }
  | { readonly op: "assert"; readonly what: Assertion }
  | { readonly op: "match" };

export type Assertion = "textStart" | "textEnd" | "lineStart" | "lineEnd" | "word" | "notWord";

/** Ranges of code points, both ends inclusive. */
export interface CharacterSet {
  readonly ranges: readonly (readonly [number, number])[];
  readonly isNegated: boolean;
}

type Node =
  | { readonly kind: "set"; readonly set: CharacterSet }
  | { readonly kind: "assert"; readonly what: Assertion }
  | { readonly kind: "sequence"; readonly parts: readonly Node[] }
  | { readonly kind: "either"; readonly options: readonly Node[] }
  | { readonly kind: "group"; readonly index: number; readonly inner: Node }
  | {
      readonly kind: "repeat";
      readonly inner: Node;
      readonly min: number;
      /** Repetitions at most; null: unlimited. */
      readonly max: number | null;
      readonly isGreedy: boolean;
    };

class PatternError extends Error {}

/**
 * Compiles a pattern. `group`: the group to extract; 0 is the whole match, null the first group if there is
 * one.
 */
export function compileRegex(pattern: string, group: number | null): Regex | BadRegex {
  const { patternCharactersMax } = regexLimits;
  if (pattern.length > patternCharactersMax) {
    return { problem: `it has ${pattern.length} characters, ${patternCharactersMax} are allowed` };
  }
  try {
    const parser = new Parser(pattern);
    const node = parser.parse();
    const wanted = group ?? (parser.groups > 0 ? 1 : 0);
    if (wanted > parser.groups)
      throw new PatternError(`it has ${parser.groups} groups, and no group ${wanted}`);
    const whole: Node = { kind: "group", index: 0, inner: node };
    return { instructions: emitAll(whole, wanted), ignoresCase: parser.ignoresCase, groups: parser.groups };
  } catch (error) {
    if (error instanceof PatternError) return { problem: error.message };
    throw error;
  }
}

const classes: Readonly<Record<string, CharacterSet["ranges"]>> = { d: digits, w: wordCharacters, s: spaces };
const controls: Readonly<Record<string, number>> = { n: 0x0a, r: 0x0d, t: 0x09, f: 0x0c, v: 0x0b, "0": 0 };
const codePointMax = 0x10ffff;

/** Recursive-descent parser; the pattern's length bounds the nesting. */
class Parser {
  readonly #characters: readonly string[];
  #at = 0;
  groups = 0;
  ignoresCase = false;
  #isMultiline = false;
  #dotIsAll = false;

  constructor(pattern: string) {
    this.#characters = [...pattern];
  }

  parse(): Node {
    const flags = /^\(\?([ims]+)\)/.exec(this.#characters.slice(0, 8).join(""));
    if (flags !== null) {
      this.#at = flags[0].length;
      this.ignoresCase = flags[1]!.includes("i");
      this.#isMultiline = flags[1]!.includes("m");
      this.#dotIsAll = flags[1]!.includes("s");
    }
    const node = this.#either();
    if (this.#at < this.#characters.length) throw new PatternError("it has a ) without a (");
    return node;
  }

  #peek(): string | undefined {
    return this.#characters[this.#at];
  }

  #take(wanted: string): boolean {
    if (this.#peek() !== wanted) return false;
    this.#at++;
    return true;
  }

  #either(): Node {
    const options = [this.#sequence()];
    while (this.#take("|")) options.push(this.#sequence());
    return options.length === 1 ? options[0]! : { kind: "either", options };
  }

  #sequence(): Node {
    const parts: Node[] = [];
    for (let next = this.#peek(); next !== undefined && next !== "|" && next !== ")"; next = this.#peek()) {
      parts.push(this.#repeated(this.#atom()));
    }
    return { kind: "sequence", parts };
  }

  #repeated(inner: Node): Node {
    const counts = this.#counts();
    if (counts === null) return inner;
    const [min, max] = counts;
    const isGreedy = !this.#take("?");
    if (this.#counts() !== null) throw new PatternError("it has two repetitions in a row");
    return { kind: "repeat", inner, min, max, isGreedy };
  }

  #counts(): readonly [number, number | null] | null {
    if (this.#take("*")) return [0, null];
    if (this.#take("+")) return [1, null];
    if (this.#take("?")) return [0, 1];
    if (this.#peek() !== "{") return null;
    const written = /^\{(\d{1,6})(,(\d{0,6}))?\}/.exec(
      this.#characters.slice(this.#at, this.#at + 16).join(""),
    );
    if (written === null) throw new PatternError("it has a { that is no repetition: write \\{");
    this.#at += written[0].length;
    const min = Number(written[1]);
    const max = written[2] === undefined ? min : written[3] === "" ? null : Number(written[3]);
    if (Math.max(min, max ?? 0) > regexLimits.repeatMax) {
      throw new PatternError(
        `it repeats ${Math.max(min, max ?? 0)} times, ${regexLimits.repeatMax} are allowed`,
      );
    }
    if (max !== null && max < min) throw new PatternError(`it repeats from ${min} to ${max} times`);
    return [min, max];
  }

  #atom(): Node {
    const character = this.#characters[this.#at++]!;
    switch (character) {
      case "(":
        return this.#group();
      case "[":
        return { kind: "set", set: this.#class() };
      case ".":
        return { kind: "set", set: { ranges: this.#dotIsAll ? [] : [[0x0a, 0x0a]], isNegated: true } };
      case "^":
        return { kind: "assert", what: this.#isMultiline ? "lineStart" : "textStart" };
      case "$":
        return { kind: "assert", what: this.#isMultiline ? "lineEnd" : "textEnd" };
      case "\\":
        return this.#escape();
      case "*":
      case "+":
      case "?":
      case "{":
        throw new PatternError(`it has a ${character} with nothing to repeat`);
      default:
        return literal(character.codePointAt(0)!);
    }
  }

  #group(): Node {
    let index: number | null = null;
    if (this.#take("?")) {
      if (!this.#take(":")) throw new PatternError("of (?…) only (?:…) is supported, and flags at the front");
    } else index = ++this.groups;
    const inner = this.#either();
    if (!this.#take(")")) throw new PatternError("it has a ( without a )");
    return index === null ? inner : { kind: "group", index, inner };
  }

  #escape(): Node {
    const next = this.#peek();
    if (next === "b" || next === "B") {
      this.#at++;
      return { kind: "assert", what: next === "b" ? "word" : "notWord" };
    }
    const escaped = this.#escaped();
    return typeof escaped === "number" ? literal(escaped) : { kind: "set", set: escaped };
  }

  /** Parses an escape: a code point, or a class. */
  #escaped(): number | CharacterSet {
    const character = this.#characters[this.#at++];
    if (character === undefined) throw new PatternError("it ends with a backslash");
    const known = classes[character.toLowerCase()];
    if (known !== undefined) return { ranges: known, isNegated: character !== character.toLowerCase() };
    const control = controls[character];
    if (control !== undefined) return control;
    if (character === "x" || character === "u") return this.#hexadecimal(character === "x" ? 2 : 4);
    if (/[1-9k]/.test(character)) throw new PatternError("back references are not supported");
    if (/[A-Za-z]/.test(character)) throw new PatternError(`\\${character} is not supported`);
    return character.codePointAt(0)!;
  }

  #hexadecimal(length: number): number {
    const written = this.#characters.slice(this.#at, this.#at + length).join("");
    if (!/^[0-9a-fA-F]+$/.test(written) || written.length < length) {
      throw new PatternError(`it has an escape without its ${length} hexadecimal digits`);
    }
    this.#at += length;
    return Number.parseInt(written, 16);
  }

  #class(): CharacterSet {
    const isNegated = this.#take("^");
    const ranges: (readonly [number, number])[] = [];
    for (;;) {
      if (this.#take("]")) return { ranges, isNegated };
      const low = this.#classItem();
      if (typeof low !== "number") {
        ranges.push(...(low.isNegated ? complement(low.ranges) : low.ranges));
        continue;
      }
      const isRange = this.#peek() === "-" && this.#characters[this.#at + 1] !== "]";
      if (!isRange) {
        ranges.push([low, low]);
        continue;
      }
      this.#at++;
      const high = this.#classItem();
      if (typeof high !== "number" || high < low) throw new PatternError("it has a range that is not one");
      ranges.push([low, high]);
    }
  }

  #classItem(): number | CharacterSet {
    const character = this.#characters[this.#at++];
    if (character === undefined) throw new PatternError("it has a [ without a ]");
    if (character !== "\\") return character.codePointAt(0)!;
    if (this.#take("b")) return 0x08;
    return this.#escaped();
  }
}

function literal(code: number): Node {
  return { kind: "set", set: { ranges: [[code, code]], isNegated: false } };
}

/** Complements ranges in ascending order of code points. */
function complement(ranges: CharacterSet["ranges"]): [number, number][] {
  const others: [number, number][] = [];
  let from = 0;
  for (const [low, high] of ranges) {
    if (low > from) others.push([from, low - 1]);
    from = high + 1;
  }
  if (from <= codePointMax) others.push([from, codePointMax]);
  return others;
}

/** Emits the instructions that match the node and record the bounds of group `wanted`. */
function emitAll(whole: Node, wanted: number): Instruction[] {
  const code: Instruction[] = [];
  /** Also counts nodes that emit no instruction, so that nested empty repetitions terminate. */
  let emitted = 0;

  const push = (instruction: Instruction): number => code.push(instruction) - 1;
  const split = (at: number, isGreedy: boolean, inner: number, after: number): void => {
    code[at] = isGreedy
      ? { op: "split", first: inner, second: after }
      : { op: "split", first: after, second: inner };
  };
  const hole: Instruction = { op: "jump", to: -1 };

  const emit = (node: Node): void => {
    if (++emitted > 10 * regexLimits.instructionsMax || code.length > regexLimits.instructionsMax) {
      throw new PatternError(`it is too large: more than ${regexLimits.instructionsMax} instructions`);
    }
    switch (node.kind) {
      case "set":
        push({ op: "set", set: node.set });
        return;
      case "assert":
        push({ op: "assert", what: node.what });
        return;
      case "sequence":
        for (const part of node.parts) emit(part);
        return;
      case "group":
        if (node.index === wanted) push({ op: "begin" });
        emit(node.inner);
        if (node.index === wanted) push({ op: "end" });
        return;
      case "either":
        emitEither(node.options);
        return;
      case "repeat":
        emitRepeat(node);
    }
  };

  const emitEither = (options: readonly Node[]): void => {
    const jumps: number[] = [];
    for (const option of options.slice(0, -1)) {
      const at = push(hole);
      emit(option);
      jumps.push(push(hole));
      split(at, true, at + 1, code.length);
    }
    emit(options.at(-1)!);
    for (const at of jumps) code[at] = { op: "jump", to: code.length };
  };

  const emitRepeat = ({ inner, min, max, isGreedy }: Node & { kind: "repeat" }): void => {
    for (let i = 0; i < min; i++) emit(inner);
    if (max === null) {
      const at = push(hole);
      emit(inner);
      push({ op: "jump", to: at });
      split(at, isGreedy, at + 1, code.length);
      return;
    }
    const splits: number[] = [];
    for (let i = min; i < max; i++) {
      splits.push(push(hole));
      emit(inner);
    }
    for (const at of splits) split(at, isGreedy, at + 1, code.length);
  };

  emit(whole);
  push({ op: "match" });
  return code;
}
