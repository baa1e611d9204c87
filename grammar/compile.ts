import { compileGbnf } from "./ebnf/gbnf.ts";
import { compileLark } from "./ebnf/lark.ts";
import { Budget, ConstraintError } from "./error.ts";
import { type Grammar, GrammarBuilder } from "./grammar.ts";
import { compilePattern } from "./regex/pattern.ts";
import { Regexes } from "./regex/regexes.ts";
import { plainEncoding } from "./regex/text.ts";
import { compileSchema } from "./schema/compile-schema.ts";
import type { CompiledPart, ConstraintSource, ThinkingSource } from "./source.ts";
import { compileCalls } from "./tools/calls.ts";
import { MarkedTexts } from "./tools/marked-texts.ts";
import { compileTags } from "./tools/tags.ts";

/** Compiled constraint, with the names of keywords that it ignores because they have no known meaning. */
export interface CompiledConstraint {
  readonly grammar: Grammar;
  readonly ignored: readonly string[];
}

/** Length of a constraint's source at most, in UTF-16 units. */
export const SOURCE_UNITS_MAX = 65_536;
/** Texts of a choice at most. */
export const CHOICES_MAX = 10_000;
/** Step budget of a compilation: about a second of work. */
export const COMPILE_STEPS = 3_000_000;

/**
 * Compiles a constraint. Throws ConstraintError for unsupported or contradictory sources and for too much
 * work. Work is counted in steps, so that the same source always gives the same result.
 */
export function compileConstraint(
  source: ConstraintSource,
  budget = new Budget(COMPILE_STEPS),
): CompiledConstraint {
  const regexes = new Regexes();
  regexes.budget = budget;
  const builder = new GrammarBuilder(regexes);
  const { symbol, ignored } = symbolOf(source, builder, budget);
  return { grammar: builder.finish(symbol), ignored };
}

function symbolOf(source: ConstraintSource, builder: GrammarBuilder, budget: Budget): CompiledPart {
  const { regexes } = builder;
  switch (source.kind) {
    case "schema": {
      const { length } = JSON.stringify(source.schema) ?? "";
      if (length > SOURCE_UNITS_MAX) {
        throw new ConstraintError(
          `a schema may have ${SOURCE_UNITS_MAX} characters of JSON at most, but has ${length}`,
        );
      }
      return compileSchema(source.schema, builder, source.layout, budget);
    }
    case "regex": {
      const regex = compilePattern(regexes, source.pattern, plainEncoding(regexes), "whole");
      return { symbol: builder.terminal(regex), ignored: [] };
    }
    case "tags":
      return compileTags(source.format, (part) => symbolOf(part, builder, budget), builder);
    case "calls": {
      const { otherwise } = source;
      const other = otherwise === null ? null : symbolOf(otherwise, builder, budget);
      return compileCalls(source, other, builder, budget);
    }
    case "thinking": {
      const answer = source.answer === null ? null : symbolOf(source.answer, builder, budget);
      return compileThinking(source, answer, builder);
    }
    case "grammar": {
      const { length } = source.text;
      if (length > SOURCE_UNITS_MAX) {
        throw new ConstraintError(
          `a grammar may have ${SOURCE_UNITS_MAX} characters at most, but has ${length}`,
        );
      }
      const compile = source.text.includes("::=") ? compileGbnf : compileLark;
      return { symbol: compile(source.text, builder), ignored: [] };
    }
    case "choice": {
      const { length } = source.texts;
      if (length === 0 || length > CHOICES_MAX) {
        throw new ConstraintError(`a choice must have 1 to ${CHOICES_MAX} texts, but has ${length}`);
      }
      const texts = source.texts.map((text) => new TextEncoder().encode(text));
      return { symbol: builder.terminal(regexes.literals(texts)), ignored: [] };
    }
  }
}

/**
 * Compiles thoughts (any text) followed by the constrained answer. If the prompt has not opened the thoughts,
 * they are optional. `given` null: any text.
 */
function compileThinking(
  { opening, closing, isOpen, controlTexts, marks }: ThinkingSource,
  given: CompiledPart | null,
  builder: GrammarBuilder,
): CompiledPart {
  const { regexes } = builder;
  const texts = new MarkedTexts(regexes, controlTexts);
  const ignored = given?.ignored ?? [];
  const text = given?.symbol ?? builder.terminal(texts.anyText);
  const answer = texts.between(marks, text, builder);
  const section = builder.sequence(
    builder.terminal(texts.without([closing])),
    builder.terminal(regexes.cat(texts.literal(closing), texts.breaks)),
    answer,
  );
  if (isOpen) return { symbol: section, ignored };
  const open = builder.terminal(regexes.cat(texts.breaks, texts.literal(opening)));
  return { symbol: builder.choice([builder.sequence(open, section), answer]), ignored };
}
