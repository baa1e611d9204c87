import type { CallableFunction } from "./compile.ts";
import { type Budget, ConstraintError } from "./error.ts";
import type { GrammarBuilder, GrammarSymbol, Production } from "./grammar.ts";
import { plainEncoding } from "./regex/text.ts";
import { compileSchema } from "./schema/compile-schema.ts";

/** What surrounds a call of a function in text. */
const OPENING = "<tool_call>";
const CLOSING = "</tool_call>";

/**
 * Calls of functions as Hermes and Qwen models write them:
 *
 *     <tool_call>
 *     {"name": "get_weather", "arguments": {"city": "Rome"}}
 *     </tool_call>
 *
 * Arguments obey their function's schema. Text, where it is allowed, is any that does not open a call.
 */
export function compileCalls(
  {
    functions,
    callsMax,
    mayTalk,
  }: {
    readonly functions: readonly CallableFunction[];
    readonly callsMax: number | null;
    readonly mayTalk: boolean;
  },
  builder: GrammarBuilder,
  budget: Budget,
): { readonly symbol: GrammarSymbol; readonly ignored: readonly string[] } {
  const { regexes } = builder;
  const encoding = plainEncoding(regexes);
  const text = (given: string) => regexes.literal(encoding.bytesOf(given));
  const ignored: string[] = [];
  const close = builder.terminal(text(`}\n${CLOSING}`));
  const calls = functions.map(({ name, parameters }): GrammarSymbol => {
    const open = builder.terminal(text(`${OPENING}\n{"name": ${JSON.stringify(name)}, "arguments": `));
    try {
      const compiled = compileSchema(parameters ?? {}, builder, "compact", budget, "object");
      ignored.push(...compiled.ignored);
      return builder.sequence(open, compiled.symbol, close);
    } catch (error) {
      if (!(error instanceof ConstraintError)) throw error;
      throw new ConstraintError(`the parameters of ${name}: ${error.message}`, error.pointer);
    }
  });
  const call = builder.choice(calls);
  const more = callsMax === null ? Number.POSITIVE_INFINITY : callsMax - 1;
  if (!mayTalk) {
    const next = builder.sequence(builder.terminal(text("\n")), call);
    return { symbol: builder.sequence(call, builder.repeat(next, 0, more)), ignored };
  }
  const opens = regexes.cat(encoding.anyText, text(OPENING), encoding.anyText);
  const talk = builder.terminal(regexes.and([encoding.anyText, regexes.not(opens)]));
  const rest = builder.declare();
  const productions: Production[] = [
    { kind: "repeat", symbol: builder.sequence(call, talk), min: 0, max: more + 1 },
  ];
  builder.define(rest, productions);
  return { symbol: builder.sequence(talk, rest), ignored };
}
