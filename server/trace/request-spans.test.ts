import { expect, test } from "bun:test";
import { answeredFacts as facts } from "../../tests/support/request-facts.ts";
import type { RequestFacts } from "../explain/request-facts.ts";
import { type SpanPlan, spansOf, type TracedRequest } from "./request-spans.ts";

function request(changes: Partial<TracedRequest> = {}): TracedRequest {
  return {
    requestId: "req_1",
    method: "POST",
    route: "/v1/chat/completions",
    httpStatus: 200,
    arrivedMs: 1000,
    endMs: 1400,
    errorType: null,
    asked: { operation: "chat", isStream: true, tokensMax: 64 },
    finishReasons: ["stop"],
    facts,
    ...changes,
  };
}

const times = (spans: readonly SpanPlan[]) =>
  spans.map(({ name, startMs, endMs }) => `${name} ${startMs} to ${endMs}`);

test("parts follow each other, and each has the causes that it is made of", () => {
  const spans = spansOf(request());
  expect(times(spans)).toEqual([
    "chat demo 1000 to 1400",
    "queue 1005 to 1202",
    "prefill 1202 to 1300",
    "decode 1300 to 1400",
  ]);
  expect(spans.slice(1).map(({ attributes }) => attributes)).toEqual([
    { "bunting.cause_ms.handing_over": 2, "bunting.cause_ms.memory": 195 },
    { "bunting.cause_ms.prompt": 98 },
    // Two milliseconds of writing to the client had been accounted as decoding.
    { "bunting.cause_ms.decode": 80, "bunting.cause_ms.decode_prompts": 20 },
  ]);
  expect(spans[0].attributes).toEqual({
    "http.request.method": "POST",
    "http.route": "/v1/chat/completions",
    "http.response.status_code": 200,
    "bunting.request.id": "req_1",
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "bunting",
    "gen_ai.request.model": "demo",
    "gen_ai.response.model": "demo",
    "gen_ai.request.stream": true,
    "gen_ai.request.max_tokens": 64,
    "gen_ai.usage.input_tokens": 100,
    "gen_ai.usage.output_tokens": 12,
    "gen_ai.usage.cache_read.input_tokens": 80,
    "gen_ai.response.finish_reasons": ["stop"],
    "gen_ai.response.time_to_first_chunk": 0.3,
    "bunting.status": "answered",
    "bunting.engines": ["1"],
    "bunting.tokens.computed": 20,
    "bunting.tokens.recomputed": 0,
    "bunting.tokens.found_in_host": 5,
    "bunting.tokens.found_on_disk": 20,
    "bunting.drafts.checked": 4,
    "bunting.drafts.right": 3,
    "bunting.late.tokens": 1,
    "bunting.late.ms": 2.5,
    "bunting.preemptions": 0,
    "bunting.behind": "req_0",
    "bunting.cause_ms.reading": 1,
    "bunting.cause_ms.tokenizing": 4,
    "bunting.cause_ms.memory": 195,
    "bunting.cause_ms.prompt": 98,
    "bunting.cause_ms.decode": 80,
    "bunting.cause_ms.decode_prompts": 22,
  });
});

test("a request that ended while it waited has a queue alone, up to its end", () => {
  const waited: RequestFacts = {
    ...facts,
    status: "cancelled",
    causes: { reading: 1, memory: 398.9 },
    first_token_causes: null,
    first_token_ms: null,
  };
  const spans = spansOf(request({ facts: waited, errorType: "client_gone", finishReasons: [] }));
  expect(times(spans)).toEqual(["chat demo 1000 to 1400", "queue 1001 to 1400"]);
  expect(spans[0].isError).toBe(false);
  expect(spans[0].attributes["gen_ai.response.finish_reasons"]).toBeUndefined();
});

test("a request that failed before its first token has what it waited for and computed, and its error", () => {
  const failed: RequestFacts = {
    ...facts,
    status: "failed",
    causes: { reading: 10, memory: 90, prompt: 300 },
    first_token_causes: null,
    first_token_ms: null,
  };
  const spans = spansOf(request({ facts: failed, errorType: "server_error", httpStatus: 500 }));
  expect(times(spans)).toEqual(["chat demo 1000 to 1400", "queue 1010 to 1100", "prefill 1100 to 1400"]);
  expect(spans[0].isError).toBe(true);
  expect(spans[0].attributes["error.type"]).toBe("server_error");
});

test("a refused request has one span without an answer", () => {
  const refused = { facts: null, asked: null, httpStatus: 429, errorType: "insufficient_quota" };
  expect(spansOf(request(refused))).toEqual([
    {
      name: "POST /v1/chat/completions",
      startMs: 1000,
      endMs: 1400,
      isError: true,
      attributes: {
        "http.request.method": "POST",
        "http.route": "/v1/chat/completions",
        "http.response.status_code": 429,
        "bunting.request.id": "req_1",
        "error.type": "insufficient_quota",
      },
    },
  ]);
});
