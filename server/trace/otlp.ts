/**
 * Exports traces to an OpenTelemetry collector: OTLP over HTTP, as JSON. Loaded only if traces are
 * configured.
 */

import {
  type Context,
  type HrTime,
  ROOT_CONTEXT,
  type Span,
  SpanKind,
  SpanStatusCode,
  TraceFlags,
  trace,
} from "@opentelemetry/api";
import { type ExportResult, ExportResultCode, W3CTraceContextPropagator } from "@opentelemetry/core";
import { OTLPTraceExporter } from "@opentelemetry/exporter-trace-otlp-http";
import {
  defaultResource,
  detectResources,
  envDetector,
  resourceFromAttributes,
} from "@opentelemetry/resources";
import {
  BasicTracerProvider,
  BatchSpanProcessor,
  type ReadableSpan,
  type SpanExporter,
} from "@opentelemetry/sdk-trace-base";
import { type Attributes, partSpansOf, type SpanPlan, spansOf, type TracedRequest } from "./request-spans.ts";
import type { OpenSpan, SpanCounts, Traces } from "./traces.ts";

/** Maximum spans that wait to be exported, including those being sent. */
const WAITING_MAX = 2048;
/** Limit at which answers of batches and programs are dropped; the rest of the queue is left to requests. */
const WAITING_PARTS_MAX = WAITING_MAX / 2;
/** Spans per export. Few, because their JSON is made on the thread that serves HTTP. */
const BATCH_SPANS = 64;
const BATCH_MS = 1000;
/** Maximum time to send the last spans when the server shuts down. */
const CLOSE_MS = 3000;

export interface OtlpOptions {
  /** URL of the collector without `/v1/traces`; null: the URL from the environment. */
  readonly endpoint: string | null;
  readonly version: string;
  /** Timeout of an export with its retries; absent: that of the environment, or ten seconds. */
  readonly timeoutMs?: number;
  readonly closeMs?: number;
  /** Receives a sentence when the collector stops accepting spans. */
  readonly log: (sentence: string) => void;
}

/** Exports traces. OpenTelemetry's standard environment variables apply where an option is absent. */
export class OtlpTraces implements Traces {
  readonly counts = { exported: 0, failed: 0, dropped: 0 } satisfies SpanCounts;
  readonly #provider: BasicTracerProvider;
  readonly #propagator = new W3CTraceContextPropagator();
  readonly #log: (sentence: string) => void;
  readonly #closeMs: number;
  #waiting = 0;
  /** Called when no span waits any more. */
  #onEmpty = (): void => {};
  #isFailing = false;

