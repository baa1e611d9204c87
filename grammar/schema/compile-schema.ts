import type { Budget } from "../error.ts";
import type { GrammarBuilder, GrammarSymbol } from "../grammar.ts";
import type { Regexes } from "../regex/regexes.ts";
import { SchemaDocument } from "./document.ts";
import { Emitter, type WhiteSpace } from "./emitter.ts";
import { Normalizer } from "./normalizer.ts";
import { anyShape, kinds } from "./shapes.ts";

/** White space that values may have: `tight` none; `compact` one space at most after a comma or a colon; else line ends as
 *  well, followed by any number of times so many spaces. */
export type JsonLayout = "tight" | "compact" | { readonly indent: number };

/** Times that a line may be indented. */
const INDENTATIONS_MAX = 32;

/**
 * JSON texts of values that a schema (JSON Schema 2020-12, or 7 where `$schema` says so) allows. Nothing of the schema is left
 * out: what cannot be held to is refused, with the pointer of its keyword. Returns also the names of what demands nothing
 * that is known: unknown keywords and formats. `wanted` "object" leaves out all values that are none.
 *
 * Each string and number is written in one way, as JSON.stringify does, but for numbers about which little is said.
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
