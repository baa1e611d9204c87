/**
 * Functions that clients offer to the model, and the calls that they receive. The model's output is scripted.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, jsonSchema, stepCountIs, streamText, tool } from "ai";
import OpenAI from "openai";
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
  type WireToolCall,
} from "./server.ts";

const template = readFileSync(join(import.meta.dir, "../reference/tools/template.jinja"), "utf8");
const call = (name: string, values: string) =>
  `<tool_call>\n{"name": "${name}", "arguments": ${values}}\n</tool_call>`;
const rome = call("get_weather", '{"city": "Rome"}');
const oslo = call("get_weather", '{"city": "Øslo", "days": 12345678901234567890}');
/** Answers by seed. */
const answers = [
  "No function needed.",
  `Let me look.\n${rome}\n${oslo}`,
  rome,
  '<tool_call>\n{"name": "get_weather", "arguments": {"city": Rome}}\n</tool_call>',
];

const tools = [
  {
    type: "function" as const,
    function: {
      name: "get_weather",
      description: "The weather of a city",
      parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    },
  },
];

let server: TestServer;
let client: OpenAI;
beforeAll(() => {
  server = startTestServer({ answers, template });
  client = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "unused", maxRetries: 0 });
});
afterEach(() => server.settled());
afterAll(() => server.close());

const route = "/v1/chat/completions";

async function chat(more: Readonly<Record<string, unknown>>) {
  const response = await post(server, route, chatBody("Weather?", { tools, ...more }));
  expect(response.status).toBe(200);
  return await bodyOf(response);
}

async function streamedChoices(more: Readonly<Record<string, unknown>>) {
  const response = await post(server, route, chatBody("Weather?", { tools, stream: true, ...more }));
  expect(response.status).toBe(200);
  const { events } = await readEvents(response);
  return { events, choices: chunksOf(events).flatMap((chunk) => chunk.choices) };
}

/** Assembles a stream's calls as clients do. */
function callsOf(choices: readonly WireChoice[], index = 0): WireToolCall[] {
  const calls: WireToolCall[] = [];
  for (const delta of choices
    .filter((choice) => choice.index === index)
    .flatMap((c) => c.delta.tool_calls ?? [])) {
    const known = calls[delta.index];
    calls[delta.index] =
      known === undefined
        ? delta
        : {
            ...known,
            function: { ...known.function, arguments: known.function.arguments + delta.function.arguments },
          };
  }
  return calls;
}

const anyId = (choice: number, index: number) =>
  expect.stringMatching(new RegExp(`^call_[0-9a-f]{24}_${choice}_${index}$`));

