import { expect } from "bun:test";
import { plainText } from "../../text/control-text.ts";
import type { ChatMessage } from "../../text/conversation/messages.ts";
import type { ChatTemplate } from "../../text/template.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";

/** Results that make.py recorded from Hugging Face's tokenizers and transformers. */
export interface Golden {
  readonly texts: readonly { text: string; ids: number[]; idsWithSpecial: number[]; decoded: string }[];
  readonly control: readonly { text: string; ids: number[]; shown: string }[];
  readonly chats: readonly {
    messages: ChatMessage[];
    tools?: unknown[];
    add_generation_prompt?: boolean;
    kwargs?: Record<string, unknown>;
    rendered: string;
    ids: number[];
  }[];
  readonly cuts: readonly { ids: number[]; decoded: string }[];
}

export function expectTexts({ texts }: Golden, tokenizer: Tokenizer): void {
  for (const { text, ids, idsWithSpecial, decoded } of texts) {
    expect(tokenizer.encode(text, { addSpecialTokens: false })).toEqual(ids);
    expect(tokenizer.encode(text, { addSpecialTokens: true })).toEqual(idsWithSpecial);
    expect(tokenizer.decode(ids, { skipSpecialTokens: false })).toBe(decoded);
  }
}

export function expectChats({ chats }: Golden, tokenizer: Tokenizer, template: ChatTemplate): void {
  for (const chat of chats) {
    const rendered = template.render(chat.messages, {
      addGenerationPrompt: chat.add_generation_prompt ?? true,
      tools: chat.tools ?? null,
      templateKwargs: chat.kwargs ?? {},
    });
    expect(plainText(rendered)).toBe(chat.rendered);
    expect(tokenizer.encodeRendered(rendered)).toEqual(chat.ids);
  }
}
