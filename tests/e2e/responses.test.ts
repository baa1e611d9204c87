/**
 * Responses API of OpenAI: the official client with only the base URL changed, and details that the client
 * does not check.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import OpenAI from "openai";
import type {
  Response as Answer,
  ResponseCreateParamsNonStreaming,
  ResponseStreamEvent,
} from "openai/resources/responses/responses";
import { startTestServer, type TestServer } from "./server.ts";

const template = readFileSync(join(import.meta.dir, "../reference/tools/template.jinja"), "utf8");
const call = (name: string, values: string) =>
  `<tool_call>\n{"name": "${name}", "arguments": ${values}}\n</tool_call>`;
/** Answers by seed. */
const answers = [
  "Just text, one two three.",
  `Let me look.\n${call("get_weather", '{"city": "Rome"}')}\n${call("get_weather", '{"city": "Øslo"}')}`,
  call("shout", '{"input": "two\\nlines"}'),
  '{"city":"Rome"}',
  `${call("maps__route", '{"to": "Rome"}')}\n${call("maps__say", '{"input": "left"}')}`,
];
const tools = [
  {
    type: "function" as const,
    name: "get_weather",
    description: "The weather of a city",
    parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
    strict: false,
  },
];
const keys = ["key-of-ann", "key-of-bob"];
/** Response with `store`, which the client's types lack. */
type Kept = Answer & { readonly store: boolean };
type Body = ResponseCreateParamsNonStreaming;
type Input = NonNullable<Body["input"]>;

const data = mkdtempSync(join(tmpdir(), "bunting-responses-"));
let server: TestServer;
let ann: OpenAI;
let bob: OpenAI;
const open = () => {
  server = startTestServer({ answers, template, keys: { keys }, data, stepMs: 1 });
  const clientOf = (apiKey: string) => new OpenAI({ baseURL: `${server.origin}/v1`, apiKey, maxRetries: 0 });
  ann = clientOf(keys[0]!);
  bob = clientOf(keys[1]!);
};
beforeAll(open);
afterEach(() => server.settled());
afterAll(async () => {
  await server.close();
  rmSync(data, { recursive: true });
});

/** Makes a body with the seed of an answer, a field that the API does not have. */
const asking = (seed: number, more: Partial<Body> = {}): Body =>
  ({ model: "demo", input: "Weather?", ...more, seed }) as Body;

async function failure(promise: PromiseLike<unknown>) {
  try {
    await promise;
  } catch (error) {
    return error as InstanceType<typeof OpenAI.APIError>;
  }
  throw new Error("expected a failure");
}

async function eventsOf(body: Body): Promise<ResponseStreamEvent[]> {
  const events: ResponseStreamEvent[] = [];
  for await (const event of await ann.responses.create({ ...body, stream: true })) events.push(event);
  return events;
}

/** Folds a stream's events as a client does, and checks that each follows from those before it. */
function folded(events: readonly ResponseStreamEvent[]): Answer {
  expect(events.map((event) => event.sequence_number)).toEqual(events.map((_, index) => index));
  expect(events.slice(0, 2).map(({ type }) => type)).toEqual(["response.created", "response.in_progress"]);
  const said: string[] = [];
  const done: unknown[] = [];
  for (const event of events.slice(2, -1)) {
    switch (event.type) {
      case "response.output_item.added":
        expect(event.output_index).toBe(done.length);
        said[event.output_index] = "";
        break;
      case "response.output_text.delta":
      case "response.function_call_arguments.delta":
      case "response.custom_tool_call_input.delta":
        said[event.output_index] += event.delta;
        break;
      case "response.output_text.done":
        expect(event.text).toBe(said[event.output_index]!);
        break;
      case "response.function_call_arguments.done":
        expect(event.arguments).toBe(said[event.output_index]!);
        break;
      case "response.custom_tool_call_input.done":
        expect(event.input).toBe(said[event.output_index]!);
        break;
      case "response.output_item.done":
        done.push(event.item);
        break;
      case "response.content_part.added":
      case "response.content_part.done":
        break;
      default:
        throw new Error(`an event ${event.type}`);
    }
  }
  const last = events.at(-1)!;
  if (!("response" in last)) throw new Error(`the last event is ${last.type}`);
  expect(last.type).toBe(`response.${last.response.status!}` as typeof last.type);
  expect<unknown>(last.response.output).toEqual(done);
  return last.response;
}

