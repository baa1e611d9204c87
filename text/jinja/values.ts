/**
 * Python's values. None is null, an int a bigint, a float a number, a list an array; types that JavaScript
 * lacks have a class here.
 */
import { type ErrorKind, fail } from "./errors.ts";
import type { Runtime } from "./runtime.ts";

export type Value =
  | null
  | boolean
  | bigint
  | number
  | string
  | readonly Value[]
  | Markup
  | Tuple
  | Dict
  | DictView
  | Range
  | Lazy
  | Undefined
  | Namespace
  | Callable;

/** Arguments of a call. */
export interface Arguments {
  readonly positional: readonly Value[];
  readonly named: ReadonlyMap<string, Value>;
}

/** Text that counts as HTML: see markup.ts. */
export class Markup {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

export class Tuple {
  readonly items: readonly Value[];
  constructor(items: readonly Value[]) {
    this.items = items;
  }
}

/** Result of `groupby`: a group's name and its items, by position or as `grouper` and `list`. */
export class GroupTuple extends Tuple {}

/** A dict in the order of insertion. Keys that Python holds equal (1, 1.0 and True) are one key. */
export class Dict {
  readonly #entries = new Map<string | bigint | number, readonly [key: Value, value: Value]>();

  get size(): number {
    return this.#entries.size;
  }

  get(key: Value): Value | undefined {
    return this.#entries.get(hashOf(key))?.[1];
  }

  has(key: Value): boolean {
    return this.#entries.has(hashOf(key));
  }

  set(key: Value, value: Value): this {
    const hash = hashOf(key);
    this.#entries.set(hash, [this.#entries.get(hash)?.[0] ?? key, value]);
    return this;
  }

  entries(): IterableIterator<readonly [key: Value, value: Value]> {
    return this.#entries.values();
  }

  *keys(): Generator<Value> {
    for (const [key] of this.#entries.values()) yield key;
  }
}

/** dict.keys(), values() and items(). */
export class DictView {
  readonly kind: "dict_keys" | "dict_values" | "dict_items";
  readonly dict: Dict;
  constructor(kind: DictView["kind"], dict: Dict) {
    this.kind = kind;
    this.dict = dict;
  }
}

/** range(…). `step` is not 0. */
export class Range {
  readonly start: bigint;
  readonly step: bigint;
  readonly length: number;
  constructor(start: bigint, step: bigint, length: number) {
    this.start = start;
    this.step = step;
    this.length = length;
  }

  at(index: number): bigint {
    return this.start + this.step * BigInt(index);
  }
}

/** An iterator, read once: the result of `map`, `select` and other filters. */
export class Lazy {
  readonly iterator: Iterator<Value>;
  readonly typeName: string;
  constructor(iterator: Iterator<Value>, typeName = "generator") {
    this.iterator = iterator;
    this.typeName = typeName;
  }
}

/** A missing name, attribute or element. It prints as ""; most other uses raise `message`. */
export class Undefined {
  readonly kind: ErrorKind;
  readonly message: string;
  constructor(message: string, kind: ErrorKind = "UndefinedError") {
    this.message = message;
    this.kind = kind;
  }

