/**
 * Messages API of Anthropic: its official client with only the base URL changed, and details that the client
 * does not check.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import Anthropic from "@anthropic-ai/sdk";
import { betaTool } from "@anthropic-ai/sdk/helpers/beta/json-schema";
import type { Chunk, Sampled } from "../../scheduler/core.ts";
import { bodyOf, chatBody, post, startTestServer, type TestServer } from "./server.ts";

const template = readFileSync(join(import.meta.dir, "../reference/tools/template.jinja"), "utf8");
const call = (city: string) =>
  `<tool_call>\n{"name": "get_weather", "arguments": {"city": "${city}"}}\n</tool_call>`;
/** Answers by seed. */
const answers = [
  "Just text, one two three.",
  `Let me look.\n${call("Rome")}\n${call("Øslo")}\nThat was all.`,
  call("Rome"),
];
const key = "a-key-of-the-test";
const route = "/v1/messages";
const messages = [{ role: "user" as const, content: "Weather?" }];
const tools = [
  {
    name: "get_weather",
    description: "The weather of a city",
    input_schema: { type: "object" as const, properties: { city: { type: "string" } }, required: ["city"] },
  },
];

let server: TestServer;
let client: Anthropic;
beforeAll(() => {
  server = startTestServer({ answers, template, keys: { keys: [key] } });
  client = new Anthropic({ baseURL: server.origin, apiKey: key, maxRetries: 0 });
});
afterEach(() => server.settled());
afterAll(() => server.close());

type Body = Anthropic.MessageCreateParamsNonStreaming;
/** Makes a body with the seed of an answer, a field that the API does not have. */
const asking = (seed: number, more: Partial<Body> = {}): Body =>
  ({ model: "demo", max_tokens: 100, messages, ...more, seed }) as Body;
const headers = { "x-api-key": key, "anthropic-version": "2023-06-01" };

async function failure(promise: PromiseLike<unknown>) {
  try {
    await promise;
  } catch (error) {
    return error as InstanceType<typeof Anthropic.APIError>;
  }
  throw new Error("expected a failure");
}

/** Returns a stream's events as sent: their names and their data. */
async function eventsOf(body: object, to = server) {
  const response = await post(to, route, { ...body, stream: true }, { headers });
  expect(response.status).toBe(200);
  const frames = (await response.text())
    .split("\n\n")
    .filter((frame) => frame !== "" && !frame.startsWith(":"));
  return frames.map((frame) => {
    const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(frame)!;
    const event = JSON.parse(data!) as { readonly type: string } & Record<string, unknown>;
    expect(event.type).toBe(name!);
    return event;
  });
}

describe("a whole answer", () => {
  test("is a message", async () => {
    const { data, request_id } = await client.messages.create(asking(0)).withResponse();
    const { input_tokens, output_tokens } = data.usage;
    expect<unknown>(data).toEqual({
      id: expect.stringMatching(/^msg_[0-9a-f]{32}$/),
      type: "message",
      role: "assistant",
      model: "demo",
      content: [{ type: "text", text: answers[0] }],
      stop_reason: "end_turn",
      stop_sequence: null,
      usage: {
        input_tokens,
        cache_creation_input_tokens: 0,
        cache_read_input_tokens: 0,
        output_tokens,
        output_tokens_details: { thinking_tokens: 0 },
      },
    });
    expect(request_id).toStartWith("req_");
    const { count } = await bodyOf(await post(server, "/tokenize", { prompt: answers[0] }, { headers }));
    expect(output_tokens).toBe(count + 1);
  });

  test("has calls among its text, in the order of the model", async () => {
    const { content, stop_reason } = await client.messages.create(asking(1, { tools }));
    const use = (index: number, city: string) => ({
      type: "tool_use",
      id: expect.stringMatching(new RegExp(`^toolu_[0-9a-f]{24}_${index}$`)),
      name: "get_weather",
      input: { city },
    });
    expect<unknown>(content).toEqual([
      { type: "text", text: "Let me look." },
      use(0, "Rome"),
      use(1, "Øslo"),
      { type: "text", text: "\nThat was all." },
    ]);
    expect(stop_reason).toBe("tool_use");
    const tool_choice = { type: "auto" as const, disable_parallel_tool_use: true };
    const one = await client.messages.create(asking(1, { tools, tool_choice }));
    expect(one.content.filter(({ type }) => type === "tool_use")).toHaveLength(1);
  });

  test("says why it ends", async () => {
    const cut = await client.messages.create(asking(0, { max_tokens: 2 }));
    expect([cut.stop_reason, cut.stop_sequence, cut.usage.output_tokens]).toEqual(["max_tokens", null, 2]);
    const stopped = await client.messages.create(asking(0, { stop_sequences: ["two", "never"] }));
    expect([stopped.stop_reason, stopped.stop_sequence]).toEqual(["stop_sequence", "two"]);
    expect<unknown>(stopped.content).toEqual([{ type: "text", text: "Just text, one " }]);
  });
});

