/** Jinja's tests: `x is defined`. */
import { filters } from "./filters.ts";
import { numeric } from "./numbers.ts";
import { binary, compare, contains } from "./operators.ts";
import { str } from "./print.ts";
import type { Runtime } from "./runtime.ts";
import { type Given, matcher } from "./signature.ts";
import type { CompareOperator } from "./syntax.ts";
import { textMethod } from "./text-methods.ts";
import {
  type Arguments,
  Callable,
  Dict,
  isIterable,
  itemsOf,
  Range,
  Undefined,
  type Value,
} from "./values.ts";

export type IsTest = (rt: Runtime, value: Value, args: Arguments) => boolean;

export const isTests = new Map<string, IsTest>();

function define(
  names: string,
  parameters: string,
  run: (rt: Runtime, value: Value, given: Given) => boolean,
): void {
  for (const name of names.split(" ")) {
    const match = matcher(name, parameters);
    isTests.set(name, (rt, value, args) => run(rt, value, match(args)));
  }
}

const isRest = (rt: Runtime, value: Value, divisor: Value, rest: bigint): boolean =>
  compare(rt, "==", binary(rt, "%", value, divisor), rest);

define("odd", "", (rt, value) => isRest(rt, value, 2n, 1n));
define("even", "", (rt, value) => isRest(rt, value, 2n, 0n));
define("divisibleby", "num", (rt, value, [num]) => isRest(rt, value, num!, 0n));
define("defined", "", (_, value) => !(value instanceof Undefined));
define("undefined", "", (_, value) => value instanceof Undefined);
define("none", "", (_, value) => value === null);
define("boolean", "", (_, value) => typeof value === "boolean");
define("true", "", (_, value) => value === true);
define("false", "", (_, value) => value === false);
define("integer", "", (_, value) => typeof value === "bigint");
define("float", "", (_, value) => typeof value === "number");
define("number", "", (_, value) => numeric(value) !== undefined);
define("string", "", (_, value) => typeof value === "string");
define("mapping", "", (_, value) => value instanceof Dict);
define("callable", "", (_, value) => value instanceof Callable || value instanceof Undefined);
define("iterable", "", (_, value) => isIterable(value));
define(
  "sequence",
  "",
  (_, value) =>
    typeof value === "string" ||
    value instanceof Dict ||
    value instanceof Undefined ||
    value instanceof Range ||
    itemsOf(value) !== undefined,
);
define("escaped", "", () => false);
define("filter", "", (_, value) => typeof value === "string" && filters.has(value));
define("test", "", (_, value) => typeof value === "string" && isTests.has(value));
for (const name of ["lower", "upper"]) {
  const method = textMethod(`is${name}`)!;
  isTests.set(name, (rt, value) => method(rt, str(rt, value), { positional: [], named: new Map() }) === true);
}
define("sameas", "other", (_, value, [other]) => Object.is(value, other));
define("in", "seq", (rt, value, [seq]) => contains(rt, seq!, value));

const comparisons: readonly (readonly [names: string, operator: CompareOperator])[] = [
  ["== eq equalto", "=="],
  ["!= ne", "!="],
  ["> gt greaterthan", ">"],
  [">= ge", ">="],
  ["< lt lessthan", "<"],
  ["<= le", "<="],
];
for (const [names, operator] of comparisons) {
  define(names, "/other", (rt, value, [other]) => compare(rt, operator, value, other!));
}
