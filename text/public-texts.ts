import type { TokenId } from "../base/token.ts";
import type { ModelText } from "./model-text.ts";
import type { ChatTemplate } from "./template.ts";
import { TemplateError } from "./template-error.ts";
import type { Tokenizer } from "./tokenizer.ts";

/**
 * Token prefixes of prompts that begin with a public text: the text alone, and the beginning of a chat with
 * it as the system message. The latter is left out if the template has no system messages.
 */
export function publicTokens(
  text: string,
  { tokenizer, template }: ModelText,
): readonly (readonly TokenId[])[] {
  const plain = tokenizer.encode(text, { addSpecialTokens: true });
  const chat = template === null ? null : chatHead(text, tokenizer, template);
  return chat === null ? [plain] : [plain, chat];
}

/** Common prefix of chats with this system message and different continuations. */
function chatHead(content: string, tokenizer: Tokenizer, template: ChatTemplate): readonly TokenId[] | null {
  const written = (user: string): readonly TokenId[] => {
    const messages = [
      { role: "system", content },
      { role: "user", content: user },
    ];
    return tokenizer.encodeRendered(template.write(messages, { addGenerationPrompt: true }));
  };
  try {
    const [one, other] = [written("1"), written("?")];
    let length = 0;
    while (length < one.length && one[length] === other[length]) length += 1;
    return one.slice(0, length);
  } catch (error) {
    if (error instanceof TemplateError) return null;
    throw error;
  }
}
