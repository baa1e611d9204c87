import { describe, expect, test } from "bun:test";
import { servedDemo } from "../../../tests/support/served-model.ts";
import { ControlTexts } from "../../../text/control-text.ts";
import { ChatTemplate } from "../../../text/template.ts";
import { ApiError } from "../../http/errors.ts";
import { parseCountRequest, parseMessagesRequest } from "./schema.ts";

const model = servedDemo({ contextMax: 512 });
const user = { role: "user", content: "Hi" } as const;
const body = (more: object = {}) => ({ model: "demo", max_tokens: 9, messages: [user], ...more });
const parse = (more: object = {}, template: ChatTemplate | null = null) =>
  parseMessagesRequest(body(more), { model, template });

function refusalOf(more: object): [message: string, param: string | undefined] {
  try {
    parse(more);
  } catch (error) {
    expect(error).toBeInstanceOf(ApiError);
    return [(error as ApiError).message, (error as ApiError).detail.param];
  }
  throw new Error("expected a refusal");
}

const text = (words: string, more: object = {}) => ({ type: "text" as const, text: words, ...more });

describe("a conversation", () => {
  const messagesOf = (more: object) => parse(more).prompt.messages;

  test("has its system prompt first, and further ones where they stand", () => {
    const messages = [user, { role: "system", content: [text("a"), text("b")] }, user];
    const rest = [user, { role: "system", content: [text("a"), text("b")] }, user] as const;
    expect(messagesOf({ messages })).toEqual([...rest]);
    for (const system of ["Be brief.\nBe kind.", [text("Be brief."), text("Be kind.")]])
      expect<unknown>(messagesOf({ system, messages })).toEqual([
        { role: "system", content: system },
        ...rest,
      ]);
  });

  test("keeps the order of texts and results of calls", () => {
    const result = (id: string, more: object) => ({ type: "tool_result", tool_use_id: id, ...more });
    const content = [
      result("a", { content: "sunny" }),
      result("b", { content: [text("no"), text("city")], is_error: true }),
      result("c", {}),
      text("And"),
      text("now?"),
    ];
    expect(messagesOf({ messages: [{ role: "user", content }] })).toEqual([
      { role: "tool", tool_call_id: "a", content: "sunny" },
      { role: "tool", tool_call_id: "b", content: [text("Error: no"), text("city")] },
      { role: "tool", tool_call_id: "c", content: "" },
      { role: "user", content: [text("And"), text("now?")] },
    ]);
  });

  test("tells of calls and thoughts before", () => {
    const content = [
      { type: "thinking", thinking: "Weather.", signature: "c2lnbmVk" },
      text("Let me look."),
      { type: "tool_use", id: "toolu_1", name: "weather", input: { city: "Rome" } },
    ];
    expect(messagesOf({ messages: [{ role: "assistant", content }, user] })).toEqual([
      {
        role: "assistant",
        content: [text("Let me look.")],
        reasoning_content: "Weather.",
        tool_calls: [
          { id: "toolu_1", type: "function", function: { name: "weather", arguments: { city: "Rome" } } },
        ],
      },
      user,
    ]);
  });

  test("reads what is past as well as can be, and tells of it", () => {
    const image = { type: "image", source: { type: "base64" } };
    const document = { type: "document", title: "Notes", source: { type: "text", data: "Rome is old." } };
    const { prompt, ignored } = parse({
      messages: [
        { role: "user", content: [text("Look:"), image, document] },
        {
          role: "assistant",
          content: [
            { type: "server_tool_use", id: "srvtoolu_1", name: "web_search", input: { query: "Rome" } },
            {
              type: "web_search_tool_result",
              tool_use_id: "srvtoolu_1",
              content: [{ encrypted_content: "x" }],
            },
            { type: "tool_use", id: "a", name: "shot.take", input: '{"of": "Ro' },
          ],
        },
        { role: "user", content: [{ type: "tool_result", tool_use_id: "a", content: [image] }, image] },
      ],
    });
    const instead = "[image: this model reads text only]";
    expect<unknown>(prompt.messages).toEqual([
      { role: "user", content: ["Look:", instead, "Notes\nRome is old."].map((words) => text(words)) },
      {
        role: "assistant",
        content: [
          text('[server_tool_use: {"name":"web_search","input":{"query":"Rome"}}]'),
          text('[web_search_tool_result: {"tool_use_id":"srvtoolu_1","content":[{}]}]'),
        ],
        tool_calls: [{ id: "a", type: "function", function: { name: "shot.take", arguments: '{"of": "Ro' } }],
      },
      { role: "tool", tool_call_id: "a", content: [text(instead)] },
      { role: "user", content: [text(instead)] },
    ]);
    expect(ignored).toEqual([
      "messages.content.image",
      "messages.content.server_tool_use",
      "messages.content.web_search_tool_result",
      "messages.content.content.image",
    ]);
  });

  test("reads documents that are text where they are asked about", () => {
    const source = { type: "content", content: [text("Rome"), text("is old.")] };
    const blocks = [
      { type: "document", title: "Notes", context: "Of 2020.", citations: { enabled: true }, source },
      { type: "search_result", title: "Rome", source: "https://rome.example", content: [text("A city.")] },
    ];
    expect(messagesOf({ messages: [{ role: "user", content: blocks }] })).toEqual([
      {
        role: "user",
        content: [text("Notes\nOf 2020.\nRome\nis old."), text("Rome\nhttps://rome.example\nA city.")],
      },
    ]);
  });

  test("goes on with the assistant's words where it ends with them", () => {
    const endOf = ({ prompt }: ReturnType<typeof parse>) => [
      prompt.addGenerationPrompt,
      prompt.continuesLast,
    ];
    expect(endOf(parse({ messages: [user, { role: "assistant", content: "The" }] }))).toEqual([false, true]);
    expect(endOf(parse())).toEqual([true, false]);
  });

  test("loses the line that differs from one conversation to the next, and nothing else", () => {
    const line = "x-anthropic-billing-header: cc_version=2.1; cch=1a2b3;";
    for (const [given, content] of [
      [`${line}\nYou help.`, "You help."],
      [[text(line), text("You help.")], [text("You help.")]],
    ]) {
      const { prompt, ignored } = parse({ system: given });
      expect<unknown>(prompt.messages.slice(0, -1)).toEqual([{ role: "system", content }]);
      expect(ignored).toEqual(["x-anthropic-billing-header"]);
    }
    expect<unknown>(messagesOf({ system: line }).length).toBe(1);
    expect(messagesOf({ system: `See ${line}` })[0]!.content).toBe(`See ${line}`);
  });
});

