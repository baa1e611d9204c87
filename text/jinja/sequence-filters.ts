/** Jinja's filters of lists and dicts. */
import { item } from "./attributes.ts";
import { defined, isTrueOr, toIndex } from "./convert.ts";
import { fail } from "./errors.ts";
import { binary, isEqual, isOrdered } from "./operators.ts";
import { str } from "./print.ts";
import type { Runtime } from "./runtime.ts";
import { definer, type Filter, type Given } from "./signature.ts";
import { lengthOf } from "./text.ts";
import { joinTexts } from "./text-methods.ts";
import {
  type Arguments,
  Dict,
  DictView,
  GroupTuple,
  isTrue,
  itemsOf,
  iterate,
  Lazy,
  or,
  Range,
  sizeOf,
  type Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

export const sequenceFilters = new Map<string, Filter>();

const define = definer(sequenceFilters);

/** The items, each charged to the budget. */
function* counted(rt: Runtime, value: Value): Generator<Value> {
  for (const each of iterate(value)) {
    rt.budget.spend(1);
    yield each;
  }
}

export function listOf(rt: Runtime, value: Value): Value[] {
  return [...counted(rt, value)];
}

/** Getter for an `attribute` argument: `a.0.b`, an index, or null for the item itself. */
function getter(rt: Runtime, path: Value | undefined, fallback?: Value): (value: Value) => Value {
  if (path === undefined || path === null) return (value) => value;
  const steps: Value[] =
    typeof path === "string"
      ? path.split(".").map((step) => (/^\d+$/.test(step) ? BigInt(step) : step))
      : [path];
  return (value) => {
    let found = value;
    for (const step of steps) {
      found = item(rt, found, step);
      if (fallback !== undefined && fallback !== null && found instanceof Undefined) found = fallback;
    }
    return found;
  };
}

/** Sort key of items: case-insensitive by default. */
function keyOf(
  rt: Runtime,
  path: Value | undefined,
  caseSensitive: Value | undefined,
): (value: Value) => Value {
  const get = getter(rt, path);
  if (isTrueOr(caseSensitive, false)) return get;
  return (value) => lowered(get(value));
}

function lowered(value: Value): Value {
  return typeof value === "string" ? value.toLowerCase() : value;
}

function sorted(rt: Runtime, items: Value[], key: (value: Value) => Value, isReversed: boolean): Value[] {
  const keyed = items.map((each) => ({ each, key: key(each) }));
  const compare = (a: Value, b: Value): number => {
    rt.budget.spend(1);
    return isOrdered(rt, "<", a, b) ? -1 : isOrdered(rt, "<", b, a) ? 1 : 0;
  };
  keyed.sort((a, b) => (isReversed ? compare(b.key, a.key) : compare(a.key, b.key)));
  return keyed.map(({ each }) => each);
}

define("length count", "", (rt, value) => {
  if (typeof value === "string") return BigInt(lengthOf(value));
  const size = sizeOf(value);
  rt.budget.spend(1);
  return size === undefined
    ? fail("TypeError", `object of type '${typeName(value)}' has no len()`)
    : BigInt(size);
});

define("list", "", (rt, value) => listOf(rt, value));

define("items", "", (_, value) => {
  const run = function* (): Generator<Value> {
    if (value instanceof Undefined) return;
    if (!(value instanceof Dict)) fail("TypeError", "Can only get item pairs from a mapping.");
    yield* iterate(new DictView("dict_items", value));
  };
  return new Lazy(run());
});

define("first", "", (_, value) => {
  const next = iterate(value).next();
  return next.done ? new Undefined("No first item, sequence was empty.") : next.value;
});

define("last", "", (rt, value) => {
  const backwards = reversed(rt, value);
  if (backwards === undefined) return fail("TypeError", `'${typeName(value)}' object is not reversible`);
  return or(backwards[0], () => new Undefined("No last item, sequence was empty."));
});

/** Items from the last to the first; undefined for values that Python cannot reverse. */
function reversed(rt: Runtime, value: Value): Value[] | undefined {
  const isReversible =
    typeof value === "string" ||
    itemsOf(value) !== undefined ||
    value instanceof Dict ||
    value instanceof DictView ||
    value instanceof Undefined ||
    value instanceof Range;
  return isReversible ? listOf(rt, value).reverse() : undefined;
}

define("reverse", "", (rt, value) => {
  if (typeof value === "string") return rt.made([...value].reverse().join(""));
  const backwards = reversed(rt, value);
  if (backwards !== undefined) return new Lazy(backwards.values(), "list_reverseiterator");
  if (sizeOf(value) === undefined && !(value instanceof Lazy)) {
    return fail("FilterArgumentError", "argument must be iterable");
  }
  return listOf(rt, value).reverse();
});

define("join", "d? attribute?", (rt, value, [separator, path]) => {
  const get = getter(rt, path);
  const texts: string[] = [];
  for (const each of counted(rt, value)) texts.push(str(rt, get(each)));
  return joinTexts(rt, separator === undefined ? "" : str(rt, separator), texts);
});

define("sort", "reverse? case_sensitive? attribute?", (rt, value, [reverse, caseSensitive, path]) => {
  const paths = typeof path === "string" ? path.split(",") : [path];
  const keys = paths.map((each) => keyOf(rt, each, caseSensitive));
  return sorted(rt, listOf(rt, value), (each) => keys.map((key) => key(each)), isTrueOr(reverse, false));
});

define("dictsort", "case_sensitive? by? reverse?", (rt, value, [caseSensitive, by = "key", reverse]) => {
  if (by !== "key" && by !== "value")
    fail("FilterArgumentError", 'You can only sort by either "key" or "value"');
  if (!(defined(value) instanceof Dict))
    return fail("AttributeError", `'${typeName(value)}' object has no attribute 'items'`);
  const place = by === "key" ? 0 : 1;
  const key = (pair: Value): Value => {
    const part = (pair as Tuple).items[place]!;
    return isTrueOr(caseSensitive, false) ? part : lowered(part);
  };
  return sorted(rt, listOf(rt, new DictView("dict_items", value as Dict)), key, isTrueOr(reverse, false));
});

define("unique", "case_sensitive? attribute?", (rt, value, [caseSensitive, path]) => {
  const key = keyOf(rt, path, caseSensitive);
  const run = function* (): Generator<Value> {
    const seen = new Dict();
    for (const each of counted(rt, value)) {
      const by = key(each);
      if (seen.has(by)) continue;
      seen.set(by, true);
      yield each;
    }
  };
  return new Lazy(run());
});

define("min", "case_sensitive? attribute?", (rt, value, given) => extreme(rt, value, given, false));
define("max", "case_sensitive? attribute?", (rt, value, given) => extreme(rt, value, given, true));

function extreme(rt: Runtime, value: Value, [caseSensitive, path]: Given, isMax: boolean): Value {
  const key = keyOf(rt, path, caseSensitive);
  let best: { each: Value; key: Value } | undefined;
  for (const each of counted(rt, value)) {
    const candidate = { each, key: key(each) };
    const isBetter = best === undefined || isOrdered(rt, isMax ? ">" : "<", candidate.key, best.key);
    if (isBetter) best = candidate;
  }
  return best === undefined ? new Undefined("No aggregated item, sequence was empty.") : best.each;
}

define("sum", "attribute? start?", (rt, value, [path, start = 0n]) => {
  if (typeof start === "string") fail("TypeError", "sum() can't sum strings [use ''.join(seq) instead]");
  const get = getter(rt, path);
  let sum: Value = start;
  for (const each of counted(rt, value)) sum = binary(rt, "+", sum, get(each));
  return sum;
});

define("groupby", "attribute default? case_sensitive?", (rt, value, [path, fallback, caseSensitive]) => {
  const get = getter(rt, path, fallback);
  const key = isTrueOr(caseSensitive, false) ? get : (each: Value): Value => lowered(get(each));
  const groups: { key: Value; items: Value[] }[] = [];
  for (const each of sorted(rt, listOf(rt, value), key, false)) {
    const by = key(each);
    const last = groups.at(-1);
    if (last !== undefined && isEqual(rt, last.key, by)) last.items.push(each);
    else groups.push({ key: by, items: [each] });
  }
  return groups.map(({ items }) => new GroupTuple([get(items[0]!), items]));
});

define("batch", "linecount fill_with?", (rt, value, [lineCount, fill]) => {
  const size = toIndex(lineCount!);
  const run = function* (): Generator<Value> {
    let line: Value[] = [];
    for (const each of counted(rt, value)) {
      if (line.length === size) {
        yield line;
        line = [];
      }
      line.push(each);
    }
    if (line.length === 0) return;
    if (fill !== undefined && fill !== null) {
      rt.budget.spend(Math.max(0, size - line.length));
      while (line.length < size) line.push(fill);
    }
    yield line;
  };
  return new Lazy(run());
});

define("slice", "slices fill_with?", (rt, value, [slices, fill]) => {
  const run = function* (): Generator<Value> {
    const items = listOf(rt, value);
    const count = toIndex(slices!);
    if (count === 0) fail("ZeroDivisionError", "integer division or modulo by zero");
    const size = Math.floor(items.length / count);
    const longer = items.length % count;
    let from = 0;
    for (let i = 0; i < count; i++) {
      rt.budget.spend(1);
      const to = from + size + (i < longer ? 1 : 0);
      const part = items.slice(from, to);
      if (fill !== undefined && fill !== null && i >= longer) part.push(fill);
      yield part;
      from = to;
    }
  };
  return new Lazy(run());
});

/** Filters and tests by name, supplied by by-name.ts, which has their tables. */
export interface ByName {
  filter(rt: Runtime, name: Value, value: Value, args: Arguments): Value;
  test(rt: Runtime, name: Value, value: Value, args: Arguments): boolean;
}

/** `map`, `select` and the like, which call filters and tests by name. */
export function higherFilters(byName: ByName): Map<string, Filter> {
  const map: Filter = (rt, value, { positional, named }) => {
    const run = function* (): Generator<Value> {
      if (!isTrue(value)) return;
      const change = mapping(rt, positional, named);
      for (const each of counted(rt, value)) yield change(each);
    };
    return new Lazy(run());
  };
  const mapping = (rt: Runtime, positional: readonly Value[], named: ReadonlyMap<string, Value>) => {
    if (positional.length === 0 && named.has("attribute")) {
      const unexpected = [...named.keys()].find((key) => key !== "attribute" && key !== "default");
      if (unexpected !== undefined)
        fail("FilterArgumentError", `Unexpected keyword argument '${unexpected}'`);
      return getter(rt, named.get("attribute"), named.get("default"));
    }
    const [name, ...rest] = positional;
    if (name === undefined) return fail("FilterArgumentError", "map requires a filter argument");
    return (each: Value): Value => byName.filter(rt, name, each, { positional: rest, named });
  };
  const choosing =
    (keeps: boolean, hasAttribute: boolean): Filter =>
    (rt, value, { positional, named }) => {
      const run = function* (): Generator<Value> {
        if (!isTrue(value)) return;
        if (hasAttribute && positional.length === 0)
          fail("FilterArgumentError", "Missing parameter for attribute name");
        const get = hasAttribute ? getter(rt, positional[0]!) : (each: Value): Value => each;
        const [name, ...rest] = positional.slice(hasAttribute ? 1 : 0);
        for (const each of counted(rt, value)) {
          const asked = get(each);
          const holds =
            name === undefined ? isTrue(asked) : byName.test(rt, name, asked, { positional: rest, named });
          if (holds === keeps) yield each;
        }
      };
      return new Lazy(run());
    };
  return new Map<string, Filter>([
    ["map", map],
    ["select", choosing(true, false)],
    ["reject", choosing(false, false)],
    ["selectattr", choosing(true, true)],
    ["rejectattr", choosing(false, true)],
  ]);
}
