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

/** Part of a request that turns tokens into text. */
export interface TextRules {
  readonly sampling: Pick<Sampling, "topLogprobs">;
  /** Output tokens (`min_tokens`) that must be exceeded before a stop string can end the text. */
  readonly tokensMin: number;
  /** Stop strings of a choice; none is empty. The match that completes first wins. */
  readonly stopStrings: readonly string[];
  /** True if the text keeps the matched stop string. */
  readonly includeStopString: boolean;
  /** True to leave control tokens such as <|im_end|> out of the text. */
  readonly skipSpecialTokens: boolean;
  /** The model's delimiters of calls and reasoning; absent: everything is text. */
  readonly format?: AnswerFormat;
  /** Callable functions; absent: none, and no text is parsed as a call. */
  readonly calls?: OfferedCalls;
}

/** Functions that a model may call, and limits on the calls. */
export interface OfferedCalls {
  readonly functions: readonly CallableFunction[];
  /** Calls in a choice at most; null: no limit. */
  readonly callsMax: number | null;
  /** True if the answer may be text instead (`tool_choice` "auto"); false if it must hold a call. */
  readonly mayTalk: boolean;
  /** Name of the request field of the functions. */
  readonly param: string;
}

/**
 * Turns one choice's tokens into text, reasoning and calls. It never splits a character, and holds back
 * possible beginnings of stop strings and delimiters. A stop string ends the answer in its text only, not in
 * reasoning and calls.
 */
export class ChoiceText {
  readonly #index: number;
  readonly #tokenizer: Tokenizer;
  readonly #rules: TextRules;
  readonly #stopTokens: readonly TokenId[];
  readonly #shownTokens: ReadonlySet<TokenId | null>;
  readonly #detokenizer = new StreamDetokenizer();
  /** Null: the model does not reason. */
  readonly #thinking: ThinkingReader | null;
  readonly #parts: PartReader;
  /** True if the request has stop strings. */
  readonly #hasStops: boolean;
  /** Tokens whose text has not been emitted, and the value of `#decoded` before each. */
  #waiting: TokenId[] = [];
  #waitingFrom: number[] = [];
  /** Log probabilities of the waiting tokens; null: the request asks for none. */
  #entries: TokenEntry[] | null;
  /** True if stop strings, calls, reasoning or log probabilities require parsing the text. */
  readonly #isRead: boolean;
  /** True if no parsing is required and no token waits: the next token's text is emitted at once. */
  #isPlain: boolean;
  #tokens = 0;
  #reasoningTokens = 0;
  /** UTF-16 code units decoded so far. */
  #decoded = 0;
  /** Unicode scalars decoded, counted only for log probabilities. */
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

  /** Stop string that ended the text; null: none. */
  get matched(): string | null {
    return this.#parts.matched;
  }

  /** Number of tokens, whether text or not. */
  get tokens(): number {
    return this.#tokens;
  }

  /** Names of the functions that are called. */
  get called(): readonly string[] {
    return this.#parts.called;
  }

  /** Tokens of reasoning and its delimiters. */
  get reasoningTokens(): number {
    return this.#reasoningTokens;
  }

  /** Takes the next token. Returns the text, reasoning and calls that can be emitted now; null: none. */
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

  /** Fast path of `push` for text that needs no parsing. */
  #tellPlain(token: TokenId, text: string): Delta {
    this.#decoded += text.length;
    return this.#deltaOf([{ kind: "text", text }], [token], null);
  }

  #textOf(token: TokenId): string {
    return this.#isHidden(token) ? "" : this.#detokenizer.pushToken(token, this.#tokenizer);
  }

  /** Ends the choice and emits the text that was held back. */
  end(): Delta | null {
    const last = this.#read(this.#detokenizer.end());
    const held = this.#thinking?.end() ?? { reasoning: "", answer: "" };
    const parts = this.#parts.push(last.answer + held.answer, this.#mayStop);
    parts.push(...this.#parts.end(this.#mayStop));
    return this.#delta(last.reasoning + held.reasoning, parts, true);
  }

  /** Separates reasoning from the answer. */
  #read(text: string): ReadThinking {
    this.#decoded += text.length;
    if (this.#entries !== null) this.#scalars += scalarCount(text);
    if (this.#thinking === null) return { reasoning: "", answer: text };
    const wasOpen = this.#thinking.isOpen;
    const parsed = this.#thinking.push(text);
    if (wasOpen || this.#thinking.isOpen) this.#reasoningTokens = this.#tokens;
    return parsed;
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

  /** Takes the waiting tokens. At the end, it drops tokens that lie wholly within a removed stop string. */
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
