import { describe, expect, test } from "bun:test";
import { textOf } from "../../../text/conversation/messages.ts";
import { ApiError } from "../../http/errors.ts";
import { Fields } from "../fields.ts";
import { messagesOf } from "./inputs.ts";
import { pastCallsOf } from "./past-calls.ts";
import { toolUseOf } from "./tools.ts";

const tool = (definition: object) => ({ type: "function", function: { name: "f", ...definition } });

function refusalOf(run: () => unknown): [message: string, param: string | undefined] {
  try {
    run();
  } catch (error) {
    expect(error).toBeInstanceOf(ApiError);
    return [(error as ApiError).message, (error as ApiError).detail.param];
  }
  throw new Error("expected a refusal");
}

describe("what may be called", () => {
  const use = (body: Readonly<Record<string, unknown>>) => toolUseOf(new Fields(body));

  test("is kept as it came, to the order of its keys", () => {
    const given = [
      tool({ z: 1, parameters: { b: 1, a: { type: "float128" } }, description: null, strict: false }),
    ];
    for (const more of [{}, { tool_choice: "auto" }, { parallel_tool_calls: true }]) {
      const { tools, calls, ignored } = use({ tools: given, ...more });
      expect(JSON.stringify(tools)).toBe(JSON.stringify(given));
      expect([calls?.callsMax, ignored]).toEqual([null, []]);
    }
    expect(use({ tools: given, parallel_tool_calls: false }).calls?.callsMax).toBe(1);
  });

  test("is nothing without tools and with none chosen; what has no effect then is told", () => {
    const nothing = { tools: [], calls: null };
    for (const tools of [undefined, null, []]) {
      expect(use({ tools, tool_choice: "auto" })).toEqual({ ...nothing, ignored: [] });
    }
    expect(use({ tools: [tool({})], tool_choice: "none", parallel_tool_calls: true })).toEqual({
      ...nothing,
      ignored: ["tools", "parallel_tool_calls"],
    });
  });

  const hosted = ["web_search", "code_interpreter", "mcp", "custom"].map((type) => ({ type }));

  test("is functions: what a vendor runs itself is left out and told", () => {
    const { tools, calls, ignored } = use({ tools: [hosted[0], tool({}), ...hosted.slice(1)] });
    expect(tools).toEqual([tool({})]);
    expect(calls?.functions.map(({ name }) => name)).toEqual(["f"]);
    expect(ignored).toEqual(["tools.web_search", "tools.code_interpreter", "tools.mcp", "tools.custom"]);
    expect(use({ tools: hosted }).calls).toBeNull();
    expect(refusalOf(() => use({ tools: hosted, tool_choice: "required" }))[0]).toBe(
      "tool_choice wants a call, but there are no tools",
    );
    expect(refusalOf(() => use({ tools: [tool({}), ...hosted], tool_choice: hosted[0] }))[0]).toBe(
      'tool_choice.type must be "function", but "web_search" was given',
    );
  });

  test("may lack its type", () => {
    expect(use({ tools: [{ function: { name: "f" } }] }).calls?.functions).toHaveLength(1);
  });

  const many = Array.from({ length: 1025 }, () => tool({}));
  const cases: [given: unknown, message: string, param: string][] = [
    [{}, "tools must be an array, but an object was given", "tools"],
    [many, "tools may hold 1024 items at most, but holds 1025", "tools"],
    [[5], "tools[0] must be an object, but 5 was given", "tools[0]"],
    [[{}], "tools[0].function must be an object, but is missing", "tools[0].function"],
    [[{ type: "function" }], "tools[0].function must be an object, but is missing", "tools[0].function"],
    [
      [tool({}), tool({ name: "a b" })],
      'tools[1].function.name must be 1 to 64 letters, digits, underscores or hyphens, but "a b" was given',
      "tools[1].function.name",
    ],
    [
      [tool({ description: "x".repeat(65_537) })],
      "tools[0].function.description may have 65536 characters at most, but has 65537",
      "tools[0].function.description",
    ],
    [
      [tool({ parameters: [] })],
      "tools[0].function.parameters must be an object, but an array of 0 was given",
      "tools[0].function.parameters",
    ],
    [
      [tool({ parameters: { a: "ü".repeat(32_768) } })],
      "tools[0].function.parameters may have 65536 bytes of JSON at most, but has 65544",
      "tools[0].function.parameters",
    ],
    [
      [tool({ strict: "yes" })],
      'tools[0].function.strict must be true or false, but "yes" was given',
      "tools[0].function.strict",
    ],
  ];
  test.each(cases)("%j is refused", (tools, message, param) => {
    expect(refusalOf(() => use({ tools }))).toEqual([message, param]);
  });

  test("names have 64 characters at most", () => {
    expect(use({ tools: [tool({ name: "a".repeat(64) })] }).tools).toHaveLength(1);
    expect(refusalOf(() => use({ tools: [tool({ name: "a".repeat(65) })] }))[1]).toBe(
      "tools[0].function.name",
    );
  });

  const parameters = { type: "object", properties: { a: { type: "integer" } } };
  const two = [tool({ parameters }), tool({ name: "g", strict: true, parameters })];
  const held = (body: Readonly<Record<string, unknown>>) => {
    const { calls } = use({ tools: two, ...body });
    if (calls === null) return null;
    const { functions, callsMax, mayTalk } = calls;
    return [functions.map((one) => [one.name, one.parameters, one.isStrict]), callsMax, mayTalk];
  };

  test("may be forced, one of them or any, and are held to their schema then", () => {
    const both = [
      ["f", parameters, true],
      ["g", parameters, true],
    ];
    expect(held({ tool_choice: "required" })).toEqual([both, null, false]);
    expect(held({ tool_choice: "required", parallel_tool_calls: false })).toEqual([both, 1, false]);
    const named = { type: "function", function: { name: "f" } };
    expect(held({ tool_choice: named })).toEqual([[["f", parameters, true]], 1, false]);
    const allowed = (mode: string) => ({ type: "allowed_tools", allowed_tools: { mode, tools: [named] } });
    expect(held({ tool_choice: allowed("required") })).toEqual([[["f", parameters, true]], null, false]);
    expect(held({ tool_choice: allowed("auto") })).toEqual([[["f", parameters, false]], null, true]);
  });

  test("are held to their schema if they are called, the strict ones in any case", () => {
    expect(held({ tool_choice: "auto" })).toEqual([
      [
        ["f", parameters, false],
        ["g", parameters, true],
      ],
      null,
      true,
    ]);
    expect(use({ tools: two, tool_choice: "none" }).calls).toBeNull();
  });

  test("cannot be forced where they are not", () => {
    const choice = (tool_choice: unknown, tools: unknown = two) =>
      refusalOf(() => use({ tools, tool_choice }));
    const other = { type: "function", function: { name: "h" } };
    expect(choice(other)).toEqual(['tool_choice names "h", which is none of tools', "tool_choice"]);
    expect(choice("required", [])[0]).toBe("tool_choice wants a call, but there are no tools");
    expect(choice("any")[1]).toBe("tool_choice");
    expect(choice({ type: "allowed_tools", allowed_tools: { mode: "all" } })[1]).toBe(
      "tool_choice.allowed_tools.mode",
    );
  });
});

