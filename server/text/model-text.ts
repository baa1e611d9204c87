/** Tokenizer and chat template of a model, wherever it keeps them. */
import { isGguf } from "../../gpu/model/gguf.ts";
import { readGgufFile } from "../../gpu/model/gguf-file.ts";
import { ggufTemplate, ggufTokenizer } from "./gguf-tokenizer.ts";
import { type ChatTemplate, readTemplateSource, type TemplateSource } from "./template.ts";
import { createTokenizer, loadTokenizer, type Tokenizer } from "./tokenizer.ts";

export interface ModelText {
  readonly tokenizer: Tokenizer;
  /** null when the model has none: it completes text and does not chat. */
  readonly template: ChatTemplate | null;
}

/** Of a folder or a GGUF file. Throws TokenizerError and ModelError. */
export function openTokenizer(path: string): Tokenizer {
  if (!isGguf(path)) return loadTokenizer(path);
  const { tokenizer, config } = ggufTokenizer(readGgufFile(path));
  return createTokenizer(tokenizer, config);
}

/** Of a folder or a GGUF file; null when the model has no template. Throws TemplateError and ModelError. */
export function openTemplateSource(path: string): TemplateSource | null {
  return isGguf(path) ? ggufTemplate(readGgufFile(path)) : readTemplateSource(path);
}
