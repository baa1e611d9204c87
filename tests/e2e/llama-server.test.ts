/** Compatibility with llama-server's clients, and small fields of several servers. */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { version } from "../../server/version.ts";
import { bodyOf, chatBody, post, startTestServer, type TestServer } from "./server.ts";

const template = readFileSync(join(import.meta.dir, "../reference/tools/template.jinja"), "utf8");
const answers = ["Just text, one two three."];

let server: TestServer;
beforeAll(() => {
  server = startTestServer({ answers, template, answersToAny: true });
});
afterEach(() => server.settled());
afterAll(() => server.close());

const jsonOf = async (path: string, body?: object): Promise<Record<string, unknown>> => {
  const response = body === undefined ? await fetch(server.origin + path) : await post(server, path, body);
  expect(response.status).toBe(200);
  return (await response.json()) as Record<string, unknown>;
};
const eventsIn = (text: string): Record<string, unknown>[] =>
  text
    .split("\n\n")
    .filter((frame) => frame.startsWith("data: {"))
    .map((frame) => JSON.parse(frame.slice("data: ".length)) as Record<string, unknown>);
const timings = {
  cache_n: expect.any(Number),
  prompt_n: expect.any(Number),
  prompt_ms: expect.any(Number),
  prompt_per_token_ms: expect.any(Number),
  prompt_per_second: expect.any(Number),
  predicted_n: expect.any(Number),
  predicted_ms: expect.any(Number),
  predicted_per_token_ms: expect.any(Number),
  predicted_per_second: expect.any(Number),
};

test.each([
  ["/completion", (content: string) => ({ prompt: content, n_predict: 2 })],
  ["/v1/completions", (content: string) => ({ prompt: content, max_tokens: 2 })],
  ["/v1/chat/completions", (content: string) => chatBody(content, { max_tokens: 2 })],
] as const)("%s tells a stream how far its prompt is, step by step", async (path, bodyOf) => {
  const small = startTestServer({ spec: { stepTokensMax: 64 } });
  const progressOf = async (more: object) => {
    const response = await post(small, path, {
      ...bodyOf("One of many words. ".repeat(20)),
      stream: true,
      ...more,
    });
    const events = eventsIn(await response.text());
    const told = events.map(({ prompt_progress }) => prompt_progress ?? null);
    const first = told.lastIndexOf(null) === told.length - 1 ? told.indexOf(null) : -1;
    expect(told.slice(first).every((one) => one === null)).toBe(true);
    return told.slice(0, first) as { total: number; cache: number; processed: number; time_ms: number }[];
  };
  const fresh = await progressOf({ return_progress: true });
  expect(fresh.length).toBeGreaterThan(2);
  const { total } = fresh[0]!;
  const processed = fresh.map((one) => one.processed);
  expect(processed[0]).toBe(0);
  expect(processed).toEqual([...new Set(processed)].sort((a, b) => a - b));
  expect(processed.at(-1)).toBe(total);
  expect(fresh.every((one) => one.total === total && one.cache === 0 && one.time_ms >= 0)).toBe(true);

  const again = await progressOf({ return_progress: true });
  expect(again[0]!.cache).toBeGreaterThan(0);
  expect(again[0]!.processed).toBe(again[0]!.cache);
  expect(again.at(-1)!.processed).toBe(total);
  expect(await progressOf({})).toEqual([]);
  await small.settled();
  await small.close();
});

