/**
 * Bad input of any kind: the server refuses in OpenAI's shape and reveals nothing of the machine. A stream
 * beside it gets the same tokens as alone.
 */
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect } from "node:net";
import {
  chatBody,
  contentOf,
  post,
  readEvents,
  startTestServer,
  type TestServer,
  type Wire,
} from "./server.ts";

let server: TestServer;
let aloneText: string;
let beside: Promise<string>;

const witness = chatBody("Count the stars", {
  stream: true,
  seed: 11,
  temperature: 1,
  ignore_eos: true,
  max_tokens: 1500,
});
const stream = async () =>
  contentOf((await readEvents(await post(server, "/v1/chat/completions", witness))).events);

beforeAll(async () => {
  server = startTestServer({ limits: { bodyGraceMs: 300 }, scoreWeights: new Float32Array(24) });
  aloneText = await stream();
  beside = stream();
});
afterAll(() => server.close());

async function expectRefusal(response: Response, status: number, param: string | null): Promise<void> {
  const text = await response.text();
  expect<unknown>([response.status, text]).toEqual([status, expect.any(String)]);
  expect(response.headers.get("content-type")).toStartWith("application/json");
  expect(response.headers.get("x-request-id")).toMatch(/./);
  const { error } = JSON.parse(text) as Wire;
  expect<unknown>(Object.keys(error)).toEqual(["message", "type", "param", "code"]);
  expect(error.message).not.toMatch(/0x[0-9a-f]{6}|\/work|\/home|node_modules|\.ts\b|\bat .*:\d+/);
  expect(error.message.length).toBeLessThan(400);
  expect(error.param).toBe(param as string);
}

const many = (count: number, item: unknown) => Array.from({ length: count }, () => item);
const keys = (count: number) => Object.fromEntries(Array.from({ length: count }, (_, i) => [String(i), 1]));
const nested = (depth: number): unknown => (depth === 0 ? 1 : [nested(depth - 1)]);