describe("calls that were made", () => {
  const call = (values: unknown, more: object = {}) => ({
    id: "call_1",
    type: "function",
    function: { name: "f", arguments: values },
    ...more,
  });
  const past = (calls: unknown) => pastCallsOf(new Fields({ tool_calls: calls }, "messages[0]"));
  const values = (given: unknown) => past([call(given)])[0]!.function.arguments;

  test("have arguments that are values", () => {
    expect(past([call('{"a": {"b": [1, null]}}'), call("")])).toEqual([
      { id: "call_1", type: "function", function: { name: "f", arguments: { a: { b: [1, null] } } } },
      { id: "call_1", type: "function", function: { name: "f", arguments: {} } },
    ]);
    expect([past(undefined), past(null), past([])]).toEqual([[], [], []]);
  });

  test("have arguments that are text where they are no JSON of an object", () => {
    for (const drawn of [
      '{"a": "New Yo',
      "[1]",
      '{"a":1,"a":2}',
      '{"__proto__":1}',
      `{"a":${"[".repeat(200)}`,
    ])
      expect(values(drawn)).toBe(drawn);
    expect(values({ a: 1 })).toEqual({ a: 1 });
    expect(values([1])).toBe("[1]");
    expect(values(undefined)).toEqual({});
  });

  test("may lack their type or their id, be of custom tools, and come as clients once sent them", () => {
    const bare = call("{}", { id: undefined, type: undefined, extra: 1 });
    const { id: _, ...made } = call({});
    expect<unknown>(past([bare])).toEqual([made]);
    expect(
      past([{ id: "a", type: "custom", custom: { name: "apply", input: "+ New" } }])[0]!.function,
    ).toEqual({
      name: "apply",
      arguments: { input: "+ New" },
    });
    const first = { function_call: { name: "f", arguments: '{"a": 1}' } };
    expect<unknown>(pastCallsOf(new Fields(first, "messages[0]"))).toEqual([
      { type: "function", function: { name: "f", arguments: { a: 1 } } },
    ]);
    expect(past([call("{}", { id: "x".repeat(5000) })])[0]!.id).toHaveLength(5000);
  });

  test("have a name", () => {
    expect(refusalOf(() => past([{ id: "a", function: {} }]))[1]).toBe(
      "messages[0].tool_calls[0].function.name",
    );
    const long = { id: "a", function: { name: "mcp.server/tool ".repeat(20), arguments: "{}" } };
    expect(past([long])[0]!.function.name).toBe(long.function.name);
  });

  test("and their results are messages for the template", () => {
    const messages = [
      { role: "assistant", content: null, tool_calls: [call('{"a": 1}')] },
      { role: "tool", tool_call_id: "call_1", content: [{ type: "text", text: "one" }], name: "f" },
      { role: "function", name: "f", content: null },
    ];
    expect<unknown>(messagesOf(new Fields({ messages }))).toEqual([
      { role: "assistant", content: "", tool_calls: past([call('{"a": 1}')]) },
      { role: "tool", content: [{ type: "text", text: "one" }], tool_call_id: "call_1", name: "f" },
      { role: "tool", content: "", name: "f" },
    ]);
  });
});