describe("/completion", () => {
  const asked = { prompt: "Once", seed: 0, return_tokens: true };

  test("goes on with a text, whole and as a stream", async () => {
    const whole = await jsonOf("/completion", asked);
    expect(whole).toMatchObject({
      index: 0,
      content: answers[0],
      stop: true,
      stop_type: "eos",
      stopping_word: "",
      has_new_line: false,
      truncated: false,
      prompt: "Once",
      generation_settings: { n_predict: -1, stream: false },
    });
    expect(whole.timings).toEqual(timings);
    const response = await post(server, "/completion", { ...asked, stream: true });
    const events = eventsIn(await response.text());
    expect(events.map(({ content }) => content).join("")).toBe(answers[0]!);
    expect(events.flatMap(({ tokens }) => tokens)).toEqual(whole.tokens as unknown[]);
    expect(events.map(({ stop }) => stop)).toEqual(events.map((_, index) => index === events.length - 1));
  });

  test("goes on with each prompt of a list, and tells of each what is asked for", async () => {
    const prompt = ["Once", { prompt_string: "Twice there" }, [5, 6, 7]];
    const response_fields = [
      "index",
      "content",
      "tokens_evaluated",
      "generation_settings/n_predict",
      "nothing/here",
    ];
    const told: unknown = await jsonOf("/completion", { ...asked, prompt, n_predict: 2, response_fields });
    const { tokens } = (await jsonOf("/tokenize", { content: "Twice there" })) as { tokens: number[] };
    const { tokens: first } = (await jsonOf("/tokenize", { content: "Once" })) as { tokens: number[] };
    const content = expect.stringMatching(/^Just/);
    const one = (index: number, tokens_evaluated: number) => ({
      index,
      content,
      tokens_evaluated,
      "generation_settings/n_predict": 2,
    });
    expect(told).toEqual([one(0, first.length), one(1, tokens.length), one(2, 3)]);
  });

  test("takes biases of texts for those of their tokens", async () => {
    const { content } = await jsonOf("/completion", asked);
    const [word] = String(content).split(" ");
    for (const logit_bias of [[[word, -100]], { [word!]: -100 }]) {
      const other = await jsonOf("/completion", { ...asked, logit_bias });
      expect(other.content).not.toStartWith(word!);
    }
  });

  test("takes biases as pairs", async () => {
    const { tokens } = await jsonOf("/completion", asked);
    const [first] = tokens as number[];
    for (const bias of [false, -100]) {
      const other = await jsonOf("/completion", { ...asked, n_predict: 1, logit_bias: [[first, bias]] });
      expect((other.tokens as number[])[0]).not.toBe(first!);
    }
  });

  test("says why it ended", async () => {
    const reasonOf = async (more: object) => {
      const { content, stop_type, stopping_word } = await jsonOf("/completion", { ...asked, ...more });
      return [content, stop_type, stopping_word];
    };
    expect(await reasonOf({ stop: ["two"] })).toEqual(["Just text, one ", "word", "two"]);
    expect((await reasonOf({ n_predict: 2 }))[1]).toBe("limit");
  });

  test("tells probabilities, and refuses what is not here", async () => {
    const { completion_probabilities: told, tokens } = await jsonOf("/completion", { ...asked, n_probs: 1 });
    const entries = told as {
      readonly id: number;
      readonly top_logprobs: readonly { readonly id: number }[];
    }[];
    expect(entries.map(({ id }) => id)).toEqual(tokens as number[]);
    expect(entries.map(({ top_logprobs }) => top_logprobs[0]!.id)).toEqual(tokens as number[]);
    const refused: [object, string][] = [
      [{ mirostat: 2 }, "mirostat"],
      [{ prompt: ["a", "b"], stream: true }, "prompt"],
      [{ response_fields: ["content"], stream: true }, "response_fields"],
      [{ prompt: { prompt_string: "a", multimodal_data: ["x"] } }, "prompt.multimodal_data"],
      [{ n_predict: 0 }, "n_predict"],
      // The server limits text that it tokenizes in passing, over all entries and over all prompts together.
      [
        { logit_bias: Object.fromEntries(Array.from({ length: 1025 }, (_, i) => [`word ${i}`, 1])) },
        "logit_bias",
      ],
      [
        {
          logit_bias: [
            ["x".repeat(5000), 1],
            ["y".repeat(5000), 1],
          ],
        },
        "logit_bias",
      ],
      [
        {
          prompt: [
            [1, "x".repeat(5000)],
            [1, "y".repeat(5000)],
          ],
        },
        "prompt",
      ],
      [{ prompt: Array.from({ length: 129 }, () => [1, "x".repeat(100)]) }, "prompt"],
      [{ logit_bias: [5] }, "logit_bias[0]"],
    ];
    for (const [more, param] of refused) {
      const response = await post(server, "/completion", { ...asked, ...more });
      expect([response.status, (await bodyOf(response)).error.param]).toEqual([400, param]);
    }
  });
});

test("the server tells of itself", async () => {
  expect(await jsonOf("/props")).toMatchObject({ chat_template: template, build_info: "bunting-0.0.0-test" });
  const slot = { id: 0, n_ctx: expect.any(Number), is_processing: false, running: 0, waiting: 0 };
  expect<unknown>(await jsonOf("/slots")).toEqual([slot]);
});

test("a chat's prompt can be read", async () => {
  const { prompt } = await jsonOf("/apply-template", {
    messages: [{ role: "user", content: "Hi <|im_end|>" }],
  });
  expect(prompt).toEndWith("<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n");
  const developer = [
    { role: "developer", content: "Be kind." },
    { role: "user", content: "Hi" },
  ];
  expect((await jsonOf("/apply-template", { messages: developer })).prompt).toStartWith(
    "<|im_start|>system\nBe kind.",
  );
});

test("routes have the same answer without their version", async () => {
  for (const [path, body] of [
    ["/chat/completions", chatBody("Hi", { seed: 0 })],
    ["/completions", { prompt: "Once", seed: 0 }],
    ["/responses", { input: "Hi", seed: 0, store: false }],
    ["/models", undefined],
    ["/models/demo", undefined],
  ] as const) {
    const [given, versioned] = [await jsonOf(path, body), await jsonOf(`/v1${path}`, body)];
    expect([path, Object.keys(given)]).toEqual([path, Object.keys(versioned)]);
  }
});

