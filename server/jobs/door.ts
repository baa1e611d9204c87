import type { TokenId } from "../../base/token.ts";
import type { PartTrace } from "../trace/traces.ts";
import type { BatchEndpoint, BatchUsage } from "./records.ts";

/** Request of a batch's line. */
export interface LineRequest {
  readonly endpoint: BatchEndpoint;
  readonly body: Readonly<Record<string, unknown>>;
  readonly tenant: string;
  /** Priority among the jobs of an API key: a lower number goes first. */
  readonly priority: number;
}

/** Parsed request of a line, with its prompts in tokens. */
export interface PreparedLine {
  /** Tokens of its first prompt. */
  readonly tokens: ArrayLike<TokenId>;
  /** Cache salt: lines with equal keys share prefixes. */
  readonly cacheKey: string;
  /** Maximum completion tokens. */
  readonly answerTokensMax: number;
  /** Runs it. `signal`: aborts the request. `trace`: null for a request without spans. */
  answer(signal: AbortSignal, trace: PartTrace | null): Promise<LineAnswer>;
}

export interface LineAnswer {
  /** JSON body of the equivalent HTTP response, whose status is 200. */
  readonly body: object;
  readonly usage: BatchUsage;
  /** Value of the header `x-bunting-ignored` of that response; "" for none. */
  readonly ignored: string;
}

/**
 * Port to the request handlers: prepares a line's request. It rejects with the ApiError that an HTTP request
 * would get, and so does the prepared line's answer.
 */
export type LineDoor = (line: LineRequest) => Promise<PreparedLine>;