/** Removes the fields that differ from one response to the next. */
function comparable(response: Answer): unknown {
  const { id, output_text: _, ...rest } = response;
  const text = JSON.stringify({ ...rest, created_at: 0, completed_at: 0 });
  return JSON.parse(
    text.replaceAll(id.slice("resp_".length), "KEY").replaceAll(/call_[0-9a-f]{24}/g, "call"),
  );
}

describe("a whole response", () => {
  test("holds every field that typed clients read", async () => {
    const response = await ann.responses.create(
      asking(0, { metadata: { a: "b" }, instructions: "Be brief." }),
    );
    const { input_tokens, output_tokens } = response.usage!;
    const key = response.id.slice("resp_".length);
    expect<unknown>(response).toEqual({
      id: expect.stringMatching(/^resp_[0-9a-f]{32}$/),
      object: "response",
      created_at: expect.any(Number),
      completed_at: expect.any(Number),
      status: "completed",
      model: "demo",
      error: null,
      incomplete_details: null,
      instructions: "Be brief.",
      output: [
        {
          type: "message",
          id: `msg_${key}_0`,
          role: "assistant",
          status: "completed",
          content: [{ type: "output_text", text: answers[0], annotations: [], logprobs: [] }],
        },
      ],
      output_text: answers[0],
      usage: {
        input_tokens,
        input_tokens_details: { cached_tokens: 0 },
        output_tokens,
        output_tokens_details: { reasoning_tokens: 0 },
        total_tokens: input_tokens + output_tokens,
      },
      max_output_tokens: null,
      max_tool_calls: null,
      metadata: { a: "b" },
      tools: [],
      tool_choice: "auto",
      parallel_tool_calls: true,
      previous_response_id: null,
      conversation: null,
      reasoning: { effort: null, summary: null },
      text: { format: { type: "text" } },
      temperature: expect.any(Number),
      top_p: expect.any(Number),
      presence_penalty: 0,
      frequency_penalty: 0,
      top_logprobs: 0,
      truncation: "disabled",
      service_tier: "default",
      prompt_cache_key: null,
      safety_identifier: null,
      user: null,
      store: true,
      background: false,
    });
  });

  test("is incomplete when there was no room for all of it", async () => {
    const { status, incomplete_details, output } = await ann.responses.create(
      asking(0, { max_output_tokens: 2 }),
    );
    expect([status, incomplete_details?.reason]).toEqual(["incomplete", "max_output_tokens"]);
    expect(output).toMatchObject([{ type: "message", status: "incomplete" }]);
  });

  test("tells of calls, between the texts around them", async () => {
    const { output } = await ann.responses.create(asking(1, { tools }));
    expect(output).toMatchObject([
      { type: "message", content: [{ text: "Let me look." }] },
      { type: "function_call", name: "get_weather", arguments: '{"city": "Rome"}', status: "completed" },
      { type: "function_call", name: "get_weather", arguments: '{"city": "Øslo"}' },
    ]);
    const one = await ann.responses.create(asking(1, { tools, parallel_tool_calls: false }));
    expect(one.output.map(({ type }) => type)).toEqual(["message", "function_call"]);
  });

  test("tells a call of a custom tool as text", async () => {
    const custom = [{ type: "custom" as const, name: "shout", description: "Shouts" }];
    const { output, tools: told } = await ann.responses.create(asking(2, { tools: custom }));
    const { id, call_id } = output[0] as { id: string; call_id: string };
    const input = "two\nlines";
    expect<unknown>(output).toEqual([
      { type: "custom_tool_call", id, call_id, name: "shout", input, status: "completed" },
    ]);
    expect<unknown>(told).toEqual([{ ...custom[0]!, format: { type: "text" } }]);
  });

  test("tells a call of a namespace's tool with its namespace, and reads it back", async () => {
    const route = { type: "function", name: "route", description: null, parameters: null, strict: null };
    const say = { type: "custom", name: "say", format: { type: "text" } };
    const maps = { type: "namespace", name: "maps", description: "Ways", tools: [route, say] };
    const { output, tools: told } = await ann.responses.create(
      asking(4, { tools: [maps] as NonNullable<Body["tools"]> }),
    );
    expect<unknown>(told).toEqual([maps]);
    expect<unknown>(output).toMatchObject([
      { type: "function_call", name: "route", namespace: "maps", arguments: '{"to": "Rome"}' },
      { type: "custom_tool_call", name: "say", namespace: "maps", input: "left" },
    ]);
    const flat = output.map((item) => ({
      ...item,
      namespace: undefined,
      name: `maps__${(item as { name: string }).name}`,
    }));
    const [again, same] = await Promise.all(
      [output, flat].map((items) => ann.responses.create(asking(0, { input: items as Input }))),
    );
    expect(again!.usage!.input_tokens).toBe(same!.usage!.input_tokens);
  });

  test("is held to a schema", async () => {
    const schema = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
    const format = { type: "json_schema" as const, name: "city", schema, strict: true };
    const { output_text, text } = await ann.responses.create(asking(3, { text: { format } }));
    expect(output_text).toBe(answers[3]!);
    expect(text).toEqual({ format });
  });

  test("has log probabilities where they are asked for", async () => {
    const { output } = await ann.responses.create(
      asking(0, { include: ["message.output_text.logprobs"], top_logprobs: 1 }),
    );
    const [message] = output;
    if (message?.type !== "message" || message.content[0]?.type !== "output_text") throw new Error("no text");
    const { text, logprobs } = message.content[0];
    expect(logprobs!.map(({ token }) => token).join("")).toBe(text);
  });
});

