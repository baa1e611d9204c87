/** Conversions of function arguments. They throw Python's TypeError. */
import { fail } from "./errors.ts";
import { numeric } from "./numbers.ts";
import { isTrue, typeName, Undefined, type Value } from "./values.ts";

/** An int as a JavaScript number, clamped to ±2^53. */
export function toIndex(value: Value): number {
  const number = numeric(value);
  if (typeof number !== "bigint") {
    return fail("TypeError", `'${typeName(value)}' object cannot be interpreted as an integer`);
  }
  const max = 2n ** 53n;
  return Number(number > max ? max : number < -max ? -max : number);
}

export function indexOr(value: Value | undefined, fallback: number): number {
  return value === undefined || value === null ? fallback : toIndex(value);
}

export function toText(value: Value | undefined, what: string): string {
  if (typeof value === "string") return value;
  return fail("TypeError", `${what} must be str, not ${typeName(value ?? null)}`);
}

export function textOr(value: Value | undefined, fallback: string | null, what: string): string | null {
  return value === undefined || value === null ? fallback : toText(value, what);
}

/** Returns a defined value; raises the error of an undefined one. */
export function defined(value: Value): Exclude<Value, Undefined> {
  if (value instanceof Undefined) return value.raise();
  return value;
}

export function isTrueOr(value: Value | undefined, fallback: boolean): boolean {
  return value === undefined ? fallback : isTrue(value);
}
