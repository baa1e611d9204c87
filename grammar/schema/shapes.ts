import type { Regex } from "../regex/regexes.ts";
import type { RawSchema } from "./document.ts";

/** Kinds of JSON values, as bits. */
export const kinds = { null: 1, false: 2, true: 4, number: 8, string: 16, array: 32, object: 64 } as const;
/** Bits of all kinds. */
export const allKinds = 127;

/** Condition on a value. Each exists once, identified by `id`. */
export type Condition =
  | { readonly id: number; readonly kind: "raw"; readonly raw: RawSchema }
  /** Negation: the value does not satisfy all of these together. */
  | { readonly id: number; readonly kind: "not"; readonly of: readonly Condition[] }
  /** Alternatives. */
  | { readonly id: number; readonly kind: "any"; readonly shapes: readonly Shape[] };

/**
 * Shape of values: a conjunction without alternatives. It has bits for the allowed kinds, and conditions for
 * each kind, all of which hold. A schema is a list of alternative shapes.
 */
export interface Shape {
  /** Bits of `kinds`. */
  readonly kinds: number;
  /** Sets of numbers (numbers.ts). */
  readonly numbers: readonly Regex[];
  /** True if the number is written without a fraction. */
  readonly isInteger: boolean;
  /** Allowed spellings, if not null: no other text of the same number. */
  readonly numberTexts: Regex | null;
  /** Sets of contents of JSON strings. */
  readonly strings: readonly Regex[];
  readonly arrays: readonly ArrayPart[];
  readonly objects: readonly ObjectPart[];
}

/** Conditions of one schema on arrays. */
export interface ArrayPart {
  /** Conditions on the first items. */
  readonly prefix: readonly Condition[];
  /** Condition on all other items; null: none. */
  readonly rest: Condition | null;
  readonly min: number;
  readonly max: number;
  readonly contains: { readonly item: Condition; readonly min: number; readonly max: number } | null;
  readonly isUnique: boolean;
  readonly pointer: string;
}

/** Conditions of one schema on objects. */
export interface ObjectPart {
  readonly properties: ReadonlyMap<string, Condition>;
  readonly patterns: readonly { readonly names: Regex; readonly value: Condition }[];
  /** Condition on properties that are neither in `properties` nor match `patterns`; null: none. */
  readonly additional: Condition | null;
  readonly required: readonly string[];
  readonly min: number;
  readonly max: number;
  /** Condition on the names of all properties; null: any. */
  readonly names: Condition | null;
  readonly pointer: string;
}

/** Shape of any value. */
export const anyShape: Shape = {
  kinds: allKinds,
  numbers: [],
  isInteger: false,
  numberTexts: null,
  strings: [],
  arrays: [],
  objects: [],
};

/** True if the shape allows any value. */
export function isAnyShape({ kinds, numbers, isInteger, numberTexts, ...others }: Shape): boolean {
  const parts = [numbers, others.strings, others.arrays, others.objects];
  return kinds === allKinds && !isInteger && numberTexts === null && parts.every((one) => one.length === 0);
}

/** Conditions of any array. */
export const anyArray: ArrayPart = {
  prefix: [],
  rest: null,
  min: 0,
  max: Number.POSITIVE_INFINITY,
  contains: null,
  isUnique: false,
  pointer: "#",
};

/** Conditions of any object. */
export const anyObject: ObjectPart = {
  properties: new Map(),
  patterns: [],
  additional: null,
  required: [],
  min: 0,
  max: Number.POSITIVE_INFINITY,
  names: null,
  pointer: "#",
};

/** Intersection of two shapes. `both` intersects texts of numbers. */
export function meet(a: Shape, b: Shape, both: (a: Regex, b: Regex) => Regex): Shape {
  if (a === anyShape) return b;
  if (b === anyShape) return a;
  return {
    kinds: a.kinds & b.kinds,
    numbers: union(a.numbers, b.numbers),
    isInteger: a.isInteger || b.isInteger,
    numberTexts:
      a.numberTexts === null || b.numberTexts === null
        ? (a.numberTexts ?? b.numberTexts)
        : both(a.numberTexts, b.numberTexts),
    strings: union(a.strings, b.strings),
    arrays: union(a.arrays, b.arrays),
    objects: union(a.objects, b.objects),
  };
}

function union<Part>(a: readonly Part[], b: readonly Part[]): readonly Part[] {
  if (a.length === 0) return b;
  return b.length === 0 ? a : [...new Set([...a, ...b])];
}