test("a stream's items are the items of the response", async () => {
  const custom = { type: "custom" as const, name: "shout" };
  const bodies = [
    asking(0),
    asking(0, { max_output_tokens: 2 }),
    asking(0, { include: ["message.output_text.logprobs"] }),
    asking(1, { tools }),
    asking(2, { tools: [custom] }),
  ];
  for (const body of bodies) {
    const streamed = folded(await eventsOf(body));
    const whole = await ann.responses.create(body);
    const cached = whole.usage!.input_tokens_details;
    const usage = { ...streamed.usage!, input_tokens_details: cached };
    expect(comparable({ ...streamed, usage })).toEqual(comparable(whole));
    expect<unknown>(await ann.responses.retrieve(streamed.id)).toMatchObject(streamed);
  }
});

test("the client's own helper understands a stream", async () => {
  const stream = ann.responses.stream({ ...asking(1, { tools }), stream: true } as never);
  const last = await stream.finalResponse();
  expect(last.output.map(({ type }) => type)).toEqual(["message", "function_call", "function_call"]);
});

describe("a conversation", () => {
  const told = async (more: Partial<Body>) =>
    (await ann.responses.create(asking(0, more))).usage!.input_tokens;

  test("goes on from a response as from its items", async () => {
    const first = await ann.responses.create(asking(1, { tools, instructions: "Once." }));
    const outputs = first.output
      .filter((item) => item.type === "function_call")
      .map(({ call_id }) => ({ type: "function_call_output" as const, call_id, output: "sunny" }));
    const continued = { tools, previous_response_id: first.id, input: outputs };
    const whole = {
      tools,
      input: [{ role: "user" as const, content: "Weather?" }, ...first.output, ...outputs] as Input,
    };
    expect(await told(continued)).toBe(await told(whole));
    // Codex returns items without ids and states; the AI SDK sends the ids alone.
    const bare = first.output.map(({ id: _, ...item }) => ({ ...item, status: undefined }));
    const references = first.output.map(({ id }) => ({ type: "item_reference", id }));
    for (const sent of [bare, references]) {
      const input = [{ role: "user", content: "Weather?" }, ...sent, ...outputs] as unknown as Input;
      expect(await told({ tools, input })).toBe(await told(whole));
    }
    const second = await ann.responses.create(asking(0, continued));
    const third = { previous_response_id: second.id, input: "And now?" };
    expect(await told({ ...third, tools })).toBeGreaterThan(second.usage!.total_tokens);
    expect(second.instructions).toBeNull();
  });

  test("has its instructions first, and only where they are given", async () => {
    const first = await ann.responses.create(asking(0, { instructions: "Speak only in rhymes, please." }));
    const next = { previous_response_id: first.id, input: "More." };
    const items = [
      { role: "user" as const, content: "Weather?" },
      { role: "assistant" as const, content: answers[0]! },
      { role: "user" as const, content: "More." },
    ];
    expect(await told(next)).toBe(await told({ input: items }));
    const developer = [{ role: "developer" as const, content: "Be kind." }, ...items];
    expect(await told({ ...next, instructions: "Be kind." })).toBe(await told({ input: developer }));
  });

  test("counts the tokens of an input as a response does", async () => {
    const body = {
      input: [{ role: "user" as const, content: "Weather?" }],
      tools,
      instructions: "Be brief.",
    };
    const { input_tokens } = await ann.responses.inputTokens.count({ model: "demo", ...body });
    expect(input_tokens).toBe(await told(body));
  });
});

