import { ApiError, badRequest, quote } from "../http/errors.ts";
import { parseJson } from "../http/json/parse.ts";
import { requestLimits } from "../request/limits.ts";

export interface NumberRange {
  readonly min: number;
  readonly max: number;
}

/** Values that a reader accepts, as keywords of a JSON Schema. Null is always accepted, as a missing value. */
export interface FieldKind {
  readonly type?: string | readonly string[];
  readonly minimum?: number;
  readonly maximum?: number;
  readonly maxItems?: number;
  readonly maxProperties?: number;
  readonly enum?: readonly unknown[];
  /** Kind of an array's items. A null item is not accepted as a missing one. */
  readonly items?: FieldKind;
  /** Kind of the values of an object whose keys are the client's. */
  readonly values?: FieldKind;
  /** Name of the value's schema in the OpenAPI document: for values that hold others of their kind. */
  readonly component?: string;
}

export const textKind: FieldKind = { type: "string" };
export const objectKind: FieldKind = { type: "object" };
/** A text, or parts of one. */
export const textOrPartsKind: FieldKind = { type: ["string", "array"], items: objectKind };

/** Called for each field that is read, with the object's path, the field's name, and the accepted values. */
export type ReadingListener = (path: string, name: string, kind: FieldKind) => void;

let listener: ReadingListener | null = null;

/** Calls `tell` for each field that `run` reads. The OpenAPI document is generated so (server/api/openapi/). */
export function withReadings<Result>(tell: ReadingListener, run: () => Result): Result {
  const before = listener;
  listener = tell;
  try {
    return run();
  } finally {
    listener = before;
  }
}

/** Runs another reader on the value at `path`: the fields that it reads are reported as fields there. */
export function readingAt<Result>(path: string, run: () => Result): Result {
  const outer = listener;
  if (outer === null) return run();
  return withReadings(
    (inner, name, kind) => outer(inner === "" ? path : `${path}.${inner}`, name, kind),
    run,
  );
}

/**
 * Reads a JSON object of unknown content, field by field. A missing or null field is `undefined`. A value of
 * the wrong type or out of range throws 400 with its path, the allowed values and the given one. `unread`
 * names the fields that no code has read.
 */
export class Fields {
  readonly #object: Readonly<Record<string, unknown>>;
  readonly #path: string;
  /** Names of read fields, possibly with repetitions. */
  readonly #read: string[] = [];

  constructor(object: Readonly<Record<string, unknown>>, path = "") {
    this.#object = object;
    this.#path = path;
  }

  /** Path of the object in the body; "" for the body itself. */
  get path(): string {
    return this.#path;
  }

  /** `messages[0].role` for the field `role` of the object at `messages[0]`. */
  pathOf(name: string): string {
    return this.#path === "" ? name : `${this.#path}.${name}`;
  }

