/** Global functions of templates, as in jinja2's sandbox and transformers. */
import { fromKeys } from "./attributes.ts";
import { toIndex } from "./convert.ts";
import { fail } from "./errors.ts";
import { namespaceOf } from "./interpreter.ts";
import { str } from "./print.ts";
import type { Runtime } from "./runtime.ts";
import { callable } from "./signature.ts";
import { strftime } from "./strftime.ts";
import { type Arguments, Callable, Dict, iterate, Range, type Value } from "./values.ts";

/** Numbers in a range at most: the sandbox's own limit. */
const rangeMax = 100_000;

export const globals: ReadonlyMap<string, Value> = new Map<string, Value>([
  [
    "range",
    callable("range", "/start /stop? /step?", (_, [start, stop, step]) => rangeOf(start!, stop, step)),
  ],
  ["namespace", new Callable("namespace", (rt, args) => namespaceOf(dictOf(rt, args)), "type")],
  [
    "dict",
    new Callable("dict", dictOf, "TemplateDict", (name) => (name === "fromkeys" ? fromKeys : undefined)),
  ],
  [
    "raise_exception",
    callable("raise_exception", "message", (rt, [message]) => fail("TemplateError", str(rt, message!))),
  ],
  [
    "strftime_now",
    callable("strftime_now", "format", (rt, [format]) =>
      typeof format === "string"
        ? rt.made(strftime(rt.now, format))
        : fail("TypeError", "strftime() argument 1 must be str"),
    ),
  ],
  ["joiner", callable("joiner", "sep?", (_, [separator = ", "]) => joiner(separator))],
  ["cycler", new Callable("cycler", (_, { positional }) => cycler(positional), "type")],
]);

function rangeOf(first: Value, second: Value | undefined, third: Value | undefined): Range {
  const [start, stop] = second === undefined ? [0, toIndex(first)] : [toIndex(first), toIndex(second)];
  const step = third === undefined ? 1 : toIndex(third);
  if (step === 0) fail("ValueError", "range() arg 3 must not be zero");
  const length = Math.max(0, Math.ceil((stop - start) / step));
  if (length > rangeMax) {
    fail("OverflowError", `Range too big. The sandbox blocks ranges larger than MAX_RANGE (${rangeMax}).`);
  }
  return new Range(BigInt(start), BigInt(step), length);
}

/** `dict(…)`: a mapping or pairs, then keywords. */
function dictOf(rt: Runtime, { positional, named }: Arguments): Dict {
  if (positional.length > 1) fail("TypeError", `dict expected at most 1 argument, got ${positional.length}`);
  const dict = new Dict();
  const [source] = positional;
  if (source instanceof Dict) for (const [key, value] of source.entries()) dict.set(key, value);
  else if (source !== undefined) {
    for (const pair of iterate(source)) {
      rt.budget.spend(1);
      const members = [...iterate(pair)];
      if (members.length !== 2) {
        fail("ValueError", `dictionary update sequence element has length ${members.length}; 2 is required`);
      }
      dict.set(members[0]!, members[1]!);
    }
  }
  for (const [name, value] of named) dict.set(name, value);
  return dict;
}

/** Returns "" at the first call, the separator afterwards. */
function joiner(separator: Value): Callable {
  let isUsed = false;
  return new Callable("joiner", () => {
    const text = isUsed ? separator : "";
    isUsed = true;
    return text;
  });
}

/** Returns the items in turn, over and over. */
function cycler(items: readonly Value[]): Callable {
  if (items.length === 0) fail("TypeError", "at least one item has to be provided");
  let at = 0;
  const next = callable("next", "", () => {
    const item = items[at]!;
    at = (at + 1) % items.length;
    return item;
  });
  const reset = callable("reset", "", () => {
    at = 0;
    return null;
  });
  const attributes = (name: string): Value | undefined =>
    name === "next" ? next : name === "reset" ? reset : name === "current" ? items[at]! : undefined;
  return new Callable(
    "cycler",
    () => fail("TypeError", "'Cycler' object is not callable"),
    "Cycler",
    attributes,
  );
}
