import type { TokenId } from "../../base/token.ts";
import type { CallableFunction } from "../../grammar/source.ts";
import type { Sampling, TokenLogprobs } from "../../scheduler/core.ts";
import { StreamDetokenizer } from "../../text/detokenizer.ts";
import { type AnswerFormat, controlTextsIn, plainFormat } from "../../text/formats/answer-format.ts";
import { type ReadThinking, ThinkingReader } from "../../text/formats/thinking.ts";
import { StopMatcher } from "../../text/stop.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import type { Delta, Part, TokenEntry } from "./events.ts";
import { PartReader } from "./parts.ts";
import { entryOf, scalarCount } from "./token-text.ts";

/** The part of a request that decides what of its tokens is text. */
export interface TextRules {
  readonly sampling: Pick<Sampling, "topLogprobs">;
  /** Until this many tokens are out, nothing stops the text. */
  readonly tokensMin: number;
  /** Text that ends a choice; none is empty. The match that completes first wins. */
  readonly stopStrings: readonly string[];
  /** The matched stop string stays in the text. */
  readonly includeStopString: boolean;
  /** Control tokens such as <|im_end|> are left out of the text. */
  readonly skipSpecialTokens: boolean;
  /** How the model marks calls and thoughts; absent: everything is text. */
  readonly format?: AnswerFormat;
  /** What the model may call; absent: nothing, and nothing is read as a call. */
  readonly calls?: OfferedCalls;
}

/** Functions that a model may call, and how often. */
export interface OfferedCalls {
  readonly functions: readonly CallableFunction[];
  /** Calls in a choice at most; null: any number. */
  readonly callsMax: number | null;
  /** Or answer in text; else at least one call is made. */
  readonly mayTalk: boolean;
  /** The field of the request that they came in. */
  readonly param: string;
}

/**
 * One choice's tokens to text, thoughts and calls: a character is never split, and what may become a stop string or a mark
 * is held back. Stop strings end the answer where its text holds them, and are not looked for in thoughts and calls.
 */
export class ChoiceText {
  readonly #index: number;
  readonly #tokenizer: Tokenizer;
  readonly #rules: TextRules;
  readonly #stopTokens: readonly TokenId[];
  readonly #shownTokens: ReadonlySet<TokenId | null>;
  readonly #detokenizer = new StreamDetokenizer();
  /** Null: the model does not think. */
  readonly #thinking: ThinkingReader | null;
  readonly #parts: PartReader;
  /** Text may stop it. */
  readonly #hasStops: boolean;
  /** Tokens whose text is not out yet, and `#decoded` before each. */
  #waiting: TokenId[] = [];
  #waitingFrom: number[] = [];
  /** Of those that wait; null: none are asked for. */
  #entries: TokenEntry[] | null;
  /** Something is read of the text. */
  readonly #isRead: boolean;
  /** Nothing is, and nothing waits: the next token's text is told as it comes. */
  #isPlain: boolean;
  #tokens = 0;
  #reasoningTokens = 0;
  /** UTF-16 units decoded. */
  #decoded = 0;
  /** Scalars decoded, counted where there are entries. */
  #scalars = 0;

  /** `index`: of the choice. `stopTokens` end it and are not text. */
  constructor(index: number, tokenizer: Tokenizer, stopTokens: readonly TokenId[], rules: TextRules) {
    this.#index = index;
    this.#tokenizer = tokenizer;
    this.#rules = rules;
    this.#stopTokens = stopTokens;
    const { calls, thinking } = rules.format ?? plainFormat;
    const marks = [rules.calls === undefined ? null : calls, thinking];
    const shown = marks.flatMap((form) => controlTextsIn(form, tokenizer.controlTexts));
    this.#shownTokens = new Set(shown.map((text) => tokenizer.tokenOf(text)));
    this.#thinking = thinking === null ? null : new ThinkingReader(thinking);
    const functions = rules.calls?.functions ?? [];
    const { stopStrings, includeStopString: includeMatch } = rules;
    this.#hasStops = stopStrings.length > 0;
    const stops = this.#hasStops ? new StopMatcher(stopStrings, { includeMatch }) : null;
    this.#parts = new PartReader(calls, functions, stops);
    this.#entries = rules.sampling.topLogprobs === null ? null : [];
    const hasCalls = calls !== null && functions.length > 0;
    this.#isRead = this.#hasStops || hasCalls || this.#thinking !== null || this.#entries !== null;
    this.#isPlain = !this.#isRead;
  }