describe("what is kept", () => {
  test("is each key's own", async () => {
    const { id, output } = await ann.responses.create(asking(0));
    expect((await ann.responses.retrieve(id)).output).toEqual(output);
    const refusals = [
      () => bob.responses.retrieve(id),
      () => bob.responses.delete(id),
      () => bob.responses.inputItems.list(id),
      () => bob.responses.cancel(id),
      () => bob.responses.create(asking(0, { previous_response_id: id })),
      () => bob.responses.create(asking(0, { input: [{ type: "item_reference", id: output[0]!.id! }] })),
      () => ann.responses.retrieve("resp_0"),
    ];
    for (const refused of refusals) expect((await failure(refused())).status).toBe(404);
    await ann.responses.delete(id);
    expect((await failure(ann.responses.retrieve(id))).status).toBe(404);
    const gone = await failure(ann.responses.create(asking(0, { previous_response_id: id })));
    expect([gone.status, gone.code, gone.param]).toEqual([
      404,
      "previous_response_not_found",
      "previous_response_id",
    ]);
  });

  test("is nothing where store is false", async () => {
    const { id, store } = (await ann.responses.create(asking(0, { store: false }))) as unknown as Kept;
    expect(store).toBe(false);
    expect((await failure(ann.responses.retrieve(id))).status).toBe(404);
  });

  test("lists its input page by page", async () => {
    const input = ["a", "b", "c"].map((content) => ({ role: "user" as const, content }));
    const { id } = await ann.responses.create(asking(0, { input }));
    const texts: string[] = [];
    for await (const item of ann.responses.inputItems.list(id, { limit: 2, order: "asc" })) {
      if (item.type === "message") texts.push((item.content[0] as { readonly text: string }).text);
    }
    expect(texts).toEqual(["a", "b", "c"]);
    const newest = await ann.responses.inputItems.list(id, { limit: 1 });
    expect(newest.data).toMatchObject([{ role: "user", content: [{ type: "input_text", text: "c" }] }]);
  });

  test("outlives the server where it has a folder", async () => {
    const { id, output } = await ann.responses.create(asking(0));
    await server.close();
    open();
    expect((await ann.responses.retrieve(id)).output).toEqual(output);
    expect((await ann.responses.create(asking(0, { previous_response_id: id }))).status).toBe("completed");
  });
});

describe("in the background", () => {
  test("a response is asked for until it has ended", async () => {
    const begun = await ann.responses.create(asking(0, { background: true }));
    expect([begun.status, begun.output, begun.background]).toEqual(["in_progress", [], true]);
    await server.settled();
    const ended = await ann.responses.retrieve(begun.id);
    expect([ended.status, ended.output_text]).toEqual(["completed", answers[0]!]);
    expect((await ann.responses.cancel(begun.id)).status).toBe("completed");
  });

  test("a response is cancelled", async () => {
    const slow = startTestServer({ stepMs: 20 });
    try {
      const client = new OpenAI({ baseURL: `${slow.origin}/v1`, apiKey: "none", maxRetries: 0 });
      const body = asking(0, { background: true, ignore_eos: true } as Partial<Body>);
      const { id } = await client.responses.create(body);
      const early = await failure(client.responses.create(asking(0, { previous_response_id: id })));
      expect([early.status, early.param]).toEqual([400, "previous_response_id"]);
      expect((await client.responses.cancel(id)).status).toBe("cancelled");
      await slow.settled();
      const other = await client.responses.create(body);
      await client.responses.delete(other.id);
      await slow.settled();
      expect((await failure(client.responses.retrieve(other.id))).status).toBe(404);
      const { id: direct } = await client.responses.create(asking(0, { max_output_tokens: 1 }));
      expect((await failure(client.responses.cancel(direct))).status).toBe(400);
    } finally {
      await slow.close();
    }
  });
});

