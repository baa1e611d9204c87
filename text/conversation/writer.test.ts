/** Conversations of several clients, written by templates with the demands of various model families. */
import { describe, expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { parseJson } from "../../server/http/json/parse.ts";
import { defaultJsonLimits } from "../../server/http/limits.ts";
import { familyTemplates } from "../../tests/support/family-templates.ts";
import { ControlTexts, plainText } from "../control-text.ts";
import { ChatTemplate } from "../template.ts";
import { nineOf } from "./call-style.ts";
import type { ChatMessage, PastCall } from "./messages.ts";

const user = (content: string): ChatMessage => ({ role: "user", content });
const system = (content: string): ChatMessage => ({ role: "system", content });
const assistant = (content: string, ...calls: readonly PastCall[]): ChatMessage =>
  calls.length === 0 ? { role: "assistant", content } : { role: "assistant", content, tool_calls: calls };
const result = (content: string, id?: string, name?: string): ChatMessage => ({
  role: "tool",
  content,
  ...(id === undefined ? {} : { tool_call_id: id }),
  ...(name === undefined ? {} : { name }),
});
const call = (id: string | undefined, name: string, args: PastCall["function"]["arguments"]): PastCall => ({
  ...(id === undefined ? {} : { id }),
  type: "function",
  function: { name, arguments: args },
});

const cut = '{"patch": "+New York';
/** The prompt must contain the words in capitals. */
const histories: Readonly<Record<string, readonly ChatMessage[]>> = {
  "two systems, two users, results in another order, a call that was cut off": [
    system("RULES"),
    { role: "developer", content: "MANNERS" },
    user("CONTEXT"),
    user("QUESTION"),
    {
      ...assistant(
        "",
        call("call_1", "shell", { command: "LIST" }),
        call("call_2", "shell", { command: "PRINT" }),
      ),
      reasoning_content: "thoughts",
    },
    result("PRINTED", "call_2"),
    result("LISTED", "call_1"),
    assistant("ANSWER"),
    user("NEXT"),
    assistant("", call("call_3", "apply", cut)),
    user("GOON"),
  ],
  "a user's text behind a result, and a system message among others": [
    system("RULES"),
    user("QUESTION"),
    assistant("", call("toolu_01AbCdEfGhIjKlMnOpQrStUv", "Read", { path: "FILE" })),
    result("READ", "toolu_01AbCdEfGhIjKlMnOpQrStUv"),
    user("REMINDER"),
    assistant("ANSWER"),
    system("CHANGE"),
    user("NEXT"),
  ],
  "a text of the assistant, and calls of it right behind": [
    user("SUMUP"),
    assistant("SUMMARY"),
    assistant("", call("call_1", "shell", { command: "LIST" })),
    result("LISTED", "call_1"),
    assistant("ANSWER"),
    user("NEXT"),
  ],
  "a call that was interrupted": [
    user("QUESTION"),
    assistant("", call("call_1", "shell", { command: "LIST" })),
    user("STOP"),
    assistant("STOPPED"),
    user("NEXT"),
  ],
  "a result without its call": [
    system("RULES"),
    result("LISTED", "call_1"),
    assistant("ANSWER"),
    user("NEXT"),
  ],
  "the assistant first, and one that said nothing": [
    assistant("HELLO"),
    user("QUESTION"),
    assistant(""),
    user("NEXT"),
  ],
  "calls without ids": [
    user("QUESTION"),
    assistant("", call(undefined, "list", { where: "HERE" }), call(undefined, "print", { what: "FILE" })),
    result("PRINTED", undefined, "print"),
    result("LISTED", undefined, "list"),
    assistant("ANSWER"),
    user("NEXT"),
  ],
  "no user at all": [system("RULES"), assistant("HELLO")],
};

const tools = [{ type: "function", function: { name: "other", description: "", parameters: {} } }];

function templateOf(jinja: string): ChatTemplate {
  const specialTokens = { bos_token: "<s>", eos_token: "</s>" };
  return new ChatTemplate({ template: jinja, toolTemplate: null, specialTokens }, new ControlTexts([]));
}

function written(template: ChatTemplate, messages: readonly ChatMessage[], withTools = false): string {
  return plainText(template.write(messages, { addGenerationPrompt: false, tools: withTools ? tools : null }));
}

function wordsIn(messages: readonly ChatMessage[]): string[] {
  return [...new Set(JSON.stringify(messages).match(/\b[A-Z]{4,}\b/g))];
}

const templates = new Map(Object.entries(familyTemplates).map(([name, jinja]) => [name, templateOf(jinja)]));

describe.each([...templates])("%s", (_, template) => {
  test.each(Object.keys(histories))("reads %s", (name) => {
    const messages = histories[name]!;
    for (const withTools of template.mentions("tools", true) ? [true, false] : [false]) {
      const text = written(template, messages, withTools);
      expect(wordsIn(messages).filter((word) => !text.includes(word))).toEqual([]);
    }
  });

  test.each(Object.keys(histories))("goes on where it was, turn for turn, with %s", (name) => {
    const messages = histories[name]!;
    const ends = messages.flatMap(({ role }, index) => (role === "user" ? [index + 1] : []));
    for (const [at, end] of ends.slice(1).entries()) {
      const before = written(template, messages.slice(0, ends[at]));
      const after = written(template, messages.slice(0, end));
      // A later turn of the same role may be joined to the last one, whose text stays in place.
      const last = wordsIn(messages.slice(0, ends[at])).map((word) => before.lastIndexOf(word) + word.length);
      const kept = Math.max(...last);
      expect(after.slice(0, kept)).toBe(before.slice(0, kept));
    }
  });
});

const mistral = templates.get("mistral")!;

describe("ids", () => {
  test("become nine letters or digits, the same for the same id", () => {
    const ids = ["call_1", "toolu_01AbCd", "", "functions.get:0", "grün"];
    for (const id of ids) expect(nineOf(id)).toMatch(/^[A-Za-z0-9]{9}$/);
    expect(new Set(ids.map(nineOf)).size).toBe(ids.length);
    expect(ids.map(nineOf)).toEqual(ids.map(nineOf));
  });

  test("of a client stay where they fit", () => {
    expect(nineOf("Abc456789")).toBe("Abc456789");
    const messages = [user("a"), assistant("", call("Abc456789", "f", {})), result("b", "Abc456789")];
    expect(written(mistral, messages)).toContain('"call_id": "Abc456789"');
  });

  test("pair a call with its result", () => {
    const messages = [user("a"), assistant("", call("call_1", "f", {})), result("b", "call_1")];
    expect(written(mistral, messages).split(nineOf("call_1"))).toHaveLength(3);
  });

  test("tell the name where that is all that is written of it", () => {
    const calls = [call("call_1", "f", {}), call("call_2", "g", {})];
    const messages = [user("a"), assistant("", ...calls), result("b", "call_1"), result("c", "call_2")];
    const text = written(templates.get("kimi")!, messages);
    for (const part of ["begin|>functions.f:0<", "begin|>functions.g:1<", "Return of functions.g:1\nc"])
      expect(text).toContain(part);
  });

  test("are the client's own where a template takes any", () => {
    const plain = templateOf(
      "{% for m in messages %}{{ m.content }}{{ m.tool_calls | tojson if m.tool_calls }}{{ m.tool_call_id if m.role == 'tool' }}{% endfor %}",
    );
    expect(written(plain, [user("a"), assistant("", call("call_1", "f", {})), result("b", "call_1")])).toBe(
      'a[{"id": "call_1", "type": "function", "function": {"name": "f", "arguments": {}}}]bcall_1',
    );
  });
});

test("results stand in the order of their calls, also where ids are used twice", () => {
  const two = () => assistant("", call("0", "f", {}), call("1", "g", {}));
  const messages = [
    user("a"),
    two(),
    result("G1", "1"),
    result("F1", "0"),
    two(),
    result("G2", "1"),
    result("F2", "0"),
  ];
  const text = written(templates.get("cohere")!, messages);
  expect(text.match(/[FG]\d/g)).toEqual(["F1", "G1", "F2", "G2"]);
});

describe("arguments that were cut off", () => {
  const messages = [user("a"), assistant("", call("call_1", "apply", cut)), user("b")];
  test.each([
    "mistral",
    "mistral's later",
    "llama 3",
    "qwen 3",
    "gpt-oss",
    "deepseek",
    "cohere",
    "granite",
    "kimi",
  ])("stand as they were drawn: %s", (name) => {
    const text = written(templates.get(name)!, messages);
    expect(text).toContain(cut);
    expect(text).not.toContain('\\"');
  });

  test.each([
    ["qwen 3.5", "<parameter=patch>\n+New York\n"],
    ["gemma 4", 'apply{patch:<|"|>+New York<|"|>}'],
    ["glm", "<arg_key>patch</arg_key><arg_value>+New York</arg_value>"],
  ])("are values as far as they go where a template writes values: %s", (name, shown) => {
    expect(written(templates.get(name)!, messages)).toContain(shown);
  });

  test("and control text in them stays text", () => {
    const jinja = familyTemplates["llama 3"]!;
    const template = new ChatTemplate(
      { template: jinja, toolTemplate: null, specialTokens: {} },
      new ControlTexts(["<|eot_id|>"]),
    );
    const drawn = '{"a": "<|eot_id|>';
    const { text, standIns } = template.write([user("a"), assistant("", call("c", "f", drawn)), user("b")], {
      addGenerationPrompt: false,
    });
    expect(plainText({ text, standIns })).toContain(drawn);
    expect(text.split("<|eot_id|>")).toHaveLength(5); // the template's own
  });
});

test("arguments are their JSON as it came where a template joins texts", () => {
  const values = parseJson('{"b":1.0,  "10": [2]}', defaultJsonLimits) as Record<string, unknown>;
  const messages = [user("a"), assistant("", call("c", "f", values)), result("b", "c")];
  const text = written(templates.get("deepseek")!, messages);
  expect(text).toContain('{"b":1.0,  "10": [2]}');
  const made = [user("a"), assistant("", call("c", "f", { b: [1, "x"] })), result("b", "c")];
  expect(written(templates.get("deepseek")!, made)).toContain('{"b": [1, "x"]}');
  // Clients that parse arguments write them without spaces, and models do not.
  const again = parseJson('{"b":[1,"x"]}', defaultJsonLimits) as Record<string, unknown>;
  const sent = [user("a"), assistant("", call("c", "f", again)), result("b", "c")];
  expect(written(templates.get("deepseek")!, sent)).toBe(written(templates.get("deepseek")!, made));
});

describe("a system message in the middle, which the template refuses", () => {
  const turns = (...messages: readonly ChatMessage[]): string[] =>
    written(templates.get("qwen 3.5")!, [system("RULES"), ...messages])
      .split("<|im_start|>")
      .slice(1)
      .map((turn) => turn.replace(/<\|im_end\|>\n?/, ""));
  const called = assistant("", call("1", "f", {}));

  test("ends the user's message before it", () => {
    expect(turns(user("A"), system("B"), system("C"), assistant("D"))).toEqual([
      "system\nRULES",
      "user\nA\n\nB\n\nC",
      "assistant\nD",
    ]);
  });

  test("ends the result before it, so that there is no new question", () => {
    const [, , , after, ...others] = turns(user("A"), called, result("R", "1"), system("B"));
    expect([after, others]).toEqual(["tool\nR\n\nB", []]);
  });

  test("is a user's behind an answer, whatever follows", () => {
    expect(turns(user("A"), assistant("B"), system("C")).at(-1)).toBe("user\nC");
    expect(turns(user("A"), assistant("B"), system("C"), user("D")).slice(-2)).toEqual([
      "user\nC",
      "user\nD",
    ]);
  });
});

test("a template that writes one call of a message gets one in each, its result behind it", () => {
  const calls = [call("1", "f", {}), call("2", "g", {})];
  const messages = [user("a"), assistant("", ...calls), result("F", "1"), result("G", "2")];
  const text = written(templates.get("gpt-oss")!, messages);
  expect(text.match(/to=functions\.[fg]|<\|message\|>"[FG]"/g)).toEqual([
    "to=functions.f",
    '<|message|>"F"',
    "to=functions.g",
    '<|message|>"G"',
  ]);
});

test("what is read otherwise than it was sent is told, and nothing else", () => {
  const ignoredBy = (name: string, messages: readonly ChatMessage[]) =>
    templates.get(name)!.write(messages, { addGenerationPrompt: true }).ignored;
  const late = [system("a"), user("b"), assistant("c"), system("d"), user("e")];
  expect(ignoredBy("qwen 3", late)).toEqual([]);
  expect(ignoredBy("qwen 3.5", late)).toEqual(["messages.role.system"]);
  expect(ignoredBy("mistral", late)).toEqual(["messages.role.system", "messages.role"]);
  expect(ignoredBy("phi 4", [user("a"), assistant("", call("1", "f", {})), result("b", "1")])).toEqual([
    "messages.tool_calls",
  ]);
  const beside = [user("a"), assistant("text", call("1", "f", {})), result("b", "1")];
  expect(ignoredBy("mistral", beside)).toEqual(["messages.content"]);
  expect(ignoredBy("llama 3", beside)).toEqual(["messages.content"]);
  expect(written(templates.get("llama 3")!, beside)).toContain("text");
});

test("a template that refuses every message says so in its own words", () => {
  const refuses = templateOf("{{ raise_exception('not today') }}");
  for (const messages of Object.values(histories))
    expect(() => written(refuses, messages)).toThrow("not today");
});

describe("functions on offer", () => {
  const chat = (jinja: string) => templateOf(jinja);
  const read = (template: ChatTemplate, messages: readonly ChatMessage[]) => {
    const { ignored, ...rendered } = template.write(messages, { addGenerationPrompt: false, tools });
    return [plainText(rendered), ignored];
  };

  test("stand in the system message of a template that reads them there", () => {
    const phi = chat(
      "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.role == 'system' and 'tools' in m and m['tools'] is not none %}<|tool|>{{ m['tools'] }}<|/tool|>{% endif %}{% endfor %}",
    );
    const offered = '<|tool|>[{"name": "other", "description": "", "parameters": {}}]<|/tool|>';
    expect(read(phi, [user("Go")])).toEqual([`<|system|>${offered}<|user|>Go`, []]);
    expect(read(phi, [system("RULES"), user("Go")])).toEqual([`<|system|>RULES${offered}<|user|>Go`, []]);
    expect(written(phi, [user("Go")])).toBe("<|user|>Go");
  });

  test("are named where the template writes none of them, and written beside a system message if it needs one", () => {
    const mute = chat("{# tools #}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}");
    expect(read(mute, [user("Go")])).toEqual(["<user>Go", ["tools"]]);
    const withSystem = chat(
      "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% if m.role == 'system' %}{{ tools | tojson }}{% endif %}{% endfor %}",
    );
    const json = JSON.stringify(tools).replaceAll('":', '": ').replaceAll(',"', ', "');
    expect(read(withSystem, [user("Go")])).toEqual([`<system>${json}<user>Go`, []]);
  });
});

describe("a template that knows no calls", () => {
  const chat = (mark: string, role: string) =>
    templateOf(
      `{% if tools %}${mark}{{ tools | tojson }}{% endif %}{% for m in messages %}<${role}>{{ m.content }}{% endfor %}`,
    );
  const calls = [call("1", "f", { place: "HERE", on: true }), call("2", "g", {})];
  const messages = [user("Go"), assistant("I look.", ...calls), result("F", "1", "f"), result("G", "2", "g")];

  test("gets them as the model writes them, and results in a role of their own if it writes that", () => {
    const text = written(chat("<|im_start|>List of tools: [", "{{ m.role }}"), messages, true);
    expect(text.slice(text.indexOf("<user>"))).toBe(
      "<user>Go<assistant>I look.<|tool_call_start|>[f(place='HERE', on=True), g()]<|tool_call_end|><tool>F<tool>G",
    );
    const hermes = written(chat("<tool_call>", "{{ m.role }}"), messages, true);
    expect(hermes).toContain(
      'I look.\n<tool_call>\n{"name": "f", "arguments": {"place": "HERE", "on": true}}\n</tool_call>\n<tool_call>',
    );
  });

  test("gets both as texts where the model's form is not known", () => {
    const text = written(chat("", "{{ m.role }}"), messages, true);
    expect(text.slice(text.indexOf("<user>"))).toBe(
      '<user>Go<assistant>I look.\n[called f: {"place": "HERE", "on": true}]\n[called g: {}]<user>[result of f] F<user>[result of g] G',
    );
  });
});

test("a text for each argument is its JSON, whatever the template makes of values", () => {
  const tagged = (value: string) =>
    `<tool_call><function=<parameter=${offers}{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for call in m.tool_calls or [] %}
<tool_call>
<function={{ call.function.name }}>
{% for name, value in call.function.arguments | items %}<parameter={{ name }}>
${value}
</parameter>
{% endfor %}</function>
</tool_call>{% endfor %}{% endfor %}{# tool #}`;
  const offers = "{% if tools %}{{ tools | tojson }}{% endif %}";
  const values = parseJson('{"text": "a", "on": true, "10": 1.0, "list": ["x"]}', defaultJsonLimits);
  const messages = [
    user("Go"),
    assistant("", call("1", "f", values as Record<string, unknown>)),
    result("F", "1"),
  ];
  for (const value of ["{{ value }}", "{{ value if value is string else value | tojson }}"]) {
    const text = written(templateOf(tagged(value)), messages, true);
    const parameters = [...text.matchAll(/<parameter=(\w+)>\n(.*)\n/g)].map(([, name, told]) => [name, told]);
    expect(parameters).toEqual([
      ["text", "a"],
      ["on", "true"],
      ["10", "1.0"],
      ["list", '["x"]'],
    ]);
  }
});

const folder = process.env.BUNTING_TEMPLATES ?? join(import.meta.dir, "../../build/templates");
const published = (() => {
  try {
    return readdirSync(folder).filter((file) => file.endsWith(".jinja"));
  } catch {
    console.log(`no published templates in ${folder}: tools/published-templates.py fetches them`);
    return [];
  }
})();

test.skipIf(published.length === 0)(
  "published templates that write a plain chat read all of these",
  () => {
    const wrong: string[] = [];
    for (const file of published) {
      const template = templateOf(readFileSync(join(folder, file), "utf8"));
      const isRead = (messages: readonly ChatMessage[]): boolean => {
        try {
          const text = written(template, messages);
          return wordsIn(messages).every((word) => text.includes(word));
        } catch {
          return false;
        }
      };
      if (!isRead([user("QUESTION")])) continue;
      for (const [name, messages] of Object.entries(histories))
        if (!isRead(messages)) wrong.push(`${file.slice(0, 8)}: ${name}`);
    }
    expect(wrong).toEqual([]);
  },
  30_000,
);
