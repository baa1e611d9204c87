import { describe, expect, test } from "bun:test";
import { ControlTexts, plainText } from "../control-text.ts";
import { ChatTemplate } from "../template.ts";
import { joinedContents, partOf } from "./content.ts";
import type { ChatMessage, Content } from "./messages.ts";

function templateOf(jinja: string): ChatTemplate {
  return new ChatTemplate({ template: jinja, toolTemplate: null, specialTokens: {} }, new ControlTexts([]));
}

function written(jinja: string, messages: readonly ChatMessage[], continuesLast = false): string {
  return plainText(templateOf(jinja).write(messages, { addGenerationPrompt: false, continuesLast }));
}

const user = (content: Content): ChatMessage => ({ role: "user", content });
const two = [partOf("First part."), partOf("Second part.")];

/** Template that writes each message with this expression or these statements for its content. */
const over = (content: string) => `{% for m in messages %}[{{ m.role }}]${content}{% endfor %}`;

/** Reads strings and parts, as in templates of Qwen, GLM, Gemma and LFM2. */
const reader =
  "{% macro text(c) %}{% if c is string %}{{ c }}{% else %}{% for part in c %}{{ part.text | trim }}{% endfor %}{% endif %}{% endmacro %}";
const readsBoth = reader + over("{{ text(m.content) }}");
const readsText = over("{{ m.content | trim }}");
const readsParts = over(
  "{% for c in m['content'] | selectattr('type', 'equalto', 'text') %}{{ c['text'] }}{% endfor %}",
);
const readsOnePart = over("{{ m.content[0]['text'] }}");
const readsAnyText = over("{{ m.content if m.content is string else '' }}");
const showsLists = over("{{ m.content | tojson }}");

describe("a template reads", () => {
  test.each([
    ["both, and gets the list", readsBoth, "[user]First part.Second part."],
    ["parts alone", readsParts, "[user]First part.Second part."],
    ["one part alone", readsOnePart, "[user]First part.\nSecond part."],
    ["texts alone, and fails on lists", readsText, "[user]First part.\nSecond part."],
    ["texts alone, and drops lists", readsAnyText, "[user]First part.\nSecond part."],
    ["texts alone, and shows a list as such", showsLists, '[user]"First part.\\nSecond part."'],
  ])("%s", (_, jinja, text) => {
    expect(written(jinja, [user(two)])).toBe(text);
  });

  test("strings as a part where it reads parts alone", () => {
    const messages = [
      { role: "system", content: "Be brief." },
      user("Hi"),
      { role: "assistant", content: "Yes" },
    ];
    const text = "[system]Be brief.[user]Hi[assistant]Yes";
    for (const jinja of [readsParts, readsOnePart, readsBoth, readsText])
      expect(written(jinja, messages)).toBe(text);
  });
});

test("each role has its own form", () => {
  const jinja = `${reader}{% for m in messages %}{% if m.role == 'user' %}{{ text(m.content) }}{% else %}<{{ m.content | trim }}>{% endif %}{% endfor %}`;
  const system = { role: "system", content: two };
  expect(written(jinja, [system, user(two)])).toBe("<First part.\nSecond part.>First part.Second part.");
});

test("results of calls are parts or texts as the template reads them", () => {
  const calls =
    "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments }}{% endfor %}{# tool #}";
  const call = { id: "a", type: "function", function: { name: "f", arguments: { x: 1 } } };
  const messages = [
    user("Go"),
    { role: "assistant", content: "", tool_calls: [call] },
    { role: "tool", tool_call_id: "a", content: two },
  ];
  const end = "[assistant]f{'x': 1}[tool]";
  expect(written(`${reader}${over(`{{ text(m.content) }}${calls}`)}`, messages)).toBe(
    `[user]Go${end}First part.Second part.`,
  );
  expect(written(over(`{{ m.content | trim }}${calls}`), messages)).toBe(
    `[user]Go${end}First part.\nSecond part.`,
  );
});

test("the last message goes on within its last part", () => {
  const assistant = { role: "assistant", content: two };
  expect(written(readsBoth, [user("Hi"), assistant], true)).toBe(
    "[user]Hi[assistant]First part.Second part.",
  );
});

test("joined contents stay lists", () => {
  expect(joinedContents("a", "b")).toBe("a\n\nb");
  expect(joinedContents("a", null)).toBe("a");
  expect(joinedContents(two, "end")).toEqual([partOf("First part."), partOf("Second part.\n\nend")]);
  expect(joinedContents("begin", two, " ")).toEqual([partOf("begin First part."), partOf("Second part.")]);
  expect(joinedContents("", two)).toEqual(two);
  expect(joinedContents(two, "")).toEqual(two);
});
