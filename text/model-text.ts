/** Tokenizer and chat template of a model folder or GGUF file. */

import { existsSync } from "node:fs";
import { join } from "node:path";
import type { TokenId } from "../base/token.ts";
import { controlBytes, type Vocabulary, vocabularyOf } from "../grammar/mask/vocabulary.ts";
import { isGguf } from "../model/gguf.ts";
import { type GgufFile, readGgufFile } from "../model/gguf-file.ts";
import { type FillForm, fillFormOf } from "./fill.ts";
import { ggufFillIds, ggufTemplates, ggufTokenizer } from "./gguf-tokenizer.ts";
import { ChatTemplate } from "./template.ts";
import { TemplateError } from "./template-error.ts";
import { chosenTemplate, readTemplates, usualTemplate } from "./template-source.ts";
import { createTokenizer, loadTokenizer, type Tokenizer, triedTokenizer } from "./tokenizer.ts";
import { expectTokenizer } from "./tokenizer-folder.ts";

/** Head of a GGUF file, which has its text; null for a folder. Throws ModelError. */
export function openTextHead(path: string): GgufFile | null {
  return isGguf(path) ? readGgufFile(path) : null;
}

/** The model's FIM tokens; null if it has none. Throws ModelError. */
export function openFill(head: GgufFile | null, tokenizer: Tokenizer): FillForm | null {
  return fillFormOf(tokenizer, head === null ? {} : ggufFillIds(head));
}

export interface ModelText {
  readonly tokenizer: Tokenizer;
  /** Null if the model has none: it supports completions but no chat. */
  readonly template: ChatTemplate | null;
}

/** Throws TokenizerError for a folder without a tokenizer, before any file is read. */
export function expectText(path: string): void {
  if (!isGguf(path)) expectTokenizer(path);
}

/** Tokenizer of a folder or a GGUF file. Throws TokenizerError and ModelError. */
export function openTokenizer(path: string, head = openTextHead(path)): Tokenizer {
  if (head === null) return loadTokenizer(path);
  return triedTokenizer(path, () => {
    const { tokenizer, config } = ggufTokenizer(head);
    return createTokenizer(tokenizer, config);
  });
}

/** Chat template in place of the model's usual one, and arguments for it. */
export interface TemplateChoice {
  /** Name of one of the model's templates, or a file; null: the usual one. */
  readonly template: string | null;
  /** JSON object with default arguments of the template, for requests that do not set them; null: none. */
  readonly argumentsText: string | null;
}

/**
 * Chat template of a folder or a GGUF file; null when the model has none. Throws ModelError, and
 * TemplateError, which names the path.
 */
export function openTemplate(
  path: string,
  { controlTexts }: Tokenizer,
  { template: choice, argumentsText }: TemplateChoice = { template: null, argumentsText: null },
  head = openTextHead(path),
): ChatTemplate | null {
  const set = head === null ? readTemplates(path) : ggufTemplates(head);
  const source = choice === null ? usualTemplate(set) : chosenTemplate(choice, set);
  if (source === null) return null;
  try {
    return new ChatTemplate(argumentsText === null ? source : { ...source, argumentsText }, controlTexts);
  } catch (error) {
    throw error instanceof TemplateError ? new TemplateError(`${choice ?? path}: ${error.message}`) : error;
  }
}

const tekkenNote =
  "tekken.json holds no chat template, so there are no chats: fetch chat_template.jinja of the model or of a copy of it " +
  "with tokenizer.json into its folder, or name the file with --chat-template";

/** Messages about the chat template of a model for the server's start. */
export function templateNotes(path: string, template: ChatTemplate | null): readonly string[] {
  const isTekken = existsSync(join(path, "tekken.json"));
  if (template === null) return isTekken ? [tekkenNote] : [];
  const unknown = template.unknownArguments.map(
    (name) => `the chat template does not know the argument ${name}`,
  );
  const problem = problemOf(template);
  return problem === null ? unknown : [problem, ...unknown];
}

function problemOf(template: ChatTemplate): string | null {
  try {
    return template.problem();
  } catch (error) {
    if (error instanceof TemplateError) return error.message;
    throw error;
  }
}

/**
 * Bytes of the model's `size` tokens for constrained text. Control tokens count as no text: they are
 * generated only where a constraint names one.
 */
export function textVocabulary(tokenizer: Tokenizer, size: number): Vocabulary {
  const bytesOf = (token: number): Uint8Array => {
    const bytes = tokenizer.bytesOf(token);
    return tokenizer.isControl(token) ? controlBytes(bytes) : bytes;
  };
  return vocabularyOf(size, bytesOf, tokenizer.isAdded);
}

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
