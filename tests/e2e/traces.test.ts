/** Traces of requests, as a collector receives them over HTTP. */
import { afterEach, beforeEach, describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { OtlpTraces } from "../../server/trace/otlp.ts";
import type { Traces } from "../../server/trace/traces.ts";
import { Collector, type ReceivedSpan } from "../support/collector.ts";
import { begin, clientOf } from "./jobs-server.ts";
import { chatBody, post, startTestServer, type TestServer, type TestServerOptions } from "./server.ts";
import { byPath } from "./wires.ts";

let collector: Collector;
let traces: OtlpTraces;
let server: TestServer;
let emitted: number;
/** Folder of batches; null: the server has none. */
let data: string | null = null;
/** Called at each line of the log, and at each request, batch, program or answer within them whose spans are there. */
let told: (line: string | null) => void;

const TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT_ID = "00f067aa0ba902b7";
const within = (flags: string) => ({ headers: { traceparent: `00-${TRACE_ID}-${PARENT_ID}-${flags}` } });

beforeEach(() => {
  collector = new Collector();
});
afterEach(async () => {
  await server.settled();
  if (data !== null) rmSync(data, { recursive: true, force: true });
  data = null;
  await server.close();
  await traces.close();
  await collector.kill();
});

function start(options: TestServerOptions = {}): void {
  emitted = 0;
  told = () => {};
  const { url: endpoint } = collector;
  traces = new OtlpTraces({ endpoint, version: "1.2.3", timeoutMs: 300, log: (line) => told(line) });
  const watched: Traces = {
    counts: traces.counts,
    emit: (request, headers) => {
      traces.emit(request, headers);
      emitted += 1;
      told(null);
    },
    open: (name, headers) => {
      const span = traces.open(name, headers);
      return {
        add: (part) => {
          span.add(part);
          emitted += 1;
          told(null);
        },
        end: (attributes, isError) => {
          span.end(attributes, isError);
          emitted += 1;
          told(null);
        },
      };
    },
    close: () => traces.close(),
  };
  server = startTestServer({ stepMs: 2, answers: ["It is sunny in Sicily."], traces: watched, ...options });
}

/** Spans of that many requests, by name. */
async function sent(requests = 1): Promise<Readonly<Record<string, ReceivedSpan>>> {
  while (emitted < requests) await new Promise<unknown>((wake) => (told = wake));
  await traces.close();
  return Object.fromEntries(collector.spans.map((span) => [span.name, span]));
}

/** Attributes of a span that begin with a prefix, without that. */
function below(prefix: string, { attributes }: ReceivedSpan): Record<string, unknown> {
  const own = Object.entries(attributes).filter(([name]) => name.startsWith(prefix));
  return Object.fromEntries(own.map(([name, value]) => [name.slice(prefix.length), value]));
}

const msOf = ({ startNs, endNs }: ReceivedSpan): number => Number(endNs - startNs) / 1e6;
const sumOf = (parts: Record<string, unknown>): number =>
  Object.values(parts).reduce<number>((sum, ms) => sum + Number(ms), 0);

describe.each(byPath)("%s", (path, wire) => {
  test("a request's spans join the trace of its caller, and hold no text", async () => {
    start();
    const startedMs = Date.now();
    const init = { headers: { ...within("01").headers, tracestate: "vendor=opaque" } };
    const response = await post(server, path, wire.body({ content: "Palermo?", max: 4 }), init);
    await response.text();
    const spans = await sent();
    const [whole, ...parts] = collector.spans;
    expect(Object.keys(spans).slice(1)).toEqual(["queue", "prefill", "decode"]);
    expect(whole).toMatchObject({
      traceId: TRACE_ID,
      parentSpanId: PARENT_ID,
      traceState: "vendor=opaque",
      kind: 2,
    });
    for (const part of parts) {
      expect(part).toMatchObject({ traceId: TRACE_ID, parentSpanId: whole!.spanId, kind: 1 });
      expect(part.startNs).toBeGreaterThanOrEqual(whole!.startNs);
      expect(part.endNs).toBeLessThanOrEqual(whole!.endNs);
      expect(Math.abs(sumOf(below("bunting.cause_ms.", part)) - msOf(part))).toBeLessThan(0.1);
    }
    expect(spans.queue!.endNs).toBeLessThanOrEqual(spans.prefill!.startNs);
    expect(spans.prefill!.endNs).toBeLessThanOrEqual(spans.decode!.startNs);
    expect(Number(whole!.startNs / 1_000_000n)).toBeGreaterThanOrEqual(startedMs - 2);
    expect(Number(whole!.endNs / 1_000_000n)).toBeLessThanOrEqual(Date.now() + 2);
    expect(whole!.attributes).toMatchObject({
      "http.request.method": "POST",
      "http.route": path,
      "http.response.status_code": 200,
      "bunting.request.id": response.headers.get("x-request-id"),
      "bunting.status": "answered",
      "gen_ai.provider.name": "bunting",
      "gen_ai.request.model": "demo",
      "gen_ai.response.model": "demo",
      "gen_ai.request.max_tokens": 4,
      "gen_ai.usage.output_tokens": 4,
      "gen_ai.response.finish_reasons": ["length"],
    });
    expect(["chat demo", "text_completion demo"]).toContain(whole!.name);
    expect(collector.bodies.join()).not.toMatch(/Palermo|sunny/);
  });
});

test("a span tells the account of time that the server tells of its request", async () => {
  start();
  const response = await post(
    server,
    "/v1/chat/completions",
    chatBody("Rome?", { max_tokens: 3, stream: true }),
  );
  await response.text();
  const id = response.headers.get("x-request-id");
  const record = (await (await fetch(`${server.origin}/v1/requests/${id}`)).json()) as {
    readonly causes: Record<string, number>;
    readonly first_token_ms: number;
    readonly tokens: { readonly prompt: number };
    readonly total_ms: number;
  };
  const whole = (await sent())["chat demo"]!;
  expect(below("bunting.cause_ms.", whole)).toEqual(record.causes);
  expect(whole.attributes["gen_ai.response.time_to_first_chunk"]).toBeCloseTo(
    record.first_token_ms / 1000,
    6,
  );
  expect(whole.attributes["gen_ai.usage.input_tokens"]).toBe(record.tokens.prompt);
  expect(whole.attributes["gen_ai.request.stream"]).toBe(true);
  expect(Math.abs(msOf(whole) - record.total_ms)).toBeLessThan(0.01);
  expect(whole.resource).toMatchObject({ "service.name": "bunting", "service.version": "1.2.3" });
});

test("a request that its caller does not sample has no spans; one without a caller begins a trace", async () => {
  start();
  await (
    await post(server, "/v1/chat/completions", chatBody("One?", { max_tokens: 1 }), within("00"))
  ).text();
  await (await post(server, "/v1/chat/completions", chatBody("Two?", { max_tokens: 1 }))).text();
  const whole = (await sent(2))["chat demo"]!;
  expect(collector.spans.map(({ traceId }) => traceId)).toEqual(collector.spans.map(() => whole.traceId));
  expect(whole.traceId).not.toBe(TRACE_ID);
  expect(whole.parentSpanId).toBeUndefined();
});

test("a caller's header that is no context begins a trace", async () => {
  start();
  const init = { headers: { traceparent: `00-${"0".repeat(32)}-${PARENT_ID}-01` } };
  await (await post(server, "/v1/chat/completions", chatBody("One?", { max_tokens: 1 }), init)).text();
  expect((await sent())["chat demo"]!.parentSpanId).toBeUndefined();
});

test("a refused request has one span with its error, one without a known key has none", async () => {
  start({ keys: { keys: ["red"] } });
  const body = chatBody("Hello?", { max_tokens: -5 });
  const own = { headers: { ...within("01").headers, authorization: "Bearer red" } };
  expect((await post(server, "/v1/chat/completions", body, own)).status).toBe(400);
  expect((await post(server, "/v1/chat/completions", body, within("01"))).status).toBe(401);
  await (await fetch(`${server.origin}/v1/models`, own)).text();
  await sent();
  expect(collector.spans).toHaveLength(1);
  expect(collector.spans[0]).toMatchObject({
    name: "POST /v1/chat/completions",
    parentSpanId: PARENT_ID,
    status: { code: 2 },
    attributes: { "http.response.status_code": 400, "error.type": "invalid_request_error" },
  });
});

test("a request that its client cancels ends as cancelled, without an error", async () => {
  start({ stepMs: 20 });
  const leaving = new AbortController();
  const init = { signal: leaving.signal, ...within("01") };
  const body = chatBody("Hello?", { stream: true, max_tokens: 5000, ignore_eos: true });
  const response = await post(server, "/v1/chat/completions", body, init);
  await response.body!.getReader().read();
  leaving.abort();
  const whole = (await sent())["chat demo"]!;
  expect(whole.attributes["bunting.status"]).toBe("cancelled");
  expect(whole.status.code ?? 0).toBe(0);
});

test("embeddings and choices are told of", async () => {
  start({ answers: ["Yes.", "No, it is not."] });
  const chat = chatBody("Is it?", { n: 2, seed: 0 });
  await (await post(server, "/v1/chat/completions", chat, within("01"))).text();
  await (await post(server, "/v1/embeddings", { model: "demo", input: "Catania" }, within("01"))).text();
  const spans = await sent(2);
  expect(spans["chat demo"]!.attributes).toMatchObject({
    "gen_ai.request.choice.count": 2,
    "gen_ai.response.finish_reasons": ["stop", "stop"],
  });
  expect(spans["embeddings demo"]!.attributes).toMatchObject({
    "gen_ai.operation.name": "embeddings",
    "gen_ai.usage.output_tokens": 0,
    "bunting.status": "answered",
  });
});

/** Spans that are children of another, as "name: attributes of it that begin with `bunting.`". */
const childrenOf = (parent: ReceivedSpan): readonly ReceivedSpan[] =>
  collector.spans.filter(({ parentSpanId }) => parentSpanId === parent.spanId);

test("a batch has a span, and below it each line that the model answered, with its parts", async () => {
  data = mkdtempSync(join(tmpdir(), "bunting-traces-"));
  start({ data });
  const line = (index: number, url: string, body: object): string =>
    JSON.stringify({ custom_id: `secret ${index}`, method: "POST", url, body: { model: "demo", ...body } });
  const chats = [
    chatBody("Palermo?", { max_tokens: 3, temperature: 0.5, seed: 0 }),
    chatBody("Catania?", { max_tokens: 2 }),
    { messages: 1 },
  ];
  const batch = await begin(
    clientOf(server),
    chats.map((body, index) => line(index, "/v1/chat/completions", body)),
  );
  const spans = await sent(3);
  const whole = spans.batch!;
  expect(whole.parentSpanId).toBeUndefined();
  expect(whole.attributes).toEqual({
    "bunting.batch.id": batch.id,
    "bunting.batch.endpoint": "/v1/chat/completions",
    "bunting.batch.status": "completed",
    "bunting.batch.lines": 3,
    "bunting.batch.completed": 2,
    "bunting.batch.failed": 1,
    "gen_ai.request.model": "demo",
  });
  const lines = childrenOf(whole).toSorted(
    (a, b) => Number(a.attributes["bunting.batch.line"]) - Number(b.attributes["bunting.batch.line"]),
  );
  expect(lines.map(({ name, traceId }) => [name, traceId])).toEqual([
    ["chat demo", whole.traceId],
    ["chat demo", whole.traceId],
  ]);
  expect(lines[0]!.attributes).toMatchObject({
    "bunting.batch.id": batch.id,
    "bunting.batch.line": 1,
    "bunting.status": "answered",
    "gen_ai.operation.name": "chat",
    "gen_ai.request.model": "demo",
    "gen_ai.request.max_tokens": 3,
    "gen_ai.request.temperature": 0.5,
    "gen_ai.usage.output_tokens": 3,
    "gen_ai.response.finish_reasons": ["length"],
  });
  for (const one of lines) {
    expect(one.startNs).toBeGreaterThanOrEqual(whole.startNs);
    expect(one.endNs).toBeLessThanOrEqual(whole.endNs);
    expect(childrenOf(one).map(({ name }) => name)).toContain("decode");
    expect(Math.abs(sumOf(below("bunting.cause_ms.", one)) - msOf(one))).toBeLessThan(0.1);
  }
  expect(collector.bodies.join()).not.toMatch(/Palermo|sunny|secret/);
});

test("lines of embeddings have spans too", async () => {
  data = mkdtempSync(join(tmpdir(), "bunting-traces-"));
  start({ data });
  const body = { model: "demo", input: "Catania" };
  const line = { custom_id: "a", method: "POST", url: "/v1/embeddings", body };
  await begin(clientOf(server), [JSON.stringify(line)], { endpoint: "/v1/embeddings" });
  const spans = await sent(2);
  expect(spans["embeddings demo"]).toMatchObject({
    parentSpanId: spans.batch!.spanId,
    attributes: { "bunting.batch.line": 1, "bunting.status": "answered" },
  });
});

test.each([1, 2])(
  "on %d engines a program is part of its caller's trace, and its calls are part of it",
  async (engines) => {
    start({ engines, answers: ["Rome", "Oslo"] });
    const call = (output: string, seed: number) => ({
      prompt: `City {{${output}}}`,
      output,
      seed,
      max_tokens: 2,
    });
    const last = { messages: [{ role: "user", content: "Both: {{a}} {{b}}" }], output: "both", seed: 0 };
    const body = { calls: [call("a", 0), call("b", 1), last], await: ["both"] };
    expect((await post(server, "/v1/programs", body, within("01"))).status).toBe(200);
    const spans = await sent(4);
    const whole = spans.program!;
    expect(whole).toMatchObject({ traceId: TRACE_ID, parentSpanId: PARENT_ID });
    expect(whole.attributes).toEqual({
      "bunting.program.id": expect.stringMatching(/^prog_/),
      "bunting.program.calls": 3,
      "bunting.program.calls_failed": 0,
    });
    expect(
      childrenOf(whole)
        .map(({ name }) => name)
        .sort(),
    ).toEqual(["chat demo", "text_completion demo", "text_completion demo"]);
    for (const one of childrenOf(whole)) {
      expect(one.attributes).toMatchObject({ "bunting.program.output": 0, "bunting.status": "answered" });
      expect(childrenOf(one).map(({ name }) => name)).toContain("prefill");
    }
    expect(collector.bodies.join()).not.toMatch(/Rome|Oslo|City/);
  },
);

test("a program that its caller does not sample has no spans, and a call that fails has its error", async () => {
  start();
  const body = { calls: [{ prompt: "One {{a}}", output: "a", max_tokens: 1 }] };
  await (await post(server, "/v1/programs", body, within("00"))).text();
  const failing = { prompt: "Two {{b}}", output: "b", guided_regex: "(a)\\1" };
  const response = await post(server, "/v1/programs", { calls: [failing] }, within("01"));
  expect(await response.json()).toMatchObject({ variables: { b: { error: { code: "invalid_schema" } } } });
  await sent(4);
  const [whole] = collector.spans.filter(({ name }) => name === "program");
  expect(collector.spans.filter(({ name }) => name === "program")).toHaveLength(1);
  expect(whole!.attributes["bunting.program.calls_failed"]).toBe(1);
  expect(whole!.status.code).toBe(2);
  expect(childrenOf(whole!)).toMatchObject([
    {
      name: "text_completion demo",
      status: { code: 2 },
      attributes: { "bunting.status": "failed", "error.type": "invalid_schema" },
    },
  ]);
});

test("a collector that dies costs its spans and one line, and one that comes back gets the next ones", async () => {
  start();
  const ask = async (): Promise<void> => {
    const response = await post(server, "/v1/chat/completions", chatBody("Hello?", { max_tokens: 2 }));
    expect(response.status).toBe(200);
    await response.text();
  };
  await ask();
  await collector.received(4);
  const { port } = collector;
  await collector.kill();
  const lines = new Promise<string>((tell) => {
    told = (line) => line !== null && tell(line);
  });
  await ask();
  expect(await lines).toStartWith("The collector of traces takes no spans: ");
  collector = new Collector(port);
  await ask();
  await collector.received(4);
  await traces.close();
  expect(traces.counts).toEqual({ exported: 8, failed: 4, dropped: 0 });
  const metrics = await (await fetch(`${server.origin}/metrics`)).text();
  expect(metrics).toContain('bunting_trace_spans_total{outcome="failed"} 4');
});