/** Fields added to a valid chat request, and the path of the field that the server refuses. */
const chatFields: readonly (readonly [fields: Readonly<Record<string, unknown>>, param: string])[] = [
  [{ guided_json: `${'{"items":'.repeat(100_000)}{}${"}".repeat(100_000)}` }, "guided_json"],
  [{ n: 100_000_000 }, "n"],
  [{ n: 0 }, "n"],
  [{ n: 1.5 }, "n"],
  [{ n: "2" }, "n"],
  [{ logprobs: true, top_logprobs: -1 }, "top_logprobs"],
  [{ logprobs: true, top_logprobs: 21 }, "top_logprobs"],
  [{ top_logprobs: 2 }, "top_logprobs"],
  [{ logprobs: 5 }, "logprobs"],
  [{ prompt_logprobs: 21 }, "prompt_logprobs"],
  [{ prompt_logprobs: 1, stream: true }, "prompt_logprobs"],
  [{ logit_bias: keys(1025) }, "logit_bias"],
  [{ logit_bias: keys(9_000) }, "logit_bias"],
  [{ logit_bias: { "1e3": 1 } }, "logit_bias.1e3"],
  [{ logit_bias: { "-1": 1 } }, "logit_bias.-1"],
  [{ logit_bias: { "99999999": 1 } }, "logit_bias.99999999"],
  [{ logit_bias: { "5": 101 } }, "logit_bias.5"],
  [{ logit_bias: [1] }, "logit_bias"],
  [{ stop: many(100_000, "x") }, "stop"],
  [{ stop: many(17, "x") }, "stop"],
  [{ stop: ["x".repeat(257)] }, "stop[0]"],
  [{ stop: "ü".repeat(129) }, "stop"],
  [{ stop: [1] }, "stop[0]"],
  [{ stop_token_ids: [-1] }, "stop_token_ids[0]"],
  [{ stop_token_ids: many(129, 1) }, "stop_token_ids"],
  [{ temperature: -1 }, "temperature"],
  [{ temperature: 1e308 }, "temperature"],
  [{ temperature: "hot" }, "temperature"],
  [{ temperature: "NaN" }, "temperature"],
  [{ top_p: -0.01 }, "top_p"],
  [{ top_p: 1.01 }, "top_p"],
  [{ top_k: -(2 ** 31) }, "top_k"],
  [{ min_p: -0.1 }, "min_p"],
  [{ repetition_penalty: 0 }, "repetition_penalty"],
  [{ repetition_penalty: 1e-9 }, "repetition_penalty"],
  [{ presence_penalty: 2.1 }, "presence_penalty"],
  [{ frequency_penalty: -3 }, "frequency_penalty"],
  [{ seed: 2 ** 64 }, "seed"],
  [{ seed: 0.5 }, "seed"],
  [{ max_tokens: -3 }, "max_tokens"],
  [{ max_tokens: "-1" }, "max_tokens"],
  [{ max_tokens: 0 }, "max_tokens"],
  [{ max_tokens: 2 ** 60 }, "max_tokens"],
  [{ max_completion_tokens: 0 }, "max_completion_tokens"],
  [{ min_tokens: 2048 }, "min_tokens"],
  [{ max_tokens: 4, min_tokens: 5 }, "min_tokens"],
  [{ min_tokens: -1 }, "min_tokens"],
  [{ stream: "yes" }, "stream"],
  [{ stream_options: { include_usage: true } }, "stream_options"],
  [{ stream: true, stream_options: { include_usage: 1 } }, "stream_options.include_usage"],
  [{ cache_salt: "" }, "cache_salt"],
  [{ cache_salt: "x".repeat(1025) }, "cache_salt"],
  [
    { tools: [{ type: "function", function: { name: "f", parameters: "float128" } }] },
    "tools[0].function.parameters",
  ],
  [{ tools: [{ type: "function", function: { name: "f(", parameters: {} } }] }, "tools[0].function.name"],
  [{ tools: many(100_000, {}) }, "tools"],
  [{ tool_choice: "required" }, "tool_choice"],
  [{ tool_choice: { type: "function", function: { name: "f" } } }, "tool_choice"],
  [{ functions: [{ name: "f" }] }, "functions"],
  [
    { response_format: { type: "json_schema", json_schema: { schema: { $ref: "#" } } } },
    "response_format.json_schema.schema",
  ],
  [{ response_format: "text" }, "response_format"],
  [{ response_format: { type: "xml" } }, "response_format.type"],
  [{ structured_outputs: { regex: "(a" } }, "structured_outputs.regex"],
  [{ guided_json: [] }, "guided_json"],
  [{ guided_json: "{" }, "guided_json"],
  [{ guided_regex: "a{1,1000}{1,1000}" }, "guided_regex"],
  [{ guided_choice: [] }, "guided_choice"],
  [{ guided_grammar: "root ::= root" }, "guided_grammar"],
  [{ kv_transfer_params: { host: "169.254.169.254" } }, "kv_transfer_params"],
  [{ prompt_embeds: "AAAA" }, "prompt_embeds"],
  [{ modalities: ["text", "audio"] }, "modalities"],
  [{ chat_template: "{{ ''.__class__.__mro__ }}" }, "chat_template"],
  [{ chat_template_kwargs: { tokenize: true } }, "messages"],
  [{ chat_template_kwargs: { messages: [] } }, "messages"],
  [{ chat_template_kwargs: keys(17) }, "chat_template_kwargs"],
  [{ documents: [{ text: "x" }] }, "documents"],
  [{ truncate_prompt_tokens: 5 }, "truncate_prompt_tokens"],
  [{ bad_words: "x" }, "bad_words"],
  [{ bad_words: ["x", ""] }, "bad_words[1]"],
  [{ bad_words: [" "] }, "bad_words"],
  [{ bad_words: Array(129).fill("x") }, "bad_words"],
  [{ bad_words: ["x".repeat(257)] }, "bad_words[0]"],
  [{ allowed_token_ids: [] }, "allowed_token_ids"],
  [{ allowed_token_ids: [-1] }, "allowed_token_ids[0]"],
  [{ allowed_token_ids: [1, 99_999_999] }, "allowed_token_ids[1]"],
  [{ allowed_token_ids: Array(16_385).fill(1) }, "allowed_token_ids"],
  [{ use_beam_search: true }, "use_beam_search"],
  [{ continue_final_message: true }, "messages"],
  [{ echo: true }, "echo"],
  [{ model: 5 }, "model"],
];