describe("a whole answer", () => {
  test("with calls holds them beside the text before", async () => {
    const { choices, usage } = await chat({ seed: 1 });
    expect<unknown>(choices).toEqual([
      {
        index: 0,
        message: {
          role: "assistant",
          content: "Let me look.",
          refusal: null,
          tool_calls: [
            {
              id: anyId(0, 0),
              type: "function",
              function: { name: "get_weather", arguments: '{"city": "Rome"}' },
            },
            {
              id: anyId(0, 1),
              type: "function",
              function: { name: "get_weather", arguments: '{"city": "Øslo", "days": 12345678901234567890}' },
            },
          ],
        },
        logprobs: null,
        finish_reason: "tool_calls",
        stop_reason: null,
      },
    ]);
    const { token_ids } = (await chat({ seed: 1, return_token_ids: true })).choices[0]!;
    expect(usage.completion_tokens).toBe(token_ids.length + 1);
  });

  test("without text has none, and without calls is as ever", async () => {
    const [called, plain] = [await chat({ seed: 2 }), await chat({ seed: 0 })];
    expect(called.choices[0]!.message.content).toBeNull();
    expect<unknown>(plain.choices[0]!.message).toEqual({
      role: "assistant",
      content: "No function needed.",
      refusal: null,
    });
    expect<unknown>(plain.choices[0]!.finish_reason).toBe("stop");
  });

  test("tells what there is of a call that was cut off", async () => {
    const { count } = await bodyOf(await post(server, "/tokenize", { prompt: rome }));
    const cut = (await chat({ seed: 2, max_tokens: count - 6 })).choices[0]!;
    expect<unknown>([cut.message.content, cut.finish_reason]).toEqual([null, "length"]);
    const [call] = cut.message.tool_calls!;
    expect(call!.function.name).toBe("get_weather");
    expect('{"city": "Rome"}').toStartWith(call!.function.arguments);
    const before = (await chat({ seed: 2, max_tokens: 2 })).choices[0]!;
    expect<unknown>([before.message.tool_calls, before.finish_reason]).toEqual([undefined, "length"]);
    expect(rome).toStartWith(before.message.content);
  });

  test("has arguments that obey their schema, whatever the model would have written", async () => {
    const { message, finish_reason } = (await chat({ seed: 3, max_tokens: 200 })).choices[0]!;
    const [call] = message.tool_calls!;
    expect(call!.function.arguments).toStartWith('{"city": "');
    if (finish_reason === "tool_calls") expect(JSON.parse(call!.function.arguments).city).toBeString();
  });

  test("holds one call at most when calls in parallel are not allowed", async () => {
    const { choices } = await chat({ seed: 1, parallel_tool_calls: false });
    expect(choices[0]!.message.tool_calls).toHaveLength(1);
    expect<unknown>(choices[0]!.finish_reason).toBe("tool_calls");
  });

  test("is a call where one is forced, whatever structure its text would have", async () => {
    const response_format = { type: "json_schema", json_schema: { name: "x", schema: { type: "integer" } } };
    const { message } = (await chat({ seed: 2, tool_choice: "required", response_format })).choices[0]!;
    expect(message.tool_calls!.map(({ function: { name } }) => name)).toEqual(["get_weather"]);
  });

  test("is not read for calls when no functions are offered", async () => {
    for (const more of [{ tools: [] }, { tool_choice: "none" }]) {
      const choice = (await chat({ seed: 2, ...more })).choices[0]!;
      expect<unknown>([choice.message.content, choice.finish_reason]).toEqual([rome, "stop"]);
    }
  });
});

describe("a stream", () => {
  test("tells a call's name first and its arguments next", async () => {
    const { choices } = await streamedChoices({ seed: 2 });
    const id = choices[1]!.delta.tool_calls![0]!.id!;
    const part = (values: object) => ({ index: 0, delta: { tool_calls: [values] }, finish_reason: null });
    expect<unknown>(id).toEqual(anyId(0, 0));
    const pieces = choices.slice(2, -1).map(({ delta }) => delta.tool_calls![0]!.function.arguments);
    expect(pieces.length).toBeGreaterThan(2);
    expect(pieces.join("")).toBe('{"city": "Rome"}');
    expect<unknown>(choices).toEqual([
      { index: 0, delta: { role: "assistant", content: "" }, finish_reason: null },
      part({ index: 0, id, type: "function", function: { name: "get_weather", arguments: "" } }),
      ...pieces.map((piece) => part({ index: 0, function: { arguments: piece } })),
      { index: 0, delta: {}, finish_reason: "tool_calls", stop_reason: null },
    ]);
  });

  test("tells the same as the whole answer, choice by choice", async () => {
    for (const more of [
      {},
      { max_tokens: 9 },
      { max_tokens: 24 },
      { parallel_tool_calls: false },
      { stop: "Rome" },
    ]) {
      const asked = { seed: 0, n: 4, max_tokens: 60, ...more };
      const whole = await chat(asked);
      const { events, choices } = await streamedChoices(asked);
      for (const { index, message, finish_reason } of whole.choices) {
        expect(contentOf(events, index)).toBe(message.content ?? "");
        const nameless = ({ function: made }: WireToolCall) => made;
        expect(callsOf(choices, index).map(nameless)).toEqual((message.tool_calls ?? []).map(nameless));
        const own = choices.filter((choice) => choice.index === index);
        expect(own.at(-1)!.finish_reason).toBe(finish_reason);
      }
    }
  });

  test("carries logprobs and ids of every token, those of calls too", async () => {
    const more = { seed: 1, logprobs: true, return_token_ids: true };
    const whole = (await chat(more)).choices[0]!;
    const { choices } = await streamedChoices(more);
    expect(choices.flatMap((choice) => choice.token_ids ?? [])).toEqual([...whole.token_ids]);
    expect(choices.flatMap((choice) => choice.logprobs?.content ?? [])).toEqual([...whole.logprobs.content]);
    const bytes = whole.logprobs.content.flatMap((entry) => entry.bytes);
    expect(Buffer.from(bytes).toString()).toBe(answers[1]!);
  });
});

