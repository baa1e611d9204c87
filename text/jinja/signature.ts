/** Matches the arguments of a call with the parameters of a function. */
import { fail } from "./errors.ts";
import type { Runtime } from "./runtime.ts";
import { type Arguments, Callable, type Value } from "./values.ts";

/** Values in the order of the parameters; undefined for missing ones. */
export type Given = readonly (Value | undefined)[];

/**
 * `parameters`: names separated by spaces. A name with a final "?" is optional; one with an initial "/" is
 * positional only.
 */
export function matcher(name: string, parameters: string): (args: Arguments) => Given {
  const known = parameters
    .split(" ")
    .filter(Boolean)
    .map((word) => ({
      name: word.replace(/[/?]/g, ""),
      isOptional: word.endsWith("?"),
      hasName: !word.startsWith("/"),
    }));
  return ({ positional, named }) => {
    if (positional.length > known.length) {
      fail("TypeError", `${name}() takes ${known.length} arguments but ${positional.length} were given`);
    }
    const given: (Value | undefined)[] = known.map((_, index) => positional[index]);
    for (const [key, value] of named) {
      const index = known.findIndex((parameter) => parameter.hasName && parameter.name === key);
      if (index < 0) fail("TypeError", `${name}() got an unexpected keyword argument '${key}'`);
      if (given[index] !== undefined)
        fail("TypeError", `${name}() got multiple values for argument '${key}'`);
      given[index] = value;
    }
    for (const [index, parameter] of known.entries()) {
      if (given[index] === undefined && !parameter.isOptional)
        fail("TypeError", `${name}() missing 1 required positional argument: '${parameter.name}'`);
    }
    return given;
  };
}

/** A function with named parameters. */
export function callable(
  name: string,
  parameters: string,
  run: (rt: Runtime, given: Given) => Value,
): Callable {
  const match = matcher(name, parameters);
  return new Callable(name, (rt, args) => run(rt, match(args)));
}

export type Filter = (rt: Runtime, value: Value, args: Arguments) => Value;

/** Adds filters to a table under each of `names`; `matcher` parses `parameters`. */
export function definer(filters: Map<string, Filter>) {
  return (
    names: string,
    parameters: string,
    run: (rt: Runtime, value: Value, given: Given) => Value,
  ): void => {
    for (const name of names.split(" ")) {
      const match = matcher(name, parameters);
      filters.set(name, (rt, value, args) => run(rt, value, match(args)));
    }
  };
}
