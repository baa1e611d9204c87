import type { Runtime } from "./runtime.ts";
import { type Given, matcher } from "./signature.ts";
import type { Arguments, Value } from "./values.ts";

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
