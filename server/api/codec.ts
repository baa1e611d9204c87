import type { AnswerEvent, Usage } from "../answer/events.ts";
import type { WholeAnswer } from "../answer/whole.ts";
import type { ApiError } from "../http/errors.ts";
import type { AnswerTimes } from "../http/measure.ts";
import type { Framing } from "../http/stream.ts";
import type { StreamText } from "../http/text-batch.ts";

/**
 * Events that a codec writes. Excluded are progress, and failure, which becomes an HTTP error or the end of a
 * stream.
 */
export type ShownEvent = Exclude<AnswerEvent, { readonly kind: "failed" | "progress" }>;

/** State of an answer at the time of an event. `times`: absent if not measured. */
export interface CodecAnswer {
  readonly usage: Usage;
  readonly times?: AnswerTimes;
  /** Timing record of the request, for the end of the answer; null: the client asks for none. */
  readonly why?: object | null;
}

/** Member `bunting` of an answer's last object, with the request's record; empty if the client asks for none. */
export function whyMember({ why }: Pick<CodecAnswer, "why">): {
  readonly bunting?: { readonly why: object };
} {
  return why == null ? {} : { bunting: { why } };
}

/** Writes one answer in one wire format. The route creates one codec for each request. */
export interface Codec {
  readonly framing: Framing;
  /** Maximum log probabilities that the codec buffers, also for a stream; absent: a stream buffers none. */
  readonly logprobsMax?: number;
  /** The answer as one JSON body. `times`: absent if not measured. */
  body(answer: WholeAnswer, times?: AnswerTimes): object;
  /** Stream text for one event; "" for none. */
  chunk(event: ShownEvent, answer: CodecAnswer): StreamText;
  /**
   * Stream text that reports how many prompt tokens are computed or cached; absent: the format reports no
   * progress.
   */
  progress?(tokens: number, answer: CodecAnswer): string;
  /** Last text of a failed stream. */
  failure(error: ApiError): string;
}
