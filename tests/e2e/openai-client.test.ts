/** Official client of OpenAI with only the base URL changed. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import OpenAI from "openai";
import type { Chunk } from "../../scheduler/core.ts";
import { startTestServer, type TestServer } from "./server.ts";

const key = "a-key-of-the-test";
const messages = [{ role: "user" as const, content: "Hello there" }];
let server: TestServer;
let client: OpenAI;
beforeAll(() => {
  server = startTestServer({ keys: { keys: [key] } });
  client = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: key, maxRetries: 0 });
});
afterEach(() => server.settled());
afterAll(() => server.close());

async function failure(promise: PromiseLike<unknown>) {
  try {
    await promise;
  } catch (error) {
    return error as InstanceType<typeof OpenAI.APIError>;
  }
  throw new Error("expected a failure");
}

describe("chat", () => {
  test("answers whole", async () => {
    const request = { model: "demo", messages, max_completion_tokens: 12, seed: 3 };
    const { data, request_id } = await client.chat.completions.create(request).withResponse();
    expect(data.choices[0]!.message.role).toBe("assistant");
    expect(data.choices[0]!.message.content).toBeString();
    expect(data.usage!.total_tokens).toBe(data.usage!.prompt_tokens + data.usage!.completion_tokens);
    expect(request_id).toMatch(/^req_/);
  });

  test("streams the same text", async () => {
    const request = { model: "demo", messages, max_tokens: 40, seed: 3, n: 2 };
    const whole = await client.chat.completions.create(request);
    const texts = ["", ""];
    let usage: OpenAI.CompletionUsage | null | undefined;
    const stream = await client.chat.completions.create({
      ...request,
      stream: true,
      stream_options: { include_usage: true },
    });
    for await (const chunk of stream) {
      for (const choice of chunk.choices) texts[choice.index] += choice.delta.content ?? "";
      usage = chunk.usage;
    }
    expect<unknown>(texts).toEqual(whole.choices.map((choice) => choice.message.content ?? ""));
    expect(usage!.completion_tokens).toBe(whole.usage!.completion_tokens);
  });

  test("streams through the helper, which checks every chunk", async () => {
    const stream = client.chat.completions.stream({
      model: "demo",
      messages,
      max_tokens: 20,
      logprobs: true,
      top_logprobs: 2,
      stream_options: { include_usage: true },
    });
    const deltas: string[] = [];
    stream.on("content", (delta) => deltas.push(delta));
    const final = await stream.finalChatCompletion();
    expect(final.choices[0]!.message.content).toBe(deltas.join(""));
    expect(final.choices[0]!.logprobs!.content!.length).toBe(final.usage!.completion_tokens);
    expect(final.choices[0]!.finish_reason).toBe("length");
  });

  test("is ended by the client, and its pages are free again", async () => {
    const stream = await client.chat.completions.create({ model: "demo", messages, stream: true, seed: 1 });
    for await (const chunk of stream) if (chunk.choices[0]?.delta.content) break;
    await server.settled();
    const controller = new AbortController();
    const whole = client.chat.completions.create({ model: "demo", messages }, { signal: controller.signal });
    while (server.fleet.active === 0) await new Promise(setImmediate);
    controller.abort();
    expect(await failure(whole)).toBeInstanceOf(OpenAI.APIUserAbortError);
  });
});

describe("the other calls", () => {
  test("completions", async () => {
    const body = await client.completions.create({
      model: "demo",
      prompt: "Once",
      max_tokens: 5,
      logprobs: 1,
    });
    expect(body.choices[0]!.text).toBeString();
    let streamed = "";
    const request = { model: "demo", prompt: "Once", max_tokens: 5, seed: 5 };
    for await (const chunk of await client.completions.create({ ...request, stream: true })) {
      streamed += chunk.choices[0]!.text;
    }
    expect(streamed).toBe((await client.completions.create(request)).choices[0]!.text);
  });

  test("how likely a prompt is: echoed with an answer, and by itself", async () => {
    const ask = { model: "demo", prompt: "Once upon a 小鳥", max_tokens: 3, seed: 1, logprobs: 2 };
    const alone = (await client.completions.create(ask)).choices[0]!;
    for (const _ of ["nothing is cached", "nothing is read from the cache"]) {
      const { choices, usage } = await client.completions.create({ ...ask, echo: true, n: 2 });
      const { text, logprobs } = choices[0]!;
      expect(text).toBe(ask.prompt + alone.text);
      const { tokens, token_logprobs, top_logprobs, text_offset } = logprobs!;
      const own = usage!.prompt_tokens;
      expect(tokens!.slice(own)).toEqual(alone.logprobs!.tokens!);
      expect(text_offset!.slice(own)).toEqual(
        alone.logprobs!.text_offset!.map((offset) => offset + [...ask.prompt].length),
      );
      expect<unknown>([token_logprobs![0], top_logprobs![0]]).toEqual([null, null]);
      for (const [i, token] of tokens!.entries()) {
        const length = [...token].length;
        const place = [...text].slice(text_offset![i], text_offset![i]! + length).join("");
        if (!token.includes("\uFFFD")) expect(place).toBe(token);
        if (i > 0) expect(top_logprobs![i]![token]).toBe(token_logprobs![i]!);
      }
      expect(choices[1]!.logprobs!.tokens!.slice(0, own)).toEqual(tokens!.slice(0, own));
    }

    const echo = { ...ask, echo: true };
    const { choices, usage } = await client.completions.create({ ...echo, max_tokens: 0 });
    const { text, logprobs, finish_reason } = choices[0]!;
    const longer = (await client.completions.create(echo)).choices[0]!.logprobs!;
    expect([text, finish_reason, usage!.completion_tokens]).toEqual([ask.prompt, "length", 0]);
    expect(logprobs!.token_logprobs!).toHaveLength(usage!.prompt_tokens);
    expect(logprobs!.token_logprobs!).toEqual(longer.token_logprobs!.slice(0, usage!.prompt_tokens));

    const told = { max_tokens: 1, prompt_logprobs: 1, return_token_ids: true };
    const answer = (await client.chat.completions.create({
      model: "demo",
      messages,
      ...told,
    })) as unknown as {
      readonly prompt_token_ids: readonly number[];
      readonly prompt_logprobs: readonly (Readonly<
        Record<string, { readonly rank: number | null }>
      > | null)[];
    };
    const [first, ...places] = answer.prompt_logprobs;
    expect(first).toBeNull();
    expect(places).toHaveLength(answer.prompt_token_ids.length - 1);
    for (const [i, place] of places.entries()) {
      const { [answer.prompt_token_ids[i + 1]!]: there, ...others } = place!;
      const ranks = [there!, ...Object.values(others)].map(({ rank }) => rank);
      expect(ranks).toEqual(ranks.length === 1 ? [1] : [null, 1]);
    }
  });

  test("models", async () => {
    const names: string[] = [];
    for await (const model of client.models.list()) names.push(model.id);
    expect<unknown>(names).toEqual(["demo", "also/demo"]);
    expect((await client.models.retrieve("demo")).id).toBe("demo");
  });
});

describe("errors are the client's own classes", () => {
  const chat = (more: object = {}, options: object = {}) =>
    client.chat.completions.create({ model: "demo", messages, max_tokens: 2, ...more } as never, options);
  test("400 with the field", async () => {
    const error = await failure(chat({ temperature: 9 }));
    expect(error).toBeInstanceOf(OpenAI.BadRequestError);
    expect<unknown>([error.param, error.type]).toEqual(["temperature", "invalid_request_error"]);
    expect(error.requestID).toMatch(/^req_/);
  });

  test("400 for a context that is too small, with the code that clients look for", async () => {
    const content = "word ".repeat(2100);
    const error = await failure(chat({ messages: [{ role: "user", content }] }));
    expect(error.code).toBe("context_length_exceeded");
    expect(error.message).toMatch(/maximum context length is 2048 tokens, but \d+ were requested/);
  });

  test("404 for an unknown model", async () => {
    const error = await failure(chat({ model: "gpt-9" }));
    expect(error).toBeInstanceOf(OpenAI.NotFoundError);
    expect(error.code).toBe("model_not_found");
  });

  test("401 without the right key, on every route but liveness and readiness", async () => {
    const stranger = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "wrong", maxRetries: 0 });
    const error = await failure(stranger.models.list());
    expect(error).toBeInstanceOf(OpenAI.AuthenticationError);
    expect(error.code).toBe("invalid_api_key");
    const closed = ["/v1/models", "/metrics", "/version", "/nowhere", "/v1/models/demo"];
    for (const path of closed) expect((await fetch(server.origin + path)).status).toBe(401);
    for (const path of ["/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"]) {
      expect((await fetch(server.origin + path, { method: "POST", body: "{" })).status).toBe(401);
    }
    for (const path of ["/health", "/health/ready", "/ping"]) {
      expect((await fetch(server.origin + path)).status).toBe(200);
    }
  });

  test("a step that fails for one row is a 500 that is not tried again, and an error within a stream", async () => {
    let steps = 0;
    const faulty = startTestServer({
      fault: (step) => {
        steps++;
        const sampled = step.chunks.filter((chunk) => chunk.samples.length > 0);
        const isFourth = ({ samples: [row] }: Chunk): boolean =>
          row!.wants === undefined && row!.position === 3;
        if (!sampled.some(isFourth)) return null;
        const failed = sampled.map(({ sequence }) => ({
          kind: "failed" as const,
          sequence,
          reason: "not finite",
        }));
        return { kind: "done", sampled: failed, deviceMs: 1 };
      },
    });
    const trusting = new OpenAI({ baseURL: `${faulty.origin}/v1`, apiKey: "x", maxRetries: 2 });
    const request = { model: "demo", messages, max_tokens: 9, seed: 1, ignore_eos: true };
    const error = await failure(trusting.chat.completions.create(request));
    expect(error).toBeInstanceOf(OpenAI.InternalServerError);
    expect(error.code).toBe("engine_error");
    expect(steps).toBe(4);

    let text = "";
    const stream = await trusting.chat.completions.create({ ...request, stream: true });
    const broken = await failure(
      (async () => {
        for await (const chunk of stream) text += chunk.choices[0]!.delta.content ?? "";
      })(),
    );
    expect(broken).toBeInstanceOf(OpenAI.APIError);
    expect(broken.code).toBe("engine_error");
    expect(text).not.toBe("");
    await faulty.settled();
    await faulty.close();
  });
});
