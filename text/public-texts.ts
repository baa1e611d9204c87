import type { TokenId } from "../base/token.ts";
import type { ModelText } from "./model-text.ts";
import type { ChatTemplate } from "./template.ts";
import { TemplateError } from "./template-error.ts";
import type { Tokenizer } from "./tokenizer.ts";

/** The tokens with which prompts begin that begin with a text: those that are no more than text, and chats whose system message
 *  it is, if the model's template knows system messages. */
export function publicTokens(
  text: string,
  { tokenizer, template }: ModelText,
): readonly (readonly TokenId[])[] {
  const plain = tokenizer.encode(text, { addSpecialTokens: true });
  const chat = template === null ? null : chatHead(text, tokenizer, template);
  return chat === null ? [plain] : [plain, chat];
}

/** What chats have in common that go on differently. */
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
