import type { GrammarBuilder } from "../grammar.ts";
import type { CompiledPart, ThinkingSource } from "../source.ts";
import { MarkedTexts } from "./marked-texts.ts";

/** Line breaks allowed before the opening mark and after the closing one. */
const BREAKS_MAX = 4;

/**
 * Compiles thoughts (any text) followed by the constrained answer. If the prompt has not opened the thoughts,
 * they are optional. `given` null: any text.
 */
export function compileThinking(
  { opening, closing, isOpen, controlTexts, beforeText, afterText }: ThinkingSource,
  given: CompiledPart | null,
  builder: GrammarBuilder,
): CompiledPart {
  const { regexes } = builder;
  const texts = new MarkedTexts(regexes, controlTexts);
  const breaks = regexes.repeat(regexes.bytes([10, 10]), 0, BREAKS_MAX);
  const ignored = given?.ignored ?? [];
  const text = given?.symbol ?? builder.terminal(texts.anyText);
  const answer = texts.between(beforeText, afterText, text, builder);
  const section = builder.sequence(
    builder.terminal(texts.without([closing])),
    builder.terminal(regexes.cat(texts.literal(closing), breaks)),
    answer,
  );
  if (isOpen) return { symbol: section, ignored };
  const open = builder.terminal(regexes.cat(breaks, texts.literal(opening)));
  return { symbol: builder.choice([builder.sequence(open, section), answer]), ignored };
}
