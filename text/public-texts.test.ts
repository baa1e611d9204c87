import { expect, test } from "bun:test";
import { join } from "node:path";
import { publicTokens } from "./model-text.ts";
import { ChatTemplate } from "./template.ts";
import { loadTokenizer } from "./tokenizer.ts";

const tokenizer = loadTokenizer(join(import.meta.dir, "../tests/reference/tokenizers/qwen"));

function templateOf(template: string): ChatTemplate {
  return new ChatTemplate({ template, toolTemplate: null, specialTokens: {} }, tokenizer.controlTexts);
}

test("a text is public as it is, and as the system message of any chat", () => {
  const template = templateOf(
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}<|im_start|>",
  );
  const texts = publicTokens("Be kind.", { tokenizer, template });
  const written = texts.map((tokens) => tokenizer.decode(tokens, { skipSpecialTokens: false }));
  expect(written).toEqual(["Be kind.", "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\n"]);
});

test("a model that knows no system messages has it as a user's message", () => {
  const template = templateOf(
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('none') }}{% endif %}{{ m.role }}: {{ m.content }};{% endfor %}",
  );
  const [, chat] = publicTokens("Be kind.", { tokenizer, template });
  expect(tokenizer.decode(chat!, { skipSpecialTokens: false })).toBe("user: Be kind.;user: ");
});

test("a model that knows no chats has it as it is", () => {
  const refuses = templateOf("{{ raise_exception('none') }}");
  for (const template of [refuses, null])
    expect(publicTokens("Be kind.", { tokenizer, template })).toHaveLength(1);
});
