import { describe, expect, test } from "bun:test";
import { ApiError } from "../../http/errors.ts";
import { Fields } from "../fields.ts";
import { messagesOf } from "./inputs.ts";
import { pastToolCallsOf, toolUseOf } from "./tools.ts";

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

  const many = Array.from({ length: 129 }, () => tool({}));
  const cases: [given: unknown, message: string, param: string][] = [
    [{}, "tools must be an array, but an object was given", "tools"],
    [many, "tools may hold 128 items at most, but holds 129", "tools"],
    [[5], "tools[0] must be an object, but 5 was given", "tools[0]"],
    [[{ function: {} }], 'tools[0].type must be "function", but is missing', "tools[0].type"],
    [[{ type: "web" }], 'tools[0].type must be "function", but "web" was given', "tools[0].type"],
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
  const past = (calls: unknown) => pastToolCallsOf(new Fields({ tool_calls: calls }, "messages[0]"));

  test("have arguments that are values", () => {
    expect(past([call('{"a": {"b": [1, null]}}'), call("")])).toEqual([
      { id: "call_1", type: "function", function: { name: "f", arguments: { a: { b: [1, null] } } } },
      { id: "call_1", type: "function", function: { name: "f", arguments: {} } },
    ]);
    expect([past(undefined), past(null), past([])]).toEqual([undefined, undefined, undefined]);
  });

  const at = "messages[0].tool_calls[0]";
  const cases: [calls: unknown, message: string, param: string][] = [
    [[call("{")], `${at}.function.arguments is not valid JSON`, `${at}.function.arguments`],
    [[call("[1]")], `${at}.function.arguments must be the JSON of an object`, `${at}.function.arguments`],
    [[call('{"a":1,"a":2}')], 'the key "a" appears twice', `${at}.function.arguments`],
    [[call('{"__proto__":1}')], "the key __proto__ is not allowed", `${at}.function.arguments`],
    [[call(`{"a":${"[".repeat(200)}`)], "may be nested 128 levels deep at most", `${at}.function.arguments`],
    [
      [call({})],
      `${at}.function.arguments must be a string, but an object was given`,
      `${at}.function.arguments`,
    ],
    [
      [call(undefined)],
      `${at}.function.arguments must be a string, but is missing`,
      `${at}.function.arguments`,
    ],
    [[call("{}", { id: undefined })], `${at}.id must be a string, but is missing`, `${at}.id`],
    [
      [call("{}", { id: "x".repeat(257) })],
      `${at}.id may have 256 characters at most, but has 257`,
      `${at}.id`,
    ],
    [[call("{}", { type: "custom" })], `${at}.type must be "function", but "custom" was given`, `${at}.type`],
  ];
  test.each(cases)("%j are refused", (calls, message, param) => {
    const [said, named] = refusalOf(() => past(calls));
    expect(said).toContain(message);
    expect(named).toBe(param);
  });

  test("and their results are messages for the template", () => {
    const messages = [
      { role: "assistant", content: null, tool_calls: [call('{"a": 1}')] },
      { role: "tool", tool_call_id: "call_1", content: [{ type: "text", text: "one" }], name: "f" },
    ];
    expect<unknown>(messagesOf(new Fields({ messages }))).toEqual([
      { role: "assistant", content: "", tool_calls: past([call('{"a": 1}')]) },
      { role: "tool", content: "one", tool_call_id: "call_1", name: "f" },
    ]);
  });
});
