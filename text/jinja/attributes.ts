/** `a.b` and `a[b]`: methods and items of values as in jinja2's immutable sandbox. */

import { braceFormat } from "./brace-format.ts";
import { toIndex } from "./convert.ts";
import { fail } from "./errors.ts";
import { asMarkup, bare, escaped } from "./markup.ts";
import { numeric } from "./numbers.ts";
import { isEqual } from "./operators.ts";
import { repr } from "./print.ts";
import type { Runtime } from "./runtime.ts";
import { callable } from "./signature.ts";
import { clampBounds, codePoints } from "./text.ts";
import { characterAt, textMethod } from "./text-methods.ts";
import {
  Callable,
  Dict,
  DictView,
  GroupTuple,
  isList,
  itemsOf,
  iterate,
  Markup,
  Namespace,
  or,
  Range,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** Methods that change a value, which the sandbox refuses. */
const changing: Readonly<Record<string, ReadonlySet<string>>> = {
  list: new Set(["append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"]),
  dict: new Set(["clear", "pop", "popitem", "setdefault", "update"]),
};

/** Attributes of all Python objects. */
const internal = new Set(
  (
    "class delattr dir doc eq format ge getattribute getstate gt hash init init_subclass le lt module ne new reduce " +
    "reduce_ex repr setattr sizeof str subclasshook"
  )
    .split(" ")
    .map((word) => `__${word}__`),
);

/** `object.name`. */
export function attribute(rt: Runtime, object: Value, name: string): Value {
  if (object instanceof Undefined) object.raise();
  return or(nativeAttribute(rt, object, name), () => or(itemOf(object, name), () => missing(object, name)));
}

/** Filter `attr`: Python's own attributes, without items. */
export function ownAttribute(rt: Runtime, object: Value, name: string): Value {
  if (object instanceof Undefined) object.raise();
  return or(nativeAttribute(rt, object, name), () => missing(object, name));
}

/** `object[key]`. */
export function item(rt: Runtime, object: Value, key: Value): Value {
  if (object instanceof Undefined) object.raise();
  if (typeof object === "string") rt.read(object);
  const found = itemOf(object, key);
  if (found !== undefined) return found;
  const native = typeof key === "string" ? nativeAttribute(rt, object, key) : undefined;
  return or(native, () => missing(object, key, rt));
}

function missing(object: Value, name: Value, rt?: Runtime): Undefined {
  const shown = object === null ? "None" : typeName(object);
  if (typeof name !== "string" && rt !== undefined) {
    return new Undefined(`${shown}${object === null ? "" : " object"} has no element ${repr(rt, name)}`);
  }
  const owner = object === null ? "None" : `${shown} object`;
  return new Undefined(`'${owner}' has no attribute '${String(name)}'`);
}

function unsafe(object: Value, name: string): Undefined {
  const message = `access to attribute '${name}' of '${typeName(object)}' object is unsafe.`;
  return new Undefined(message, "SecurityError");
}

/** An item by key; undefined where Python raises TypeError or LookupError. */
function itemOf(object: Value, key: Value): Value | undefined {
  if (object instanceof Dict) return isHashable(key) ? object.get(key) : undefined;
  const index = numeric(key);
  if (typeof index !== "bigint" || index > 2n ** 53n || index < -(2n ** 53n)) return undefined;
  const at = Number(index);
  if (typeof object === "string") return characterAt(object, at);
  if (object instanceof Markup) return asMarkup(characterAt(object.text, at)!);
  const items = itemsOf(object);
  if (items !== undefined) return items[at < 0 ? at + items.length : at];
  if (!(object instanceof Range)) return undefined;
  const place = at < 0 ? at + object.length : at;
  return place >= 0 && place < object.length ? object.at(place) : undefined;
}

function isHashable(key: Value): boolean {
  if (key instanceof Tuple) return key.items.every(isHashable);
  return !(isList(key) || key instanceof Dict);
}

/** Result of Python's getattr; undefined where it raises AttributeError. */
function nativeAttribute(rt: Runtime, object: Value, name: string): Value | undefined {
  if (object instanceof Namespace) return object.attributes.get(name);
  if (internal.has(name)) return unsafe(object, name);
  const type = typeName(object);
  if (Object.hasOwn(changing, type) && changing[type]!.has(name)) return unsafe(object, name);
  if (typeof object === "string") return textAttribute(object, name);
  if (object instanceof Markup) return markupAttribute(object, name);
  if (object instanceof Dict) return dictAttribute(rt, object, name);
  if (object instanceof Callable) return object.attribute(name);
  if (object instanceof GroupTuple && name === "grouper") return object.items[0];
  if (object instanceof GroupTuple && name === "list") return object.items[1];
  const items = itemsOf(object);
  if (items !== undefined || object instanceof Range) return listAttribute(object, name);
  return numberAttribute(object, name);
}

/** Methods of markup return markup, and escape the texts that they insert. */
function markupAttribute(markup: Markup, name: string): Value | undefined {
  const method = textAttribute(markup.text, name);
  if (!(method instanceof Callable)) return method;
  const escapes = ["join", "format", "replace"].includes(name);
  const ready = (value: Value, index: number): Value => {
    if (!escapes || (name === "replace" && index === 0)) return bare(value);
    return bare(escaped(name === "join" ? [...iterate(value)].map((item) => bare(escaped(item))) : value));
  };
  return new Callable(name, (rt, { positional, named }) => {
    const readyNamed = new Map([...named].map(([key, value]) => [key, ready(value, 1)]));
    return asMarkup(method.call(rt, { positional: positional.map(ready), named: readyNamed }));
  });
}

function textAttribute(text: string, name: string): Value | undefined {
  if (name === "format" || name === "format_map") return formatMethod(text, name);
  const method = textMethod(name);
  return (
    method &&
    new Callable(name, (rt, { positional, named }) =>
      method(rt, text, { positional: positional.map(bare), named }),
    )
  );
}

function formatMethod(text: string, name: string): Callable {
  return new Callable(name, (rt, { positional, named }) => {
    const lookup = {
      attribute: (object: Value, key: string): Value => attribute(rt, object, key),
      item: (object: Value, key: Value): Value => item(rt, object, key),
    };
    if (name === "format")
      return braceFormat(rt, text, { ...lookup, positional, named: (key) => named.get(key) });
    const [mapping] = positional;
    if (!(mapping instanceof Dict) || positional.length !== 1)
      return fail("TypeError", `format_map() takes exactly one argument (${positional.length} given)`);
    return braceFormat(rt, text, { ...lookup, positional: [], named: (key) => mapping.get(key) });
  });
}

function dictAttribute(_rt: Runtime, dict: Dict, name: string): Value | undefined {
  switch (name) {
    case "get":
      return callable("get", "/key /default?", (_, [key, fallback]) =>
        or(dict.get(key!), () => fallback ?? null),
      );
    case "keys":
    case "values":
    case "items":
      return callable(name, "", () => new DictView(`dict_${name}`, dict));
    case "copy":
      return callable(name, "", () => copyOf(dict));
    case "fromkeys":
      return fromKeys;
    default:
      return undefined;
  }
}

export const fromKeys = callable("fromkeys", "/iterable /value?", (rt, [keys, value]) => {
  const made = new Dict();
  for (const key of iterate(keys!)) {
    rt.budget.spend(1);
    made.set(key, value ?? null);
  }
  return made;
});

function copyOf(dict: Dict): Dict {
  const copy = new Dict();
  for (const [key, value] of dict.entries()) copy.set(key, value);
  return copy;
}

function listAttribute(list: Value, name: string): Value | undefined {
  switch (name) {
    case "count":
      return callable(name, "/value", (rt, [value]) => {
        let count = 0n;
        for (const other of iterate(list)) if (isEqual(rt, other, value!)) count++;
        return count;
      });
    case "index":
      return callable(name, "/value /start? /stop?", (rt, [value, start, stop]) => {
        const items = [...iterate(list)];
        rt.budget.spend(items.length);
        const bound = (given: Value | undefined): number | null =>
          given === undefined ? null : toIndex(given);
        const [from, to] = clampBounds(bound(start), bound(stop), items.length);
        for (let i = from; i < to; i++) if (isEqual(rt, items[i]!, value!)) return BigInt(i);
        return fail("ValueError", `${repr(rt, value!)} is not in list`);
      });
    case "copy":
      return isList(list) ? callable(name, "", () => list) : undefined;
    case "start":
      return list instanceof Range ? list.start : undefined;
    case "step":
      return list instanceof Range ? list.step : undefined;
    case "stop":
      return list instanceof Range ? list.start + list.step * BigInt(list.length) : undefined;
    default:
      return undefined;
  }
}

function numberAttribute(object: Value, name: string): Value | undefined {
  const number = numeric(object);
  if (number === undefined) return undefined;
  switch (name) {
    case "real":
      return number;
    case "imag":
      return typeof number === "bigint" ? 0n : 0;
    case "is_integer":
      return callable(name, "", () => typeof number === "bigint" || Number.isInteger(number));
    case "numerator":
      return typeof number === "bigint" ? number : undefined;
    case "denominator":
      return typeof number === "bigint" ? 1n : undefined;
    case "conjugate":
      return callable(name, "", () => number);
    case "bit_length":
      return typeof number === "bigint"
        ? callable(name, "", () =>
            number === 0n ? 0n : BigInt((number < 0n ? -number : number).toString(2).length),
          )
        : undefined;
    default:
      return undefined;
  }
}

/** `object[start:stop:step]`. */
export function slice(rt: Runtime, object: Value, bounds: readonly (Value | null)[]): Value {
  if (object instanceof Undefined) object.raise();
  if (object instanceof Markup) return asMarkup(slice(rt, object.text, bounds));
  const items = sliceable(object);
  if (items === undefined) {
    const message =
      object instanceof Dict
        ? "unhashable type: 'slice'"
        : `'${typeName(object)}' object is not subscriptable`;
    return fail("TypeError", message);
  }
  const [start = null, stop = null, step = null] = bounds.map((bound) =>
    bound === null ? null : sliceIndex(bound),
  );
  const stride = step ?? 1;
  if (stride === 0) fail("ValueError", "slice step cannot be zero");
  if (typeof object === "string") {
    rt.read(object);
    if (typeof items === "string" && stride === 1)
      return items.slice(...clampBounds(start, stop, items.length));
    return rt.made(strided([...items] as string[], start, stop, stride).join(""));
  }
  const taken = strided(items as readonly Value[], start, stop, stride);
  rt.budget.spend(1 + (taken.length >> 6));
  return object instanceof Tuple ? new Tuple(taken) : taken;
}

function sliceable(object: Value): readonly Value[] | string | undefined {
  if (typeof object === "string") return codePoints(object);
  return object instanceof Range ? [...iterate(object)] : itemsOf(object);
}

function sliceIndex(value: Value): number {
  if (typeof numeric(value) === "bigint") return toIndex(value);
  return fail("TypeError", "slice indices must be integers or None or have an __index__ method");
}

function strided<Item>(
  items: readonly Item[],
  start: number | null,
  stop: number | null,
  step: number,
): Item[] {
  const { length } = items;
  if (step === 1) return items.slice(...clampBounds(start, stop, length));
  const clamp = (bound: number, low: number, high: number): number =>
    bound < 0 ? Math.max(low, bound + length) : Math.min(high, bound);
  const [low, high] = step > 0 ? [0, length] : [-1, length - 1];
  const from = start === null ? (step > 0 ? low : high) : clamp(start, low, high);
  const to = stop === null ? (step > 0 ? high : low) : clamp(stop, low, high);
  const taken: Item[] = [];
  for (let i = from; step > 0 ? i < to : i > to; i += step) taken.push(items[i]!);
  return taken;
}
