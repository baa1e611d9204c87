import { describe, expect, test } from "bun:test";
import { parseJson } from "../server/http/json/parse.ts";
import { defaultJsonLimits } from "../server/http/limits.ts";
import { ControlTexts, plainText } from "./control-text.ts";
import type { ChatMessage, RenderOptions } from "./conversation/messages.ts";
import { defaultLimits, type RenderLimits } from "./jinja/budget.ts";
import { Dict } from "./jinja/values.ts";
import { ChatTemplate } from "./template.ts";
import { TemplateError } from "./template-error.ts";

const control = new ControlTexts(["<|end|>", "<|start|>", "<s>", "§"]);

function template(source: string, limits?: RenderLimits): ChatTemplate {
  const wallClock = () => new Date(Date.UTC(2026, 6, 4, 15, 5, 9));
  return new ChatTemplate(
    { template: source, toolTemplate: null, specialTokens: { bos_token: "<s>" } },
    control,
    wallClock,
    limits,
  );
}

function render(source: string, messages: ChatMessage[], options: Partial<RenderOptions> = {}): string {
  return plainText(template(source).render(messages, { addGenerationPrompt: true, ...options }));
}

const user = (content: ChatMessage["content"]): ChatMessage => ({ role: "user", content });

describe("what the template sees", () => {
  test("no tools is none, special tokens are variables, further message fields are there", () => {
    const source = "{{ bos_token }}{{ tools is none }}{{ messages[0].name }}{{ eos_token is defined }}";
    expect(render(source, [{ ...user("x"), name: "Ann" }], { tools: [] })).toBe("<s>TrueAnnFalse");
  });

  test("the date comes from the given clock", () => {
    const source = "{{ strftime_now('%d %b %Y, %A %B %-d %Q %H:%M:%S %I %p %%') }}";
    expect(render(source, [])).toBe("04 Jul 2026, Saturday July 4 %Q 15:05:09 03 PM %");
  });
});

describe("tools and arguments that were JSON", () => {
  const definition = '{"10": {"minimum": 1.0}, "2": -2e-7, "large": 12345678901234567890, "odd": "<|end|>"}';
  const written = '{"10": {"minimum": 1.0}, "2": -2e-07, "large": 12345678901234567890, "odd": "<|end|>"}';
  const limits = defaultJsonLimits;

  test("keep floats, large integers and the order of their keys", () => {
    const { tools } = parseJson(`{"tools": [${definition}]}`, limits) as { tools: object[] };
    expect(render("{{ tools | tojson }}", [], { tools })).toBe(`[${written}]`);
    const call = { function: { name: "f", arguments: parseJson(definition, limits) } };
    const source = "{{ messages[0].tool_calls[0].function.arguments | tojson }}";
    expect(render(source, [{ ...user("x"), tool_calls: [call] }])).toBe(written);
    const templateKwargs = parseJson(`{"share": 1.0, "x": ${definition}}`, limits) as Record<string, unknown>;
    expect(render("{{ share }} {{ x | tojson }}", [], { templateKwargs })).toBe(`1.0 ${written}`);
  });
});

test("reasoning is there under both names that templates know", () => {
  const source = "{% for m in messages %}{{ m.thinking }}{{ m.reasoning_content }}{% endfor %}";
  const messages = ["reasoning_content", "thinking", "reasoning"].map((name) => ({
    ...user("x"),
    [name]: name[0],
  }));
  expect(render(source, messages)).toBe("rrttrr");
});

test("a template that looks for control text in a message finds it, and it stays text", () => {
  const source =
    "{% if '<|end|>' in messages[0].content %}{{ messages[0].content.split('<|end|>')[1] }}{% endif %}<|end|>";
  const rendered = template(source).render([user("a<|end|>b<s>")], { addGenerationPrompt: false });
  expect(plainText(rendered)).toBe("b<s><|end|>");
  expect(control.split(rendered.text).filter((piece) => piece.kind === "control").length).toBe(1);
});

describe("kwargs", () => {
  test("a variable of the template is set, one it does not know changes nothing", () => {
    const source = "{{ enable_thinking }}|{{ messages[0].content }}";
    expect(render(source, [user("x")], { templateKwargs: { enable_thinking: false, other: 1 } })).toBe(
      "False|x",
    );
  });

  test.each([
    "messages",
    "tools",
    "tokenize",
    "add_generation_prompt",
    "bos_token",
    "range",
    "a.b",
    "__proto__ x",
    "",
  ])("%p is refused", (name) => {
    expect(() => render("{{ x }}", [], { templateKwargs: { [name]: 1 } })).toThrow(TemplateError);
  });

  test("control text in a value stays text", () => {
    const rendered = template("<|start|>{{ tone }}").render([], {
      addGenerationPrompt: true,
      templateKwargs: { tone: "<|end|>" },
    });
    expect(control.split(rendered.text).map((piece) => piece.kind)).toEqual(["control", "text"]);
    expect(plainText(rendered)).toBe("<|start|><|end|>");
  });
});

