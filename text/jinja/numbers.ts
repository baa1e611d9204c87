/** Numbers as Python writes, reads and rounds them. */
import { fail } from "./errors.ts";
import type { Value } from "./values.ts";

/** repr of a float: the shortest digits that read back as the same number. */
export function floatText(value: number): string {
  if (Number.isNaN(value)) return "nan";
  if (!Number.isFinite(value)) return value > 0 ? "inf" : "-inf";
  if (Object.is(value, -0)) return "-0.0";
  const [digits = "", exponentText = "0"] = value.toExponential().split("e");
  const exponent = Number(exponentText);
  if (exponent < -4 || exponent >= 16) return `${digits}e${exponentOf(exponent)}`;
  const plain = fixedOf(value);
  return plain.includes(".") ? plain : `${plain}.0`;
}

/** Decimal form without exponent, which JavaScript uses below 1e-6. */
function fixedOf(value: number): string {
  const text = String(value);
  if (!text.includes("e")) return text;
  const [digits = "", exponent = "0"] = value.toExponential().split("e");
  const places = digits.replace(/^-?\d\.?/, "").length - Number(exponent);
  return value.toFixed(Math.max(0, places));
}

/** Exponent with a sign and at least two digits. */
function exponentOf(exponent: number): string {
  return `${exponent < 0 ? "-" : "+"}${String(Math.abs(exponent)).padStart(2, "0")}`;
}

/** `%.{places}f`: exact, ties to even. */
export function fixedText(value: number, places: number): string {
  const sign = value < 0 || Object.is(value, -0) ? "-" : "";
  const size = Math.abs(value);
  if (size >= 1e21) return `${sign}${BigInt(size)}${places > 0 ? `.${"0".repeat(places)}` : ""}`;
  const rounded = size.toFixed(Math.min(places, 100));
  if (places > 100) return `${sign}${rounded}${"0".repeat(places - 100)}`;
  return sign + (isTie(size, places) ? toEven(size, places, rounded) : rounded);
}

/** True if a number lies exactly halfway between two values with this many places. */
function isTie(size: number, places: number): boolean {
  if (places >= 60) return false;
  const rest = size.toFixed(100).split(".")[1]!.slice(places);
  return /^50*$/.test(rest);
}

/** Rounds a tie to even, where `toFixed` returns the larger value. */
function toEven(size: number, places: number, larger: string): string {
  if (/[02468]$/.test(larger)) return larger;
  const [whole = "", fraction = ""] = size.toFixed(100).split(".");
  return places === 0 ? whole : `${whole}.${fraction.slice(0, places)}`;
}

/** `%.{places}e`. */
export function exponentialText(value: number, places: number): string {
  const [digits = "", exponent = "0"] = value.toExponential(Math.min(places, 100)).split("e");
  const sign = Object.is(value, -0) ? "-" : "";
  return `${sign}${digits}e${exponentOf(Number(exponent))}`;
}

/** `%.{precision}g`; `keepsZeros`: the alternate form. */
export function generalText(value: number, precision: number, keepsZeros = false): string {
  const digits = Math.max(1, precision);
  const exponent = value === 0 ? 0 : Number(value.toExponential(Math.min(digits - 1, 100)).split("e")[1]);
  const isShort = exponent >= -4 && exponent < digits;
  const text = isShort ? fixedText(value, digits - 1 - exponent) : exponentialText(value, digits - 1);
  if (keepsZeros) return text;
  const [mantissa = "", tail] = text.split("e");
  const trimmed = mantissa.includes(".") ? mantissa.replace(/\.?0+$/, "") : mantissa;
  return tail === undefined ? trimmed : `${trimmed}e${tail}`;
}

/** Digits of an int that Python reads and writes at most. */
export const digitsMax = 4300;

