import type { Budget } from "../error.ts";
import type { GrammarBuilder, GrammarSymbol } from "../grammar.ts";
import type { Regexes } from "../regex/regexes.ts";
import { SchemaDocument } from "./document.ts";
import { Emitter, type WhiteSpace } from "./emitter.ts";
import { Normalizer } from "./normalizer.ts";
import { anyShape, kinds } from "./shapes.ts";

/**
 * White space in JSON. `tight`: none. `compact`: at most one space after a comma or a colon. Else also line
 * ends, each followed by any number of indentations of that many spaces.
 */
export type JsonLayout = "tight" | "compact" | { readonly indent: number };

/** Indentations of a line at most. */
const INDENTATIONS_MAX = 32;

/**
 * Compiles a schema (JSON Schema 2020-12, or 7 if `$schema` says so) to a grammar of JSON texts. No part of
 * the schema is dropped: unsupported keywords are refused with their pointer. Also returns the names of
 * ignored keywords and formats, which have no known meaning. `wanted` "object" allows objects only.
 *
 * Each string and number has one spelling, as by JSON.stringify, except numbers with few conditions.
 */
export function compileSchema(
  source: unknown,
  builder: GrammarBuilder,
  layout: JsonLayout,
  budget: Budget,
  wanted: "value" | "object" = "value",
): { readonly symbol: GrammarSymbol; readonly ignored: readonly string[] } {
  const document = new SchemaDocument(source);
  const normalizer = new Normalizer(document, builder.regexes, budget);
  const emitter = new Emitter(normalizer, builder, whiteSpaceOf(builder.regexes, layout), budget);
  const conditions = [normalizer.condition(document.root)];
  if (wanted === "object") conditions.push(normalizer.any([{ ...anyShape, kinds: kinds.object }]));
  const symbol = emitter.valueOf(conditions);
  return { symbol, ignored: [...normalizer.ignoredNames] };
}

function whiteSpaceOf(regexes: Regexes, layout: JsonLayout): WhiteSpace {
  const space = regexes.bytes([32, 32]);
  const none = regexes.epsilon;
  if (layout === "tight") return { afterComma: none, afterColon: none, inBrackets: none };
  const upToOne = regexes.optional(space);
  if (layout === "compact") return { afterComma: upToOne, afterColon: upToOne, inBrackets: none };
  const indentation = regexes.repeat(space, layout.indent, layout.indent);
  const line = regexes.cat(regexes.bytes([10, 10]), regexes.repeat(indentation, 0, INDENTATIONS_MAX));
  return {
    afterComma: regexes.alt([upToOne, line]),
    afterColon: upToOne,
    inBrackets: regexes.optional(line),
  };
}
