/** Sends traces to an OpenTelemetry collector: OTLP over HTTP, as JSON. Loaded only if traces are wanted. */

import { type Context, type HrTime, ROOT_CONTEXT, SpanKind, SpanStatusCode, trace } from "@opentelemetry/api";
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
import { type SpanPlan, spansOf, type TracedRequest } from "./request-spans.ts";
import type { SpanCounts, Traces } from "./traces.ts";

/** Spans that wait for the collector at most, those on their way included. */
const WAITING_MAX = 2048;
/** Spans that are sent together: few, since making their JSON holds up the thread that serves HTTP. */
const BATCH_SPANS = 64;
const BATCH_MS = 1000;
/** Time in which the last spans may be sent when the server ends. */
const CLOSE_MS = 3000;

export interface OtlpOptions {
  /** URL of the collector without `/v1/traces`; null: that of the environment. */
  readonly endpoint: string | null;
  readonly version: string;
  /** Time of an attempt with its repetitions; absent: that of the environment, or ten seconds. */
  readonly timeoutMs?: number;
  readonly closeMs?: number;
  /** Receives a sentence when the collector stops taking spans. */
  readonly log: (sentence: string) => void;
}

/** Traces for a collector. The environment's standard variables say what the options do not. */
export class OtlpTraces implements Traces {
  readonly counts = { exported: 0, failed: 0, dropped: 0 } satisfies SpanCounts;
  readonly #provider: BasicTracerProvider;
  readonly #propagator = new W3CTraceContextPropagator();
  readonly #log: (sentence: string) => void;
  readonly #closeMs: number;
  #waiting = 0;
  /** Called when no span waits. */
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
    if (this.#waiting + plans.length > WAITING_MAX) {
      this.counts.dropped += plans.length;
      return;
    }
    const parent = this.#propagator.extract(ROOT_CONTEXT, headers, {
      get: (carrier, name) => carrier.get(name) ?? undefined,
      keys: (carrier) => [...carrier.keys()],
    });
    // Joins the clocks anew for each request: the one of the process does not follow corrections of the other.
    const epochMs = Date.now() - performance.now();
    const [whole, ...parts] = plans;
    const within = this.#send(whole, SpanKind.SERVER, parent, epochMs);
    if (within === null) return;
    for (const part of parts) this.#send(part, SpanKind.INTERNAL, within, epochMs);
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

  /** Returns the context of its parts; null: the trace is not sampled. */
  #send(plan: SpanPlan, kind: SpanKind, parent: Context, epochMs: number): Context | null {
    const { name, startMs, endMs, attributes, isError } = plan;
    const span = this.#provider.getTracer("bunting").startSpan(
      name,
      {
        kind,
        startTime: hrTime(epochMs + startMs),
        attributes: attributes as Record<string, string | number | boolean | string[]>,
      },
      parent,
    );
    if (!span.isRecording()) return null;
    this.#waiting += 1;
    if (isError) span.setStatus({ code: SpanStatusCode.ERROR });
    span.end(hrTime(epochMs + endMs));
    return trace.setSpan(parent, span);
  }

  /** The exporter, whose outcomes are counted. */
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

/** URL to send to: the collector's, and the path of traces if it does not end with that. */
export function tracesUrl(endpoint: string): string {
  const url = new URL(endpoint);
  if (!url.pathname.endsWith("/v1/traces")) url.pathname = `${url.pathname.replace(/\/$/, "")}/v1/traces`;
  return url.href;
}

/** Seconds and nanoseconds since 1970. */
function hrTime(ms: number): HrTime {
  const micros = Math.round(ms * 1000);
  return [Math.floor(micros / 1e6), (micros % 1e6) * 1000];
}