test("what is not supported is refused by its name", async () => {
  const refused: [Record<string, unknown>, string][] = [
    [{ conversation: "conv_1", previous_response_id: "resp_1" }, "conversation"],
    [{ conversation: 5 }, "conversation"],
    [{ conversation: {} }, "conversation.id"],
    [{ prompt: { id: "p" } }, "prompt"],
    [{ truncation: "auto" }, "truncation"],
    [{ tools: [{ type: "web_search" }], tool_choice: "required" }, "tool_choice"],
    [{ tool_choice: { type: "file_search" }, tools }, "tool_choice.type"],
    [
      { input: [{ role: "user", content: [{ type: "input_image", image_url: "x" }] }] },
      "input[0].content[0].type",
    ],
    [{ input: [] }, "input"],
    [{ background: true, store: false }, "store"],
    [{ reasoning: { effort: "much" } }, "reasoning.effort"],
    [{ metadata: { a: 5 } }, "metadata.a"],
    [{ max_output_tokens: 0 }, "max_output_tokens"],
    [{ input: "word ".repeat(2100) }, "input"],
  ];
  for (const [more, param] of refused) {
    const error = await failure(ann.responses.create(asking(0, more as Partial<Body>)));
    expect([error.status, error.param, param]).toEqual([400, param, param]);
  }
});

describe("what is past or only on offer", () => {
  const create = async (more: object) => {
    const { data, response } = await ann.responses.create(asking(0, more as Partial<Body>)).withResponse();
    return { data, ignored: response.headers.get("x-bunting-ignored") };
  };
  const shown = async (input: readonly object[]) => {
    const { data } = await create({ input });
    const { data: items } = await ann.responses.inputItems.list(data.id, { order: "asc" });
    return items.map((item) => ("content" in item ? item.content : "output" in item ? item.output : null));
  };

  test("of hosted tools is left out, and named", async () => {
    const hosted = [
      { type: "web_search" },
      { type: "code_interpreter", container: { type: "auto" } },
      { type: "namespace", name: "maps", tools: [{ type: "computer_use_preview" }] },
    ];
    const { data, ignored } = await create({ tools: [...tools, ...hosted], tool_choice: "auto" });
    expect(ignored).toBe("tools.web_search, tools.code_interpreter, tools.computer_use_preview");
    expect(data.tools.map(({ type }) => type)).toEqual([
      ...tools.map(() => "function" as const),
      "namespace",
    ] as never);
    expect((await create({ tools: hosted })).data.status).toBe("completed");
  });

  test("of a custom tool's grammar that cannot be held to is named, and refused where the tool is chosen", async () => {
    const patch = {
      type: "custom",
      name: "apply_patch",
      format: { type: "grammar", syntax: "lark", definition: "start: /.+/" },
    };
    expect((await create({ tools: [...tools, patch] })).ignored).toBe("tools.format");
    const tool_choice = { type: "custom", name: "apply_patch" };
    const refused = await failure(
      ann.responses.create(asking(0, { tools: [...tools, patch], tool_choice } as never)),
    );
    expect([refused.status, refused.param]).toEqual([400, `tools[${tools.length}].format.syntax`]);
  });

  test("is read as text where it is none", async () => {
    const image = { type: "input_image", image_url: "x" };
    const input = [
      { role: "user", content: [{ type: "input_text", text: "Look." }, image] },
      { type: "web_search_call", id: "ws_1", status: "searching", action: { query: "Rome" } },
      { type: "compaction", encrypted_content: "x" },
      { type: "function_call", call_id: "c", name: "shot.take", arguments: { of: "Rome" } },
      { type: "function_call_output", call_id: "c", output: [image] },
    ];
    expect((await create({ input })).ignored).toBe(
      "input.content.input_image, input.web_search_call, input.compaction, input.output.input_image",
    );
    const text = (type: string, text: string) =>
      type === "output_text" ? { type, text, annotations: [], logprobs: [] } : { type, text };
    const instead = "[image: this model reads text only]";
    expect<unknown>(await shown(input)).toEqual([
      [text("input_text", "Look."), text("input_text", instead)],
      [text("output_text", '[web_search_call: {"action":{"query":"Rome"}}]')],
      [text("input_text", "[compaction]")],
      null,
      [text("input_text", instead)],
    ]);
  });

  test("of reasoning that another server sealed is its summary, or is named", async () => {
    const sealed = { type: "reasoning", encrypted_content: "opaque" };
    const summary = [{ type: "summary_text", text: "First look." }];
    const input = (more: object) => [
      { role: "user", content: "Hi" },
      { ...sealed, ...more },
    ];
    expect((await create({ input: input({ summary: [] }) })).ignored).toBe("input.reasoning");
    expect((await create({ input: input({ summary }) })).ignored).toBeNull();
    expect(await shown(input({ summary }))).toContainEqual([
      { type: "reasoning_text", text: "First look." },
    ] as never);
  });

  test("of outputs without their calls, and of calls without ids, is read", async () => {
    const lone = { type: "function_call_output", call_id: "gone", output: "sunny" };
    expect((await create({ input: [lone] })).data.status).toBe("completed");
    const pair = [
      { type: "function_call", name: "f", arguments: "" },
      { type: "function_call_output", output: null },
    ];
    expect((await create({ input: [{ role: "user", content: "Hi" }, ...pair] })).data.status).toBe(
      "completed",
    );
  });
});