test("functions are what templates read", () => {
  const input_schema = { type: "object", properties: { city: { type: "string" } } };
  const tools = [
    { name: "weather", description: "Of a city", input_schema, cache_control: { type: "ephemeral" } },
    { type: "custom", name: "now", input_schema: { type: "object" }, strict: true, defer_loading: true },
  ];
  const { prompt, generation, ignored } = parse({ tools });
  expect(prompt.tools).toEqual([
    { type: "function", function: { name: "weather", description: "Of a city", parameters: input_schema } },
    { type: "function", function: { name: "now", parameters: { type: "object" } } },
  ]);
  expect(generation.calls?.callsMax).toBeNull();
  expect(ignored).toEqual(["tools.defer_loading"]);
  const one = parse({ tools, tool_choice: { type: "auto", disable_parallel_tool_use: true } });
  expect(one.generation.calls?.callsMax).toBe(1);
  const none = parse({ tools, tool_choice: { type: "none" } });
  expect([none.prompt.tools, none.generation.calls]).toEqual([[], undefined]);
  expect(none.ignored).toContain("tools");
});

test("system messages add tools and remove them", () => {
  const tool = (name: string) => ({ name, input_schema: { type: "object" } });
  const named = (type: string, name: string) => ({ type, tool: { type: "tool_reference", name } });
  const added = (name: string) => ({
    type: "tool_addition",
    tool: { type: "tool_definition", definition: tool(name) },
  });
  const changedBy = (...content: object[]) => {
    const messages = [user, { role: "system", content }, user];
    const { prompt, ignored } = parse({ tools: [tool("a"), tool("b")], messages });
    const names = prompt.tools.map((one) => (one as { function: { name: string } }).function.name);
    return { names, messages: prompt.messages.length, ignored };
  };
  expect(changedBy(added("c"), named("tool_addition", "a"))).toEqual({
    names: ["a", "b", "c"],
    messages: 2,
    ignored: [],
  });
  expect(changedBy(named("tool_removal", "a"), text("No more.")).names).toEqual(["b"]);
  const again = [named("tool_removal", "a"), named("tool_addition", "a"), added("b")];
  expect(changedBy(text("Changed."), ...again)).toEqual({ names: ["a", "b"], messages: 3, ignored: [] });
  expect(changedBy(named("tool_addition", "z"))).toEqual({
    names: ["a", "b"],
    messages: 2,
    ignored: ["messages.content.tool_addition"],
  });
});