const user = (content: unknown) => ({ messages: [{ role: "user", content }] });
const image = (url: string) => user([{ type: "image_url", image_url: { url } }]);
const messageFields: readonly (readonly [fields: Readonly<Record<string, unknown>>, param: string])[] = [
  [{ messages: undefined }, "messages"],
  [{ messages: [] }, "messages"],
  [{ messages: "hello" }, "messages"],
  [{ messages: ["hello"] }, "messages[0]"],
  [{ messages: [null] }, "messages[0]"],
  [{ messages: many(40_000, { role: "user", content: "x" }) }, "messages"],
  [{ messages: [{ role: "wizard", content: "x" }] }, "messages[0].role"],
  [{ messages: [{ content: "x" }] }, "messages[0].role"],
  [{ messages: [{ role: "assistant", tool_calls: [{ id: "1" }] }] }, "messages[0].tool_calls[0].name"],
  [user(undefined), "messages[0].content"],
  [user(5), "messages[0].content"],
  [user([5]), "messages[0].content[0]"],
  [user([{ type: "text" }]), "messages[0].content[0].text"],
  [image("http://169.254.169.254/latest/meta-data"), "messages[0].content[0].type"],
  [image("file:///etc/passwd"), "messages[0].content[0].type"],
  [user([{ type: "input_audio" }]), "messages[0].content[0].type"],
  [user("a".repeat(10_000_000)), "messages"],
  [user("\u0301".repeat(2_000_000)), "messages"],
  [user("<|im_end|>".repeat(100_000)), "messages"],
  [user("word ".repeat(4000)), "messages"],
];

describe("a chat request is refused", () => {
  const cases = [...chatFields, ...messageFields].map(([fields, param]) => {
    const text = JSON.stringify(fields) ?? "";
    return [text.length > 80 ? `${text.slice(0, 77)}…` : text, fields, param] as const;
  });
  test.each(cases)("for %s", async (_name, fields, param) => {
    await expectRefusal(
      await post(server, "/v1/chat/completions", { ...chatBody("Hi"), ...fields }),
      400,
      param,
    );
  });

  test("for a model that is not there, whatever its name looks like", async () => {
    for (const model of [
      "gpt-9",
      "",
      "../../etc/passwd",
      "demo\u0000",
      "x".repeat(100_000),
      "http://[::1]/",
    ]) {
      await expectRefusal(
        await post(server, "/v1/chat/completions", { ...chatBody("Hi"), model }),
        404,
        "model",
      );
    }
  });
});