test("what of a schema cannot be kept to, and need not be, is told in the answer's header", async () => {
  const parameters = { type: "object", properties: { city: { type: "float128" } } };
  const odd = { ...tools[0]!.function, parameters };
  for (const stream of [false, true]) {
    const asked = { tools: [{ type: "function", function: odd }], seed: 2, stream, store: true };
    const response = await post(server, route, chatBody("Weather?", asked));
    expect(response.headers.get("x-bunting-ignored")).toBe("store, get_weather.parameters");
    expect(await response.text()).toContain("tool_calls");
  }
  const strict = { tools: [{ type: "function", function: { ...odd, strict: true } }], seed: 2 };
  const { error } = await bodyOf(await post(server, route, chatBody("Weather?", strict)));
  expect<unknown>([error.param, error.code]).toEqual(["tools#/properties/city/type", "invalid_schema"]);
});

const toollessTemplate = "{% for m in messages %}{{ m.content }}{% endfor %}";

test("functions on offer to a template that knows none are left out and named", async () => {
  const plain = startTestServer({ template: toollessTemplate });
  const response = await post(plain, route, chatBody("Hi", { tools, max_tokens: 1 }));
  expect<unknown>([response.status, response.headers.get("x-bunting-ignored")]).toEqual([200, "tools"]);
  await response.text();
  await plain.settled();
  await plain.close();
});

describe("a request with functions is refused", () => {
  const refused = async (more: Readonly<Record<string, unknown>>, to = server) => {
    const response = await post(to, route, chatBody("Hi", { tools, max_tokens: 1, ...more }));
    return { status: response.status, error: (await bodyOf(response)).error };
  };

  test("when a call is forced and the template knows no functions", async () => {
    const plain = startTestServer({ template: toollessTemplate });
    const { status, error } = await refused({ tool_choice: "required" }, plain);
    expect<unknown>([status, error.param]).toEqual([400, "tool_choice"]);
    expect(error.message).toContain("the form in which this model writes calls is not known");
    await plain.settled();
    await plain.close();
  });

  test("when a call is to be forced that is none of them", async () => {
    const { status, error } = await refused({
      tool_choice: { type: "function", function: { name: "get_time" } },
    });
    expect<unknown>([status, error.param]).toEqual([400, "tool_choice"]);
    expect(error.message).toContain("which is none of tools");
  });
});

test("results of calls reach the template, and /tokenize reads the same conversation", async () => {
  const messages = [
    { role: "user", content: "Weather?" },
    {
      role: "assistant",
      content: null,
      tool_calls: [
        { id: "call_1", type: "function", function: { name: "get_weather", arguments: '{"city":"Rome"}' } },
      ],
    },
    { role: "tool", tool_call_id: "call_1", content: [{ type: "text", text: "sunny" }] },
  ];
  const { tokens } = await bodyOf(await post(server, "/tokenize", { messages, tools }));
  const { prompt_token_ids } = await chat({ messages, seed: 0, return_token_ids: true });
  expect<unknown>(prompt_token_ids).toEqual(tokens);
  const { prompt } = (await (await post(server, "/detokenize", { tokens })).json()) as { prompt: string };
  expect(prompt).toContain(
    'assistant\n<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call><|im_end|>\n' +
      "<|im_start|>user\n<tool_response>\nsunny\n</tool_response><|im_end|>",
  );
  expect(prompt).toContain(
    '<tools>\n{"type": "function", "function": {"name": "get_weather", "description": "The weather of a city", ',
  );
});