  /** The raw value of the field; `undefined` when missing or null. `kind`: the values that the caller accepts. */
  raw(name: string, kind: FieldKind = {}): unknown {
    this.#read.push(name);
    listener?.(this.#path, name, kind);
    return this.peek(name);
  }

  /** The raw value of the field, marked as read. Does not report it to the listener: another reader of it does. */
  taken(name: string): unknown {
    this.#read.push(name);
    return this.peek(name);
  }

  /** The raw value of the field, without marking it as read. */
  peek(name: string): unknown {
    return Object.hasOwn(this.#object, name) ? (this.#object[name] ?? undefined) : undefined;
  }

  /** True if the field is present and not null. Does not mark it as read. */
  has(name: string): boolean {
    return this.peek(name) !== undefined;
  }

  /** The raw object. Marks all of its fields as read. */
  all(): Readonly<Record<string, unknown>> {
    this.#read.push(...Object.keys(this.#object));
    return this.#object;
  }

  /** Names of fields that are present, not null, and were never read. */
  unread(): string[] {
    return Object.keys(this.#object).filter(
      (name) => !this.#read.includes(name) && this.#object[name] !== null,
    );
  }

  /** Throws 400 for unread fields. For objects in which a misspelt field would change the result. */
  expectAllRead(): void {
    const [unknown] = this.unread();
    if (unknown === undefined) return;
    const path = this.pathOf(unknown.slice(0, 64));
    throw badRequest(`${path} is not a field that is known here`, path);
  }

  boolean(name: string): boolean | undefined {
    const value = this.raw(name, { type: "boolean" });
    if (value === undefined || typeof value === "boolean") return value;
    throw this.#refusal(name, "true or false", value);
  }

  string(name: string): string | undefined {
    const value = this.raw(name, textKind);
    if (value === undefined || typeof value === "string") return value;
    throw this.#refusal(name, "a string", value);
  }

  /** A string that must be there. */
  requiredString(name: string): string {
    const value = this.string(name);
    if (value === undefined) throw this.#refusal(name, "a string", undefined);
    return value;
  }

  number(name: string, range: NumberRange): number | undefined {
    const value = this.raw(name, { type: "number", minimum: range.min, maximum: range.max });
    return value === undefined ? undefined : numberIn(value, range, "a number", this.pathOf(name));
  }

  integer(name: string, range: NumberRange): number | undefined {
    const value = this.raw(name, { type: "integer", minimum: range.min, maximum: range.max });
    return value === undefined ? undefined : integerIn(value, range, this.pathOf(name));
  }

  /** A list of at most `countMax` items, of which the caller accepts those of the kind `items`. Throws 400. */
  list(name: string, countMax: number, items: FieldKind): readonly unknown[] | undefined {
    const value = this.raw(name, { type: "array", maxItems: countMax, items });
    if (value === undefined) return undefined;
    if (!Array.isArray(value)) throw this.#refusal(name, "an array", value);
    if (value.length > countMax) {
      throw badRequest(
        `${this.pathOf(name)} may hold ${countMax} items at most, but holds ${value.length}`,
        this.pathOf(name),
      );
    }
    return value;
  }

  integers(name: string, countMax: number, range: NumberRange): number[] | undefined {
    const kind = { type: "integer", minimum: range.min, maximum: range.max };
    const items = this.list(name, countMax, kind);
    return items?.map((item, index) => integerIn(item, range, `${this.pathOf(name)}[${index}]`));
  }

  /** A list of at most `countMax` texts. Throws 400. */
  texts(name: string, countMax: number): string[] | undefined {
    return this.list(name, countMax, textKind)?.map((item, index) => {
      if (typeof item !== "string") throw refusal(`${this.pathOf(name)}[${index}]`, "a string", item);
      return item;
    });
  }

  object(name: string, kind: FieldKind = objectKind): Fields | undefined {
    const value = this.raw(name, kind);
    return value === undefined ? undefined : fieldsOf(value, this.pathOf(name));
  }

  /** Entries of an object used as a map, at most `countMax`, with values of the kind `values`. Throws 400. */
  entries(name: string, countMax: number, values: FieldKind): [string, unknown][] | undefined {
    const value = this.raw(name, { type: "object", values, maxProperties: countMax });
    if (value === undefined) return undefined;
    if (typeof value !== "object" || Array.isArray(value)) throw this.#refusal(name, "an object", value);
    const entries = Object.entries(value as object);
    if (entries.length > countMax) {
      throw badRequest(
        `${this.pathOf(name)} may hold ${countMax} entries at most, but holds ${entries.length}`,
        this.pathOf(name),
      );
    }
    return entries;
  }

  #refusal(name: string, expected: string, value: unknown): Error {
    return refusal(this.pathOf(name), expected, value);
  }
}

/** Filters names that are safe to put in a header. */
export function reportable(names: readonly string[]): string[] {
  const charactersMax = requestLimits.ignoredNameCharactersMax;
  return names.filter((name) => name.length <= charactersMax && /^[A-Za-z0-9_.-]+$/.test(name));
}

/** Wraps the value if it is an object. Throws 400. */
export function fieldsOf(value: unknown, path: string): Fields {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw refusal(path, "an object", value);
  return new Fields(value as Record<string, unknown>, path);
}

/** Parses a field's string as JSON. Throws 400. */
export function jsonIn(text: string, path: string): unknown {
  try {
    return parseJson(text, requestLimits.innerJson, path);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    throw badRequest(error.message, path); // the caught error may name keys of the inner text
  }
}

export function numberIn(value: unknown, range: NumberRange, expected: string, path: string): number {
  const { min, max } = range;
  if (typeof value === "number" && value >= min && value <= max) return value;
  throw refusal(path, `${expected} from ${min} to ${max}`, value);
}

export function integerIn(value: unknown, range: NumberRange, path: string): number {
  if (typeof value === "number" && Number.isInteger(value)) return numberIn(value, range, "an integer", path);
  throw refusal(path, `an integer from ${range.min} to ${range.max}`, value);
}

export function refusal(path: string, expected: string, value: unknown): Error {
  return badRequest(
    `${path} must be ${expected}, but ${value === undefined ? "is missing" : `${quote(value)} was given`}`,
    path,
  );
}
