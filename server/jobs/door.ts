import type { TokenId } from "../../base/token.ts";
import type { BatchEndpoint, BatchUsage } from "./records.ts";

/** What a line's request begins with, as far as an order of lines goes by it. */
export interface LinePrompt {
  /** Of its first prompt. */
  readonly tokens: ArrayLike<TokenId>;
  /** Prefixes are shared between lines with equal keys. */
  readonly cacheKey: string;
  /** Tokens that its answer may have at most. */
  readonly answerTokensMax: number;
}

/** The client, and how it asks. */
export interface LineCall {
  readonly tenant: string;
  /** Among jobs: a lower number goes first. */
  readonly priority: number;
  /** Aborted: the answer is not wanted any more. */
  readonly signal: AbortSignal;
}

export interface LineAnswer {
  /** The JSON body that a request would have got. */
  readonly body: string;
  readonly usage: BatchUsage;
}

/** Port: the door that requests come in by. Both methods reject with the ApiError that a request would have got. */
export interface LineDoor {
  /** `tenant`: the client. */
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