describe("a text completion is refused", () => {
  const cases: readonly (readonly [fields: Readonly<Record<string, unknown>>, param: string])[] = [
    [{ prompt: undefined }, "prompt"],
    [{ prompt: [] }, "prompt"],
    [{ prompt: 5 }, "prompt"],
    [{ prompt: [[]] }, "prompt"],
    [{ prompt: [1, "a"] }, "prompt[1]"],
    [{ prompt: ["a", 1] }, "prompt[1]"],
    [{ prompt: [-1] }, "prompt[0]"],
    [{ prompt: [2 ** 40] }, "prompt[0]"],
    [{ prompt: [1.5] }, "prompt[0]"],
    [{ prompt: ["ok", [1, 2 ** 31]] }, "prompt[1][1]"],
    [{ prompt: many(129, "a") }, "prompt"],
    [{ prompt: "a".repeat(1_000_000) }, "prompt"],
    [{ prompt: many(2048, 5) }, "prompt"],
    [{ suffix: "end" }, "suffix"],
    [{ best_of: 3 }, "best_of"],
    [{ n: 129 }, "n"],
    [{ logprobs: 21 }, "logprobs"],
    [{ logprobs: true }, "logprobs"],
    [{ echo: true, logprobs: 1, stream: true }, "echo"],
    [{ max_tokens: 0 }, "max_tokens"],
    [{ echo: true, max_tokens: 0, stream: true }, "max_tokens"],
    [{ prompt: [many(1600, 5), many(1600, 5)], max_tokens: 1, prompt_logprobs: 20 }, "prompt_logprobs"],
  ];
  test.each(cases.map(([fields, param]) => [JSON.stringify(fields).slice(0, 60), fields, param] as const))(
    "for %s",
    async (_name, fields, param) => {
      await expectRefusal(
        await post(server, "/v1/completions", { model: "demo", prompt: "Hi", ...fields }),
        400,
        param,
      );
    },
  );
});

describe("tokens and text are refused", () => {
  test("by /tokenize and /detokenize", async () => {
    await expectRefusal(await post(server, "/tokenize", {}), 400, "prompt");
    await expectRefusal(await post(server, "/tokenize", { prompt: "a", content: "b" }), 400, "prompt");
    await expectRefusal(await post(server, "/tokenize", { prompt: 5 }), 400, "prompt");
    await expectRefusal(await post(server, "/tokenize", { content: "a".repeat(1_000_000) }), 400, "content");
    await expectRefusal(await post(server, "/detokenize", {}), 400, "tokens");
    await expectRefusal(await post(server, "/detokenize", { tokens: [2 ** 31] }), 400, "tokens[0]");
    await expectRefusal(await post(server, "/detokenize", { tokens: many(100_000, 1) }), 400, "tokens");
  });
});