describe("a stream", () => {
  test("has its events in the order that clients want", async () => {
    const events = await eventsOf(asking(1, { tools }));
    const kinds = events
      .map(({ type, index, delta, content_block }) =>
        [type, index, (delta as { type?: string })?.type ?? (content_block as { type: string })?.type]
          .filter((word) => word !== undefined)
          .join(" "),
      )
      .filter((kind, index, all) => kind !== all[index - 1]);
    expect(kinds).toEqual([
      "message_start",
      "content_block_start 0 text",
      "ping",
      "content_block_delta 0 text_delta",
      "content_block_stop 0",
      ...[1, 2].flatMap((index) => [
        `content_block_start ${index} tool_use`,
        `content_block_delta ${index} input_json_delta`,
        `content_block_stop ${index}`,
      ]),
      "content_block_start 3 text",
      "content_block_delta 3 text_delta",
      "content_block_stop 3",
      "message_delta",
      "message_stop",
    ]);
  });

  test("becomes the same message as the whole answer", async () => {
    for (const seed of [0, 1, 2, 3]) {
      for (const more of [{ tools }, { tools, max_tokens: 7 }, { stop_sequences: ["two"] }]) {
        const whole = await client.messages.create(asking(seed, more));
        const final = await client.messages.stream(asking(seed, more)).finalMessage();
        const comparable = ({ content, stop_reason, stop_sequence, usage }: Anthropic.Message) => ({
          content: content.map((block) => ({ ...block, id: undefined })),
          stop_reason,
          stop_sequence,
          output: usage.output_tokens,
        });
        expect(comparable(final)).toEqual(comparable(whole));
      }
    }
  });

  test("that fails ends with an event that says so", async () => {
    const reason = "logits are not finite";
    const twoTokens = ({ sequence, samples: [sample] }: Chunk): Sampled[] => {
      if (sample === undefined || sample.wants === "hidden") return [];
      if (sample.position === 2) return [{ kind: "failed", sequence, reason }];
      return [{ kind: "token", sequence, token: 65, logprobs: null }];
    };
    const broken = startTestServer({
      template,
      keys: { keys: [key] },
      fault: (step) => ({ kind: "done", sampled: step.chunks.flatMap(twoTokens), deviceMs: 1 }),
    });
    const last = (await eventsOf(asking(0), broken)).at(-1)!;
    expect<unknown>(last).toEqual({
      type: "error",
      error: { type: "api_error", message: expect.stringContaining(reason) },
      request_id: expect.stringMatching(/^req_/),
    });
    const to = new Anthropic({ baseURL: broken.origin, apiKey: key, maxRetries: 0 });
    const error = await failure(to.messages.stream(asking(0)).finalMessage());
    expect([error.constructor.name, error.type]).toEqual(["APIError", "api_error"]);
    await broken.settled();
    await broken.close();
  });
});

test("the client's own loop runs functions and sends their results back", async () => {
  const first = await client.messages.create(asking(2, { tools }));
  const results = first.content.flatMap((block) =>
    block.type === "tool_use"
      ? [
          {
            type: "tool_result" as const,
            tool_use_id: block.id,
            content: [{ type: "text" as const, text: "sunny" }],
          },
        ]
      : [],
  );
  const turns: Anthropic.MessageParam[] = [
    ...messages,
    { role: "assistant", content: first.content },
    { role: "user", content: results },
  ];
  const second = await client.messages.create(asking(0, { tools, messages: turns }));
  expect<unknown>(second.content).toEqual([{ type: "text", text: answers[0] }]);
  expect(second.usage.cache_read_input_tokens).toBeGreaterThan(0);
});

