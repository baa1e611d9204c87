/** Interfaces of the expression tables, for the analyses that those tables own. */
import type { Budget } from "../error.ts";
import type { Partition } from "./byte-set.ts";
import type { kinds, Regex, RegexShape } from "./shape.ts";

/** Makes expressions and reads their shapes; implemented by `Expressions`. */
export interface ExpressionTable {
  readonly empty: Regex;
  readonly epsilon: Regex;
  shapeOf(regex: Regex): RegexShape;
  kindOf(regex: Regex): (typeof kinds)[number];
  partOf(regex: Regex, index: number): Regex;
  minOf(regex: Regex): number;
  maxOf(regex: Regex): number;
  bytesMin(regex: Regex): number;
  counts(regex: Regex): number;
  isBoolean(regex: Regex): boolean;
  isCounted(regex: Regex): boolean;
  isNullable(regex: Regex): boolean;
  isStar(regex: Regex): boolean;
  cat(...parts: readonly Regex[]): Regex;
  repeat(of: Regex, min: number, max: number): Regex;
  alt(parts: readonly Regex[]): Regex;
  and(parts: readonly Regex[]): Regex;
  not(of: Regex): Regex;
}

/** Table that also takes derivatives; implemented by `Regexes`. */
export interface RegexTable extends ExpressionTable {
  readonly budget: Budget;
  isEmpty(regex: Regex): boolean;
  partitionOf(regex: Regex): Partition;
  refine(a: Partition, b: Partition): Partition;
  derivative(regex: Regex, byte: number): Regex;
}
