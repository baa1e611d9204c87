import { type Budget, ConstraintError } from "../error.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { jsonEncoding, type TextEncoding } from "../regex/text.ts";
import type { RawSchema, SchemaDocument } from "./document.ts";
import { type Reading, type ReadingTools, readSchema } from "./keywords.ts";
import { Numbers } from "./numbers.ts";
import {
  type ArrayPart,
  allKinds,
  anyArray,
  anyObject,
  anyShape,
  type Condition,
  kinds,
  meet,
  type ObjectPart,
  type Shape,
} from "./shapes.ts";

/** Shapes per schema at most, since alternatives multiply. */
const SHAPES_MAX = 512;
/** Depth to which the search for impossible values goes. */
const LOOK_MAX = 6;

interface Step {
  readonly condition: Condition;
  /** Path of schemas that led here without a value in between. */
  readonly path: Path | null;
}

interface Path {
  readonly condition: Condition;
  readonly before: Path | null;
}

/** Normalizer: converts conditions that hold together to alternative shapes. */
export class Normalizer implements ReadingTools {
  readonly document: SchemaDocument;
  readonly regexes: Regexes;
  readonly encoding: TextEncoding;
  readonly numbers: Numbers;
  readonly ignoredNames = new Set<string>();
  readonly #budget: Budget;
  readonly #byKey = new Map<string | object, Condition>();
  readonly #readings = new Map<Condition, Reading>();
  readonly #shapes = new Map<string, readonly Shape[]>();
  readonly #possible = new Map<string, boolean>();

  constructor(document: SchemaDocument, regexes: Regexes, budget: Budget) {
    this.document = document;
    this.regexes = regexes;
    this.encoding = jsonEncoding(regexes);
    this.numbers = new Numbers(regexes);
    this.#budget = budget;
  }

  /* ---- conditions ---- */

  condition(raw: RawSchema): Condition {
    const key = typeof raw.schema === "boolean" ? `${raw.schema}` : raw.schema;
    return this.#once(key, (id) => ({ id, kind: "raw", raw }));
  }

  not(of: readonly Condition[]): Condition {
    return this.#once(`not ${keyOf(of)}`, (id) => ({ id, kind: "not", of }));
  }

  any(shapes: readonly Shape[]): Condition {
    if (shapes.length === 0) return this.#once("false", (id) => ({ id, kind: "any", shapes }));
    return this.#once(shapes, (id) => ({ id, kind: "any", shapes }));
  }

  ignored(name: string): void {
    this.ignoredNames.add(name);
  }

  #once(key: string | object, make: (id: number) => Condition): Condition {
    let condition = this.#byKey.get(key);
    if (condition === undefined) {
      condition = make(this.#byKey.size);
      this.#byKey.set(key, condition);
    }
    return condition;
  }

  /* ---- shapes ---- */

  /** Returns the shapes of values that satisfy all conditions; drops shapes without values. */
  shapesOf(conditions: readonly Condition[]): readonly Shape[] {
    const key = keyOf(conditions);
    let shapes = this.#shapes.get(key);
    if (shapes === undefined) {
      const steps = conditions.map((condition) => ({ condition, path: null }));
      shapes = this.#expand(steps).flatMap((shape) => this.#alive(shape, 0));
      this.#shapes.set(key, shapes);
    }
    return shapes;
  }

  /** Returns the conditions on the value of a property. */
  valuesOf(parts: readonly ObjectPart[], name: string): Condition[] {
    const bytes = this.encoding.bytesOf(name);
    return parts.flatMap((part) => {
      const own = part.properties.get(name);
      const matched = part.patterns.filter(({ names }) => this.regexes.matches(names, bytes));
      const found = matched.map(({ value }) => value);
      if (own !== undefined) found.push(own);
      if (found.length === 0 && part.additional !== null) found.push(part.additional);
      return found;
    });
  }

  /** Returns the conditions on the item at an index. */
  itemsOf(parts: readonly ArrayPart[], index: number): Condition[] {
    return parts.flatMap((part) => {
      const item = index < part.prefix.length ? part.prefix[index]! : part.rest;
      return item === null ? [] : [item];
    });
  }

  /** True if a value may satisfy the conditions, or if the search does not go that deep. */
  isPossible(conditions: readonly Condition[], depth = 0): boolean {
    if (depth > LOOK_MAX) return true;
    const key = keyOf(conditions);
    const known = this.#possible.get(key);
    if (known !== undefined) return known;
    this.#possible.set(key, true); // during the search: a value inside of itself is no obstacle
    const steps = conditions.map((condition) => ({ condition, path: null }));
    const isPossible = this.#expand(steps).some((shape) => this.#alive(shape, depth).length > 0);
    this.#possible.set(key, isPossible);
    return isPossible;
  }