describe("what is no text", () => {
  const image = { type: "image_url", image_url: { url: "data:" } };
  const text = { type: "text", text: "Look" };
  const read = (...messages: readonly object[]) => {
    const ignored = new Set<string>();
    const contents = messagesOf(new Fields({ messages }), ignored).map(textOf);
    return [contents, [...ignored]];
  };
  const instead = "[image: this model reads text only]";

  test("is replaced by a text where it is past, and told", () => {
    const answer = { role: "assistant", content: "A cat." };
    const asked = { role: "user", content: "More." };
    expect(read({ role: "user", content: [text, image] }, answer, asked)).toEqual([
      [`Look\n${instead}`, "A cat.", "More."],
      ["messages.content.image_url"],
    ]);
    const parts = ["input_audio", "file", "video_url", "thinking"].map((type) => ({ type }));
    const spoken = { role: "assistant", content: null, audio: { id: "audio_1" } };
    expect(read({ role: "user", content: parts }, spoken, asked)).toEqual([
      [
        "[audio: this model reads text only]\n[file: this model reads text only]\n[video: this model reads text only]\n[thinking: not read by this server]",
        "[audio: this model reads text only]",
        "More.",
      ],
      [
        "messages.content.input_audio",
        "messages.content.file",
        "messages.content.video_url",
        "messages.content.thinking",
        "messages.audio",
      ],
    ]);
  });

  test("is replaced in and behind the results of calls, where nobody asks about it anew", () => {
    const calls = { role: "assistant", content: null, tool_calls: [{ id: "a", function: { name: "look" } }] };
    const result = { role: "tool", tool_call_id: "a", content: [image] };
    const shown = { role: "user", content: [text, image] };
    expect(read({ role: "user", content: "Look." }, calls, result, shown)).toEqual([
      ["Look.", "", instead, `Look\n${instead}`],
      ["messages.content.image_url"],
    ]);
  });

  test("is refused where it is asked about", () => {
    const asked = { role: "user", content: [text, image] };
    const refused = [
      'messages[INDEX].content[1].type: this model reads text only, but content of the type "image_url" was given',
      "messages[INDEX].content[1].type",
    ];
    const at = (index: number) => refused.map((one) => one.replace("INDEX", `${index}`));
    expect<unknown>(refusalOf(() => read(asked))).toEqual(at(0));
    const before = [
      { role: "user", content: "Hi" },
      { role: "assistant", content: "Hi" },
    ];
    expect<unknown>(refusalOf(() => read(...before, asked, { role: "user", content: "So?" }))).toEqual(at(2));
    expect<unknown>(refusalOf(() => read(asked, { role: "assistant", content: "{" }))).toEqual(at(0));
    expect(refusalOf(() => read({ role: "user", content: [{ type: "hologram" }] }))[0]).toContain(
      'content of the type "hologram" is not known here',
    );
    expect(refusalOf(() => read({ role: "user" }))[0]).toContain("must be a string or an array of parts");
  });
});
