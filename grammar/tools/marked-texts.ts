import type { GrammarBuilder, GrammarSymbol } from "../grammar.ts";
import { CONTROL_BYTE, controlBytes } from "../mask/vocabulary.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import type { TextMarks } from "../source.ts";
import { CALL_ID, CALL_NUMBER, DIGITS_MAX, ID_LENGTH, piecesOf } from "./call-form.ts";

const BREAKS_MAX = 4;

/** Texts of an answer with the model's marks: some marks are control tokens, others plain text. */
export class MarkedTexts {
  readonly #regexes: Regexes;
  readonly #controlTexts: readonly string[];
  /**
   * Any bytes except those of control tokens. Models may write bytes that form no character. Each byte leads
   * back to the same state, so that most of a vocabulary is allowed without a walk.
   */
  readonly anyText: Regex;

  /** `controlTexts`: marks that are control tokens; if one begins another, the longer one first. */
  constructor(regexes: Regexes, controlTexts: readonly string[]) {
    this.#regexes = regexes;
    this.#controlTexts = controlTexts;
    this.anyText = regexes.star(regexes.bytes([0, CONTROL_BYTE - 1]));
  }

  /** Line breaks that may stand around marks. */
  get breaks(): Regex {
    return this.#regexes.repeat(this.#regexes.bytes([10, 10]), 0, BREAKS_MAX);
  }

  /** Matches a text, with control tokens for its control texts. */
  literal(text: string): Regex {
    return this.#regexes.literal(markBytes(text, this.#controlTexts));
  }

  /** Same for a text of a call form, which may contain placeholders. */
  ofForm(formText: string): Regex {
    const regexes = this.#regexes;
    const pieces = piecesOf(formText).map((piece) => {
      if (piece === CALL_NUMBER) return regexes.repeat(regexes.bytes([48, 57]), 1, DIGITS_MAX);
      if (piece !== CALL_ID) return this.literal(piece);
      return regexes.repeat(regexes.bytes([48, 57], [65, 90], [97, 122]), ID_LENGTH, ID_LENGTH);
    });
    return regexes.cat(...pieces);
  }

  /** Puts the mark `before` in front of a text, and allows the mark `after` at its end. */
  between(
    { before, after, areTags }: TextMarks,
    text: GrammarSymbol,
    builder: GrammarBuilder,
  ): GrammarSymbol {
    const mark = (one: string): Regex => {
      const literal = this.literal(one);
      return areTags ? this.#regexes.cat(this.breaks, literal, this.breaks) : literal;
    };
    const optional = (one: string): GrammarSymbol[] =>
      one === "" ? [] : [builder.repeat(builder.terminal(mark(one)), 0, 1)];
    const opening = areTags ? optional(before) : before === "" ? [] : [builder.terminal(mark(before))];
    return builder.sequence(...opening, text, ...optional(after));
  }

  /** Any text that contains none of these texts. */
  without(texts: readonly string[]): Regex {
    const { anyText } = this;
    const found = texts.map((text) => this.#regexes.cat(anyText, this.#plain(text), anyText));
    return this.#butNot(found);
  }

  /** Any text that begins with none of these. */
  notBeginningWith(texts: readonly string[]): Regex {
    return this.#butNot(texts.map((text) => this.#regexes.cat(this.#plain(text), this.anyText)));
  }

  #butNot(found: readonly Regex[]): Regex {
    return this.#regexes.and([this.anyText, this.#regexes.not(this.#regexes.alt(found))]);
  }

  /**
   * Matches the text in plain bytes, whether or not a token has the same text: a parser sees no difference.
   */
  #plain(text: string): Regex {
    return this.#regexes.literal(bytesOf(text));
  }
}

/** Returns the bytes of a text in which `controlTexts` are control tokens. */
export function markBytes(text: string, controlTexts: readonly string[]): number[] {
  const bytes: number[] = [];
  let plain = "";
  for (let at = 0; at < text.length; ) {
    const control = controlTexts.find((one) => text.startsWith(one, at));
    if (control === undefined) plain += text[at++]!;
    else {
      bytes.push(...bytesOf(plain), ...controlBytes(bytesOf(control)));
      plain = "";
      at += control.length;
    }
  }
  return [...bytes, ...bytesOf(plain)];
}

function bytesOf(text: string): Uint8Array {
  return new TextEncoder().encode(text);
}
