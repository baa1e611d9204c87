import type { ArgumentsForm } from "./call-form.ts";
import type { CompiledPart } from "./calls.ts";
import type { Budget } from "./error.ts";
import type { GrammarBuilder } from "./grammar.ts";
import type { MarkedTexts } from "./marked-texts.ts";
import { compileSchema } from "./schema/compile-schema.ts";

/** A call's arguments that `schema` allows, in one of the ways in which models write them. */
export function compileArguments(
  form: ArgumentsForm,
  schema: unknown,
  _texts: MarkedTexts,
  builder: GrammarBuilder,
  budget: Budget,
): CompiledPart {
  if (form.kind !== "json") throw new Error(form.kind);
  return compileSchema(schema, builder, "compact", budget, "object");
}
