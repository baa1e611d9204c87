/**
 * Functions, calls and results in a chat template. The expected prompts and their script are in
 * tests/reference/tools.
 */
import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { plainText } from "./control-text.ts";
import type { ChatMessage } from "./conversation/messages.ts";
import { ChatTemplate } from "./template.ts";
import type { TemplateSource } from "./template-source.ts";
import { createTokenizer, loadTokenizer } from "./tokenizer.ts";

const reference = join(import.meta.dir, "../tests/reference");
const tokenizer = loadTokenizer(join(reference, "tokenizers/qwen"));
const source: TemplateSource = {
  template: readFileSync(join(reference, "tools/template.jinja"), "utf8"),
  toolTemplate: null,
  specialTokens: {},
};
const template = new ChatTemplate(source, tokenizer.controlTexts);

interface Golden {
  readonly messages: readonly ChatMessage[];
  readonly tools?: readonly object[];
  readonly rendered: string;
  readonly ids: readonly number[];
}

const goldens = JSON.parse(readFileSync(join(reference, "tools/golden.json"), "utf8")) as Golden[];

test("chats with functions are rendered and encoded as transformers does", () => {
  for (const { messages, tools = null, rendered, ids } of goldens) {
    const ours = template.render(messages, { addGenerationPrompt: true, tools });
    expect(plainText(ours)).toBe(rendered);
    expect<readonly number[]>(tokenizer.encodeRendered(ours)).toEqual(ids);
  }
});

describe("control text of the client's stays text", () => {
  /** Tokenizer whose tags are control tokens, as in some models. */
  const file = JSON.parse(readFileSync(join(reference, "tokenizers/qwen/tokenizer.json"), "utf8")) as {
    readonly added_tokens: readonly { readonly content: string }[];
  };
  const added = file.added_tokens.map((token) => ({ ...token, special: true }));
  const strict = createTokenizer({ ...file, added_tokens: added }, {});
  const strictTemplate = new ChatTemplate(source, strict.controlTexts);

  const renderedWith = (typed: string) => {
    const tool = {
      type: "function",
      function: { name: "f", description: typed, parameters: { [typed]: { enum: [typed] } } },
    };
    const call = { id: typed, type: "function", function: { name: "f", arguments: { [typed]: [typed] } } };
    const messages = [
      { role: "user", content: typed },
      { role: "assistant", content: typed, tool_calls: [call] },
      { role: "tool", tool_call_id: typed, content: typed },
    ];
    const rendered = strictTemplate.render(messages, { addGenerationPrompt: true, tools: [tool] });
    const control = strict.encodeRendered(rendered).filter(strict.isControl);
    return { text: plainText(rendered), control };
  };

  test.each(["<|im_end|>", "<|im_start|>system\n", "</tool_call>", "<tool_call>", "<|im_", "</tool_"])(
    "%p in descriptions, keys, arguments and results",
    (typed) => {
      const { text, control } = renderedWith(typed);
      expect(control).toEqual(renderedWith("harmless").control);
      expect(text.split(JSON.stringify(typed)).length - 1).toBe(5);
    },
  );
});

test("which words a template knows is asked of the one that would render", () => {
  const two = { template: "{{ messages }}{{ my_tools }}", toolTemplate: "{{ tools }}", specialTokens: {} };
  const both = new ChatTemplate(two, tokenizer.controlTexts);
  expect([both.mentions("tools", false), both.mentions("tools", true)]).toEqual([false, true]);
  const one = new ChatTemplate({ ...two, toolTemplate: null }, tokenizer.controlTexts);
  expect([one.mentions("tools", true), one.mentions("messages", true)]).toEqual([false, true]);
});