test("a call that was cut off can be gone on from, by its id and by hand", async () => {
  const server = startTestServer({
    answers: ['<tool_call>\n{"name": "weather", "arguments": {"city": "Reykja'],
  });
  try {
    const client = new OpenAI({ baseURL: `${server.origin}/v1`, apiKey: "none", maxRetries: 0 });
    const weather = {
      type: "function",
      name: "weather",
      parameters: { type: "object" },
      strict: false,
    } as const;
    const asked = { model: "demo", tools: [weather], seed: 0, temperature: 0 };
    const question = { role: "user" as const, content: "Weather?" };
    let tokens = 1;
    let cut: OpenAI.Responses.Response;
    do cut = await client.responses.create({ ...asked, input: [question], max_output_tokens: ++tokens * 4 });
    while (!JSON.stringify(cut.output).includes("Rey"));
    expect(cut.status).toBe("incomplete");
    const [call] = cut.output as [OpenAI.Responses.ResponseFunctionToolCall];
    expect(() => JSON.parse(call.arguments)).toThrow();
    const goOn = { role: "user" as const, content: "Go on." };
    const more = { ...asked, max_output_tokens: 1 };
    const after = await client.responses.create({ ...more, previous_response_id: cut.id, input: [goOn] });
    const byHand = await client.responses.create({ ...more, input: [question, call, goOn] });
    expect(after.usage!.input_tokens).toBe(byHand.usage!.input_tokens);
  } finally {
    await server.settled();
    await server.close();
  }
});

test("a stream whose engine fails ends with response.failed", async () => {
  const failing = startTestServer({
    fault: ({ chunks }) => ({
      kind: "done",
      sampled: chunks.flatMap(({ sequence, samples }) =>
        samples.length === 0 ? [] : [{ kind: "failed", sequence, reason: "broken" } as const],
      ),
      deviceMs: 1,
    }),
  });
  try {
    const client = new OpenAI({ baseURL: `${failing.origin}/v1`, apiKey: "none", maxRetries: 0 });
    const types: string[] = [];
    let last: ResponseStreamEvent | null = null;
    for await (const event of await client.responses.create({ ...asking(0), stream: true })) {
      types.push(event.type);
      last = event;
    }
    expect(types).toEqual(["response.created", "response.in_progress", "response.failed"]);
    const { response } = last as Extract<ResponseStreamEvent, { type: "response.failed" }>;
    expect(response.error).toEqual({ code: "engine_error" as never, message: expect.any(String) });
    expect((await client.responses.retrieve(response.id)).status).toBe("failed");
  } finally {
    await failing.close();
  }
});
