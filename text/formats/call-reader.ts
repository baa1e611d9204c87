import type { CallableFunction } from "../../grammar/source.ts";
import { type CallForm, isBlock, matchOf, triggersOf } from "../../grammar/tools/call-form.ts";
import { type ArgumentsReader, argumentsReader } from "./arguments-reader.ts";

/** A parsed piece of an answer. `arguments` are a piece of the preceding call's JSON. */
export type ReadPart =
  | { readonly kind: "text"; readonly text: string }
  | {
      readonly kind: "call";
      readonly name: string;
      /** Id that the model made up; absent for models that make up none. */
      readonly id?: string;
    }
  | { readonly kind: "arguments"; readonly text: string };

const PIECE_UNITS = 512;

type State =
  /** State before any call, and in text after one. */
  | { readonly kind: "text" }
  /**
   * The held-back text begins a call, or may, with `prefix`. `before`: preceding white space, which is text
   * if no call follows. Null after a call: anything but another call ends the calls.
   */
  | { readonly kind: "opening"; readonly prefix: string; readonly before: string | null }
  | { readonly kind: "arguments"; readonly reader: ArgumentsReader }
  /** The arguments are complete. */
  | { readonly kind: "closing" }
  /** No further call can follow. */
  | { readonly kind: "rest" };

/**
 * Separates calls of functions from text, in any format, while the answer is generated. It emits a call's
 * name as soon as it is certain, then its arguments piece by piece. The grammar constrains models with tools
 * from the first text on (grammar/tools/calls.ts), so that the beginning of a call leads to one. The last
 * call of a truncated answer has the arguments written so far.
 *
 * The output does not depend on how the text was split. White space before a call belongs to it. Text is held
 * back only while it may become a call.
 */
export class CallReader {
  readonly #form: CallForm;
  readonly #functions: ReadonlyMap<string, CallableFunction>;
  readonly #triggers: readonly string[];
  #state: State = { kind: "text" };
  /** Text that was held back. */
  #held = "";
  /** True before any text was read. */
  #isStart = true;
  #followsCall = false;

  constructor(form: CallForm, functions: readonly CallableFunction[]) {
    this.#form = form;
    this.#functions = new Map(functions.map((one) => [one.name, one]));
    this.#triggers = triggersOf(form, [...this.#functions.keys()]);
  }

  /** UTF-16 units that are held back. */
  get heldUnits(): number {
    return this.#held.length;
  }

  push(text: string): ReadPart[] {
    const parts: ReadPart[] = [];
    // Short pieces, since the rest of a piece is copied repeatedly.
    for (let from = 0; from < text.length; from += PIECE_UNITS) {
      for (let rest = text.slice(from, from + PIECE_UNITS); rest !== ""; ) {
        const all = this.#held + rest;
        this.#held = "";
        rest = this.#read(all, parts);
      }
    }
    return joined(parts);
  }

