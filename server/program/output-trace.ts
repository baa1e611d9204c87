import type { AnswerEvent } from "../answer/events.ts";
import type { Generation, GenerationRequest } from "../answer/generation.ts";
import { type RequestRecord, recordAlone } from "../explain/request-record.ts";
import type { PartTrace } from "../trace/traces.ts";

/** Origin of an output. */
export interface OutputOrigin {
  readonly model: string;
  readonly operation: "chat" | "text_completion";
  /** Time from which its prompt was made into tokens, on the clock of `performance.now()`. */
  readonly beganMs: number;
}

/** Records one output of a call for its spans. */
export class OutputTrace {
  readonly #trace: PartTrace;
  readonly #record: RequestRecord;

  constructor(trace: PartTrace, request: GenerationRequest, { model, operation, beganMs }: OutputOrigin) {
    const { tenant, adapter, tokensMax, sampling } = request;
    const times = { arrivedMs: beganMs, readMs: beganMs, startedMs: performance.now(), loadMs: 0 };
    this.#trace = trace;
    this.#record = recordAlone({ id: "", tenant, route: "", adapter, choices: 1, ...times }, model);
    trace.asks({ operation, tokensMax, sampling });
    trace.follow(this.#record);
    this.#record.sent(); // no client waits for its last byte
  }

  follow(generation: Generation): void {
    this.#record.follow(generation);
  }

  /** `errorType`: code of a failure; null for other events. */
  note(event: AnswerEvent, errorType: string | null): void {
    if (event.kind === "finish") this.#trace.finished(event.choice, event.reason);
    if (event.kind === "done") this.#record.ended("answered", null);
    if (event.kind !== "failed") return;
    const isDropped = event.failure.kind === "aborted" && event.failure.by === "reader";
    if (errorType !== null) this.#trace.failedWith(errorType);
    this.#record.ended(isDropped ? "cancelled" : "failed", errorType);
  }

  /** Records that its sequence runs no more. */
  settled(): void {
    this.#record.settled();
  }
}
