import { type Budget, ConstraintError } from "../error.ts";
import type { GrammarBuilder, GrammarSymbol } from "../grammar.ts";
import type { CallableFunction, CallsSource, CompiledPart } from "../source.ts";
import { compileArguments } from "./call-arguments.ts";
import { type CallForm, isBlock, triggersOf } from "./call-form.ts";
import { MarkedTexts } from "./marked-texts.ts";

/**
 * Compiles calls in a model's own form; arguments obey their function's schema. Text beside or instead of
 * calls must not begin a call, or must obey `otherwise`.
 */
export function compileCalls(
  source: CallsSource,
  otherwise: CompiledPart | null,
  builder: GrammarBuilder,
  budget: Budget,
): CompiledPart {
  const { form, functions, mayTalk } = source;
  const texts = new MarkedTexts(builder.regexes, source.controlTexts);
  const ignored = [...(otherwise?.ignored ?? [])];
  const mark = (text: string): GrammarSymbol[] => (text === "" ? [] : [builder.terminal(texts.ofForm(text))]);
  const call = builder.choice(
    functions.map((one) => {
      const open = mark(form.beforeName + one.name + form.afterName);
      const given = argumentsOf(one, form, texts, builder, budget);
      ignored.push(...given.ignored);
      return builder.sequence(...open, given.symbol, ...mark(form.afterArguments));
    }),
  );
  const max = Math.min(
    source.callsMax ?? Number.POSITIVE_INFINITY,
    form.callsMax ?? Number.POSITIVE_INFINITY,
  );
  const next = builder.sequence(...mark(form.between), call);
  const calls = builder.sequence(
    ...mark(form.begin),
    call,
    builder.repeat(next, 0, max - 1),
    ...mark(form.end),
  );
  if (!mayTalk) return { symbol: calls, ignored };
  const marked = (text: GrammarSymbol): GrammarSymbol => texts.between(source.marks, text, builder);
  if (otherwise !== null) return { symbol: builder.choice([marked(otherwise.symbol), calls]), ignored };
  const triggers = triggersOf(
    form,
    functions.map(({ name }) => name),
  );
  if (form.place === "alone") {
    const talk = builder.terminal(texts.notBeginningWith(triggers));
    return { symbol: builder.choice([marked(talk), calls]), ignored };
  }
  const talk = builder.terminal(texts.without(triggers));
  // An answer limited to one call ends with it; with any number of calls, more may follow.
  const rest =
    form.place === "end" || max === 1
      ? builder.repeat(calls, 0, 1)
      : isBlock(form)
        ? builder.repeat(builder.sequence(calls, talk), 0, 1)
        : builder.repeat(builder.sequence(call, talk), 0, max);
  return { symbol: builder.sequence(marked(talk), rest), ignored };
}

/**
 * Compiles the arguments of a function by its schema. An unsupported schema allows any object, unless the
 * function is strict.
 */
function argumentsOf(
  { name, parameters, isStrict }: CallableFunction,
  form: CallForm,
  texts: MarkedTexts,
  builder: GrammarBuilder,
  budget: Budget,
): CompiledPart {
  try {
    return compileArguments(form.arguments, parameters ?? {}, texts, builder, budget);
  } catch (error) {
    if (!(error instanceof ConstraintError)) throw error;
    if (isStrict) throw new ConstraintError(`the parameters of ${name}: ${error.message}`, error.pointer);
    return {
      ...compileArguments(form.arguments, {}, texts, builder, budget),
      ignored: [`${name}.parameters`],
    };
  }
}