  constructor({ endpoint, version, timeoutMs, closeMs = CLOSE_MS, log }: OtlpOptions) {
    this.#log = log;
    this.#closeMs = closeMs;
    const exporter = new OTLPTraceExporter({
      concurrencyLimit: WAITING_MAX / BATCH_SPANS + 1, // all that waits is sent at once when the server ends
      ...(endpoint === null ? {} : { url: tracesUrl(endpoint) }),
      ...(timeoutMs === undefined ? {} : { timeoutMillis: timeoutMs }),
    });
    const batches = new BatchSpanProcessor(this.#counted(exporter), {
      maxQueueSize: WAITING_MAX,
      maxExportBatchSize: BATCH_SPANS,
      scheduledDelayMillis: BATCH_MS,
    });
    const own = { "service.name": "bunting", "service.version": version };
    const resource = defaultResource()
      .merge(resourceFromAttributes(own))
      .merge(detectResources({ detectors: [envDetector] }));
    this.#provider = new BasicTracerProvider({ resource, spanProcessors: [batches] });
  }

  emit(request: TracedRequest, headers: Headers): void {
    const plans = spansOf(request);
    if (this.#hasRoom(plans.length, WAITING_MAX))
      this.#sendAll(plans, SpanKind.SERVER, this.#parentOf(headers), epochOfNowMs());
  }

  open(name: string, headers: Headers | null): OpenSpan {
    const parent = headers === null ? ROOT_CONTEXT : this.#parentOf(headers);
    // The same offset of the clocks for the span and those within it, so that none begins before it.
    const epochMs = epochOfNowMs();
    const options = { kind: SpanKind.INTERNAL, startTime: hrTime(epochMs + performance.now()) };
    const span = this.#provider.getTracer("bunting").startSpan(name, options, parent);
    const within = trace.setSpan(parent, span);
    return {
      add: (part) => {
        if (!isSampled(span)) return;
        const plans = partSpansOf(part);
        if (this.#hasRoom(plans.length, WAITING_PARTS_MAX))
          this.#sendAll(plans, SpanKind.INTERNAL, within, epochMs);
      },
      end: (attributes, isError) => {
        if (!span.isRecording() || !this.#hasRoom(1, WAITING_MAX)) return;
        span.setAttributes(valuesOf(attributes));
        this.#waiting += 1;
        if (isError) span.setStatus({ code: SpanStatusCode.ERROR });
        span.end(hrTime(epochMs + performance.now()));
      },
    };
  }

  async close(): Promise<void> {
    const timer = Promise.withResolvers<void>();
    const timeout = setTimeout(timer.resolve, this.#closeMs);
    const empty = new Promise<void>((tell) => {
      this.#onEmpty = tell;
    });
    void this.#provider.shutdown().catch(() => {});
    if (this.#waiting > 0) await Promise.race([empty, timer.promise]);
    clearTimeout(timeout);
  }

  /** True if `spans` more may wait, `max` in all; otherwise counts them as dropped. */
  #hasRoom(spans: number, max: number): boolean {
    if (this.#waiting + spans <= max) return true;
    this.counts.dropped += spans;
    return false;
  }

  /** Parent context from the headers of a request. */
  #parentOf(headers: Headers): Context {
    return this.#propagator.extract(ROOT_CONTEXT, headers, {
      get: (carrier, name) => carrier.get(name) ?? undefined,
      keys: (carrier) => [...carrier.keys()],
    });
  }

  #sendAll(
    [whole, ...parts]: readonly [SpanPlan, ...SpanPlan[]],
    kind: SpanKind,
    parent: Context,
    epochMs: number,
  ): void {
    const within = this.#send(whole, kind, parent, epochMs);
    if (within === null) return;
    for (const part of parts) this.#send(part, SpanKind.INTERNAL, within, epochMs);
  }

  /** Sends a span. Returns the context for its children; null if the trace is not sampled. */
  #send(plan: SpanPlan, kind: SpanKind, parent: Context, epochMs: number): Context | null {
    const { name, startMs, endMs, attributes, isError } = plan;
    const span = this.#provider.getTracer("bunting").startSpan(
      name,
      {
        kind,
        startTime: hrTime(epochMs + startMs),
        attributes: valuesOf(attributes),
      },
      parent,
    );
    if (!span.isRecording()) return null;
    this.#waiting += 1;
    if (isError) span.setStatus({ code: SpanStatusCode.ERROR });
    span.end(hrTime(epochMs + endMs));
    return trace.setSpan(parent, span);
  }

  /** Wraps the exporter to count its outcomes. */
  #counted(exporter: SpanExporter): SpanExporter {
    return {
      export: (spans: ReadableSpan[], done: (result: ExportResult) => void): void =>
        exporter.export(spans, (result) => {
          this.#waiting -= spans.length;
          this.#note(result, spans.length);
          done(result);
          if (this.#waiting === 0) this.#onEmpty();
        }),
      shutdown: () => exporter.shutdown(),
      forceFlush: async () => await exporter.forceFlush?.(),
    };
  }

  #note({ code, error }: ExportResult, spans: number): void {
    const hasFailed = code !== ExportResultCode.SUCCESS;
    this.counts[hasFailed ? "failed" : "exported"] += spans;
    if (hasFailed && !this.#isFailing)
      this.#log(
        `The collector of traces takes no spans: ${error?.message || "it does not answer"}. ` +
          "Until it does they are lost; bunting_trace_spans_total of /metrics counts them.",
      );
    this.#isFailing = hasFailed;
  }
}

/**
 * Wall clock at zero of the monotonic clock. Computed for each trace, because the monotonic clock does not follow
 * corrections of the wall clock.
 */
function epochOfNowMs(): number {
  return Date.now() - performance.now();
}

/** URL to send to: the collector's, with `/v1/traces` appended if it is missing. */
export function tracesUrl(endpoint: string): string {
  const url = new URL(endpoint);
  if (!url.pathname.endsWith("/v1/traces")) url.pathname = `${url.pathname.replace(/\/$/, "")}/v1/traces`;
  return url.href;
}

function isSampled(span: Span): boolean {
  return (span.spanContext().traceFlags & TraceFlags.SAMPLED) !== 0;
}

function valuesOf(attributes: Attributes): Record<string, string | number | boolean | string[]> {
  return attributes as Record<string, string | number | boolean | string[]>;
}

/** Seconds and nanoseconds since 1970. */
function hrTime(ms: number): HrTime {
  const micros = Math.round(ms * 1000);
  return [Math.floor(micros / 1e6), (micros % 1e6) * 1000];
}