test("calls are forced, and answers kept in a schema", async () => {
  const free = startTestServer({ template });
  const to = new Anthropic({ baseURL: free.origin, apiKey: "unused", maxRetries: 0 });
  const city = { enum: ["Rome", "Oslo"] };
  const input_schema = {
    type: "object" as const,
    properties: { city },
    required: ["city"],
    additionalProperties: false,
  };
  const named = [{ name: "get_weather", input_schema }];
  for (const tool_choice of [
    { type: "any" as const, disable_parallel_tool_use: true },
    { type: "tool" as const, name: "get_weather" },
  ]) {
    const body = asking(7, { tools: named, tool_choice });
    for (const message of [await to.messages.create(body), await to.messages.stream(body).finalMessage()]) {
      expect<unknown>(message.content).toEqual([
        {
          type: "tool_use",
          id: expect.any(String),
          name: "get_weather",
          input: { city: expect.stringMatching(/^(Rome|Oslo)$/) },
        },
      ]);
      expect(message.stop_reason).toBe("tool_use");
    }
  }
  const format = { type: "json_schema" as const, schema: { type: "integer", minimum: 2, maximum: 2 } };
  const { content, stop_reason } = await to.messages.create(asking(7, { output_config: { format } }));
  expect<unknown>([content, stop_reason]).toEqual([[{ type: "text", text: "2" }], "end_turn"]);
  await free.settled();
  await free.close();
});

test("a prompt is the one that OpenAI's route makes of the same conversation", async () => {
  const { input_tokens } = await client.messages.countTokens({
    model: "demo",
    system: "Be brief.",
    messages,
    tools,
  });
  const functions = tools.map(({ input_schema: parameters, ...rest }) => ({
    type: "function",
    function: { ...rest, parameters },
  }));
  const same = { messages: [{ role: "system", content: "Be brief." }, ...messages], tools: functions };
  const { count } = await bodyOf(await post(server, "/tokenize", same, { headers }));
  expect(input_tokens).toBe(count);
});

describe("tokens of input", () => {
  const system = `You know of cities. ${"Answer with care. ".repeat(20)}`;
  const attributed = (cch: string) =>
    `x-anthropic-billing-header: cc_version=2.1.154; cch=${cch};\n${system}`;
  const totalOf = ({ usage }: Anthropic.Message) =>
    usage.input_tokens + usage.cache_creation_input_tokens! + usage.cache_read_input_tokens!;

  test("are as many as were counted before, whichever of the three they are", async () => {
    for (const body of [
      { messages, system },
      { messages, system, tools },
      { messages, system: attributed("1a2b3") },
      { messages: [{ role: "system" as const, content: "Be brief." }, ...messages] },
    ]) {
      const counted = await client.messages.countTokens({ model: "demo", ...body });
      expect(totalOf(await client.messages.create(asking(0, body)))).toBe(counted.input_tokens);
      const { usage } = await client.messages.stream(asking(0, body)).finalMessage();
      expect(totalOf({ usage } as Anthropic.Message)).toBe(counted.input_tokens);
    }
  });

  test("are read from the cache when only the line of who asks differs", async () => {
    const own = `${system} Once.`;
    const cache_control = { type: "ephemeral" as const, ttl: "1h" as const };
    const usageOf = async (cch: string) => {
      const body = asking(0, {
        system: [
          { type: "text", text: attributed(cch), cache_control },
          { type: "text", text: own },
        ],
      });
      const { data, response } = await client.messages.create(body).withResponse();
      expect(response.headers.get("x-bunting-ignored")).toBe("x-anthropic-billing-header");
      return data.usage;
    };
    const first = await usageOf("11111");
    const second = await usageOf("22222");
    expect(first.input_tokens).toBeGreaterThan(0);
    expect(first.cache_creation_input_tokens).toBeGreaterThan(first.input_tokens);
    const marked = first.cache_read_input_tokens! + first.cache_creation_input_tokens!;
    expect(second.cache_creation_input_tokens).toBe(0);
    expect(second.cache_read_input_tokens!).toBeGreaterThanOrEqual(marked);
    expect(second.input_tokens).toBeLessThan(17); // the partial last page
  });
});