test("any model's name will do where the owner says so", async () => {
  const body = chatBody("Hi", { seed: 0, model: "gpt-9" });
  expect((await jsonOf("/v1/chat/completions", body)).model).toBe("gpt-9");
});

test("timings are told on request, in a body and in each chunk", async () => {
  const body = chatBody("Hi", { seed: 0, timings_per_token: true, speculative: false });
  const whole = await jsonOf("/v1/chat/completions", body);
  expect([whole.timings, whole.system_fingerprint]).toEqual([timings, `bunting-${version}`]);
  const response = await post(server, "/v1/chat/completions", { ...body, stream: true });
  const chunks = eventsIn(await response.text());
  expect(chunks.map((chunk) => chunk.timings)).toEqual(chunks.map(() => timings));
  expect((await jsonOf("/v1/chat/completions", chatBody("Hi", { seed: 0 }))).timings).toBeUndefined();
});

describe("the last message is continued", () => {
  const messages = (end: string) => [
    { role: "user", content: "Count." },
    { role: "assistant", content: end },
  ];
  const promptOf = async (end: string, more: object = { continue_final_message: true }) =>
    (await jsonOf("/apply-template", { messages: messages(end), ...more })).prompt as string;

  test("and the prompt ends where it does, to the letter", async () => {
    for (const end of ["One, two", "One, two ", "<|im_end|>", "", "a\n\nb"]) {
      const prompt = await promptOf(end);
      const whole = await promptOf(end, { add_generation_prompt: false });
      expect(prompt).toEndWith(`<|im_start|>assistant\n${end}`);
      expect(whole).toStartWith(prompt.trimEnd());
    }
  });

  test("in chats, and in Anthropic's where they end with it", async () => {
    const asked = { messages: messages("One,"), seed: 0 };
    const chat = await jsonOf("/v1/chat/completions", { ...asked, continue_final_message: true });
    const anthropic = await jsonOf("/v1/messages", { ...asked, max_tokens: 100 });
    const counted = await jsonOf("/v1/chat/completions/input_tokens", {
      ...asked,
      continue_final_message: true,
    });
    expect(counted).toEqual({ input_tokens: (chat.usage as Record<string, number>).prompt_tokens });
    const { tokens } = await jsonOf("/tokenize", { ...asked, continue_final_message: true });
    const counts = [chat.usage, anthropic.usage] as Record<string, number>[];
    expect([
      counts[0]!.prompt_tokens,
      counts[1]!.input_tokens! + counts[1]!.cache_read_input_tokens!,
    ]).toEqual([(tokens as number[]).length, (tokens as number[]).length]);
  });

  test("unless there is none, or the prompt is to end otherwise", async () => {
    const refused: [object, string][] = [
      [{ messages: messages("x").slice(0, 1), continue_final_message: true }, "messages"],
      [
        { messages: messages("x"), continue_final_message: true, add_generation_prompt: true },
        "continue_final_message",
      ],
    ];
    for (const [body, param] of refused) {
      const response = await post(server, "/v1/chat/completions", body);
      expect([response.status, (await bodyOf(response)).error.param]).toEqual([400, param]);
    }
  });
});

test("embeddings come for each text, as lists of lists", async () => {
  const answer = async (body: object) => (await post(server, "/embedding", body)).json() as Promise<unknown>;
  const openai = (await (await post(server, "/v1/embeddings", { input: ["one", "two"] })).json()) as {
    data: { index: number; embedding: number[] }[];
  };
  const [one, two] = openai.data.map(({ index, embedding }) => ({ index, embedding: [embedding] }));
  expect(await answer({ content: "one" })).toEqual([one]);
  expect(await answer({ content: ["one", "two"] })).toEqual([one, two]);
  expect(await answer({ input: ["one", "two"], embd_normalize: 2 })).toEqual([one, two]);
  for (const [body, param] of [
    [{}, "content"],
    [{ content: "one", embd_normalize: -1 }, "embd_normalize"],
  ] as const) {
    const response = await post(server, "/embedding", body);
    expect([response.status, (await bodyOf(response)).error.param]).toEqual([400, param]);
  }
});

test("scores are refused by name", async () => {
  for (const path of ["/v1/rerank", "/v1/score"]) {
    const pair = { query: "x", documents: ["y"], text_1: "x", text_2: "y" };
    const response = await post(server, path, pair);
    expect([response.status, (await bodyOf(response)).error.code]).toEqual([501, "scores_unsupported"]);
  }
});
