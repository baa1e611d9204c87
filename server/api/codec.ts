import type { AnswerEvent, Usage } from "../answer/events.ts";
import type { WholeAnswer } from "../answer/whole.ts";
import type { ApiError } from "../http/errors.ts";
import type { AnswerTimes } from "../http/measure.ts";
import type { Framing } from "../http/stream.ts";
import type { StreamText } from "../http/text-batch.ts";

/** An answer's events, but for its progress, and its failure, which becomes an HTTP error or the end of a stream. */
export type ShownEvent = Exclude<AnswerEvent, { readonly kind: "failed" | "progress" }>;

/** An answer as it is at the moment. `times`: where they are measured. */
export interface CodecAnswer {
  readonly usage: Usage;
  readonly times?: AnswerTimes;
}

/** Writes one answer in one wire format. Made for each request. */
export interface Codec {
  readonly framing: Framing;
  /** Log probabilities that it holds, also of a stream; absent: of a stream it holds none. */
  readonly logprobsMax?: number;
  /** The answer as one JSON body. `times`: where they were measured. */
  body(answer: WholeAnswer, times?: AnswerTimes): object;
  /** The text of a stream for one event; "" for none. */
  chunk(event: ShownEvent, answer: CodecAnswer): StreamText;
  /** The text of a stream when so many tokens of the prompt are computed or cached; absent: it tells of no progress. */
  progress?(tokens: number, answer: CodecAnswer): string;
  /** The last text of a stream that fails. */
  failure(error: ApiError): string;
}
