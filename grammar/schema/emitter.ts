import { type Budget, ConstraintError } from "../error.ts";
import { DISTINCT_ITEMS_MAX, type GrammarBuilder, type GrammarSymbol, type Production } from "../grammar.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { hasTexts } from "../regex/text-count.ts";
import { keyOf, type Normalizer } from "./normalizer.ts";
import { type ArrayPart, type Condition, isAnyShape, kinds, type ObjectPart, type Shape } from "./shapes.ts";

/** White space between the parts of a value, as regular expressions. */
export interface WhiteSpace {
  readonly afterComma: Regex;
  readonly afterColon: Regex;
  /** White space after an opening bracket and before a closing one, of non-empty values. */
  readonly inBrackets: Regex;
}

/** Combinations of place and count that an object is expanded to at most. */
const PLACES_MAX = 4096;
/** Overlapping patterns of property names at most. */
const PATTERNS_MAX = 6;
/** Values with `uniqueItems` at most, and sets of them that may have occurred. */
const UNIQUE_MAX = 64;
const UNIQUE_SETS_MAX = 1024;
const SYMBOLS_MAX = 200_000;

/** Writes shapes as grammars. Properties come in the order of the schema, others after them. */
export class Emitter {
  readonly #normalizer: Normalizer;
  readonly #builder: GrammarBuilder;
  readonly #regexes: Regexes;
  readonly #budget: Budget;
  readonly #space: WhiteSpace;
  readonly #values = new Map<string, GrammarSymbol>();

  constructor(normalizer: Normalizer, builder: GrammarBuilder, space: WhiteSpace, budget: Budget) {
    this.#normalizer = normalizer;
    this.#builder = builder;
    this.#regexes = builder.regexes;
    this.#space = space;
    this.#budget = budget;
  }

