import { type CacheOutcome, endOf } from "../answer/cache-outcome.ts";
import type { AnswerEvent, Usage } from "../answer/events.ts";

/** Milliseconds from a request's arrival to the end of its answer, and from its first token on. */
interface Times {
  readonly totalMs: number;
  readonly answerMs: number;
}

/** Prompts of a request for which a line names the reason of the first cache miss. */
const ENDS_MAX = 8;

/**
 * Log of requests for operators (`--log-requests`). It has one line when a request has its response, and one
 * when a generated answer has ended (later, if it is a stream). Neither holds any text of the prompt or the
 * answer.
 */
export class RequestLog {
  readonly #write: (line: string) => void;

  constructor(write: (line: string) => void) {
    this.#write = write;
  }

  /**
   * `path` is the client's, without a query. Successful GET requests, such as scrapes and health checks, have no
   * line.
   */
  responded(requestId: string, method: string, path: string, status: number, seconds: number): void {
    if (method === "GET" && status < 400) return;
    this.#line(requestId, `${method} ${path} ${status} in ${(seconds * 1000).toFixed(0)} ms`);
  }

  answered(
    requestId: string,
    last: AnswerEvent,
    { usage, cacheOutcomes }: { readonly usage: Usage; readonly cacheOutcomes: readonly CacheOutcome[] },
    times: Times,
  ): void {
    const { promptTokens, cachedTokens, completionTokens } = usage;
    const ends = cacheOutcomes.slice(0, ENDS_MAX).map(({ misses }) => `; ${endOf(misses)}`);
    const firstMs = times.totalMs - times.answerMs;
    const perSecond =
      completionTokens > 1 && times.answerMs > 0
        ? `, ${((1000 * (completionTokens - 1)) / times.answerMs).toFixed(1)} tokens/s`
        : "";
    const end = last.kind === "failed" ? last.failure.kind : "answered";
    this.#line(
      requestId,
      `${end}: ${promptTokens} prompt tokens (${cachedTokens} cached${ends.join("")}), ${completionTokens} generated, first after ${firstMs.toFixed(0)} ms${perSecond}`,
    );
  }

  #line(requestId: string, text: string): void {
    this.#write(`${new Date().toISOString()} ${requestId} ${text}`);
  }
}
