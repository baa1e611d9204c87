/** Macros, and the bodies of `call` blocks, which are macros too. */
import { fail } from "./errors.ts";
import { evaluate } from "./evaluate.ts";
import { renderBody } from "./interpreter.ts";
import type { Runtime } from "./runtime.ts";
import { Scope } from "./scope.ts";
import type { MacroSyntax } from "./syntax.ts";
import { type Arguments, Callable, Dict, or, Tuple, Undefined, type Value } from "./values.ts";

/** `around` is where the macro stands, not where it is called. */
export function macro(rt: Runtime, syntax: MacroSyntax, around: Scope): Callable {
  const run = (_: Runtime, args: Arguments): Value => {
    const scope = new Scope(around);
    bind(rt, syntax, args, scope);
    rt.budget.enter();
    const text = renderBody(rt, syntax.body, scope);
    rt.budget.leave();
    return text;
  };
  return new Callable(syntax.name, run, "Macro", (name) => macroAttribute(syntax, name));
}

function bind(rt: Runtime, { name, parameters, reads }: MacroSyntax, args: Arguments, scope: Scope): void {
  const named = new Map(args.named);
  for (const [index, parameter] of parameters.entries()) {
    let value = args.positional[index];
    if (value === undefined && named.has(parameter.name)) {
      value = named.get(parameter.name);
      named.delete(parameter.name);
    }
    if (value === undefined && parameter.fallback !== null) value = evaluate(rt, parameter.fallback, scope);
    scope.set(
      parameter.name,
      or(value, () => new Undefined(`parameter '${parameter.name}' was not provided`)),
    );
  }
  if (reads.has("caller")) {
    scope.set(
      "caller",
      or(named.get("caller"), () => new Undefined("No caller defined")),
    );
    named.delete("caller");
  }
  if (reads.has("kwargs")) {
    const dict = new Dict();
    for (const [key, value] of named) dict.set(key, value);
    scope.set("kwargs", dict);
  } else if (named.size > 0) {
    const [unknown] = named.keys();
    fail("TypeError", `macro '${name}' takes no keyword argument '${unknown}'`);
  }
  if (reads.has("varargs")) scope.set("varargs", new Tuple(args.positional.slice(parameters.length)));
  else if (args.positional.length > parameters.length)
    fail("TypeError", `macro '${name}' takes not more than ${parameters.length} argument(s)`);
}

function macroAttribute({ name, parameters, reads }: MacroSyntax, asked: string): Value | undefined {
  switch (asked) {
    case "name":
      return name;
    case "arguments":
      return new Tuple(parameters.map((parameter) => parameter.name));
    case "caller":
      return reads.has("caller");
    case "catch_kwargs":
      return reads.has("kwargs");
    case "catch_varargs":
      return reads.has("varargs");
    default:
      return undefined;
  }
}
