/** Traces of requests, whatever takes them. */

import type { RequestFacts } from "../explain/request-facts.ts";
import type { ApiError } from "../http/errors.ts";
import type { Asked, TracedRequest } from "./request-spans.ts";

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
  /** Sends what waits, for a few seconds at most. */
  close(): Promise<void>;
}

/** Facts about a request when it arrives. */
export interface TraceStart {
  readonly requestId: string;
  readonly request: Request;
  readonly arrivedMs: number;
}

/** Record of a request, as its trace reads it. */
export interface TraceRecord {
  readonly endedMs: number;
  json(): RequestFacts;
  /** Calls `tell` once the record is complete. */
  whenClosed(tell: () => void): void;
}

/** Gathers what the spans of one request tell, until it has its response and its records are complete. */
export class RequestTrace {
  readonly #traces: Traces;
  readonly #start: TraceStart;
  readonly #finishReasons: string[] = [];
  #asked: Asked | null = null;
  #errorType: string | null = null;
  #record: TraceRecord | null = null;
  #recordsOpen = 0;
  #response: { readonly status: number; readonly route: string; readonly atMs: number } | null = null;

  constructor(traces: Traces, start: TraceStart) {
    this.#traces = traces;
    this.#start = start;
  }

  /** Notes what the model is asked for. */
  asks(asked: Asked): void {
    this.#asked = asked;
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

  /** Notes the end of a choice. */
  finished(choice: number, reason: string): void {
    this.#finishReasons[choice] = reason;
  }

  /** Notes the error that the client is told of first. */
  failed({ type, detail }: ApiError): void {
    this.#errorType ??= detail.apiCode ?? type;
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
      errorType: this.#errorType,
      asked: this.#asked,
      finishReasons: this.#finishReasons.filter((reason) => reason !== undefined),
      facts: record?.json() ?? null,
    };
    this.#traces.emit(traced, request.headers);
  }
}
