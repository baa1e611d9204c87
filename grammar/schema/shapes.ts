import type { Regex } from "../regex/regexes.ts";
import type { RawSchema } from "./document.ts";

/** The kinds of JSON values, as bits. */
export const kinds = { null: 1, false: 2, true: 4, number: 8, string: 16, array: 32, object: 64 } as const;
/** Values of every kind. */
export const allKinds = 127;

/** A condition on a value. Each exists once: `id` names it. */
export type Condition =
  | { readonly id: number; readonly kind: "raw"; readonly raw: RawSchema }
  /** None of what the others say together. */
  | { readonly id: number; readonly kind: "not"; readonly of: readonly Condition[] }
  /** Any of these. */
  | { readonly id: number; readonly kind: "any"; readonly shapes: readonly Shape[] };

/**
 * What values look like, in a form without alternatives: values of some kinds, each kind with its own conditions, all of
 * which hold. A schema is a list of shapes, any of which may hold.
 */
export interface Shape {
  /** Bits of `kinds`. */
  readonly kinds: number;
  /** Sets of numbers (numbers.ts). */
  readonly numbers: readonly Regex[];
  /** The number is written without a fraction. */
  readonly isInteger: boolean;
  /** Exactly these are written, if not null: no other text of the same number. */
  readonly numberTexts: Regex | null;
  /** Insides of JSON strings. */
  readonly strings: readonly Regex[];
  readonly arrays: readonly ArrayPart[];
  readonly objects: readonly ObjectPart[];
}

/** What one schema says of arrays. */
export interface ArrayPart {
  /** Of the first items. */
  readonly prefix: readonly Condition[];
  /** Of all others; null: nothing. */
  readonly rest: Condition | null;
  readonly min: number;
  readonly max: number;
  readonly contains: { readonly item: Condition; readonly min: number; readonly max: number } | null;
  readonly isUnique: boolean;
  readonly pointer: string;
}

/** What one schema says of objects. */
export interface ObjectPart {
  readonly properties: ReadonlyMap<string, Condition>;
  readonly patterns: readonly { readonly names: Regex; readonly value: Condition }[];
  /** Of what is neither in `properties` nor matched by `patterns`; null: nothing. */
  readonly additional: Condition | null;
  readonly required: readonly string[];
  readonly min: number;
  readonly max: number;
  /** Names of all properties; null: any. */
  readonly names: Condition | null;
  readonly pointer: string;
}

/** Any value. */
export const anyShape: Shape = {
  kinds: allKinds,
  numbers: [],
  isInteger: false,
  numberTexts: null,
  strings: [],
  arrays: [],
  objects: [],
};

/** Whether any value is of the shape. */
export function isAnyShape({ kinds, numbers, isInteger, numberTexts, ...others }: Shape): boolean {
  const parts = [numbers, others.strings, others.arrays, others.objects];
  return kinds === allKinds && !isInteger && numberTexts === null && parts.every((one) => one.length === 0);
}

/** Any array. */
export const anyArray: ArrayPart = {
  prefix: [],
  rest: null,
  min: 0,
  max: Number.POSITIVE_INFINITY,
  contains: null,
  isUnique: false,
  pointer: "#",
};

/** Any object. */
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

/** Both hold. `both` intersects texts of numbers. */
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