describe("the official client of OpenAI", () => {
  const messages = [{ role: "user" as const, content: "Weather?" }];

  test("hears the same calls whole and streamed through its helper", async () => {
    const whole = await client.chat.completions.create({ model: "demo", messages, tools, seed: 1 });
    const stream = client.chat.completions.stream({ model: "demo", messages, tools, seed: 1 });
    const deltas: string[] = [];
    stream.on("tool_calls.function.arguments.delta", ({ arguments_delta }) => deltas.push(arguments_delta));
    const final = await stream.finalChatCompletion();
    const made = (completion: OpenAI.ChatCompletion) =>
      completion.choices[0]!.message.tool_calls!.map((one) =>
        one.type === "function" ? one.function : null,
      );
    expect(made(final).map((one) => one?.arguments)).toEqual(made(whole).map((one) => one?.arguments));
    expect(deltas.join("")).toBe('{"city": "Rome"}{"city": "Øslo", "days": 12345678901234567890}');
    expect(final.choices[0]!.finish_reason).toBe("tool_calls");
    expect(final.choices[0]!.message.content).toBe("Let me look.");
  });

  test("runs functions and sends their results back", async () => {
    const cities: unknown[] = [];
    const runner = client.chat.completions.runTools(
      {
        model: "demo",
        messages,
        seed: 2,
        tools: [
          {
            type: "function",
            function: {
              ...tools[0]!.function,
              parse: JSON.parse,
              function: (values: { city: string }) => {
                cities.push(values.city);
                return "sunny";
              },
            },
          },
        ],
      },
      { maxChatCompletions: 2 },
    );
    await runner.done();
    expect(cities).toEqual(["Rome", "Rome"]);
    expect(runner.messages.map((message) => message.role)).toEqual([
      ...["user", "assistant", "tool", "assistant", "tool"],
    ] as typeof runner.messages extends { role: infer Role }[] ? Role[] : never);
  });
});

describe("Vercel's AI SDK", () => {
  const provider = () => createOpenAICompatible({ name: "bunting", baseURL: `${server.origin}/v1` })("demo");
  const weather = (heard: string[]) =>
    tool({
      description: "The weather of a city",
      inputSchema: jsonSchema<{ city: string }>(tools[0]!.function.parameters as object),
      execute: ({ city }) => {
        heard.push(city);
        return "sunny";
      },
    });

  test("runs functions of a whole answer", async () => {
    const heard: string[] = [];
    const { steps } = await generateText({
      model: provider(),
      prompt: "Weather?",
      seed: 1,
      tools: { get_weather: weather(heard) },
      stopWhen: stepCountIs(2),
      maxRetries: 0,
    });
    expect(heard).toEqual(["Rome", "Øslo", "Rome", "Øslo"]);
    expect(steps.map((step) => step.finishReason)).toEqual(["tool-calls", "tool-calls"]);
    expect(steps[0]!.text).toBe("Let me look.");
  });

  test("runs functions of a stream", async () => {
    const heard: string[] = [];
    const streamed = streamText({
      model: provider(),
      prompt: "Weather?",
      seed: 1,
      tools: { get_weather: weather(heard) },
      stopWhen: stepCountIs(1),
      maxRetries: 0,
    });
    await streamed.consumeStream();
    expect(heard).toEqual(["Rome", "Øslo"]);
    expect(await streamed.finishReason).toBe("tool-calls");
    expect(await streamed.text).toBe("Let me look.");
  });
});