  /** Returns the symbol of values that satisfy all conditions. */
  valueOf(conditions: readonly Condition[]): GrammarSymbol {
    const key = keyOf(conditions);
    let symbol = this.#values.get(key);
    if (symbol === undefined) {
      this.#budget.spend(20);
      if (this.#builder.size > SYMBOLS_MAX) throw new ConstraintError("it makes too large a grammar");
      symbol = this.#builder.declare();
      this.#values.set(key, symbol);
      const shapes = this.#normalizer.shapesOf(conditions);
      this.#builder.define(symbol, this.#productionsOf(shapes));
    }
    return symbol;
  }

  #productionsOf(shapes: readonly Shape[]): Production[] {
    const scalars: Regex[] = [];
    const symbols: GrammarSymbol[] = [];
    for (const shape of shapes) {
      const scalar = this.#scalarsOf(shape);
      if (scalar !== this.#regexes.empty) scalars.push(scalar);
      if (shape.kinds & kinds.array) symbols.push(this.#arrayOf(shape.arrays));
      if (shape.kinds & kinds.object) symbols.push(this.#objectOf(shape.objects));
    }
    if (scalars.length > 0) symbols.unshift(this.#builder.terminal(this.#regexes.alt(scalars)));
    return symbols.map((symbol) => ({ kind: "sequence", symbols: [symbol] }));
  }

  /** `isDistinct`: each number has one spelling. */
  #scalarsOf(shape: Shape, isDistinct = false): Regex {
    const regexes = this.#regexes;
    const parts: Regex[] = [];
    for (const [name, bit] of [
      ["null", kinds.null],
      ["false", kinds.false],
      ["true", kinds.true],
    ] as const) {
      if (shape.kinds & bit) parts.push(this.#text(name));
    }
    if (shape.kinds & kinds.number)
      parts.push(
        isDistinct ? this.#normalizer.distinctNumberTextsOf(shape) : this.#normalizer.numberTextsOf(shape),
      );
    if (shape.kinds & kinds.string) {
      const quote = this.#text('"');
      parts.push(regexes.cat(quote, this.#normalizer.stringsOf(shape), quote));
    }
    return regexes.alt(parts);
  }

  /* ---- arrays ---- */

  #arrayOf(parts: readonly ArrayPart[]): GrammarSymbol {
    const builder = this.#builder;
    const min = Math.max(0, ...parts.map((part) => part.min));
    const max = Math.min(...parts.map((part) => part.max), Number.POSITIVE_INFINITY);
    const open = this.#terminal("[", this.#space.inBrackets);
    const close = builder.terminal(this.#regexes.cat(this.#space.inBrackets, this.#text("]")));
    const contains = parts.flatMap((part) => (part.contains === null ? [] : [part]));
    let items: GrammarSymbol;
    if (parts.some((part) => part.isUnique) && max > 1) items = this.#uniqueItems(parts, min, max);
    else if (contains.length > 0) items = this.#itemsWith(parts, contains, min, max);
    else items = this.#items(parts, min, max);
    const some = builder.sequence(open, items, close);
    return min > 0 || contains.some((part) => part.contains!.min > 0)
      ? some
      : builder.choice([builder.terminal(this.#text("[]")), some]);
  }

  /** Returns at least one item: those with conditions of their own one by one, the others repeated. */
  #items(parts: readonly ArrayPart[], min: number, max: number): GrammarSymbol {
    const builder = this.#builder;
    if (max === 0) return builder.never;
    const comma = this.#terminal(",", this.#space.afterComma);
    const own = Math.max(0, ...parts.map((part) => part.prefix.length));
    const item = (index: number): GrammarSymbol => this.valueOf(this.#normalizer.itemsOf(parts, index));
    if (own === 0) {
      const other = item(0);
      return builder.sequence(
        other,
        builder.repeat(builder.sequence(comma, other), Math.max(min - 1, 0), max - 1),
      );
    }
    let rest: GrammarSymbol =
      max > own
        ? builder.repeat(builder.sequence(comma, item(own)), Math.max(min - own, 0), max - own)
        : builder.nothing;
    for (let index = Math.min(own, max) - 1; index > 0; index--) {
      const more = builder.sequence(comma, item(index), rest);
      rest = index >= min ? builder.choice([builder.nothing, more]) : more;
    }
    return builder.sequence(item(0), rest);
  }

  /** Returns items with a `contains` condition, counted one by one. */
  #itemsWith(
    parts: readonly ArrayPart[],
    [only, another]: readonly ArrayPart[],
    min: number,
    max: number,
  ): GrammarSymbol {
    const { contains, pointer } = only!;
    const refuse = (why: string): never => {
      throw new ConstraintError(`contains ${why} is not supported`, `${pointer}/contains`);
    };
    if (another !== undefined) refuse("more than once");
    if (parts.some((part) => part.prefix.length > 0)) refuse("beside prefixItems");
    const { item, min: least, max: most } = contains!;
    if (max === 0) return this.#builder.never;
    const isCounted = most < Number.POSITIVE_INFINITY;
    const foundMax = isCounted ? most : least;
    const itemsMax = max < Number.POSITIVE_INFINITY ? max : min;
    if ((foundMax + 1) * (itemsMax + 1) > PLACES_MAX) refuse("with such counts");
    const builder = this.#builder;
    const normal = this.#normalizer;
    const comma = this.#terminal(",", this.#space.afterComma);
    const conditions = normal.itemsOf(parts, 0);
    const wanted = this.valueOf([...conditions, item]);
    const other = this.valueOf(isCounted ? [...conditions, normal.not([item])] : conditions);
    const places = new Map<string, GrammarSymbol>();
    /** State after `items` items, of which `found` satisfied the condition. */
    const after = (items: number, found: number): GrammarSymbol => {
      const key = `${items} ${found}`;
      const known = places.get(key);
      if (known !== undefined) return known;
      const symbol = builder.declare();
      places.set(key, symbol);
      const productions: Production[] = [];
      if (items >= min && found >= least) productions.push({ kind: "sequence", symbols: [] });
      productions.push(...next(items, found, [comma]));
      builder.define(symbol, productions);
      return symbol;
    };
    const next = (items: number, found: number, before: GrammarSymbol[]): Production[] => {
      if (items === max) return [];
      const more = Math.min(items + 1, itemsMax);
      const productions: Production[] = [];
      if (!isCounted || found < most) {
        const foundNow = Math.min(found + 1, foundMax);
        productions.push({ kind: "sequence", symbols: [...before, wanted, after(more, foundNow)] });
      }
      productions.push({ kind: "sequence", symbols: [...before, other, after(more, found)] });
      return productions;
    };
    const start = builder.declare();
    builder.define(start, next(0, 0, []));
    return start;
  }

  /** Returns lists of scalars, each at most once. */
  #uniqueItems(parts: readonly ArrayPart[], min: number, max: number): GrammarSymbol {
    const pointer = `${parts.find((part) => part.isUnique)!.pointer}/uniqueItems`;
    const refuse = (why: string): never => {
      throw new ConstraintError(`uniqueItems is supported ${why}`, pointer);
    };
    if (parts.some((part) => part.prefix.length > 0 || part.contains !== null))
      refuse("neither beside prefixItems nor beside contains");
    if (min > DISTINCT_ITEMS_MAX)
      refuse(`with ${DISTINCT_ITEMS_MAX} items at most, but minItems asks for ${min}`);
    const shapes = this.#normalizer.shapesOf(this.#normalizer.itemsOf(parts, 0));
    if (shapes.some((shape) => shape.kinds & (kinds.array | kinds.object)))
      refuse(
        "where the items are strings, numbers, booleans or null, but here they may be objects or arrays",
      );
    const builder = this.#builder;
    const comma = this.#terminal(",", this.#space.afterComma);
    const values = this.#valuesOf(shapes);
    if (values === null || setsOf(values.length, max) > UNIQUE_SETS_MAX) {
      const item = this.#regexes.alt(shapes.map((shape) => this.#scalarsOf(shape, true)));
      if (!hasTexts(this.#regexes, item, Math.max(min, 1))) return builder.never;
      return builder.distinct({
        ...{ item: builder.terminal(item), separator: comma },
        ...{ min: Math.max(min, 1), max: Math.min(max, DISTINCT_ITEMS_MAX) },
      });
    }
    const places = new Map<bigint, GrammarSymbol>();
    /** State after the values whose bits are set. */
    const after = (used: bigint, count: number): GrammarSymbol => {
      const known = places.get(used);
      if (known !== undefined) return known;
      const symbol = builder.declare();
      places.set(used, symbol);
      const productions = next(used, count, [comma]);
      if (count >= min) productions.push({ kind: "sequence", symbols: [] });
      builder.define(symbol, productions);
      return symbol;
    };
    const next = (used: bigint, count: number, before: GrammarSymbol[]): Production[] => {
      if (count === max) return [];
      return values.flatMap((value, index): Production[] => {
        const bit = 1n << BigInt(index);
        if (used & bit) return [];
        this.#budget.spend(1);
        const symbols = [...before, builder.terminal(value), after(used | bit, count + 1)];
        return [{ kind: "sequence", symbols }];
      });
    };
    const start = builder.declare();
    builder.define(start, next(0n, 0, []));
    return start;
  }

  /** Returns the allowed scalars as texts, if they are few and distinct; else null. */
  #valuesOf(shapes: readonly Shape[]): Regex[] | null {
    const values: Regex[] = [];
    for (const shape of shapes) {
      const texts = textsOf(this.#regexes, this.#scalarsOf(shape), UNIQUE_MAX + 1);
      if (texts === null) return null;
      values.push(...texts.map((text) => this.#regexes.literal(text)));
    }
    return [...new Set(values)];
  }

  /* ---- objects ---- */

  #objectOf(parts: readonly ObjectPart[]): GrammarSymbol {
    return new ObjectEmitter(parts, this.#normalizer, this.#builder, this.#space, (conditions) =>
      this.valueOf(conditions),
    ).emit();
  }

  #terminal(text: string, space: Regex): GrammarSymbol {
    return this.#builder.terminal(this.#regexes.cat(this.#text(text), space));
  }

  #text(text: string): Regex {
    return this.#regexes.literal(new TextEncoder().encode(text));
  }
}

interface Property {
  readonly name: string;
  readonly value: GrammarSymbol;
  readonly isRequired: boolean;
}

/** Names of undeclared properties, and the conditions on their values. */
interface FreeNames {
  readonly names: Regex;
  readonly value: GrammarSymbol;
}

class ObjectEmitter {
  readonly #parts: readonly ObjectPart[];
  readonly #normalizer: Normalizer;
  readonly #builder: GrammarBuilder;
  readonly #regexes: Regexes;
  readonly #space: WhiteSpace;
  readonly #valueOf: (conditions: readonly Condition[]) => GrammarSymbol;
  readonly #min: number;
  readonly #max: number;
  /** Names of properties; null: any. */
  readonly #names: Regex | null;
  readonly #properties: readonly Property[];
  readonly #free: readonly FreeNames[];
  readonly #places = new Map<string, GrammarSymbol>();

  constructor(
    parts: readonly ObjectPart[],
    normalizer: Normalizer,
    builder: GrammarBuilder,
    space: WhiteSpace,
    symbolOf: (conditions: readonly Condition[]) => GrammarSymbol,
  ) {
    this.#parts = parts;
    this.#normalizer = normalizer;
    this.#builder = builder;
    this.#regexes = builder.regexes;
    this.#space = space;
    this.#valueOf = symbolOf;
    this.#min = Math.max(0, ...parts.map((part) => part.min));
    this.#max = Math.min(...parts.map((part) => part.max), Number.POSITIVE_INFINITY);
    this.#names = this.#allowedNames();
    this.#properties = this.#ownProperties();
    this.#free = this.#freeNames();
    const counted = this.#isCounted ? Math.max(this.#min, Number.isFinite(this.#max) ? this.#max : 0) + 1 : 1;
    if ((this.#properties.length + 1) * Math.min(counted, this.#properties.length + 2) > PLACES_MAX) {
      throw new ConstraintError(
        "counting so many properties is not supported",
        `${parts[0]!.pointer}/minProperties`,
      );
    }
  }

  emit(): GrammarSymbol {
    const builder = this.#builder;
    const { inBrackets } = this.#space;
    const open = builder.terminal(this.#regexes.cat(this.#text("{"), inBrackets));
    const close = builder.terminal(this.#regexes.cat(inBrackets, this.#text("}")));
    const some = builder.sequence(open, this.#first(0), close);
    const mayBeEmpty = this.#min === 0 && !this.#properties.some((property) => property.isRequired);
    return mayBeEmpty ? builder.choice([builder.terminal(this.#text("{}")), some]) : some;
  }

  /** True if the number of properties matters beyond the required ones. */
  get #isCounted(): boolean {
    const required = this.#properties.filter((property) => property.isRequired).length;
    const isEnough = required >= this.#min;
    const isBounded =
      this.#max < Number.POSITIVE_INFINITY &&
      !(this.#free.length === 0 && this.#max >= this.#properties.length);
    return !isEnough || isBounded;
  }

  /** Returns the object's members from property `index` on, none written yet. */
  #first(index: number): GrammarSymbol {
    const place = `first ${index}`;
    const known = this.#places.get(place);
    if (known !== undefined) return known;
    const builder = this.#builder;
    const symbol = builder.declare();
    this.#places.set(place, symbol);
    const productions: Production[] = [];
    const property = this.#properties[index];
    if (this.#max === 0) productions.length = 0;
    else if (property === undefined) {
      for (const free of this.#free)
        productions.push({
          kind: "sequence",
          symbols: [...this.#freeMember(free, false), this.#freeRest(1, 1, false)],
        });
    } else {
      productions.push({
        kind: "sequence",
        symbols: [...this.#member(property, false), this.#rest(index + 1, 1)],
      });
      if (!property.isRequired) productions.push({ kind: "sequence", symbols: [this.#first(index + 1)] });
    }
    builder.define(symbol, productions);
    return symbol;
  }

  /** Returns the members from property `index` on, after `count` properties. */
  #rest(index: number, count: number): GrammarSymbol {
    const property = this.#properties[index];
    if (property === undefined) return this.#freeRest(count, count, true);
    const counted = this.#isCounted ? count : 0;
    const place = `rest ${index} ${counted}`;
    const known = this.#places.get(place);
    if (known !== undefined) return known;
    const symbol = this.#builder.declare();
    this.#places.set(place, symbol);
    const productions: Production[] = [];
    if (count < this.#max) {
      const symbols = [...this.#member(property, true), this.#rest(index + 1, count + 1)];
      productions.push({ kind: "sequence", symbols });
    }
    if (!property.isRequired) productions.push({ kind: "sequence", symbols: [this.#rest(index + 1, count)] });
    this.#builder.define(symbol, productions);
    return symbol;
  }

  /**
   * Returns any number of undeclared properties. Two of them may have the same name, so only the first is
   * certainly distinct. `sure` counts distinct properties, `count` all. `isFirst`: no undeclared property has
   * come yet.
   */
  #freeRest(sure: number, count: number, isFirst: boolean): GrammarSymbol {
    const builder = this.#builder;
    if (this.#free.length === 0) return sure >= this.#min ? builder.nothing : builder.never;
    if (this.#max === Number.POSITIVE_INFINITY && (sure >= this.#min || !this.#isCounted)) {
      const key = "free";
      const known = this.#places.get(key);
      if (known !== undefined) return known;
      const member = builder.choice(
        this.#free.map((free) => builder.sequence(...this.#freeMember(free, true))),
      );
      const symbol = builder.repeat(member, 0, Number.POSITIVE_INFINITY);
      this.#places.set(key, symbol);
      return symbol;
    }
    const place = `free ${sure} ${count} ${isFirst}`;
    const known = this.#places.get(place);
    if (known !== undefined) return known;
    const symbol = builder.declare();
    this.#places.set(place, symbol);
    const productions: Production[] = [];
    if (sure >= this.#min) productions.push({ kind: "sequence", symbols: [] });
    if (count < this.#max && (this.#max < Number.POSITIVE_INFINITY || isFirst)) {
      if (!isFirst && sure < this.#min) this.#refuseCount();
      for (const free of this.#free) {
        const rest = this.#freeRest(isFirst ? sure + 1 : sure, count + 1, false);
        productions.push({ kind: "sequence", symbols: [...this.#freeMember(free, true), rest] });
      }
    } else if (sure < this.#min) this.#refuseCount();
    builder.define(symbol, productions);
    return symbol;
  }

  #refuseCount(): never {
    throw new ConstraintError(
      "minProperties counts names of the reader's own choice, which may repeat",
      `${this.#parts[0]!.pointer}/minProperties`,
    );
  }

  #member({ name, value }: Property, hasComma: boolean): GrammarSymbol[] {
    const key = this.#regexes.literal(new TextEncoder().encode(JSON.stringify(name)));
    const before = hasComma ? [this.#text(","), this.#space.afterComma] : [];
    const regex = this.#regexes.cat(...before, key, this.#text(":"), this.#space.afterColon);
    return [this.#builder.terminal(regex), value];
  }

  #freeMember({ names, value }: FreeNames, hasComma: boolean): GrammarSymbol[] {
    const before = hasComma ? [this.#text(","), this.#space.afterComma] : [];
    const quote = this.#text('"');
    return [
      this.#builder.terminal(this.#regexes.cat(...before, quote, names, quote)),
      this.#builder.terminal(this.#regexes.cat(this.#text(":"), this.#space.afterColon)),
      value,
    ];
  }

  #ownProperties(): Property[] {
    const names = new Set([
      ...this.#parts.flatMap((part) => [...part.properties.keys()]),
      ...this.#parts.flatMap((part) => part.required),
    ]);
    const required = new Set(this.#parts.flatMap((part) => part.required));
    return [...names].map((name) => {
      const bytes = this.#normalizer.encoding.bytesOf(name);
      const isAllowed = this.#names === null || this.#regexes.matches(this.#names, bytes);
      const conditions = this.#normalizer.valuesOf(this.#parts, name);
      const value = isAllowed ? this.#valueOf(conditions) : this.#builder.never;
      return { name, value, isRequired: required.has(name) };
    });
  }

  #freeNames(): FreeNames[] {
    const regexes = this.#regexes;
    const { anyText, bytesOf } = this.#normalizer.encoding;
    const patterns = [...new Set(this.#parts.flatMap((part) => this.#tellingPatterns(part)))];
    if (patterns.length > PATTERNS_MAX) {
      throw new ConstraintError(
        `more than ${PATTERNS_MAX} patterns of names at once are not supported`,
        `${this.#parts[0]!.pointer}/patternProperties`,
      );
    }
    const own = regexes.literals(this.#properties.map(({ name }) => bytesOf(name)));
    const allowed = this.#names === null ? [] : [this.#names];
    if (this.#properties.length > 0) allowed.push(regexes.not(own));
    const free: FreeNames[] = [];
    for (let chosen = 0; chosen < 2 ** patterns.length; chosen++) {
      const matched = new Set(patterns.filter((_, index) => chosen & (1 << index)));
      const names = regexes.and([
        ...(matched.size > 0 ? [] : [anyText]), // all patterns are subsets of it
        ...allowed,
        ...patterns.map((pattern) => (matched.has(pattern) ? pattern : regexes.not(pattern))),
      ]);
      if (regexes.isEmpty(names)) continue;
      const conditions = this.#parts.flatMap((part) => {
        const found = part.patterns.filter((pattern) => matched.has(pattern.names)).map(({ value }) => value);
        return found.length === 0 && part.additional !== null ? [part.additional] : found;
      });
      if (this.#normalizer.isPossible(conditions)) free.push({ names, value: this.#valueOf(conditions) });
    }
    return free;
  }

  /** Returns patterns of names whose values have other conditions than other names'. */
  #tellingPatterns({ patterns, additional }: ObjectPart): Regex[] {
    const isAny = (value: Condition): boolean => this.#normalizer.shapesOf([value]).some(isAnyShape);
    const isOtherAny = additional === null || isAny(additional);
    return patterns.flatMap(({ names, value }) => (isOtherAny && isAny(value) ? [] : [names]));
  }

  #allowedNames(): Regex | null {
    const sets = this.#parts.flatMap(({ names }) => {
      if (names === null) return [];
      const shapes = this.#normalizer.shapesOf([names]).filter((shape) => shape.kinds & kinds.string);
      return [this.#regexes.alt(shapes.map((shape) => this.#normalizer.stringsOf(shape)))];
    });
    return sets.length === 0 ? null : this.#regexes.and(sets);
  }

  #text(text: string): Regex {
    return this.#regexes.literal(new TextEncoder().encode(text));
  }
}

/** Returns the number of subsets of up to `most` of `count` values. */
function setsOf(count: number, most: number): number {
  let sets = 1;
  let ofSize = 1;
  for (let size = 1; size <= Math.min(count, most); size++) {
    ofSize = (ofSize * (count - size + 1)) / size;
    sets += ofSize;
  }
  return Math.round(sets);
}

/** Returns all texts of an expression; null: more than `countMax`. */
function textsOf(regexes: Regexes, regex: Regex, countMax: number): Uint8Array[] | null {
  const texts: Uint8Array[] = [];
  const visit = (rest: Regex, bytes: readonly number[]): boolean => {
    if (texts.length > countMax || bytes.length > 1024) return false;
    if (regexes.isNullable(rest)) texts.push(Uint8Array.from(bytes));
    const { representatives, classOf } = regexes.partitionOf(rest);
    return representatives.every((representative, index) => {
      if (regexes.isEmpty(regexes.derivative(rest, representative))) return true;
      for (let byte = 0; byte < 256; byte++) {
        if (classOf[byte] === index && !visit(regexes.derivative(rest, representative), [...bytes, byte]))
          return false;
      }
      return true;
    });
  };
  return visit(regex, []) && texts.length <= countMax ? texts : null;
}
