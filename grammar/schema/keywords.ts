import { ConstraintError } from "../error.ts";
import { byteRangeOf } from "../regex/lengths.ts";
import { compilePattern } from "../regex/pattern.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { allCharacters, charactersMin, type TextEncoding } from "../regex/text.ts";
import { isObject, type RawSchema, type SchemaDocument } from "./document.ts";
import { patternOfFormat } from "./formats.ts";
import type { Numbers } from "./numbers.ts";
import {
  type ArrayPart,
  allKinds,
  anyArray,
  anyObject,
  anyShape,
  type Condition,
  kinds,
  type ObjectPart,
  type Shape,
} from "./shapes.ts";

/** Conditions of one schema, without those of referenced schemas. */
export interface Reading {
  readonly shape: Shape;
  /** Conditions that hold as well. */
  readonly all: readonly Condition[];
  /** Alternatives: of each list one entry holds, with all its conditions. */
  readonly any: readonly (readonly (readonly Condition[])[])[];
  /** Alternatives of which exactly one holds (oneOf); null: none. */
  readonly one: { readonly of: readonly Condition[]; readonly pointer: string } | null;
}

/** Tools to read a schema. */
export interface ReadingTools {
  readonly document: SchemaDocument;
  readonly regexes: Regexes;
  readonly encoding: TextEncoding;
  readonly numbers: Numbers;
  condition(raw: RawSchema): Condition;
  not(of: readonly Condition[]): Condition;
  any(shapes: readonly Shape[]): Condition;
  /** Records a keyword that is ignored because it has no known meaning. */
  ignored(name: string): void;
}

export const LIMITS = { enumValues: 10_000, count: 1_000_000, propertiesMin: 10_000 } as const;

const typeKinds: Readonly<Record<string, number>> = {
  null: kinds.null,
  boolean: kinds.false | kinds.true,
  number: kinds.number,
  integer: kinds.number,
  string: kinds.string,
  array: kinds.array,
  object: kinds.object,
};

const annotations = new Set(
  (
    "$schema $id id $anchor $comment $defs definitions $vocabulary title description default deprecated readOnly writeOnly " +
    "examples example contentEncoding contentMediaType contentSchema nullable additionalItems then else minContains " +
    "maxContains $dynamicAnchor $recursiveAnchor"
  ).split(" "),
);
const refused = ["$dynamicRef", "$recursiveRef", "extends", "disallow", "divisibleBy"];

/**
 * Reads the keywords of one schema. Throws ConstraintError with the keyword's pointer for unsupported ones.
 */
export function readSchema(raw: RawSchema, tools: ReadingTools): Reading {
  if (raw.schema === true) return { shape: anyShape, all: [], any: [], one: null };
  if (raw.schema === false) return { shape: { ...anyShape, kinds: 0 }, all: [], any: [], one: null };
  return new Reader(raw, raw.schema, tools).read();
}

class Reader {
  readonly #raw: RawSchema;
  readonly #schema: Readonly<Record<string, unknown>>;
  readonly #tools: ReadingTools;
  readonly #read = new Set<string>();

  constructor(raw: RawSchema, schema: Readonly<Record<string, unknown>>, tools: ReadingTools) {
    this.#raw = raw;
    this.#schema = schema;
    this.#tools = tools;
  }