describe("a body is refused", () => {
  const bodies: readonly (readonly [what: string, body: string | Uint8Array, param: string | null])[] = [
    ["that is no JSON", "hello", null],
    ["with a NaN literal", '{"temperature":NaN}', null],
    [
      "with an infinite number",
      '{"messages":[{"role":"user","content":"x"}],"temperature":1e400}',
      "temperature",
    ],
    ["with a key twice", '{"model":"demo","model":"gpt"}', "model"],
    ["with __proto__", '{"__proto__":{"admin":true}}', null],
    ["nested 200 deep", JSON.stringify({ metadata: nested(200) }), null],
    ["nested 100,000 deep", "[".repeat(100_000), null],
    ["with a million keys", JSON.stringify({ metadata: keys(1_000_000) }), null],
    ["of 30 MB of white space", " ".repeat(30_000_000), null],
    ["in UTF-16", new Uint8Array(Buffer.from('{"model":"demo"}', "utf16le")), null],
    ["with a byte order mark", "\ufeff{}", null],
    ["in broken UTF-8", new Uint8Array([0x7b, 0x22, 0xff, 0x22, 0x7d]), null],
  ];
  test.each(bodies)("%s", async (_what, body, param) => {
    await expectRefusal(await post(server, "/v1/chat/completions", body), 400, param);
  });

  test("that is too large, before it is read when it says so", async () => {
    await expectRefusal(await post(server, "/v1/chat/completions", " ".repeat(33_600_000)), 413, null);
    const answer = await raw(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 200000000\r\n\r\n{",
    );
    expect(answer).toStartWith("HTTP/1.1 413");
    expect(answer).toContain("33554432 bytes at most, but has 200000000 bytes");
  });

  test("that trickles in", async () => {
    const answer = await raw(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n",
      (write) => setInterval(() => write(" "), 50),
    );
    expect(answer).toStartWith("HTTP/1.1 408");
    expect(answer).toContain('"type":"timeout_error"');
  });

  test("of the wrong type", async () => {
    for (const type of [
      "text/plain",
      "application/x-www-form-urlencoded",
      "multipart/form-data; boundary=x",
    ]) {
      const headers = { "content-type": type };
      await expectRefusal(await post(server, "/v1/chat/completions", chatBody("Hi"), { headers }), 415, null);
    }
  });
});

describe("a head is refused", () => {
  test("for a wrong path or method", async () => {
    await expectRefusal(await fetch(`${server.origin}/v1/nothing`), 404, null);
    await expectRefusal(await fetch(`${server.origin}/v1/chat/completions`), 405, null);
    await expectRefusal(await fetch(`${server.origin}/v1/models`, { method: "DELETE" }), 405, null);
    await expectRefusal(await fetch(`${server.origin}/v1/models/demo`, { method: "PUT" }), 405, null);
    await expectRefusal(await fetch(`${server.origin}/%2e%2e/%2e%2e/etc/passwd`), 404, null);
  });

  test("for the host or origin of another machine", async () => {
    const health = async (headers: Record<string, string>) =>
      await fetch(`${server.origin}/health`, { headers });
    for (const host of [
      "evil.example",
      "localhost.evil.example",
      "127.0.0.1.evil.example",
      "10.0.0.1:8000",
    ]) {
      await expectRefusal(await health({ host }), 403, null);
    }
    for (const origin of [
      "http://evil.example",
      "null",
      "https://localhost.evil.example",
      "http://127.0.0.1@evil.example",
    ]) {
      await expectRefusal(await health({ origin }), 403, null);
    }
    for (const host of ["localhost", "localhost:1", "127.0.0.1", "[::1]:8000"]) {
      expect((await health({ host, origin: "http://localhost:3000" })).status).toBe(200);
    }
  });

  test("for too many or too long headers", async () => {
    await expectRefusal(
      await fetch(`${server.origin}/health`, { headers: { "x-long": "x".repeat(13_000) } }),
      431,
      null,
    );
    const headers = Object.fromEntries(Array.from({ length: 110 }, (_, i) => [`x-${i}`, "1"]));
    await expectRefusal(await fetch(`${server.origin}/health`, { headers }), 431, null);
    const flood = Array.from({ length: 10_000 }, (_, i) => `x-${i}: 1\r\n`).join("");
    expect(await raw(`GET /health HTTP/1.1\r\nHost: localhost\r\n${flood}\r\n`)).toStartWith("HTTP/1.1 431");
  });

  test("for a foreign Host, and for none", async () => {
    expect(await raw("GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n")).toStartWith("HTTP/1.1 403");
    expect(await raw("GET /health HTTP/1.0\r\n\r\n")).toStartWith("HTTP/1.1 403");
    expect(await raw("GET /health HTTP/1.1\r\nHost: 127.0.0.1/page\r\n\r\n")).toStartWith("HTTP/1.1 403");
  });

  test("for want of a key, whatever the host and the path look like", async () => {
    const open = startTestServer({ keys: { keys: ["secret"] }, loopbackOnly: false });
    const ask = (path: string, host: string) =>
      raw(`GET ${path} HTTP/1.1\r\nHost: ${host}\r\n\r\n`, undefined, open.origin);
    // A router that expects hosts of at least four letters would read /page/state of host x as /state.
    for (const host of ["a.example", "127.0.0.1", "abc", "x", "x:1"]) {
      for (const path of ["/state", "/page/../state", "/page/%2e%2e/state", "/page//state", "//page/state"]) {
        expect(await ask(path, host)).toMatch(/^HTTP\/1.1 (401|404)/);
      }
      expect(await ask("/page/state", host)).toStartWith("HTTP/1.1 404");
      expect(await ask("/health", host)).toStartWith("HTTP/1.1 200");
    }
    for (const host of ["x/page", "x?", "x#", "a@b", ""]) {
      expect(await ask("/state", host)).toMatch(/^HTTP\/1.1 400/);
    }
    await open.close();
  });

  test("for two lengths that contradict each other", async () => {
    const head =
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
    expect(await raw(`${head}5\r\nabcde\r\n0\r\n\r\n`)).toStartWith("HTTP/1.1 400");
  });
});

test("odd but valid requests are answered", async () => {
  const odd: readonly Readonly<Record<string, unknown>>[] = [
    { messages: [{ role: "user", content: "\u0000" }] },
    { messages: [{ role: "user", content: "" }] },
    { messages: [{ role: "user", content: "<|im_end|>" }] },
    { seed: -(2 ** 63), temperature: 0, top_k: 0, tools: [], stop: null, logit_bias: {} },
    { max_tokens: 1, min_tokens: 1, n: 128 },
  ];
  for (const fields of odd) {
    const response = await post(server, "/v1/chat/completions", {
      ...chatBody("Hi", { max_tokens: 2 }),
      ...fields,
    });
    expect<unknown>([response.status, await response.text()]).toEqual([200, expect.any(String)]);
  }
});

test("names of fields that are not known are told in a short and harmless header, on every route", async () => {
  const odd = ["a\r\nset-cookie: x=1", "\u4e2d", "\u0000", "x".repeat(30_000)];
  const names = [...odd, ...Array.from({ length: 1000 }, (_, i) => `name-${i}`)];
  const unknown = Object.fromEntries(names.map((name) => [name, 1]));
  const content = "Hello";
  const messages = [{ role: "user", content }];
  const asked: Readonly<Record<string, object>> = {
    "/v1/chat/completions": { messages, max_tokens: 1, guided_json: { type: "integer", ...unknown } },
    "/v1/completions": { prompt: content, max_tokens: 1 },
    "/v1/messages": { messages, max_tokens: 1, thinking: { type: "disabled", ...unknown } },
    "/v1/responses": { input: content, max_output_tokens: 1 },
    "/api/chat": { messages, options: { num_predict: 1, ...unknown }, stream: false },
    "/api/embed": { input: content },
    "/v1/embeddings": { input: content },
    "/v1/rerank": { query: content, documents: [content] },
    "/v1/score": { text_1: content, text_2: content },
    "/completion": { prompt: content, n_predict: 1 },
    "/embedding": { content },
  };
  for (const [path, body] of Object.entries(asked)) {
    const response = await post(server, path, { model: "demo", ...body, ...unknown });
    const told = response.headers.get("x-bunting-ignored") ?? "";
    expect<unknown>([
      path,
      response.status,
      told.includes("name-"),
      told.split(", ").length <= 64,
      told.length < 4096,
    ]).toEqual([path, 200, true, true, true]);
    expect(response.headers.get("set-cookie")).toBeNull();
    await response.text();
  }
});

test("the stream beside all this had the tokens it has alone", async () => {
  expect(await beside).toBe(aloneText);
  await server.settled();
});

/** Sends raw bytes; resolves to the bytes received once the server has answered or closed the connection. */
function raw(
  head: string,
  more?: (write: (text: string) => void) => ReturnType<typeof setInterval>,
  origin = server.origin,
): Promise<string> {
  return new Promise((resolve) => {
    const socket = connect(Number(new URL(origin).port), "127.0.0.1");
    const timer = more?.((text) => socket.write(text));
    const end = () => {
      clearInterval(timer);
      resolve(answer);
      socket.destroy();
    };
    let answer = "";
    socket.on("data", (data) => {
      answer += data;
      const [head, body = ""] = answer.split("\r\n\r\n");
      const length = Number(/content-length: (\d+)/i.exec(head!)?.[1] ?? 0);
      if (answer.includes("\r\n\r\n") && body.length >= length) end();
    });
    socket.on("error", end);
    socket.on("close", end);
    socket.write(head);
  });
}
