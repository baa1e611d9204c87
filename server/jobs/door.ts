import type { TokenId } from "../../base/token.ts";
import type { BatchEndpoint, BatchUsage } from "./records.ts";

/** Prompt of a line's request, as far as the order of lines depends on it. */
export interface LinePrompt {
  /** Tokens of its first prompt. */
  readonly tokens: ArrayLike<TokenId>;
  /** Cache salt: lines with equal keys share prefixes. */
  readonly cacheKey: string;
  /** Maximum tokens of its answer. */
  readonly answerTokensMax: number;
}

/** Context of a line's request. */
export interface LineCall {
  readonly tenant: string;
  /** Priority among jobs: a lower number goes first. */
  readonly priority: number;
  /** Aborted if the answer is no longer needed. */
  readonly signal: AbortSignal;
}

export interface LineAnswer {
  /** JSON body of the equivalent HTTP response. */
  readonly body: string;
  readonly usage: BatchUsage;
}

/** Port to the request handlers. Both methods reject with the ApiError that an HTTP request would get. */
export interface LineDoor {
  /** Tokenises a line's prompt. `tenant`: the client. */
  prompt(
    endpoint: BatchEndpoint,
    body: Readonly<Record<string, unknown>>,
    tenant: string,
  ): Promise<LinePrompt>;
  answer(
    endpoint: BatchEndpoint,
    body: Readonly<Record<string, unknown>>,
    call: LineCall,
  ): Promise<LineAnswer>;
}