  read(): Reading {
    const { document } = this.#tools;
    const reference = this.#string("$ref");
    if (reference !== undefined) {
      const target = this.#tools.condition(document.resolve(reference, this.#raw));
      if (this.#raw.isOldDraft) return { shape: anyShape, all: [target], any: [], one: null };
    }
    for (const name of refused) if (this.#has(name)) throw this.#error(name, `${name} is not supported`);
    const all: Condition[] = [];
    const any: (readonly (readonly Condition[])[])[] = [];
    if (reference !== undefined) all.push(this.#tools.condition(document.resolve(reference, this.#raw)));
    all.push(...(this.#list("allOf") ?? []));
    const anyOf = this.#list("anyOf");
    if (anyOf !== undefined) any.push(anyOf.map((one) => [one]));
    const oneOf = this.#list("oneOf");
    const not = this.#below("not");
    if (not !== undefined) all.push(this.#tools.not([not]));
    any.push(...this.#conditional(), ...this.#dependencies());
    const shape = this.#shape(any);
    for (const name of Object.keys(this.#schema)) {
      if (!this.#read.has(name) && !annotations.has(name) && !name.startsWith("x-"))
        this.#tools.ignored(name);
    }
    return {
      shape,
      all,
      any,
      one: oneOf === undefined ? null : { of: oneOf, pointer: `${this.#raw.pointer}/oneOf` },
    };
  }

  #shape(any: (readonly (readonly Condition[])[])[]): Shape {
    const { kinds: allowed, isInteger } = this.#types();
    const numbers = this.#numbers();
    if (isInteger) numbers.push(this.#tools.numbers.integers);
    const array = this.#array();
    const object = this.#object();
    const shape: Shape = {
      ...anyShape,
      kinds: allowed,
      isInteger,
      numbers,
      strings: this.#strings(),
      arrays: array === null ? [] : [array],
      objects: object === null ? [] : [object],
    };
    for (const values of this.#enums()) any.push([[this.#tools.any(this.#shapesOfValues(values))]]);
    return shape;
  }

  #types(): { readonly kinds: number; readonly isInteger: boolean } {
    const given = this.#value("type");
    const isNullable = this.#value("nullable") === true;
    if (given === undefined) return { kinds: allKinds, isInteger: false };
    const names = Array.isArray(given) ? given : [given];
    let bits = isNullable ? kinds.null : 0;
    for (const name of names) {
      const kind = typeof name === "string" && Object.hasOwn(typeKinds, name) ? typeKinds[name] : undefined;
      if (kind === undefined) throw this.#error("type", `type ${JSON.stringify(name)} is none of JSON's`);
      bits |= kind;
    }
    return { kinds: bits, isInteger: names.includes("integer") && !names.includes("number") };
  }

  #numbers(): Regex[] {
    const { numbers } = this.#tools;
    const sets: Regex[] = [];
    const minimum = this.#number("minimum");
    const maximum = this.#number("maximum");
    const isAbove = this.#value("exclusiveMinimum");
    const isBelow = this.#value("exclusiveMaximum");
    if (minimum !== undefined) sets.push(numbers.atLeast(minimum, isAbove === true));
    if (maximum !== undefined) sets.push(numbers.atMost(maximum, isBelow === true));
    if (typeof isAbove !== "boolean") {
      const above = this.#number("exclusiveMinimum");
      if (above !== undefined) sets.push(numbers.atLeast(above, true));
    }
    if (typeof isBelow !== "boolean") {
      const below = this.#number("exclusiveMaximum");
      if (below !== undefined) sets.push(numbers.atMost(below, true));
    }
    const step = this.#number("multipleOf");
    if (step !== undefined) {
      if (step <= 0) throw this.#error("multipleOf", `multipleOf must be above 0, but is ${step}`);
      sets.push(this.#at("multipleOf", () => numbers.multipleOf(step)));
    }
    return sets;
  }

  #strings(): Regex[] {
    const { regexes, encoding } = this.#tools;
    const sets: Regex[] = [];
    const pattern = this.#string("pattern");
    if (pattern !== undefined) {
      sets.push(this.#at("pattern", () => compilePattern(regexes, pattern, encoding, "anywhere")));
    }
    const format = this.#string("format");
    if (format !== undefined) {
      const known = patternOfFormat(format);
      if (known === null) this.#tools.ignored(`format ${format}`);
      else sets.push(compilePattern(regexes, known, encoding, "anywhere"));
    }
    const min = this.#count("minLength") ?? 0;
    const max = this.#count("maxLength") ?? Number.POSITIVE_INFINITY;
    if (min > max) sets.push(regexes.empty);
    // Drops redundant length conditions: many patterns imply them, and each condition costs time.
    const bytes = sets.map((set) => byteRangeOf(regexes, set));
    const least = Math.max(0, ...bytes.map((range) => charactersMin(range.min)));
    const most = Math.min(Number.POSITIVE_INFINITY, ...bytes.map((range) => range.max));
    const [from, to] = [min > least ? min : 0, max < most ? max : Number.POSITIVE_INFINITY];
    if (from > 0 || to < Number.POSITIVE_INFINITY)
      sets.push(regexes.repeat(encoding.oneOf(allCharacters), from, to));
    return sets;
  }

  #enums(): unknown[][] {
    const lists: unknown[][] = [];
    const values = this.#value("enum");
    if (values !== undefined) {
      if (!Array.isArray(values)) throw this.#error("enum", "enum must be an array");
      if (values.length > LIMITS.enumValues) {
        throw this.#error(
          "enum",
          `enum may have ${LIMITS.enumValues} values at most, but has ${values.length}`,
        );
      }
      lists.push(values);
    }
    if (this.#has("const")) lists.push([this.#value("const")]);
    return lists;
  }

  /** Returns shapes of values: one for all scalars, and one per array or object. */
  #shapesOfValues(values: readonly unknown[]): Shape[] {
    const { regexes, encoding, numbers } = this.#tools;
    let bits = 0;
    const strings: Uint8Array[] = [];
    const numbersGiven: number[] = [];
    const shapes: Shape[] = [];
    for (const value of values) {
      if (value === null) bits |= kinds.null;
      else if (typeof value === "boolean") bits |= value ? kinds.true : kinds.false;
      else if (typeof value === "number") numbersGiven.push(value);
      else if (typeof value === "string") strings.push(encoding.bytesOf(value));
      else if (Array.isArray(value)) shapes.push(this.#shapeOfArray(value));
      else shapes.push(this.#shapeOfObject(value as Record<string, unknown>));
    }
    if (strings.length > 0) bits |= kinds.string;
    if (numbersGiven.length > 0) bits |= kinds.number;
    const texts = numbersGiven.map((value) => numbers.textOf(value));
    if (bits !== 0) {
      shapes.push({
        ...anyShape,
        kinds: bits,
        strings: strings.length > 0 ? [regexes.literals(strings)] : [],
        numbers:
          numbersGiven.length > 0 ? [regexes.alt(numbersGiven.map((value) => numbers.equal(value)))] : [],
        numberTexts: numbersGiven.length > 0 ? regexes.literals(texts) : null,
      });
    }
    return shapes;
  }

  #shapeOfArray(items: readonly unknown[]): Shape {
    const prefix = items.map((item) => this.#tools.any(this.#shapesOfValues([item])));
    const { length } = items;
    const part = { ...anyArray, prefix, min: length, max: length, pointer: this.#raw.pointer };
    return { ...anyShape, kinds: kinds.array, arrays: [part] };
  }

  #shapeOfObject(value: Record<string, unknown>): Shape {
    const names = Object.keys(value);
    const properties = new Map(
      names.map((name) => [name, this.#tools.any(this.#shapesOfValues([value[name]]))]),
    );
    const part: ObjectPart = {
      ...anyObject,
      properties,
      additional: this.#never(),
      required: names,
      pointer: this.#raw.pointer,
    };
    return { ...anyShape, kinds: kinds.object, objects: [part] };
  }

  #array(): ArrayPart | null {
    const min = this.#count("minItems") ?? 0;
    const max = this.#count("maxItems") ?? Number.POSITIVE_INFINITY;
    const isUnique = this.#value("uniqueItems") === true;
    const items = this.#value("items");
    const isTuple = Array.isArray(items);
    const prefix = (isTuple ? this.#list("items", true) : this.#list("prefixItems", true)) ?? [];
    let rest = isTuple ? this.#below("additionalItems") : this.#below("items");
    const contains = this.#below("contains");
    const unevaluated = this.#below("unevaluatedItems");
    if (unevaluated !== undefined && rest === undefined && this.#value("unevaluatedItems") !== true) {
      this.#refuseApplicators("unevaluatedItems", [...applicators, "contains"]);
      rest = unevaluated;
    }
    const isAny = min === 0 && max === Number.POSITIVE_INFINITY && !isUnique && prefix.length === 0;
    if (isAny && rest === undefined && contains === undefined) return null;
    const least = this.#count("minContains") ?? 1;
    const most = this.#count("maxContains") ?? Number.POSITIVE_INFINITY;
    return {
      prefix,
      rest: rest ?? null,
      min,
      max,
      contains:
        contains === undefined || (least === 0 && most === Number.POSITIVE_INFINITY)
          ? null
          : { item: contains, min: least, max: most },
      isUnique,
      pointer: this.#raw.pointer,
    };
  }

  #object(): ObjectPart | null {
    const { regexes, encoding } = this.#tools;
    const properties = this.#map("properties") ?? new Map<string, Condition>();
    const patterns = [...(this.#map("patternProperties") ?? [])].map(([pattern, value]) => ({
      names: this.#at("patternProperties", () => compilePattern(regexes, pattern, encoding, "anywhere")),
      value,
    }));
    const required = this.#required();
    const min = this.#count("minProperties") ?? 0;
    const max = this.#count("maxProperties") ?? Number.POSITIVE_INFINITY;
    const names = this.#below("propertyNames") ?? null;
    let additional = this.#below("additionalProperties") ?? null;
    const unevaluated = this.#below("unevaluatedProperties");
    const isClosed =
      unevaluated !== undefined && additional === null && this.#value("unevaluatedProperties") !== true;
    if (isClosed) {
      this.#refuseApplicators("unevaluatedProperties", applicators);
      additional = unevaluated;
    }
    const isAny = min === 0 && max === Number.POSITIVE_INFINITY && names === null && additional === null;
    if (isAny && properties.size + patterns.length + required.length === 0) return null;
    return { properties, patterns, additional, required, min, max, names, pointer: this.#raw.pointer };
  }

  #required(): string[] {
    const given = this.#value("required");
    if (given === undefined || typeof given === "boolean") return [];
    return this.#names("required", given);
  }

  #conditional(): (readonly (readonly Condition[])[])[] {
    const condition = this.#below("if");
    const then = this.#below("then");
    const otherwise = this.#below("else");
    if (condition === undefined || (then === undefined && otherwise === undefined)) return [];
    const holds = then === undefined ? [condition] : [condition, then];
    const not = this.#tools.not([condition]);
    return [[holds, otherwise === undefined ? [not] : [not, otherwise]]];
  }

  /**
   * Returns alternatives per property that others depend on: it is absent, or present with its conditions.
   */
  #dependencies(): (readonly (readonly Condition[])[])[] {
    const all: (readonly (readonly Condition[])[])[] = [];
    for (const keyword of ["dependentRequired", "dependentSchemas", "dependencies"]) {
      const given = this.#value(keyword);
      if (given === undefined) continue;
      if (!isObject(given)) throw this.#error(keyword, `${keyword} must be an object`);
      for (const [name, needs] of Object.entries(given)) {
        const absent = {
          ...anyObject,
          properties: new Map([[name, this.#never()]]),
          pointer: this.#raw.pointer,
        };
        const isList = Array.isArray(needs);
        const required = [name, ...(isList ? this.#names(keyword, needs) : [])];
        const present = { ...anyObject, required, pointer: this.#raw.pointer };
        const holds = this.#tools.any([{ ...anyShape, kinds: kinds.object, objects: [present] }]);
        const lacks = this.#tools.any([{ ...anyShape, objects: [absent] }]);
        const schema = isList
          ? []
          : [this.#tools.condition(this.#tools.document.below(this.#raw, keyword, name))];
        all.push([[lacks], [holds, ...schema]]);
      }
    }
    return all;
  }

  #refuseApplicators(keyword: string, names: readonly string[]): void {
    const beside = names.find((name) => this.#has(name));
    if (beside !== undefined) throw this.#error(keyword, `${keyword} beside ${beside} is not supported`);
  }

  #never(): Condition {
    return this.#tools.any([]);
  }

  /* ---- values of keywords ---- */

  #has(name: string): boolean {
    return Object.hasOwn(this.#schema, name);
  }

  #value(name: string): unknown {
    if (!this.#has(name)) return undefined;
    this.#read.add(name);
    return this.#schema[name];
  }

  #string(name: string): string | undefined {
    const value = this.#value(name);
    if (value === undefined || typeof value === "string") return value;
    throw this.#error(name, `${name} must be a string`);
  }

  #number(name: string): number | undefined {
    const value = this.#value(name);
    if (value === undefined || (typeof value === "number" && Number.isFinite(value))) return value;
    throw this.#error(name, `${name} must be a number`);
  }

  /** Reads a count; undefined for counts larger than any text: no limit. */
  #count(name: string): number | undefined {
    const value = this.#number(name);
    if (value === undefined) return undefined;
    if (!Number.isInteger(value) || value < 0)
      throw this.#error(name, `${name} must be a whole number from 0, but is ${value}`);
    if (value <= LIMITS.count) return value;
    if (name.startsWith("max")) return Number.POSITIVE_INFINITY;
    throw this.#error(name, `${name} may be ${LIMITS.count} at most, but is ${value}`);
  }

  #names(keyword: string, value: unknown): string[] {
    if (Array.isArray(value) && value.every((name) => typeof name === "string")) return value;
    throw this.#error(keyword, `${keyword} must list names`);
  }

  #below(name: string): Condition | undefined {
    if (this.#value(name) === undefined) return undefined;
    return this.#tools.condition(this.#tools.document.below(this.#raw, name));
  }

  #list(name: string, mayBeEmpty = false): Condition[] | undefined {
    const value = this.#value(name);
    if (value === undefined) return undefined;
    if (!Array.isArray(value) || (value.length === 0 && !mayBeEmpty))
      throw this.#error(name, `${name} must be an array of schemas`);
    return value.map((_, index) => this.#tools.condition(this.#tools.document.below(this.#raw, name, index)));
  }

  #map(name: string): Map<string, Condition> | undefined {
    const value = this.#value(name);
    if (value === undefined) return undefined;
    if (!isObject(value)) throw this.#error(name, `${name} must be an object`);
    return new Map(
      Object.keys(value).map((key) => [
        key,
        this.#tools.condition(this.#tools.document.below(this.#raw, name, key)),
      ]),
    );
  }

  /** Adds the keyword to errors from within. */
  #at<Result>(keyword: string, work: () => Result): Result {
    try {
      return work();
    } catch (error) {
      if (error instanceof ConstraintError && error.pointer === "") throw this.#error(keyword, error.message);
      throw error;
    }
  }

  #error(keyword: string, message: string): ConstraintError {
    return new ConstraintError(message, `${this.#raw.pointer}/${keyword}`);
  }
}

const applicators = ["$ref", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "dependencies", "not"];