  /** The stop string that ended the text; null: none has. */
  get matched(): string | null {
    return this.#parts.matched;
  }

  /** All that came, whether text or not. */
  get tokens(): number {
    return this.#tokens;
  }

  get hasCalls(): boolean {
    return this.#parts.hasCalls;
  }

  /** Tokens of thoughts and their marks. */
  get reasoningTokens(): number {
    return this.#reasoningTokens;
  }

  /** What became certain with the token; null: nothing. */
  push(token: TokenId, logprobs: TokenLogprobs | null): Delta | null {
    this.#tokens++;
    if (this.#stopTokens.includes(token)) return null; // ends the choice and is not text
    const text = this.#textOf(token);
    if (this.#isPlain && text !== "") return this.#tellPlain(token, text);
    this.#isPlain = false;
    this.#waiting.push(token);
    this.#waitingFrom.push(this.#decoded);
    if (logprobs !== null) this.#entries?.push(entryOf(this.#tokenizer, token, logprobs, this.#scalars));
    const { reasoning, answer } = this.#read(text);
    const parts = this.#parts.push(answer, this.#mayStop);
    const isHeld = parts.length === 0 && reasoning === "" && (answer === "" || this.#hasStops);
    if (isHeld && this.matched === null) return null;
    return this.#delta(reasoning, parts, this.matched !== null);
  }

  get #mayStop(): boolean {
    return this.#tokens > this.#rules.tokensMin;
  }

  /** What `push` comes to where nothing is read of the text, and none of it waits. */
  #tellPlain(token: TokenId, text: string): Delta {
    this.#decoded += text.length;
    return this.#deltaOf([{ kind: "text", text }], [token], null);
  }

  #textOf(token: TokenId): string {
    return this.#isHidden(token) ? "" : this.#detokenizer.pushToken(token, this.#tokenizer);
  }

  /** The sequence ended: what was held back is told. */
  end(): Delta | null {
    const last = this.#read(this.#detokenizer.end());
    const held = this.#thinking?.end() ?? { reasoning: "", answer: "" };
    const parts = this.#parts.push(last.answer + held.answer, this.#mayStop);
    parts.push(...this.#parts.end(this.#mayStop));
    return this.#delta(last.reasoning + held.reasoning, parts, true);
  }

  /** Tells thoughts from what the answer is. */
  #read(text: string): ReadThinking {
    this.#decoded += text.length;
    if (this.#entries !== null) this.#scalars += scalarCount(text);
    if (this.#thinking === null) return { reasoning: "", answer: text };
    const wasOpen = this.#thinking.isOpen;
    const told = this.#thinking.push(text);
    if (wasOpen || this.#thinking.isOpen) this.#reasoningTokens = this.#tokens;
    return told;
  }

  #isHidden(token: TokenId): boolean {
    return this.#tokenizer.isControl(token) && this.#rules.skipSpecialTokens && !this.#shownTokens.has(token);
  }

  #delta(reasoning: string, answer: readonly Part[], isLast: boolean): Delta | null {
    const parts: readonly Part[] =
      reasoning === "" ? answer : [{ kind: "reasoning", text: reasoning }, ...answer];
    const { tokens, logprobs } = this.#takeWaiting(isLast);
    return parts.length === 0 && tokens.length === 0 ? null : this.#deltaOf(parts, tokens, logprobs);
  }

  #deltaOf(parts: Delta["parts"], tokens: Delta["tokens"], logprobs: Delta["logprobs"]): Delta {
    return { kind: "delta", choice: this.#index, parts, tokens, logprobs };
  }

  /** At the end, tokens that lie wholly in a stop string that was cut off are not part of the answer. */
  #takeWaiting(isLast: boolean): Pick<Delta, "tokens" | "logprobs"> {
    const cutAt = this.#decoded - this.#parts.cutUnits;
    const isCut = isLast && cutAt < this.#decoded;
    const count = isCut ? this.#waitingFrom.filter((from) => from < cutAt).length : this.#waiting.length;
    const tokens = this.#waiting;
    const logprobs = this.#entries;
    this.#waiting = [];
    this.#waitingFrom = [];
    this.#isPlain = !this.#isRead;
    if (logprobs !== null) this.#entries = [];
    if (count < tokens.length) {
      tokens.length = count;
      if (logprobs !== null) logprobs.length = count;
    }
    return { tokens, logprobs };
  }
}