  /** Ends the text and emits the rest. */
  end(): ReadPart[] {
    const held = this.#held;
    this.#held = "";
    switch (this.#state.kind) {
      case "arguments":
        return joined([{ kind: "arguments", text: this.#state.reader.end() }]);
      case "closing":
        return [];
      case "opening": {
        const { before, prefix } = this.#state;
        // Drops a truncated delimiter after a call.
        const begun = matchOf(prefix, held);
        const isPrefix = begun === "open" || (begun !== "broken" && begun.length === held.length);
        const isMark = before === null && (this.#form.end.startsWith(held) || isPrefix);
        return isMark ? [] : joined([{ kind: "text", text: (before ?? "") + held }]);
      }
      default:
        return this.#followsCall && isWhiteSpace(held) ? [] : joined([{ kind: "text", text: held }]);
    }
  }

  /** Each state reads the held-back and new text, and returns the rest. */
  #read(all: string, parts: ReadPart[]): string {
    switch (this.#state.kind) {
      case "text":
        return this.#readText(all, parts);
      case "opening":
        return this.#readOpening(this.#state, all, parts);
      case "arguments":
        return this.#readArguments(this.#state.reader, all, parts);
      case "closing":
        return this.#readClosing(all);
      case "rest":
        parts.push({ kind: "text", text: all });
        return "";
    }
  }

  #readText(all: string, parts: ReadPart[]): string {
    const isAlone = this.#form.place === "alone";
    if (isAlone && !this.#isStart) return this.#beRest(all);
    const at = firstOf(this.#triggers, all);
    if (at === null || (isAlone && at > 0)) {
      const open = openLength(this.#triggers, all);
      if (isAlone && open < all.length) return this.#beRest(all);
      this.#tellText(all, all.length - open, parts);
      return "";
    }
    this.#tellText(all, at, parts);
    const before = all.slice(trimmedEnd(all, at), at);
    this.#held = "";
    this.#state = { kind: "opening", prefix: this.#form.begin + this.#form.beforeName, before };
    return all.slice(at);
  }

  #readOpening(state: Extract<State, { kind: "opening" }>, all: string, parts: ReadPart[]): string {
    const { end } = this.#form;
    const isFirst = state.before !== null;
    if (!isFirst && end !== "" && all.startsWith(end)) {
      this.#state = this.#form.place === "anywhere" ? { kind: "text" } : { kind: "rest" };
      return all.slice(end.length);
    }
    const isEnding = !isFirst && end.startsWith(all);
    const opening = openingOf(all, state.prefix, this.#form.afterName, this.#functions);
    if (isEnding || opening === "open") {
      this.#held = all;
      return "";
    }
    if (opening === "broken") {
      if (state.before === null) return this.#beRest(all);
      this.#state = { kind: "text" };
      parts.push({ kind: "text", text: state.before + all.slice(0, 1) });
      this.#isStart = false;
      this.#followsCall = false;
      return all.slice(1);
    }
    const { name, id } = opening;
    parts.push(id === null ? { kind: "call", name } : { kind: "call", name, id });
    this.#isStart = false;
    const { parameters = null } = this.#functions.get(name) ?? {};
    this.#state = { kind: "arguments", reader: argumentsReader(this.#form.arguments, parameters) };
    return opening.rest;
  }

  #readArguments(reader: ArgumentsReader, all: string, parts: ReadPart[]): string {
    const { emitted, rest } = reader.push(all);
    parts.push({ kind: "arguments", text: emitted });
    if (rest === null) return "";
    this.#state = { kind: "closing" };
    if (this.#form.afterArguments === "") return this.#closed(rest);
    return rest;
  }

  #readClosing(all: string): string {
    const { afterArguments } = this.#form;
    if (all.startsWith(afterArguments)) return this.#closed(all.slice(afterArguments.length));
    if (!afterArguments.startsWith(all)) return this.#closed(all);
    this.#held = all;
    return "";
  }

  /** Ends a complete call. */
  #closed(rest: string): string {
    this.#followsCall = true;
    const { place, between, beforeName } = this.#form;
    this.#state =
      place === "anywhere" && !isBlock(this.#form)
        ? { kind: "text" }
        : { kind: "opening", prefix: between + beforeName, before: null };
    return rest;
  }

  #beRest(all: string): string {
    this.#state = { kind: "rest" };
    return all;
  }

  /** Emits the text up to `end` without its trailing white space, and holds back the rest. */
  #tellText(text: string, end: number, parts: ReadPart[]): void {
    const certain = trimmedEnd(text, end);
    if (certain > 0) {
      parts.push({ kind: "text", text: text.slice(0, certain) });
      this.#isStart = false;
      this.#followsCall = false;
    }
    this.#held = text.slice(certain);
  }
}

/** Beginning of a call: its name and id, and the text behind them. */
interface CallOpening {
  readonly name: string;
  readonly id: string | null;
  readonly rest: string;
}

/** Reads a text that opens a call; "open" if it may still become one, "broken" if it cannot. */
function openingOf(
  text: string,
  prefix: string,
  afterName: string,
  functions: ReadonlyMap<string, unknown>,
): CallOpening | "open" | "broken" {
  const before = matchOf(prefix, text);
  if (typeof before === "string") return before;
  const named = text.slice(before.length);
  let mayOpen = false;
  // The longest name wins: forms without a text behind names do not say where a name ends.
  let found: CallOpening | null = null;
  for (const name of functions.keys()) {
    const isWhole = named.startsWith(name);
    const after = isWhole ? matchOf(afterName, named.slice(name.length)) : "broken";
    if (typeof after === "string") mayOpen ||= after === "open" || (!isWhole && name.startsWith(named));
    else if (name.length >= (found?.name.length ?? 0))
      found = { name, id: after.id, rest: named.slice(name.length + after.length) };
  }
  if (found !== null && (afterName !== "" || !mayOpen)) return found;
  if (mayOpen) return "open";
  return unknownOf(named, afterName);
}

/** The same for the name of an unknown function, which an unconstrained model may write. */
function unknownOf(named: string, afterName: string): CallOpening | "open" | "broken" {
  const name = /^[A-Za-z0-9_-]*/.exec(named)![0];
  const rest = named.slice(name.length);
  if (name.length > 64) return "broken";
  const after = rest === "" ? "open" : matchOf(afterName, rest);
  if (after === "open") return "open";
  if (name === "" || after === "broken") return "broken";
  return { name, id: after.id, rest: rest.slice(after.length) };
}

/** Index of the first occurrence of any of the texts; null for none. */
function firstOf(texts: readonly string[], all: string): number | null {
  const found = texts.map((text) => all.indexOf(text)).filter((at) => at >= 0);
  return found.length === 0 ? null : Math.min(...found);
}

/** Units at the end of a text that may be the beginning of one of `texts`. */
export function openLength(texts: readonly string[], all: string): number {
  const longest = Math.max(0, ...texts.map((text) => text.length - 1));
  for (let length = Math.min(longest, all.length); length > 0; length--) {
    const end = all.slice(all.length - length);
    if (texts.some((text) => text.length > length && text.startsWith(end))) return length;
  }
  return 0;
}

/** `end` moved to before the white space that precedes it. */
export function trimmedEnd(text: string, end: number): number {
  let trimmed = end;
  while (trimmed > 0 && isWhiteSpace(text[trimmed - 1]!)) trimmed--;
  return trimmed;
}

/** True if the text is only JSON's white space. */
function isWhiteSpace(text: string): boolean {
  return /^[ \t\n\r]*$/.test(text);
}

/** Merges adjacent parts of one kind and drops empty ones. */
export function joined(parts: readonly ReadPart[]): ReadPart[] {
  const result: ReadPart[] = [];
  for (const part of parts) {
    const last = result.at(-1);
    if (part.kind === "call") result.push(part);
    else if (last?.kind === part.kind) result[result.length - 1] = { ...part, text: last.text + part.text };
    else if (part.text !== "") result.push(part);
  }
  return result;
}
