/**
 * Separates the control texts (<|im_end|>, <s>, …) of a chat template from the same texts in clients'
 * messages. Only the template's own may become control tokens. Before rendering, a stand-in that occurs
 * nowhere else replaces the first character of every control text in the client's strings. After rendering,
 * the text is split at the remaining control texts, and the stand-ins become their characters again. A
 * template that searches a message for control text finds it: comparisons and searches see through stand-ins
 * (text/jinja/runtime.ts).
 */
import { Dict, isList, type Value } from "./jinja/values.ts";

/** Text from a chat template. */
export interface RenderedPrompt {
  /** The text, possibly with stand-ins. */
  readonly text: string;
  /** Characters by stand-in. Empty when no client string held control text. */
  readonly standIns: ReadonlyMap<string, string>;
}

/** The prompt as a person would read it. */
export function plainText(rendered: RenderedPrompt): string {
  return restore(rendered.text, rendered.standIns);
}

export interface TextPiece {
  readonly kind: "text" | "control";
  readonly text: string;
}

interface TrieNode {
  readonly children: Map<number, TrieNode>;
  isEnd: boolean;
}

/** Search structure of a tokenizer's control texts. */
export class ControlTexts {
  readonly texts: readonly string[];
  readonly #root: TrieNode = { children: new Map(), isEnd: false };
  /** 1 for each UTF-16 unit that begins a control text. */
  readonly #isFirst = new Uint8Array(0x10000);
  readonly #firsts: readonly string[];

  constructor(texts: readonly string[]) {
    this.texts = texts.filter((text) => text.length > 0);
    for (const text of this.texts) {
      let node = this.#root;
      for (let i = 0; i < text.length; i++) {
        const unit = text.charCodeAt(i);
        let child = node.children.get(unit);
        if (child === undefined) {
          child = { children: new Map(), isEnd: false };
          node.children.set(unit, child);
        }
        node = child;
      }
      node.isEnd = true;
      this.#isFirst[text.charCodeAt(0)] = 1;
    }
    this.#firsts = [...this.#root.children.keys()].map((unit) => String.fromCharCode(unit));
  }

  /** Splits at control texts: leftmost first, then longest. Pieces are not empty and join to `text`. */
  split(text: string): TextPiece[] {
    const pieces: TextPiece[] = [];
    let from = 0;
    for (let i = 0; i < text.length; ) {
      const length = this.#isFirst[text.charCodeAt(i)] === 1 ? this.#matchAt(text, i, text.length).length : 0;
      if (length === 0) {
        i++;
        continue;
      }
      if (i > from) pieces.push({ kind: "text", text: text.slice(from, i) });
      pieces.push({ kind: "control", text: text.slice(i, i + length) });
      i += length;
      from = i;
    }
    if (from < text.length) pieces.push({ kind: "text", text: text.slice(from) });
    return pieces;
  }

  /**
   * A copy of a value (texts, lists, dicts with their keys, nested) without control texts. Stand-ins do not
   * occur in `avoid`. Null when every possible stand-in is taken.
   */
  disguise(
    value: Value,
    avoid: string,
  ): { readonly value: Value; readonly standIns: ReadonlyMap<string, string> } | null {
    if (!anyText(value, (text) => this.#positions(text).length > 0)) return { value, standIns: new Map() };
    const taken = avoid + allText(value);
    const free = standInCandidates().filter((candidate) => !taken.includes(candidate));
    const replacement = new Map<string, string>();
    for (const first of this.#firsts) {
      const next = free.next();
      if (next.done) return null;
      replacement.set(first, next.value);
    }
    const disguised = mapTexts(value, (text) => {
      let result = "";
      let from = 0;
      for (const position of this.#positions(text)) {
        result += text.slice(from, position) + replacement.get(text[position]!)!;
        from = position + 1;
      }
      return result + text.slice(from);
    });
    return {
      value: disguised,
      standIns: new Map([...replacement].map(([character, standIn]) => [standIn, character])),
    };
  }

  /**
   * Positions at which a control text begins, overlapping ones included, and at which text behind this string
   * may complete one. The end of the string also counts without trailing white space, which a template may
   * trim.
   */
  #positions(text: string): number[] {
    const positions: number[] = [];
    const end = text.trimEnd().length;
    for (let i = 0; i < text.length; i++) {
      if (this.#isFirst[text.charCodeAt(i)] !== 1) continue;
      const match = this.#matchAt(text, i, text.length);
      if (match.length > 0 || match.isOpen || (i < end && this.#matchAt(text, i, end).isOpen))
        positions.push(i);
    }
    return positions;
  }

  /** The longest control text at `start`; `isOpen`: [start, end) is a proper beginning of one. */
  #matchAt(text: string, start: number, end: number): { readonly length: number; readonly isOpen: boolean } {
    let node = this.#root;
    let length = 0;
    for (let i = start; i < end; i++) {
      const child = node.children.get(text.charCodeAt(i));
      if (child === undefined) return { length, isOpen: false };
      node = child;
      if (node.isEnd) length = i + 1 - start;
    }
    return { length, isOpen: node.children.size > 0 };
  }
}

/** Turns stand-ins back into their characters. */
export function restore(text: string, standIns: ReadonlyMap<string, string>): string {
  let result = text;
  for (const [standIn, character] of standIns) result = result.replaceAll(standIn, character);
  return result;
}

/** Unicode's noncharacters, which no text should hold, then the private use area. */
function* standInCandidates(): Generator<string, undefined> {
  for (let unit = 0xfdd0; unit <= 0xfdef; unit++) yield String.fromCharCode(unit);
  for (let unit = 0xe000; unit <= 0xf8ff; unit++) yield String.fromCharCode(unit);
}

function anyText(value: Value, holds: (text: string) => boolean): boolean {
  if (typeof value === "string") return holds(value);
  if (isList(value)) return value.some((item) => anyText(item, holds));
  if (!(value instanceof Dict)) return false;
  for (const [key, item] of value.entries()) if (anyText(key, holds) || anyText(item, holds)) return true;
  return false;
}

function allText(value: Value): string {
  const texts: string[] = [];
  anyText(value, (text) => {
    texts.push(text);
    return false;
  });
  return texts.join("");
}

function mapTexts(value: Value, change: (text: string) => string): Value {
  if (typeof value === "string") return change(value);
  if (isList(value)) return value.map((item) => mapTexts(item, change));
  if (!(value instanceof Dict)) return value;
  const dict = new Dict();
  for (const [key, item] of value.entries()) dict.set(mapTexts(key, change), mapTexts(item, change));
  return dict;
}