/** `int(text, base)`; undefined if the text is no number. */
export function readInteger(text: string, base = 10): bigint | undefined {
  const match = /^([+-]?)(0[xXbBoO])?_?([\da-zA-Z]+(?:_[\da-zA-Z]+)*)$/.exec(asciiDigits(text.trim()));
  if (match === null) return undefined;
  const [, sign, prefix = "", body = ""] = match;
  const prefixBase = { x: 16, b: 2, o: 8 }[prefix.slice(1).toLowerCase()];
  let digits = body.replaceAll("_", "");
  let radix = base;
  if (prefixBase !== undefined && (base === 0 || base === prefixBase)) radix = prefixBase;
  else {
    digits = prefix + digits;
    if (text.trim().replace(/^[+-]/, "").startsWith("_")) return undefined;
    if (base === 0) {
      radix = 10;
      if (/^0+[1-9]/.test(digits)) return undefined;
    }
  }
  if (digits.length > digitsMax) return undefined;
  let value = 0n;
  if (radix === 10) {
    if (!/^\d+$/.test(digits)) return undefined;
    value = BigInt(digits);
  } else {
    for (const digit of digits) {
      const worth = Number.parseInt(digit, 36);
      if (!(worth < radix)) return undefined;
      value = value * BigInt(radix) + BigInt(worth);
    }
  }
  return sign === "-" ? -value : value;
}

/** `float(text)`; undefined if the text is no number. */
export function readFloat(text: string): number | undefined {
  const trimmed = asciiDigits(text.trim());
  const word = /^([+-]?)(inf|infinity|nan)$/i.exec(trimmed);
  if (word !== null) {
    const value = word[2]!.toLowerCase() === "nan" ? Number.NaN : Number.POSITIVE_INFINITY;
    return word[1] === "-" ? -value : value;
  }
  const isNumber = /^[+-]?(\d+(_\d+)*(\.(\d+(_\d+)*)?)?|\.\d+(_\d+)*)(e[+-]?\d+(_\d+)*)?$/i.test(trimmed);
  return isNumber ? Number(trimmed.replaceAll("_", "")) : undefined;
}

/** Converts digits of other scripts to ASCII. */
function asciiDigits(text: string): string {
  return text.replace(/\P{ASCII}/gu, (character) => {
    if (!/\p{Nd}/u.test(character)) return character;
    let zero = character.codePointAt(0)!;
    while (
      zero > 0x660 &&
      /\p{Nd}/u.test(String.fromCodePoint(zero - 1)) &&
      character.codePointAt(0)! - zero < 9
    )
      zero--;
    return String(character.codePointAt(0)! - zero);
  });
}

/** `round(value, places)` of a float. */
export function roundFloat(value: number, places: number): number {
  if (!Number.isFinite(value) || places > 100) return value;
  if (places >= 0) return Number(fixedText(value, places));
  if (Math.abs(value) >= 1e21) return value;
  return Number(roundInteger(BigInt(Math.trunc(value)), places, value % 1 !== 0));
}

/** `round(value, places)` of an int, ties to even; `isMore`: the exact number is slightly larger in size. */
export function roundInteger(value: bigint, places: number, isMore = false): bigint {
  if (places >= 0) return value;
  if (places < -400) return 0n;
  const unit = 10n ** BigInt(-places);
  const size = value < 0n ? -value : value;
  const rest = size % unit;
  let rounded = size - rest;
  const twice = rest * 2n;
  const isAbove = twice > unit || (twice === unit && (isMore || (rounded / unit) % 2n === 1n));
  if (isAbove) rounded += unit;
  return value < 0n ? -rounded : rounded;
}

export type Numeric = bigint | number;

/** An int (True is 1) or a float; undefined for other values. */
export function numeric(value: Value): Numeric | undefined {
  if (typeof value === "bigint" || typeof value === "number") return value;
  return typeof value === "boolean" ? (value ? 1n : 0n) : undefined;
}

export function toFloat(value: Numeric): number {
  const float = Number(value);
  if (typeof value === "bigint" && !Number.isFinite(float))
    fail("OverflowError", "int too large to convert to float");
  return float;
}
