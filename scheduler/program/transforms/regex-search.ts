import type { Assertion, CharacterSet, Regex } from "./regex.ts";
import { regexLimits } from "./regex.ts";

/** Result of a search. `text`: text of the requested group; null if it took no part in the match. */
export type Search =
  | { readonly kind: "found"; readonly text: string | null }
  | { readonly kind: "none" }
  /** The search exceeded its step limit. */
  | { readonly kind: "tooLong" };

/** Threads by falling priority, at most one per instruction. */
interface Threads {
  count: number;
  readonly at: Int32Array;
  /** Bounds of the requested group; -1: not reached yet. */
  readonly begins: Int32Array;
  readonly ends: Int32Array;
  /** Position for which a thread was added last, by instruction. */
  readonly seen: Int32Array;
}

/** Finds the first match in a text. Time: at most instructions × characters, and `regexLimits.stepsMax`. */
export function searchRegex(regex: Regex, text: string): Search {
  const { instructions, ignoresCase } = regex;
  let current = noThreads(instructions.length);
  let next = noThreads(instructions.length);
  let steps = 0;

  /**
   * Follows instructions that read no character, and keeps those that do. The instruction count bounds the
   * depth.
   */
  const add = (threads: Threads, at: number, begin: number, end: number, position: number): void => {
    if (threads.seen[at] === position) return;
    threads.seen[at] = position;
    steps++;
    const instruction = instructions[at]!;
    switch (instruction.op) {
      case "jump":
        add(threads, instruction.to, begin, end, position);
        return;
      case "split":
        add(threads, instruction.first, begin, end, position);
        add(threads, instruction.second, begin, end, position);
        return;
      case "begin":
        add(threads, at + 1, position, -1, position);
        return;
      case "end":
        add(threads, at + 1, begin, position, position);
        return;
      case "assert":
        if (holds(instruction.what, text, position)) add(threads, at + 1, begin, end, position);
        return;
      default: {
        const index = threads.count++;
        threads.at[index] = at;
        threads.begins[index] = begin;
        threads.ends[index] = end;
      }
    }
  };

  let found: Search | null = null;
  for (let position = 0; ; ) {
    if (found === null)
      add(current, 0, -1, -1, position); // without a match so far, one may also begin here
    else if (current.count === 0) break;
    const code = text.codePointAt(position) ?? -1;
    const after = position + (code > 0xffff ? 2 : 1);
    next.count = 0;
    for (let index = 0; index < current.count; index++) {
      const at = current.at[index]!;
      const begin = current.begins[index]!;
      const end = current.ends[index]!;
      const instruction = instructions[at]!;
      steps++;
      if (instruction.op === "match") {
        found = { kind: "found", text: end === -1 ? null : text.slice(begin, end) };
        break; // threads of lower priority no longer matter
      }
      if (instruction.op !== "set" || code === -1) continue;
      if (isIn(instruction.set, code, ignoresCase)) add(next, at + 1, begin, end, after);
    }
    if (code === -1) break;
    if (steps > regexLimits.stepsMax) return { kind: "tooLong" };
    position = after;
    [current, next] = [next, current];
  }
  return found ?? { kind: "none" };
}

function noThreads(instructions: number): Threads {
  return {
    count: 0,
    at: new Int32Array(instructions),
    begins: new Int32Array(instructions),
    ends: new Int32Array(instructions),
    seen: new Int32Array(instructions).fill(-1),
  };
}

function holds(what: Assertion, text: string, position: number): boolean {
  switch (what) {
    case "textStart":
      return position === 0;
    case "textEnd":
      return position === text.length;
    case "lineStart":
      return position === 0 || text[position - 1] === "\n";
    case "lineEnd":
      return position === text.length || text[position] === "\n";
    default: {
      const isEdge = isWord(text.charCodeAt(position - 1)) !== isWord(text.charCodeAt(position));
      return isEdge === (what === "word");
    }
  }
}

function isWord(code: number): boolean {
  return (
    (code >= 0x61 && code <= 0x7a) ||
    (code >= 0x41 && code <= 0x5a) ||
    (code >= 0x30 && code <= 0x39) ||
    code === 0x5f
  );
}

function isIn(set: CharacterSet, code: number, ignoresCase: boolean): boolean {
  const isListed =
    inRanges(set, code) || (ignoresCase && otherCases(code).some((other) => inRanges(set, other)));
  return isListed !== set.isNegated;
}

function inRanges({ ranges }: CharacterSet, code: number): boolean {
  for (const [low, high] of ranges) if (code >= low && code <= high) return true;
  return false;
}

function otherCases(code: number): number[] {
  const character = String.fromCodePoint(code);
  return [character.toLowerCase().codePointAt(0)!, character.toUpperCase().codePointAt(0)!];
}