  raise(): never {
    fail(this.kind, this.message);
  }
}

/** namespace(…): the only value whose attributes a template may set. */
export class Namespace {
  readonly attributes: Dict;
  constructor(attributes: Dict) {
    this.attributes = attributes;
  }
}

/** Functions, bound methods, macros, and callable objects. */
export class Callable {
  readonly typeName: string;
  readonly name: string;
  readonly call: (rt: Runtime, args: Arguments) => Value;
  /** Attribute by name; undefined for none. */
  readonly attribute: (name: string) => Value | undefined;
  constructor(
    name: string,
    call: (rt: Runtime, args: Arguments) => Value,
    typeName = "builtin_function_or_method",
    attribute: (name: string) => Value | undefined = () => undefined,
  ) {
    this.name = name;
    this.call = call;
    this.typeName = typeName;
    this.attribute = attribute;
  }
}

/** The value, or the fallback if it is undefined; None is a value. */
export function or(value: Value | undefined, fallback: () => Value): Value {
  return value === undefined ? fallback() : value;
}

export const isList = (value: Value): value is readonly Value[] => Array.isArray(value);

/** Items of a list or tuple; undefined for other values. */
export function itemsOf(value: Value): readonly Value[] | undefined {
  return isList(value) ? value : value instanceof Tuple ? value.items : undefined;
}

export function typeName(value: Value): string {
  if (value === null) return "NoneType";
  switch (typeof value) {
    case "boolean":
      return "bool";
    case "bigint":
      return "int";
    case "number":
      return "float";
    case "string":
      return "str";
  }
  if (isList(value)) return "list";
  if (value instanceof Markup) return "Markup";
  if (value instanceof Tuple) return "tuple";
  if (value instanceof Dict) return "dict";
  if (value instanceof DictView) return value.kind;
  if (value instanceof Range) return "range";
  if (value instanceof Undefined) return "Undefined";
  if (value instanceof Namespace) return "Namespace";
  return value.typeName;
}

export function isTrue(value: Value): boolean {
  if (value === null || typeof value === "boolean") return value === true;
  if (typeof value === "string") return value !== "";
  if (typeof value === "bigint") return value !== 0n;
  if (typeof value === "number") return value !== 0;
  return sizeOf(value) !== 0;
}

/** Length of a value other than a text; undefined if it has none. */
export function sizeOf(value: Value): number | undefined {
  const items = itemsOf(value);
  if (items !== undefined) return items.length;
  if (value instanceof Markup) return value.text.length;
  if (value instanceof Dict) return value.size;
  if (value instanceof DictView) return value.dict.size;
  if (value instanceof Range) return value.length;
  if (value instanceof Undefined) return 0;
  if (value instanceof Callable) {
    const length = value.typeName === "LoopContext" ? value.attribute("length") : undefined;
    return typeof length === "bigint" ? Number(length) : undefined;
  }
  return undefined;
}

/**
 * Map key of a value: values that Python holds equal have the same key. Throws TypeError for unhashable
 * values.
 */
function hashOf(key: Value): string | bigint | number {
  switch (typeof key) {
    case "string":
      return key;
    case "bigint":
      return key;
    case "boolean":
      return key ? 1n : 0n;
    case "number":
      return Number.isInteger(key) ? BigInt(key) : key;
  }
  if (key === null) return "\0None";
  if (key instanceof Markup) return key.text;
  if (key instanceof Undefined) return "\0Undefined";
  if (key instanceof Tuple) {
    const hashes = key.items.map((item) => {
      const hash = hashOf(item);
      return `${typeof hash} ${JSON.stringify(String(hash))}`;
    });
    const hash = `\0(${hashes.join()})`;
    return hash.length <= 65_536
      ? hash
      : fail("LimitError", "the chat template uses too large a tuple as a key");
  }
  return fail("TypeError", `unhashable type: '${typeName(key)}'`);
}

/** Items of a `for` loop over the value. */
export function* iterate(value: Value): Generator<Value> {
  const items = itemsOf(value);
  if (items !== undefined) yield* items;
  else if (typeof value === "string") yield* value;
  else if (value instanceof Markup) yield* value.text;
  else if (value instanceof Dict) yield* value.keys();
  else if (value instanceof DictView) {
    for (const [key, item] of value.dict.entries()) {
      if (value.kind === "dict_items") yield new Tuple([key, item]);
      else yield value.kind === "dict_keys" ? key : item;
    }
  } else if (value instanceof Range) for (let i = 0; i < value.length; i++) yield value.at(i);
  else if (value instanceof Lazy) {
    for (let next = value.iterator.next(); !next.done; next = value.iterator.next()) yield next.value;
  } else if (!(value instanceof Undefined)) fail("TypeError", `'${typeName(value)}' object is not iterable`);
}

export function isIterable(value: Value): boolean {
  return (
    typeof value === "string" ||
    value instanceof Lazy ||
    (value instanceof Callable ? value.typeName === "LoopContext" : sizeOf(value) !== undefined)
  );
}

/**
 * Variables of one body, with its enclosing scope. Setting a variable stays inside, reading looks outwards.
 */
export class Scope {
  readonly #variables = new Map<string, Value>();
  readonly #outer: Scope | null;

  constructor(outer: Scope | null) {
    this.#outer = outer;
  }

  set(name: string, value: Value): void {
    this.#variables.set(name, value);
  }

  get(name: string): Value | undefined {
    for (let scope: Scope | null = this; scope !== null; scope = scope.#outer) {
      const value = scope.#variables.get(name);
      if (value !== undefined) return value;
    }
    return undefined;
  }
}
