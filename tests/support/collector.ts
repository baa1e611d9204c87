/** Collector of traces for tests: an HTTP server that reads OTLP as JSON. */

type AnyValue =
  | { readonly stringValue: string }
  | { readonly intValue: number | string }
  | { readonly doubleValue: number }
  | { readonly boolValue: boolean }
  | { readonly arrayValue: { readonly values: readonly AnyValue[] } };

interface Pair {
  readonly key: string;
  readonly value: AnyValue;
}

interface WireSpan {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly traceState?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly Pair[];
  readonly status: { readonly code?: number };
}

interface WireBody {
  readonly resourceSpans: readonly {
    readonly resource: { readonly attributes: readonly Pair[] };
    readonly scopeSpans: readonly { readonly spans: readonly WireSpan[] }[];
  }[];
}

/** A span as the collector received it. */
export interface ReceivedSpan extends Omit<WireSpan, "attributes"> {
  readonly attributes: Readonly<Record<string, unknown>>;
  readonly resource: Readonly<Record<string, unknown>>;
  readonly startNs: bigint;
  readonly endNs: bigint;
}

export class Collector {
  readonly spans: ReceivedSpan[] = [];
  /** Bodies as they came, and the headers of the requests. */
  readonly bodies: string[] = [];
  readonly headers: Headers[] = [];
  readonly #server: ReturnType<typeof Bun.serve>;
  readonly #waiters: { readonly count: number; readonly wake: () => void }[] = [];

  /** `port` 0: any that is free. */
  constructor(port = 0) {
    this.#server = Bun.serve({
      hostname: "127.0.0.1",
      port,
      fetch: async (request) => {
        if (new URL(request.url).pathname !== "/v1/traces") return new Response(null, { status: 404 });
        const text = await request.text();
        this.bodies.push(text);
        this.headers.push(request.headers);
        this.spans.push(...spansIn(JSON.parse(text) as WireBody));
        for (const { count, wake } of this.#waiters) if (this.spans.length >= count) wake();
        return Response.json({ partialSuccess: {} });
      },
    });
  }

  get port(): number {
    return this.#server.port!;
  }

  get url(): string {
    return `http://127.0.0.1:${this.port}`;
  }

  /** Resolves once it has received that many spans. */
  async received(count: number): Promise<void> {
    if (this.spans.length < count) await new Promise<void>((wake) => this.#waiters.push({ count, wake }));
  }

  /** Closes its port and all connections. */
  async kill(): Promise<void> {
    await this.#server.stop(true);
  }
}

function spansIn({ resourceSpans }: WireBody): ReceivedSpan[] {
  return resourceSpans.flatMap(({ resource, scopeSpans }) =>
    scopeSpans.flatMap(({ spans }) =>
      spans.map((span) => ({
        ...span,
        attributes: valuesOf(span.attributes),
        resource: valuesOf(resource.attributes),
        startNs: BigInt(span.startTimeUnixNano),
        endNs: BigInt(span.endTimeUnixNano),
      })),
    ),
  );
}

function valuesOf(pairs: readonly Pair[]): Record<string, unknown> {
  return Object.fromEntries(pairs.map(({ key, value }) => [key, readValue(value)]));
}

function readValue(value: AnyValue): unknown {
  if ("arrayValue" in value) return value.arrayValue.values.map(readValue);
  if ("intValue" in value) return Number(value.intValue);
  return Object.values(value)[0];
}