describe("a refusal", () => {
  test("has Anthropic's body and types, whatever is at fault", async () => {
    const error = await failure(client.messages.create(asking(0, { max_tokens: 0 })));
    expect(error).toBeInstanceOf(Anthropic.BadRequestError);
    expect<unknown>(error.error).toEqual({
      type: "error",
      error: { type: "invalid_request_error", message: expect.stringContaining("max_tokens must be") },
      request_id: error.requestID,
    });
    const stranger = new Anthropic({ baseURL: server.origin, apiKey: "wrong", maxRetries: 0 });
    const wrongs = [
      [stranger.messages.create(asking(0)), 401, "authentication_error"],
      [client.messages.create(asking(0, { model: "claude" })), 404, "not_found_error"],
      [client.messages.countTokens({ model: "claude", messages }), 404, "not_found_error"],
      [client.messages.create(asking(0, { tool_choice: { type: "any" } })), 400, "invalid_request_error"],
    ] as const;
    const refusals = await Promise.all(wrongs.map(([wrong]) => failure(wrong)));
    expect<unknown>(refusals.map(({ status, type }) => [status, type])).toEqual(
      wrongs.map(([, status, type]) => [status, type]),
    );
    const wrongMethod = await fetch(server.origin + route, { headers });
    expect([wrongMethod.status, ((await wrongMethod.json()) as { type: string }).type]).toEqual([
      405,
      "error",
    ]);
  });

  test("of a thread has the tool runner send the whole conversation", async () => {
    const sent: number[] = [];
    const seeded = (url: string | URL | Request, init?: RequestInit): Promise<Response> => {
      const body = JSON.parse(String(init!.body)) as Body & { thread?: object };
      if (body.thread === undefined) sent.push(body.messages.length);
      const seed = body.messages.length === 1 ? 2 : 0;
      return fetch(url, { ...init, body: JSON.stringify({ ...body, seed }) });
    };
    const to = new Anthropic({ baseURL: server.origin, apiKey: key, maxRetries: 0, fetch: seeded });
    const { name, description } = tools[0]!;
    const inputSchema = { type: "object", properties: { city: { type: "string" } } } as const;
    const getWeather = betaTool({ name, description, inputSchema, run: () => "sunny" });
    const request = { model: "demo", max_tokens: 100, messages, tools: [getWeather] };
    const { content } = await to.beta.messages.toolRunner(request);
    expect<unknown>(content).toEqual([{ type: "text", text: answers[0] }]);
    expect(sent).toEqual([1, 3]);
  });

  test("takes the key as other routes do", async () => {
    const bearer = new Anthropic({ baseURL: server.origin, apiKey: null, authToken: key, maxRetries: 0 });
    expect((await bearer.messages.create(asking(0))).type).toBe("message");
  });

  test("of what is too long has the numbers in the words that clients read", async () => {
    const message = async (more: Partial<Body>) =>
      (await failure(client.messages.create(asking(0, more)))).apiMessage;
    const long = (words: number) => ({
      messages: [{ role: "user" as const, content: "word ".repeat(words) }],
    });
    expect(await message(long(2100))).toMatch(/^prompt is too long: \d+ tokens > 2047 maximum$/);
    expect(await message(long(100_000))).toStartWith(
      "prompt is too long: This model's maximum context length",
    );
  });

  test("of too much work is 529", async () => {
    const small = startTestServer({
      template,
      engine: { queueMax: 1 },
      stepMs: 20,
      spec: { stepChunksMax: 1 },
    });
    const to = new Anthropic({ baseURL: small.origin, apiKey: "unused", maxRetries: 0 });
    const all = await Promise.allSettled(
      Array.from({ length: 8 }, () => to.messages.create(asking(0, { max_tokens: 4 }))),
    );
    const refused = all.flatMap((one) =>
      one.status === "rejected" ? [one.reason as InstanceType<typeof Anthropic.APIError>] : [],
    );
    expect(refused.length).toBeGreaterThan(0);
    for (const error of refused) {
      expect<unknown>([error.status, error.type]).toEqual([529, "overloaded_error"]);
      expect(error.headers!.get("retry-after")).toBe("2");
    }
    await small.settled();
    await small.close();
  });
});

test("OpenAI's routes keep their own refusals", async () => {
  const response = await post(server, "/v1/chat/completions", chatBody("Hi", { max_tokens: 0 }), { headers });
  expect([response.status, (await bodyOf(response)).error.param]).toEqual([400, "max_tokens"]);
});
