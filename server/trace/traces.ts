/** Traces of requests, independent of their exporter. */

import type { RequestFacts } from "../explain/request-facts.ts";
import type { ApiError } from "../http/errors.ts";
import type { Asked, Attributes, TracedPart, TracedRequest } from "./request-spans.ts";

/** Spans by outcome. */
export interface SpanCounts {
  /** Accepted by the collector. */
  readonly exported: number;
  /** Refused by the collector, or lost on the way. */
  readonly failed: number;
  /** Discarded because too many waited to be exported. */
  readonly dropped: number;
}

/** Takes the spans of requests and exports them. */
export interface Traces {
  readonly counts: SpanCounts;
  /** Takes a finished request. `headers`: the request's, which may carry a parent span (traceparent). */
  emit(request: TracedRequest, headers: Headers): void;
  /**
   * Opens a span for child spans. `headers`: those of the request that caused it; null: it begins a trace.
   */
  open(name: string, headers: Headers | null): OpenSpan;
  /** Exports the waiting spans, for a few seconds at most. */
  close(): Promise<void>;
}

/** Span of a batch or program. It exports child spans as they end, and stores none. */
export interface OpenSpan {
  add(part: TracedPart): void;
  end(attributes: Attributes, isError: boolean): void;
}

/** Facts about a request when it arrives. */
export interface TraceStart {
  readonly requestId: string;
  readonly request: Request;
  readonly arrivedMs: number;
}

/** Record of a request, as its trace reads it. */
export interface TraceRecord {
  readonly facts: { readonly arrivedMs: number };
  readonly endedMs: number;
  json(): RequestFacts;
  /** Calls `tell` once the record is complete. */
  whenClosed(tell: () => void): void;
}

/** Collects facts about one answer for its spans. */
export abstract class AnswerTrace {
  readonly #finishReasons: string[] = [];
  protected asked: Asked | null = null;
  protected errorType: string | null = null;

  /** Records the request's parameters. */
  asks(asked: Asked): void {
    this.asked = asked;
  }

  /** Records the finish reason of a choice. */
  finished(choice: number, reason: string): void {
    this.#finishReasons[choice] = reason;
  }

  /** Records the first error that the client receives. */
  failed({ type, detail }: ApiError): void {
    this.failedWith(detail.apiCode ?? type);
  }

  /** Records the code of the first error. */
  failedWith(code: string): void {
    this.errorType ??= code;
  }

  /** Reads the record once it is complete. */
  abstract follow(record: TraceRecord): void;

  protected get finishReasons(): readonly string[] {
    return this.#finishReasons.filter((reason) => reason !== undefined);
  }
}

/** Collects the facts for the spans of one request, until it has a response and its records are complete. */
export class RequestTrace extends AnswerTrace {
  readonly #traces: Traces;
  readonly #start: TraceStart;
  #record: TraceRecord | null = null;
  #recordsOpen = 0;
  #response: { readonly status: number; readonly route: string; readonly atMs: number } | null = null;

  constructor(traces: Traces, start: TraceStart) {
    super();
    this.#traces = traces;
    this.#start = start;
  }

  /** Headers of the request, which may carry a parent span. */
  get headers(): Headers {
    return this.#start.request.headers;
  }

  /** Reads the record once it is complete; with several, the last one that was followed. */
  follow(record: TraceRecord): void {
    this.#record = record;
    this.#recordsOpen += 1;
    record.whenClosed(() => {
      this.#recordsOpen -= 1;
      this.#emit();
    });
  }

  /** Records the response. */
  responded(status: number, route: string): void {
    this.#response = { status, route, atMs: performance.now() };
    this.#emit();
  }

  #emit(): void {
    if (this.#response === null || this.#recordsOpen > 0) return;
    const { status: httpStatus, route, atMs } = this.#response;
    const record = this.#record;
    // Requests without generation, such as listings, have no spans unless they failed.
    if (record === null && httpStatus < 400) return;
    const { requestId, request, arrivedMs } = this.#start;
    const traced = {
      ...{ requestId, method: request.method, route, httpStatus, arrivedMs },
      endMs: record?.endedMs ?? atMs,
      errorType: this.errorType,
      asked: this.asked,
      finishReasons: this.finishReasons,
      facts: record?.json() ?? null,
    };
    this.#traces.emit(traced, request.headers);
  }
}

/**
 * Maximum answers of a batch or program with spans: trace stores reject traces of many thousands, or show
 * them badly.
 */
const PARTS_MAX = 1000;

/** Trace of a batch or program, and of the first answers within it. */
export class WholeTrace {
  readonly #span: OpenSpan;
  #parts = 0;

  constructor(traces: Traces, name: "batch" | "program", headers: Headers | null) {
    this.#span = traces.open(name, headers);
  }

  /**
   * Begins the trace of an answer. `own`: attributes that identify it. Null once PARTS_MAX answers have
   * spans.
   */
  part(own: Attributes): PartTrace | null {
    this.#parts += 1;
    return this.#parts > PARTS_MAX ? null : new PartTrace(this.#span, own);
  }

  end(own: Attributes, isError: boolean): void {
    const without = Math.max(0, this.#parts - PARTS_MAX);
    this.#span.end(
      { ...own, ...(without === 0 ? {} : { "bunting.answers_without_spans": without }) },
      isError,
    );
  }
}

/** Trace of one answer within a batch or program. */
export class PartTrace extends AnswerTrace {
  readonly #span: OpenSpan;
  readonly #own: Attributes;

  constructor(span: OpenSpan, own: Attributes) {
    super();
    this.#span = span;
    this.#own = own;
  }

  follow(record: TraceRecord): void {
    record.whenClosed(() => {
      const { facts, endedMs: endMs } = record;
      this.#span.add({
        own: this.#own,
        startMs: facts.arrivedMs,
        endMs,
        errorType: this.errorType,
        asked: this.asked!, // set, because a record exists only after `asks`
        finishReasons: this.finishReasons,
        facts: record.json(),
      });
    });
  }
}
