/** Traces of requests, whatever takes them. */

import type { RequestFacts } from "../explain/request-facts.ts";
import type { ApiError } from "../http/errors.ts";
import type { Asked, Attributes, TracedPart, TracedRequest } from "./request-spans.ts";

/** Spans by what became of them. */
export interface SpanCounts {
  /** Taken by the collector. */
  readonly exported: number;
  /** Not taken by it. */
  readonly failed: number;
  /** Not kept: too many waited for the collector. */
  readonly dropped: number;
}

/** Takes the spans of requests and sends them to a collector. */
export interface Traces {
  readonly counts: SpanCounts;
  /** Takes a request that has ended. `headers`: of the request, which may name the span that it is part of. */
  emit(request: TracedRequest, headers: Headers): void;
  /** Opens a span that others are children of. `headers`: of the request that began it; null: it begins a trace. */
  open(name: string, headers: Headers | null): OpenSpan;
  /** Sends what waits, for a few seconds at most. */
  close(): Promise<void>;
}

/** Span of a batch or program. It takes its children's spans as they end, and holds none. */
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

/** Notes on one answer for its spans. */
export abstract class AnswerTrace {
  readonly #finishReasons: string[] = [];
  protected asked: Asked | null = null;
  protected errorType: string | null = null;

  /** Notes what the model is asked for. */
  asks(asked: Asked): void {
    this.asked = asked;
  }

  /** Notes the end of a choice. */
  finished(choice: number, reason: string): void {
    this.#finishReasons[choice] = reason;
  }

  /** Notes the error that the client is told of first. */
  failed({ type, detail }: ApiError): void {
    this.failedWith(detail.apiCode ?? type);
  }

  /** Notes the code of the first error. */
  failedWith(code: string): void {
    this.errorType ??= code;
  }

  /** Reads from a record once that is complete. */
  abstract follow(record: TraceRecord): void;

  protected get finishReasons(): readonly string[] {
    return this.#finishReasons.filter((reason) => reason !== undefined);
  }
}

/** Gathers what the spans of one request tell, until it has its response and its records are complete. */
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

  /** Headers of the request, which may name the span that it is part of. */
  get headers(): Headers {
    return this.#start.request.headers;
  }

  /** Reads from a record once that is complete; from the last one if there are several. */
  follow(record: TraceRecord): void {
    this.#record = record;
    this.#recordsOpen += 1;
    record.whenClosed(() => {
      this.#recordsOpen -= 1;
      this.#emit();
    });
  }

  /** Notes that the request has its response. */
  responded(status: number, route: string): void {
    this.#response = { status, route, atMs: performance.now() };
    this.#emit();
  }

  #emit(): void {
    if (this.#response === null || this.#recordsOpen > 0) return;
    const { status: httpStatus, route, atMs } = this.#response;
    const record = this.#record;
    // A request that asks the model for nothing is of no interest, unless it was refused.
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

/** Answers of a batch or program that have spans: storages of traces refuse, or show badly, traces of many thousands. */
const PARTS_MAX = 1000;

/** Trace of a batch or program, and of the first answers within it. */
export class WholeTrace {
  readonly #span: OpenSpan;
  #parts = 0;

  constructor(traces: Traces, name: "batch" | "program", headers: Headers | null) {
    this.#span = traces.open(name, headers);
  }

  /** Begins the trace of an answer. `own`: attributes that say what it is of. Null: too many others have spans. */
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
        asked: this.asked!, // a record follows the question
        finishReasons: this.finishReasons,
        facts: record.json(),
      });
    });
  }
}
