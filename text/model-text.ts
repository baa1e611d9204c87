/** Tokenizer and chat template of a model folder or GGUF file. */
import { isGguf } from "../model/gguf.ts";
import { readGgufFile } from "../model/gguf-file.ts";
import { type FillForm, fillFormOf } from "./fill.ts";
import { ggufFillIds, ggufTemplate, ggufTokenizer } from "./gguf-tokenizer.ts";
import { ChatTemplate, readTemplateSource } from "./template.ts";
import { TemplateError } from "./template-error.ts";
import { createTokenizer, loadTokenizer, type Tokenizer, triedTokenizer } from "./tokenizer.ts";

/** The model's FIM tokens; null if it has none. Throws ModelError. */
export function openFill(path: string, tokenizer: Tokenizer): FillForm | null {
  return fillFormOf(tokenizer, isGguf(path) ? ggufFillIds(readGgufFile(path)) : {});
}

export interface ModelText {
  readonly tokenizer: Tokenizer;
  /** Null when the model has none: it completes text and does not chat. */
  readonly template: ChatTemplate | null;
}

/** Tokenizer of a folder or a GGUF file. Throws TokenizerError and ModelError. */
export function openTokenizer(path: string): Tokenizer {
  if (!isGguf(path)) return loadTokenizer(path);
  const file = readGgufFile(path);
  return triedTokenizer(path, () => {
    const { tokenizer, config } = ggufTokenizer(file);
    return createTokenizer(tokenizer, config);
  });
}

/**
 * Chat template of a folder or a GGUF file; null when the model has none. Throws ModelError, and
 * TemplateError, which names the path.
 */
export function openTemplate(path: string, { controlTexts }: Tokenizer): ChatTemplate | null {
  const source = isGguf(path) ? ggufTemplate(readGgufFile(path)) : readTemplateSource(path);
  if (source === null) return null;
  try {
    return new ChatTemplate(source, controlTexts);
  } catch (error) {
    throw error instanceof TemplateError ? new TemplateError(`${path}: ${error.message}`) : error;
  }
}