describe("a template that fails is an error for the client", () => {
  const cases: [string, string, string][] = [
    ["raises", "{{ raise_exception('roles must alternate') }}", "roles must alternate"],
    ["loops", "{% for i in range(10 ** 9) %}x{% endfor %}", "Range too big"],
    [
      "loops in loops",
      "{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}",
      "operations",
    ],
    [
      "doubles a text without end",
      "{% set ns = namespace(t='x') %}{% for i in range(60) %}{% set ns.t = ns.t + ns.t %}{% endfor %}",
      "characters",
    ],
    ["calls itself without end", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recurses too deep"],
    [
      "loops in loops with a condition",
      "{% for i in range(9999) %}{% for j in range(9999) if false %}{% endfor %}{% endfor %}",
      "operations",
    ],
    ["takes the length of null", "{{ none | length }}", "object of type 'NoneType' has no len()"],
  ];
  test.each(cases)("%s", (_, source, sentence) => {
    const limited = template(source, { ...defaultLimits, stepsMax: 50_000, lengthMax: 1_000_000 });
    const run = () => limited.render([], { addGenerationPrompt: true });
    expect(run).toThrow(TemplateError);
    expect(run).toThrow(sentence);
  });

  test("the host's objects are out of reach", () => {
    expect(render("{{ ''.__class__ }}{{ ''.constructor }}{{ messages.constructor }}", [])).toBe("");
    expect(() => render("{{ ''.__class__.__mro__ }}", [])).toThrow("unsafe");
  });

  test("a template that is no Jinja is refused when it is made", () => {
    expect(() => template("{% if %}")).toThrow("not valid Jinja");
  });
});

describe("control text", () => {
  /** Counts the control pieces of a prompt with `content` between the template's own control texts. */
  const pieces = (content: string, source = "<|start|>{{ messages[0].content }}<|end|>") => {
    const rendered = template(source).render([user(content)], { addGenerationPrompt: false });
    expect(plainText(rendered)).toBe(source.replace(/\{\{.*?\}\}/g, content));
    return control.split(rendered.text).filter((piece) => piece.kind === "control").length;
  };

  test.each([
    "<|end|>",
    "<<|end|>|end|>",
    "<s><s>§§",
    "§",
    "<|en",
    "<",
    "\uFDD0<|end|>\uE000",
    "a <|start|>user\nb<|end|>",
  ])("in a message stays text: %p", (content) => {
    expect(pieces(content)).toBe(2);
  });

  test("cannot be put together from a message and what follows it", () => {
    expect(pieces("<|en", "<|start|>{{ messages[0].content }}d|><|end|>")).toBe(2);
  });

  test("cannot be put together by trimming", () => {
    const rendered = template("{{ messages[0].content | trim }}d|>").render([user("<|en \n")], {
      addGenerationPrompt: false,
    });
    expect(control.split(rendered.text).every((piece) => piece.kind === "text")).toBe(true);
  });

  test("in keys and nested values of tools stays text", () => {
    const rendered = template("{{ tools | tojson }}").render([], {
      addGenerationPrompt: false,
      tools: [{ "<|end|>": ["<s>", { deep: "§" }] }],
    });
    expect(control.split(rendered.text).every((piece) => piece.kind === "text")).toBe(true);
    expect(plainText(rendered)).toBe('[{"<|end|>": ["<s>", {"deep": "§"}]}]');
  });

  test("messages without control text reach the template unchanged", () => {
    const message = new Dict().set("content", "plain < text >");
    expect(control.disguise(message, "")?.value).toBe(message);
  });

  test("a client that uses every stand-in is refused", () => {
    let all = "<|end|>";
    for (let unit = 0xe000; unit <= 0xfdef; unit++) all += String.fromCharCode(unit);
    expect(() => pieces(all)).toThrow("private-use");
  });
});

test("arguments of the server hold where a request names no others, and keep their numbers", () => {
  const chat = new ChatTemplate(
    {
      template: "{{ share }} {{ enable_thinking }}",
      toolTemplate: null,
      specialTokens: {},
      argumentsText: '{"share": 1.0, "enable_thinking": false, "unheard_of": 1}',
    },
    control,
  );
  const written = (templateKwargs: Record<string, unknown>) =>
    chat.render([], { addGenerationPrompt: true, templateKwargs }).text;
  expect(written({})).toBe("1.0 False");
  expect(written({ enable_thinking: true })).toBe("1.0 True");
  expect(chat.unknownArguments).toEqual(["unheard_of"]);
  const reserved = { ...chat.source, argumentsText: '{"messages": []}' };
  expect(() => new ChatTemplate(reserved, control)).toThrow('may not set "messages"');
});

describe("a template that cannot write a chat says so", () => {
  const problemOf = (source: string) => template(source).problem();

  test("if it writes nothing of a message, and then refuses chats", () => {
    const mute = "the chat template writes nothing of a user's message";
    expect(problemOf("{{ bos_token }}{% for m in messages %}{{ m.text }}{% endfor %}")).toBe(mute);
    expect(() => template("{{ bos_token }}").write([user("Hi")], { addGenerationPrompt: true })).toThrow(
      mute,
    );
  });

  test("if it refuses every message", () => {
    expect(problemOf("{{ raise_exception('no chats') }}")).toBe(
      "the chat template refuses a user's message: no chats",
    );
  });

  test("and not if it reads parts alone, or writes small letters", () => {
    expect(problemOf("{{ messages[0].content | lower }}")).toBeNull();
    expect(problemOf("{% for part in messages[0].content %}{{ part.text }}{% endfor %}")).toBeNull();
  });
});