test("what says how to generate is kept", () => {
  const given = { stop_sequences: ["END"], temperature: 0.5, top_p: 0.9, top_k: 40, stream: true };
  const { generation, stream, marks } = parse({ ...given, service_tier: "standard_only" });
  const { sampling, stopStrings, tokensMax } = generation;
  expect([sampling.temperature, sampling.topP, sampling.topK]).toEqual([0.5, 0.9, 40]);
  expect([stopStrings, tokensMax, stream, marks]).toEqual([["END"], 9, true, []]);
});

test("what has no effect is told, once, wherever it stands", () => {
  const cache_control = { type: "ephemeral", ttl: "1h" };
  const { ignored } = parse({
    system: [text("Be brief.", { cache_control })],
    messages: [{ role: "user", content: [text("Hi", { cache_control, citations: [] })] }],
    metadata: { user_id: "me", team: "red" },
    output_config: { effort: "low" },
    mcp_servers: [],
    context_management: { edits: [] },
    thinking: { type: "enabled", budget_tokens: 1024 },
  });
  expect(ignored).toEqual([
    "messages.content.citations",
    "thinking",
    "thinking.budget_tokens",
    "output_config.effort",
    "metadata",
    "context_management",
  ]);
});

test("what is marked for the cache is all up to the last mark of each time", () => {
  const mark = (ttl?: string) => ({
    cache_control: { type: "ephemeral", ...(ttl === undefined ? {} : { ttl }) },
  });
  const [minutes, hour] = [5 * 60_000, 60 * 60_000];
  const turn = (role: string, more = {}) => ({ role, content: [text("Hi", more)] });
  const marksOf = (body: object) => parse(body).marks;
  const turns = [turn("user"), turn("assistant"), turn("user")];
  expect(marksOf({ messages: turns })).toEqual([]);
  expect(marksOf({ messages: turns, ...mark("1h") })).toEqual([{ messages: 3, ttlMs: hour }]);
  expect(marksOf({ messages: turns, system: [text("Be brief.", mark())] })).toEqual([
    { messages: 1, ttlMs: minutes },
  ]);
  const tool = { name: "now", input_schema: { type: "object" }, ...mark("1h") };
  expect(marksOf({ messages: turns, tools: [tool] })).toEqual([{ messages: 0, ttlMs: hour }]);
  const many = [
    turn("user", mark("1h")),
    turn("assistant", mark()),
    turn("user", mark("5m")),
    turn("assistant"),
  ];
  expect(marksOf({ messages: many, tools: [tool] })).toEqual([
    { messages: 1, ttlMs: hour },
    { messages: 3, ttlMs: minutes },
  ]);
});

test("thinking is told to a template that asks for it", () => {
  const asking = new ChatTemplate(
    { template: "{{ enable_thinking }}", toolTemplate: null, specialTokens: {} },
    new ControlTexts([]),
  );
  const argumentsOf = (type: string) => parse({ thinking: { type } }, asking).prompt.templateArguments;
  expect(["enabled", "adaptive", "disabled"].map(argumentsOf)).toEqual([
    { enable_thinking: true },
    { enable_thinking: true },
    { enable_thinking: false },
  ]);
  expect(parse({ thinking: { type: "disabled" } }, asking).ignored).toEqual([]);
  expect(parse({}, asking).prompt.templateArguments).toEqual({});
});

test("counting needs no max_tokens and reads the same prompt", () => {
  const { max_tokens: _, ...counted } = body({ system: "Be brief." });
  expect(parseCountRequest(counted, { model, template: null }).prompt).toEqual(
    parse({ system: "Be brief." }).prompt,
  );
});

const weather = { name: "weather", input_schema: { type: "object" } };
const asJson = { format: { type: "json_schema", schema: { type: "integer" } } };

