import { afterEach, expect, test } from "bun:test";
import { Collector } from "../../tests/support/collector.ts";
import { openTraces } from "./open-traces.ts";
import { OtlpTraces, tracesUrl } from "./otlp.ts";
import type { TracedPart, TracedRequest } from "./request-spans.ts";
import { WholeTrace } from "./traces.ts";

const refused: TracedRequest = {
  requestId: "req_1",
  method: "POST",
  route: "/v1/chat/completions",
  httpStatus: 400,
  arrivedMs: 10,
  endMs: 12.5,
  errorType: "invalid_request_error",
  asked: null,
  finishReasons: [],
  facts: null,
};

const set: string[] = [];
function environment(values: Readonly<Record<string, string>>): void {
  Object.assign(process.env, values);
  set.push(...Object.keys(values));
}
afterEach(() => {
  for (const name of set.splice(0)) delete process.env[name];
});

test("traces go below the collector's URL, whether or not that names their path", () => {
  expect(tracesUrl("http://one:4318")).toBe("http://one:4318/v1/traces");
  expect(tracesUrl("https://one/otlp/")).toBe("https://one/otlp/v1/traces");
  expect(tracesUrl("http://one:4318/v1/traces")).toBe("http://one:4318/v1/traces");
});

test("spans for a collector that is not there are kept up to a bound, counted, and told of in one line", async () => {
  const gone = new Collector();
  const { url: endpoint } = gone;
  await gone.kill();
  const log: string[] = [];
  const traces = new OtlpTraces({ endpoint, version: "1", timeoutMs: 100, log: (line) => log.push(line) });
  for (let request = 0; request < 2100; request++) traces.emit(refused, new Headers());
  expect(traces.counts).toEqual({ exported: 0, failed: 0, dropped: 52 });
  await traces.close();
  expect(traces.counts).toEqual({ exported: 0, failed: 2048, dropped: 52 });
  expect(log).toHaveLength(1);
});

const part: TracedPart = {
  own: { "bunting.batch.line": 1 },
  startMs: 10,
  endMs: 12,
  errorType: null,
  asked: { operation: "chat" },
  finishReasons: [],
  facts: {
    ...{ id: "", model: "demo", route: "", status: "answered", error: null, created: 0 },
    ...{ total_ms: 2, first_token_ms: null, causes: {}, first_token_causes: null, preemptions: 0 },
    ...{ engines: [], choices: 1, behind: null, same_prefix_of: null, late: { tokens: 0, ms: 0 } },
    tokens: {
      ...{ prompt: 1, computed: 1, recomputed: 0, generated: 0, drafts: { checked: 0, right: 0 } },
      found: { memory: 0, host: 0, disk: 0 },
    },
  },
};

test("answers within a batch leave half of the room to requests, and what finds none is counted", async () => {
  const gone = new Collector();
  const { url: endpoint } = gone;
  await gone.kill();
  const traces = new OtlpTraces({ endpoint, version: "1", timeoutMs: 100, log: () => {} });
  const batch = traces.open("batch", null);
  for (let answer = 0; answer < 1500; answer++) batch.add(part);
  expect(traces.counts.dropped).toBe(476);
  for (let request = 0; request < 1000; request++) traces.emit(refused, new Headers());
  batch.end({}, false);
  expect(traces.counts.dropped).toBe(476);
  await traces.close();
  expect(traces.counts).toEqual({ exported: 0, failed: 2025, dropped: 476 });
});

test("a batch of any length keeps no span of its answers, has those of the first thousand, and tells of the others", async () => {
  const collector = new Collector();
  const traces = new OtlpTraces({ endpoint: collector.url, version: "1", log: () => {} });
  const whole = new WholeTrace(traces, "batch", null);
  const parts = Array.from({ length: 1_000_000 }, (_, line) => whole.part({ "bunting.batch.line": line }));
  expect(parts.indexOf(null)).toBe(1000);
  expect(parts.slice(1000).every((one) => one === null)).toBe(true);
  whole.end({ "bunting.batch.lines": 1_000_000 }, false);
  await traces.close();
  expect(collector.spans.map(({ name, attributes }) => [name, attributes])).toEqual([
    ["batch", { "bunting.batch.lines": 1_000_000, "bunting.answers_without_spans": 999_000 }],
  ]);
  await collector.kill();
});

test("a collector that never answers does not keep the server from ending", async () => {
  using silent = Bun.serve({ port: 0, hostname: "127.0.0.1", fetch: () => new Promise<Response>(() => {}) });
  const endpoint = `http://127.0.0.1:${silent.port}`;
  const traces = new OtlpTraces({ endpoint, version: "1", closeMs: 20, log: () => {} });
  traces.emit(refused, new Headers());
  await traces.close();
  expect(traces.counts).toEqual({ exported: 0, failed: 0, dropped: 0 });
});

test("the standard variables name the collector, its headers and the service", async () => {
  const collector = new Collector();
  environment({
    OTEL_EXPORTER_OTLP_ENDPOINT: collector.url,
    OTEL_EXPORTER_OTLP_HEADERS: "x-team=blue",
    OTEL_SERVICE_NAME: "chat-eu",
    OTEL_RESOURCE_ATTRIBUTES: "deployment.environment.name=test",
  });
  const traces = await openTraces({ otlpEndpoint: null });
  traces!.emit(refused, new Headers());
  await traces!.close();
  expect(collector.headers[0]!.get("x-team")).toBe("blue");
  expect(collector.spans[0]!.resource).toMatchObject({
    "service.name": "chat-eu",
    "deployment.environment.name": "test",
  });
  expect(collector.spans[0]!.endNs - collector.spans[0]!.startNs).toBe(2_500_000n);
  await collector.kill();
});

test("a server that nobody names a collector to, or that is told not to, sends nothing", async () => {
  expect(await openTraces({ otlpEndpoint: null }, {})).toBeNull();
  expect(await openTraces({ otlpEndpoint: "http://one" }, { OTEL_SDK_DISABLED: "true" })).toBeNull();
  const wrong = { OTEL_EXPORTER_OTLP_ENDPOINT: "one:4318" };
  expect(openTraces({ otlpEndpoint: null }, wrong)).rejects.toThrow(
    'OTEL_EXPORTER_OTLP_ENDPOINT: "one:4318" is not a URL of HTTP or HTTPS, such as http://localhost:4318.',
  );
});