  #expand(given: readonly Step[]): Shape[] {
    let shape = anyShape;
    const choices: { readonly branches: readonly (readonly Condition[])[]; readonly path: Path }[] = [];
    const pending = [...given];
    const seen = new Set<Condition>();
    for (let i = 0; i < pending.length && shape.kinds !== 0; i++) {
      this.#budget.spend(10);
      const { condition, path } = pending[i]!;
      for (let up = path; up !== null; up = up.before) {
        if (up.condition === condition)
          throw new ConstraintError("a schema that only means itself", pointerOf(condition));
      }
      if (seen.has(condition)) continue;
      seen.add(condition);
      const here: Path = { condition, before: path };
      if (condition.kind === "any") choices.push({ branches: [[condition]], path: here });
      else if (condition.kind === "not") {
        const inner = condition.of.map((one) => ({ condition: one, path: here }));
        for (const negated of this.#expand(inner)) {
          choices.push({ branches: [[this.any(this.#negated(negated))]], path: here });
        }
      } else {
        const reading = this.#readingOf(condition);
        shape = this.#meet(shape, reading.shape);
        for (const one of reading.all) pending.push({ condition: one, path: here });
        for (const branches of reading.any) choices.push({ branches, path: here });
        if (reading.one !== null) choices.push({ branches: this.#exclusive(reading.one), path: here });
      }
    }
    let shapes = shape.kinds === 0 ? [] : [shape];
    for (const { branches, path } of choices) {
      const options = branches.flatMap((branch) => this.#branch(branch, path));
      shapes = shapes.flatMap((one) => {
        this.#budget.spend(10 * options.length);
        return options.map((option) => this.#meet(one, option)).filter((both) => both.kinds !== 0);
      });
      if (shapes.length > SHAPES_MAX) {
        throw new ConstraintError(
          `its alternatives combine in more than ${SHAPES_MAX} ways`,
          pointerOf(path.condition),
        );
      }
    }
    return shapes;
  }

  #branch(branch: readonly Condition[], path: Path): readonly Shape[] {
    const [only, another] = branch;
    if (only?.kind === "any" && another === undefined) return only.shapes;
    return this.#expand(branch.map((condition) => ({ condition, path })));
  }

  #readingOf(condition: Condition & { readonly kind: "raw" }): Reading {
    let reading = this.#readings.get(condition);
    if (reading === undefined) {
      this.#budget.spend(50);
      reading = readSchema(condition.raw, this);
      this.#readings.set(condition, reading);
    }
    return reading;
  }

  /** Returns the alternatives of a oneOf: unchanged if they are disjoint, else each without the others. */
  #exclusive({ of, pointer }: NonNullable<Reading["one"]>): (readonly Condition[])[] {
    if (of.length > 64) throw new ConstraintError("oneOf may have 64 schemas at most", pointer);
    const clashes = of.map((one, index) =>
      of.filter((other, at) => at !== index && this.isPossible([one, other])),
    );
    return of.map((one, index) => {
      if (clashes[index]!.length === 0) return [one];
      return [one, ...clashes[index]!.map((other) => this.not([other]))];
    });
  }

  #meet(a: Shape, b: Shape): Shape {
    return meet(a, b, (x, y) => this.regexes.and([x, y]));
  }

  /* ---- possible values ---- */

  /** Removes kinds without values from the shape; empty if none is left. */
  #alive(shape: Shape, depth: number): Shape[] {
    let alive = shape.kinds;
    if (alive & kinds.number && this.regexes.isEmpty(this.numberTextsOf(shape))) alive &= ~kinds.number;
    if (alive & kinds.string && shape.strings.length > 0 && this.regexes.isEmpty(this.stringsOf(shape)))
      alive &= ~kinds.string;
    if (alive & kinds.array && !this.#isArrayPossible(shape.arrays, depth)) alive &= ~kinds.array;
    if (alive & kinds.object && !this.#isObjectPossible(shape.objects, depth)) alive &= ~kinds.object;
    if (alive === 0) return [];
    return [alive === shape.kinds ? shape : { ...shape, kinds: alive }];
  }

  /** Returns the spellings of the shape's numbers. */
  numberTextsOf({ numbers, isInteger, numberTexts }: Shape): Regex {
    const { regexes } = this;
    const { integerTexts, freeTexts, exactTexts, integers } = this.numbers;
    if (numberTexts !== null) return regexes.and([numberTexts, ...numbers]);
    if (isInteger) {
      const others = numbers.filter((set) => set !== integers);
      return regexes.and([integerTexts, ...others]);
    }
    return numbers.length === 0 ? freeTexts : regexes.and([freeTexts, exactTexts, ...numbers]);
  }

  /** Same, with one spelling per number. */
  distinctNumberTextsOf(shape: Shape): Regex {
    const texts = this.numberTextsOf(shape);
    return shape.numberTexts === null ? this.regexes.and([texts, this.numbers.distinctTexts]) : texts;
  }

  /** Returns the contents of the shape's strings. */
  stringsOf({ strings }: Shape): Regex {
    return strings.length === 0 ? this.encoding.anyText : this.regexes.and(strings);
  }

  #isArrayPossible(parts: readonly ArrayPart[], depth: number): boolean {
    const min = Math.max(0, ...parts.map((part) => part.min));
    if (parts.some((part) => part.max < min)) return false;
    const looked = Math.min(min, Math.max(0, ...parts.map((part) => part.prefix.length)) + 1);
    for (let index = 0; index < looked; index++) {
      if (!this.isPossible(this.itemsOf(parts, index), depth + 1)) return false;
    }
    return true;
  }

  #isObjectPossible(parts: readonly ObjectPart[], depth: number): boolean {
    const required = new Set(parts.flatMap((part) => part.required));
    if (parts.some((part) => part.max < required.size || parts.some((other) => other.min > part.max)))
      return false;
    for (const name of required) {
      if (!this.isPossible(this.valuesOf(parts, name), depth + 1)) return false;
    }
    return true;
  }

  /* ---- complements ---- */

  /**
   * Returns shapes of all values outside this one. Throws ConstraintError if they are not a list of shapes.
   */
  #negated(shape: Shape): Shape[] {
    const { regexes } = this;
    const negated: Shape[] = [];
    const others = allKinds & ~shape.kinds;
    if (others !== 0) negated.push({ ...anyShape, kinds: others });
    if (shape.kinds & kinds.number && shape.numbers.length > 0) {
      const numbers = [this.numbers.all, regexes.not(regexes.and(shape.numbers))];
      negated.push({ ...anyShape, kinds: kinds.number, numbers });
    }
    if (shape.kinds & kinds.string && shape.strings.length > 0) {
      const strings = [this.encoding.anyText, regexes.not(regexes.and(shape.strings))];
      negated.push({ ...anyShape, kinds: kinds.string, strings });
    }
    if (shape.kinds & kinds.array) {
      for (const part of shape.arrays)
        for (const array of this.#negatedArray(part))
          negated.push({ ...anyShape, kinds: kinds.array, arrays: [array] });
    }
    if (shape.kinds & kinds.object) {
      for (const part of shape.objects)
        for (const object of this.#negatedObject(part))
          negated.push({ ...anyShape, kinds: kinds.object, objects: [object] });
    }
    return negated;
  }

  #negatedArray({ prefix, rest, min, max, contains, isUnique, pointer }: ArrayPart): ArrayPart[] {
    const refuse = (what: string): never => {
      throw new ConstraintError(`the negation of ${what} is not supported`, pointer);
    };
    const negated: ArrayPart[] = [];
    const blank = { ...anyArray, pointer };
    if (min > 0) negated.push({ ...blank, max: min - 1 });
    if (max < Number.POSITIVE_INFINITY) negated.push({ ...blank, min: max + 1 });
    if (isUnique) refuse("uniqueItems");
    prefix.forEach((item, index) => {
      const before = Array.from({ length: index }, () => this.any([anyShape]));
      negated.push({ ...blank, prefix: [...before, this.not([item])], min: index + 1 });
    });
    if (rest !== null) {
      if (prefix.length > 0) refuse("items after others");
      negated.push({ ...blank, contains: { item: this.not([rest]), min: 1, max: Number.POSITIVE_INFINITY } });
    }
    if (contains !== null) {
      if (contains.min !== 1 || contains.max < Number.POSITIVE_INFINITY) refuse("contains with a count");
      negated.push({ ...blank, rest: this.not([contains.item]) });
    }
    return negated;
  }

  #negatedObject(part: ObjectPart): ObjectPart[] {
    const { properties, patterns, additional, required, min, max, names, pointer } = part;
    const refuse = (what: string): never => {
      throw new ConstraintError(`the negation of ${what} is not supported`, pointer);
    };
    if (patterns.length > 0) refuse("patternProperties");
    if (names !== null) refuse("propertyNames");
    if (additional !== null && !isTrue(additional)) refuse("additionalProperties");
    const blank = { ...anyObject, pointer };
    const negated: ObjectPart[] = [];
    if (min > 0) negated.push({ ...blank, max: min - 1 });
    if (max < Number.POSITIVE_INFINITY) negated.push({ ...blank, min: max + 1 });
    for (const name of required) negated.push({ ...blank, properties: new Map([[name, this.any([])]]) });
    for (const [name, value] of properties)
      negated.push({ ...blank, required: [name], properties: new Map([[name, this.not([value])]]) });
    return negated;
  }
}

/** Returns a key that is equal for equal sets of conditions. */
export function keyOf(conditions: readonly Condition[]): string {
  return [...new Set(conditions.filter((one) => !isTrue(one)).map(({ id }) => id))]
    .sort((a, b) => a - b)
    .join();
}

function isTrue(condition: Condition): boolean {
  if (condition.kind === "any") return condition.shapes.includes(anyShape);
  if (condition.kind !== "raw") return false;
  const { schema } = condition.raw;
  return schema === true || (schema !== false && Object.keys(schema).length === 0);
}

function pointerOf(condition: Condition): string {
  if (condition.kind === "raw") return condition.raw.pointer;
  return condition.kind === "not" ? pointerOf(condition.of[0]!) : "#";
}