test("calls that may or must be made, and answers in a schema, are held to it", () => {
  const offered = (more: object) => parse(more).generation.calls;
  const expected = (callsMax: number | null, mayTalk: boolean, isStrict: boolean) => ({
    functions: [{ name: "weather", parameters: { type: "object" }, isStrict }],
    callsMax,
    mayTalk,
    param: "tools",
  });
  const tools = [weather];
  expect<unknown>(offered({ tools, tool_choice: { type: "any" } })).toEqual(expected(null, false, true));
  const one = { type: "any", disable_parallel_tool_use: true };
  expect<unknown>(offered({ tools, tool_choice: one })).toEqual(expected(1, false, true));
  const named = { type: "tool", name: "weather" };
  expect<unknown>(offered({ tools, tool_choice: named })).toEqual(expected(1, false, true));
  expect<unknown>(offered({ tools: [{ ...weather, strict: true }] })).toEqual(expected(null, true, true));
  expect<unknown>(offered({ tools })).toEqual(expected(null, true, false));
  expect<unknown>(parse({ output_config: asJson }).generation.constraint).toEqual({
    source: { kind: "schema", schema: { type: "integer" }, layout: "compact" },
    param: "output_config.format.schema",
  });
});

const block = (type: string) => ({ messages: [{ role: "user", content: [{ type }] }] });
const cases: [more: object, message: string, param: string][] = [
  [{ max_tokens: undefined }, "max_tokens must be an integer of at least 1, but is missing", "max_tokens"],
  [
    { max_tokens: 0 },
    "max_tokens must be an integer from 1 to 9007199254740991, or -1 for as many as there is room for, but 0 was given",
    "max_tokens",
  ],
  [
    { messages: [] },
    "messages must be an array of at least one message, but an array of 0 was given",
    "messages",
  ],
  [
    { messages: [{ role: "tool", content: "" }] },
    'messages[0].role must be user, assistant or system, but "tool" was given',
    "messages[0].role",
  ],
  [
    block("image"),
    'messages[0].content[0].type: this model reads text only, but content of the type "image" was given',
    "messages[0].content[0].type",
  ],
  [
    block("document"),
    'messages[0].content[0].type: this model reads text only, but content of the type "document" was given',
    "messages[0].content[0].type",
  ],
  [
    { messages: [{ role: "user", content: [] }] },
    "messages[0].content must be a string or at least one block, but an array of 0 was given",
    "messages[0].content",
  ],
  [
    { cache_control: { type: "ephemeral", ttl: "2h" } },
    'cache_control.ttl must be 5m or 1h, but "2h" was given',
    "cache_control.ttl",
  ],
  [
    {
      tools: [weather, { type: "web_search_20250305", name: "web_search" }],
      tool_choice: { type: "tool", name: "web_search" },
    },
    'tools[1].type: this server has no tools of its own, but tool_choice names one of the type "web_search_20250305"',
    "tools[1].type",
  ],
  [
    { tools: [{ type: "bash_20250124", name: "bash" }], tool_choice: { type: "any" } },
    "tool_choice wants a call, but there are no tools",
    "tool_choice",
  ],
  [
    { tools: [{ ...weather, name: "a".repeat(129) }] },
    `tools[0].name must be 1 to 128 letters, digits, underscores or hyphens, but ${JSON.stringify(`${"a".repeat(56)}…`)} was given`,
    "tools[0].name",
  ],
  [
    { tools: [{ name: "f" }] },
    "tools[0].input_schema must be an object, but is missing",
    "tools[0].input_schema",
  ],
  [{ tool_choice: { type: "any" } }, "tool_choice wants a call, but there are no tools", "tool_choice"],
  [
    { tools: [weather], tool_choice: { type: "tool", name: "now" } },
    'tool_choice names "now", which is none of tools',
    "tool_choice",
  ],
  [
    { tool_choice: { type: "required" } },
    'tool_choice.type must be auto, any, tool or none, but "required" was given',
    "tool_choice.type",
  ],
  [
    { output_config: { format: { type: "json_object" } } },
    'output_config.format.type must be "json_schema", but "json_object" was given',
    "output_config.format.type",
  ],
  [{ thread: { type: "create" } }, "thread: this field is not supported by this server", "thread"],
  [
    { compaction: { type: "summarize" } },
    "compaction: this field is not supported by this server",
    "compaction",
  ],
  [
    { service_tier: "flex" },
    'service_tier must be auto or standard_only, but "flex" was given',
    "service_tier",
  ],
  [
    { stop_sequences: ["", 5] },
    "stop_sequences[1] must be a string that is not empty, but 5 was given",
    "stop_sequences[1]",
  ],
  [
    { thinking: { type: "much" } },
    'thinking.type must be enabled, adaptive or disabled, but "much" was given',
    "thinking.type",
  ],
];

test.each(cases)("refused: %j", (more, message, param) => {
  expect(refusalOf(more)).toEqual([message, param]);
});
