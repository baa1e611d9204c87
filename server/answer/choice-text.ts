import type { Sampling, TokenId, TokenLogprobs } from "../../scheduler/core.ts";
import { StreamDetokenizer } from "../text/detokenizer.ts";
import { StopMatcher } from "../text/stop.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { Delta, TokenEntry, TokenText } from "./events.ts";
import { PartReader } from "./parts.ts";

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
  /** Those that are not: the text's reader looks for them. */
  readonly shownControlTexts: readonly string[];
  /** Function calls at most; 0: none were offered, and nothing is read as a call. */
  readonly callsMax: number;
}

/** What became certain with a token, or with the end. */
export interface Certain {
  /** Null: nothing. */
  readonly delta: Omit<Delta, "kind" | "choice"> | null;
  /** The stop string that was completed. */
  readonly matched: string | null;
}

/**
 * One choice's tokens to text and calls: a character is never split, and what may become a stop string or a call is held
 * back.
 */
export class ChoiceText {
  readonly #tokenizer: Tokenizer;
  readonly #rules: TextRules;
  readonly #stopTokens: ReadonlySet<TokenId>;
  readonly #shownTokens: ReadonlySet<TokenId | null>;
  readonly #detokenizer = new StreamDetokenizer();
  readonly #matcher: StopMatcher;
  readonly #parts: PartReader;
  /** Tokens whose text is not out yet, with the text's length in scalars before each. */
  #waiting: { readonly token: TokenId; readonly textOffset: number; readonly entry: TokenEntry | null }[] =
    [];
  #tokens = 0;
  /** Scalars decoded, and scalars delivered. */
  #decoded = 0;
  #delivered = 0;

  /** `stopTokens` end the choice and are not text. */
  constructor(tokenizer: Tokenizer, stopTokens: ReadonlySet<TokenId>, rules: TextRules) {
    this.#tokenizer = tokenizer;
    this.#rules = rules;
    this.#stopTokens = stopTokens;
    this.#shownTokens = new Set(rules.shownControlTexts.map((text) => tokenizer.tokenOf(text)));
    this.#parts = new PartReader(rules.callsMax);
    this.#matcher = new StopMatcher(rules.stopStrings, { includeMatch: rules.includeStopString });
  }

  get hasCalls(): boolean {
    return this.#parts.hasCalls;
  }

  push(token: TokenId, logprobs: TokenLogprobs | null): Certain {
    this.#tokens++;
    if (this.#stopTokens.has(token)) return { delta: null, matched: null }; // ends the choice and is not text
    const entry = logprobs === null ? null : entryOf(this.#tokenizer, token, logprobs, this.#decoded);
    this.#waiting.push({ token, textOffset: this.#decoded, entry });
    const text = this.#isHidden(token) ? "" : this.#detokenizer.push(this.#tokenizer.bytesOf(token));
    this.#decoded += scalarCount(text);
    const found = this.#match(text);
    return { delta: this.#delta(found.text, found.matched !== null), matched: found.matched };
  }

  /** The sequence ended: what was held back is text. */
  end(): Certain {
    const last = this.#match(this.#detokenizer.end());
    const text = last.matched === null ? last.text + this.#matcher.end() : last.text;
    return { delta: this.#delta(text, true), matched: last.matched };
  }

  #isHidden(token: TokenId): boolean {
    return this.#rules.skipSpecialTokens && this.#tokenizer.isControl(token) && !this.#shownTokens.has(token);
  }

  #match(text: string): { readonly text: string; readonly matched: string | null } {
    return this.#tokens > this.#rules.tokensMin ? this.#matcher.push(text) : { text, matched: null };
  }

  #delta(text: string, isLast: boolean): Certain["delta"] {
    this.#delivered += scalarCount(text);
    if (text.length === 0 && !isLast) return null;
    // At the end, tokens that lie wholly in a stop string that was cut off are not part of the answer.
    const told = isLast
      ? this.#waiting.filter(
          ({ textOffset }) => textOffset < this.#delivered || this.#delivered === this.#decoded,
        )
      : this.#waiting;
    this.#waiting = [];
    const parts = [...this.#parts.push(text), ...(isLast ? this.#parts.end() : [])];
    if (text.length === 0 && parts.length === 0 && told.length === 0) return null;
    const logprobs =
      this.#rules.sampling.topLogprobs === null
        ? null
        : told.flatMap(({ entry }) => (entry === null ? [] : [entry]));
    return { parts, tokens: told.map(({ token }) => token), logprobs };
  }
}

function entryOf(
  tokenizer: Tokenizer,
  token: TokenId,
  logprobs: TokenLogprobs,
  textOffset: number,
): TokenEntry {
  return {
    ...tokenTextOf(tokenizer, token, logprobs.logprob),
    top: logprobs.top.map((other) => tokenTextOf(tokenizer, other.token, other.logprob)),
    textOffset,
  };
}

const aloneDecoder = new TextDecoder("utf-8", { ignoreBOM: true });

function tokenTextOf(tokenizer: Tokenizer, token: TokenId, logprob: number): TokenText {
  const bytes = tokenizer.bytesOf(token);
  return { token, text: aloneDecoder.decode(bytes), bytes, logprob };
}

function scalarCount(text: string): number {
  let count = 0;
  for (let i = 0; i < text.length; i++) if ((text.charCodeAt(i) & 0xfc00) !== 0xdc00) count++;
  return count;
}
