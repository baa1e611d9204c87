/** Response shapes that clients depend on, field by field. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { version } from "../../server/version.ts";
import {
  bodyOf,
  chatBody,
  chunksOf,
  contentOf,
  post,
  readEvents,
  startTestServer,
  type TestServer,
  type WireChoice,
} from "./server.ts";

let server: TestServer;
beforeAll(() => {
  server = startTestServer();
});
afterEach(() => server.settled());
afterAll(() => server.close());

const anyInteger = expect.any(Number);
const id = (prefix: string) => expect.stringMatching(new RegExp(`^${prefix}-[0-9a-f]{32}$`));

async function chat(more: Readonly<Record<string, unknown>> = {}) {
  const response = await post(
    server,
    "/v1/chat/completions",
    chatBody("Hello", { max_tokens: 8, seed: 1, ...more }),
  );
  expect(response.status).toBe(200);
  return await bodyOf(response);
}

async function streamChat(more: Readonly<Record<string, unknown>> = {}) {
  const body = chatBody("Hello", { max_tokens: 8, seed: 1, stream: true, ...more });
  const response = await post(server, "/v1/chat/completions", body);
  expect(response.status).toBe(200);
  return await readEvents(response);
}

describe("a chat answered whole", () => {
  test("has exactly the fields of OpenAI's body, and vLLM's stop_reason", async () => {
    const body = await chat({ ignore_eos: true });
    expect<unknown>(body).toEqual({
      id: id("chatcmpl"),
      object: "chat.completion",
      created: anyInteger,
      model: "demo",
      system_fingerprint: `bunting-${version}`,
      choices: [
        {
          index: 0,
          message: { role: "assistant", content: expect.any(String), refusal: null },
          logprobs: null,
          finish_reason: "length",
          stop_reason: null,
        },
      ],
      usage: {
        prompt_tokens: anyInteger,
        completion_tokens: 8,
        total_tokens: body.usage.prompt_tokens + 8,
        prompt_tokens_details: { cached_tokens: anyInteger },
        completion_tokens_details: { reasoning_tokens: 0 },
      },
    });
    expect(Math.abs(body.created - Date.now() / 1000)).toBeLessThan(60);
  });

  test("answers under the name it was asked by", async () => {
    expect((await chat({ model: "also/demo" })).model).toBe("also/demo");
  });

  test("tells how much of a prompt was cached, the second time nearly all", async () => {
    const message = "The same long words again and again. ".repeat(20);
    const body = chatBody(message, { max_tokens: 1 });
    const first = await bodyOf(await post(server, "/v1/chat/completions", body));
    const second = await bodyOf(await post(server, "/v1/chat/completions", body));
    expect(first.usage.prompt_tokens_details.cached_tokens).toBeLessThan(first.usage.prompt_tokens / 2);
    expect(second.usage.prompt_tokens_details.cached_tokens).toBeGreaterThan(first.usage.prompt_tokens * 0.9);

    const salted = await bodyOf(await post(server, "/v1/chat/completions", { ...body, cache_salt: "mine" }));
    expect(salted.usage.prompt_tokens_details.cached_tokens).toBe(0);
  });

  test("carries logprobs per token, sorted, with bytes", async () => {
    const body = await chat({
      logprobs: true,
      top_logprobs: 3,
      ignore_eos: true,
      skip_special_tokens: false,
    });
    const { content, refusal } = body.choices[0]!.logprobs;
    expect(refusal).toBeNull();
    expect(content).toHaveLength(8);
    for (const entry of content) {
      expect<unknown>(Object.keys(entry)).toEqual(["token", "logprob", "bytes", "top_logprobs"]);
      expect(entry.logprob).toBeLessThanOrEqual(0);
      expect(entry.top_logprobs).toHaveLength(3);
      const logprobs = entry.top_logprobs.map((top) => top.logprob);
      expect<unknown>(logprobs).toEqual([...logprobs].sort((a, b) => b - a));
    }
    const bytes = content.flatMap((entry) => entry.bytes);
    expect(new TextDecoder().decode(new Uint8Array(bytes))).toBe(body.choices[0]!.message.content);
  });

  test("gives n choices that equal n requests with the seeds that follow", async () => {
    const together = await chat({ n: 3, seed: 40, temperature: 1 });
    const alone = await Promise.all([40, 41, 42].map((seed) => chat({ seed, temperature: 1 })));
    expect<unknown>(together.choices.map((choice) => choice.index)).toEqual([0, 1, 2]);
    expect<unknown>(together.choices.map(textOf)).toEqual(alone.map((body) => textOf(body.choices[0]!)));
    expect(together.usage.completion_tokens).toBe(
      alone.reduce((sum: number, body) => sum + body.usage.completion_tokens, 0),
    );
  });

  test("stops before a stop string, and says which", async () => {
    const text = textOf((await chat({ max_tokens: 60, ignore_eos: true })).choices[0]!);
    const middle = [...text].slice(20, 24).join("");
    const stopped = (await chat({ max_tokens: 60, ignore_eos: true, stop: ["never this", middle] }))
      .choices[0]!;
    expect(textOf(stopped)).toBe(text.slice(0, text.indexOf(middle)));
    expect<unknown>([stopped.finish_reason, stopped.stop_reason]).toEqual(["stop", middle]);
    const included = await chat({
      max_tokens: 60,
      ignore_eos: true,
      stop: middle,
      include_stop_str_in_output: true,
    });
    expect(textOf(included.choices[0]!)).toBe(text.slice(0, text.indexOf(middle) + middle.length));
  });

  test("stops at a stop token, and says which", async () => {
    const whole = (await chat({ ignore_eos: true, return_token_ids: true })).choices[0]!;
    const stopped = (
      await chat({ ignore_eos: true, return_token_ids: true, stop_token_ids: [whole.token_ids[5]] })
    ).choices[0]!;
    expect<unknown>([stopped.finish_reason, stopped.stop_reason]).toEqual(["stop", whole.token_ids[5]]);
    expect<unknown>(stopped.token_ids).toEqual(
      whole.token_ids.slice(0, whole.token_ids.indexOf(whole.token_ids[5]!)),
    );
  });

  test("takes what is left of the context when no most is given", async () => {
    const body = await chat({ max_tokens: null, ignore_eos: true });
    const models = await bodyOf(await fetch(`${server.origin}/v1/models`));
    expect(body.usage.total_tokens).toBe(models.data[0]!.max_model_len);
    expect(body.choices[0]!.finish_reason).toBe("length");
  });

  test("draws no tokens but those that are allowed, and completes no bad word", async () => {
    const asked = { max_completion_tokens: 12, temperature: 1.5, return_token_ids: true };
    const drawn = async (fields: object): Promise<number[]> =>
      (await chat({ ...asked, ...fields })).choices[0]!.token_ids as number[];
    const only = await drawn({ allowed_token_ids: [300, 301] });
    expect(only).toHaveLength(12);
    expect(only.filter((token) => token !== 300 && token !== 301)).toEqual([]);
    // Token 262 is "is", token 283 is " is".
    const three = { allowed_token_ids: [262, 283, 300], logit_bias: { "262": 50, "283": 50 } };
    expect((await drawn(three)).includes(300)).toBe(false);
    expect(await drawn({ ...three, bad_words: ["is"] })).toEqual(Array(12).fill(300));
    const nothing = { allowed_token_ids: [262], bad_words: ["is"] };
    const response = await post(server, "/v1/chat/completions", chatBody("Hello", nothing));
    expect(response.status).toBe(400);
    expect((await bodyOf(response)).error).toMatchObject({ code: "constraint_unsatisfiable" });
  });

  test("obeys logit_bias and prefers max_completion_tokens", async () => {
    const body = await chat({ logit_bias: { "300": 100 }, max_completion_tokens: 3, return_token_ids: true });
    expect<unknown>(body.choices[0]!.token_ids).toEqual([300, 300, 300]);
  });

  test("lists accepted fields that had no effect", async () => {
    const body = chatBody("Hello", {
      max_tokens: 1,
      user: "me",
      store: true,
      tools: [],
      whatever: 1,
      seed: null,
    });
    const response = await post(server, "/v1/chat/completions", body);
    expect(response.status).toBe(200);
    expect(response.headers.get("x-bunting-ignored")).toBe("store, whatever");
    await response.text();
  });
});

function textOf(choice: WireChoice): string {
  return choice.message.content;
}

describe("a chat answered as a stream", () => {
  test("has the headers that proxies and clients need", async () => {
    const response = await post(
      server,
      "/v1/chat/completions",
      chatBody("Hi", { stream: true, max_tokens: 1 }),
    );
    expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    expect(response.headers.get("cache-control")).toBe("no-cache");
    expect(response.headers.get("x-accel-buffering")).toBe("no");
    expect(response.headers.get("x-request-id")).toMatch(/^req_/);
    await response.text();
  });

  test("opens with the role, goes on with text, closes with a reason, and ends with [DONE]", async () => {
    const { events } = await streamChat({ ignore_eos: true });
    expect(events.at(-1)).toBe("[DONE]");
    const chunks = chunksOf(events);
    const [first, ...rest] = chunks;
    const last = rest.pop()!;
    expect<unknown>(first).toEqual({
      id: id("chatcmpl"),
      object: "chat.completion.chunk",
      created: anyInteger,
      model: "demo",
      system_fingerprint: `bunting-${version}`,
      choices: [{ index: 0, delta: { role: "assistant", content: "" }, finish_reason: null }],
    });
    for (const { choices } of rest) {
      expect<unknown>(choices).toEqual([
        { index: 0, delta: { content: expect.stringMatching(/./su) }, finish_reason: null },
      ]);
    }
    expect<unknown>(last.choices).toEqual([
      { index: 0, delta: {}, finish_reason: "length", stop_reason: null },
    ]);
    for (const { id, created, model } of chunks) {
      expect<unknown>([id, created, model]).toEqual([first?.id, first?.created, first?.model]);
    }
  });

  test("tells the same text as the whole answer", async () => {
    for (const more of [
      { max_tokens: 100 },
      { max_tokens: 100, stop: ["e", "\n"] },
      { temperature: 0, max_tokens: 50 },
    ]) {
      const whole = await chat(more);
      const { events } = await streamChat(more);
      expect(contentOf(events)).toBe(textOf(whole.choices[0]!));
    }
  });

  test("ends with usage when asked, and carries usage: null until then", async () => {
    const { events } = await streamChat({ stream_options: { include_usage: true }, ignore_eos: true });
    const chunks = chunksOf(events);
    const last = chunks.pop()!;
    expect<unknown>(last.choices).toEqual([]);
    expect<unknown>(last.usage).toEqual({
      prompt_tokens: anyInteger,
      completion_tokens: 8,
      total_tokens: last.usage.prompt_tokens + 8,
      prompt_tokens_details: { cached_tokens: anyInteger },
      completion_tokens_details: { reasoning_tokens: 0 },
    });
    for (const chunk of chunks) expect(chunk.usage).toBeNull();
  });

  test("carries usage in every chunk when asked", async () => {
    const options = { include_usage: true, continuous_usage_stats: true };
    const { events } = await streamChat({ stream_options: options, ignore_eos: true });
    const counts = chunksOf(events).map((chunk) => chunk.usage.completion_tokens);
    expect<unknown>(counts).toEqual([...counts].sort((a, b) => a - b));
    expect<unknown>([counts[0], counts.at(-1)]).toEqual([1, 8]);
  });

  test("keeps the choices of n apart, each with one role and one reason", async () => {
    const { events } = await streamChat({ n: 4, temperature: 1 });
    const whole = await chat({ n: 4, temperature: 1 });
    const chunks = chunksOf(events).flatMap((chunk) => chunk.choices);
    for (let index = 0; index < 4; index++) {
      const own = chunks.filter((choice) => choice.index === index);
      expect<unknown>(own.filter((choice) => choice.delta.role === "assistant")).toEqual([own[0]]);
      expect<unknown>(own.filter((choice) => choice.finish_reason !== null)).toEqual([own.at(-1)]);
      expect(contentOf(events, index)).toBe(textOf(whole.choices[index]!));
    }
  });

  test("carries the same logprobs and token ids as the whole answer", async () => {
    const more = { logprobs: true, top_logprobs: 1, return_token_ids: true, max_tokens: 40 };
    const whole = await chat(more);
    const { events } = await streamChat(more);
    const chunks = chunksOf(events);
    const choices = chunks.map((chunk) => chunk.choices[0]!);
    expect<unknown>(choices.flatMap((choice) => choice.logprobs?.content ?? [])).toEqual(
      whole.choices[0]!.logprobs.content,
    );
    expect<unknown>(choices.flatMap((choice) => choice.token_ids ?? [])).toEqual(whole.choices[0]!.token_ids);
    expect<unknown>(choices[0]?.prompt_token_ids).toEqual(whole.prompt_token_ids);
  });
});

describe("a text completion", () => {
  const complete = async (more: Readonly<Record<string, unknown>>) => {
    const response = await post(server, "/v1/completions", {
      model: "demo",
      max_tokens: 6,
      seed: 1,
      ignore_eos: true,
      ...more,
    });
    expect(response.status).toBe(200);
    return await bodyOf(response);
  };

  test("has exactly the fields of OpenAI's body", async () => {
    const body = await complete({ prompt: "Once upon" });
    expect<unknown>(body).toEqual({
      id: id("cmpl"),
      object: "text_completion",
      created: anyInteger,
      model: "demo",
      system_fingerprint: `bunting-${version}`,
      choices: [
        { index: 0, text: expect.any(String), logprobs: null, finish_reason: "length", stop_reason: null },
      ],
      usage: {
        prompt_tokens: anyInteger,
        completion_tokens: 6,
        total_tokens: body.usage.prompt_tokens + 6,
        prompt_tokens_details: { cached_tokens: anyInteger },
        completion_tokens_details: { reasoning_tokens: 0 },
      },
    });
  });

  test("takes text, tokens and lists of either, and numbers the choices prompt by prompt", async () => {
    const { tokens } = await bodyOf(await post(server, "/tokenize", { prompt: "Once upon" }));
    const one = (await complete({ prompt: "Once upon" })).choices[0]!.text;
    const other = (await complete({ prompt: "Twice" })).choices[0]!.text;
    expect((await complete({ prompt: tokens })).choices[0]!.text).toBe(one);
    const many = await complete({ prompt: ["Once upon", "Twice"], n: 2 });
    expect<unknown>(many.choices.map((choice) => choice.index)).toEqual([0, 1, 2, 3]);
    expect<unknown>([many.choices[0]!.text, many.choices[2]!.text]).toEqual([one, other]);
    expect((await complete({ prompt: [tokens, "Twice"] })).choices[1]!.text).toBe(other);
  });

  test("echoes the prompt when asked, in a stream too", async () => {
    const { text } = (await complete({ prompt: "Once upon", echo: true })).choices[0]!;
    expect(text).toStartWith("Once upon");
    const body = {
      model: "demo",
      prompt: "Once upon",
      max_tokens: 6,
      seed: 1,
      ignore_eos: true,
      echo: true,
      stream: true,
    };
    const { events } = await readEvents(await post(server, "/v1/completions", body));
    const streamed = chunksOf(events).map((chunk) => chunk.choices[0]!.text);
    expect(streamed.join("")).toBe(text);
    expect(streamed[0]).toBe("Once upon");
  });

  test("has logprobs in columns of equal length", async () => {
    const { text, logprobs } = (await complete({ prompt: "Once", logprobs: 2 })).choices[0]!;
    expect<unknown>(Object.keys(logprobs)).toEqual([
      "tokens",
      "token_logprobs",
      "top_logprobs",
      "text_offset",
    ]);
    for (const column of Object.values(logprobs)) expect(column).toHaveLength(6);
    expect(logprobs.text_offset[0]).toBe(0);
    expect(logprobs.text_offset.at(-1)).toBeLessThanOrEqual([...text].length);
    const named = (await complete({ prompt: "Once", logprobs: 0, return_tokens_as_token_ids: true }))
      .choices[0]!.logprobs;
    for (const token of named.tokens) expect(token).toMatch(/^token_id:\d+$/);
  });
});

describe("the other routes", () => {
  const get = async (path: string) => await fetch(server.origin + path);

  test("models, listed and by name", async () => {
    const list = await bodyOf(await get("/v1/models"));
    const entry = {
      id: "demo",
      object: "model",
      created: anyInteger,
      owned_by: "bunting",
      root: "demo",
      parent: null,
      max_model_len: anyInteger,
      type: "model",
      display_name: "demo",
      created_at: expect.stringMatching(/^\d{4}-\d\d-\d\dT/),
      max_input_tokens: anyInteger,
      max_tokens: anyInteger,
      permission: [],
    };
    const also = { ...entry, id: "also/demo", display_name: "also/demo" };
    expect<unknown>(list).toEqual({ object: "list", data: [entry, also] });
    expect<unknown>(await bodyOf(await get("/v1/models/demo"))).toEqual(entry);
    expect((await bodyOf(await get("/v1/models/also/demo"))).id).toBe("also/demo");
    expect((await bodyOf(await get("/v1/models/also%2Fdemo"))).id).toBe("also/demo");
    const missing = await get("/v1/models/gpt-9");
    expect<unknown>([missing.status, (await bodyOf(missing)).error.code]).toEqual([404, "model_not_found"]);
  });

  test("tokenize and detokenize, as vLLM and as llama-server", async () => {
    const ask = async (path: string, body: unknown) => await bodyOf(await post(server, path, body));
    const vllm = await ask("/tokenize", { model: "demo", prompt: "Grüße 🙂", return_token_strs: true });
    expect<unknown>(Object.keys(vllm)).toEqual(["count", "max_model_len", "tokens", "token_strs"]);
    expect<unknown>([vllm.tokens.length, vllm.token_strs.length]).toEqual([vllm.count, vllm.count]);
    const llama = await ask("/tokenize", { content: "Grüße 🙂", with_pieces: true });
    expect<unknown>(llama.tokens.map((token) => token.id)).toEqual(vllm.tokens);
    const back = await ask("/detokenize", { tokens: vllm.tokens });
    expect<unknown>(back).toEqual({ prompt: "Grüße 🙂", content: "Grüße 🙂" });
    const messages = [{ role: "user", content: "Hello" }];
    const chatTokens = await ask("/tokenize", { messages });
    expect(chatTokens.count).toBe((await chat({ max_tokens: 1 })).usage.prompt_tokens);
    expect((await ask("/tokenize", { messages, add_generation_prompt: false })).count).toBeLessThan(
      chatTokens.count,
    );
  });

  test("control text is a token in a caller's own prompt and text in a message", async () => {
    const count = async (body: unknown) => (await bodyOf(await post(server, "/tokenize", body))).count;
    expect(await count({ prompt: "<|im_end|>" })).toBe(1);
    const plain = await count({ messages: [{ role: "user", content: "" }] });
    expect(await count({ messages: [{ role: "user", content: "<|im_end|>" }] })).toBeGreaterThan(plain + 1);
  });

  test("health, readiness, version", async () => {
    expect<unknown>(await bodyOf(await get("/health"))).toEqual({ status: "ok" });
    expect<unknown>(await bodyOf(await get("/health/ready"))).toEqual({ status: "ready" });
    expect((await get("/ping")).status).toBe(200);
    expect<unknown>(await bodyOf(await get("/version"))).toEqual({ version: "0.0.0-test" });
  });

  test("a request's id is echoed when harmless and replaced when not", async () => {
    const echoed = async (given: string) => {
      const response = await fetch(`${server.origin}/health`, { headers: { "x-request-id": given } });
      return response.headers.get("x-request-id");
    };
    expect(await echoed("abc-1.2:3_D")).toBe("abc-1.2:3_D");
    for (const bad of ["a/b", "http://10.0.0.1/", "a b", "x".repeat(129), "ü"]) {
      expect(await echoed(bad)).toMatch(/^req_[0-9a-f-]{36}$/);
    }
    const refused = await fetch(`${server.origin}/nowhere`, { headers: { "x-request-id": "mine" } });
    expect<unknown>([refused.status, refused.headers.get("x-request-id")]).toEqual([404, "mine"]);
  });
});
