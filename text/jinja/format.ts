/** `'%s' % x` and the format specifications of `str.format`. */
import { fail } from "./errors.ts";
import { exponentialText, fixedText, floatText, generalText, numeric, toFloat } from "./numbers.ts";
import { integerText, repr, str } from "./print.ts";
import type { Runtime } from "./runtime.ts";
import { lengthOf, sliceText } from "./text.ts";
import { Dict, or, Tuple, typeName, Undefined, type Value } from "./values.ts";

const conversion = /%(?:\(([^)]*)\))?([-+ #0]*)(\*|\d*)(?:\.(\*|\d*))?[hlL]?([\s\S]?)/g;

/** Printf-style formatting. */
export function percentFormat(rt: Runtime, format: string, values: Value): string {
  const positional = values instanceof Tuple ? values.items : [values];
  let used = 0;
  let length = 0;
  const next = (): Value => {
    if (used >= positional.length) fail("TypeError", "not enough arguments for format string");
    return positional[used++]!;
  };
  const star = (text: string | undefined): number | undefined => {
    if (text === "*") return Number(integerOf(next(), "*"));
    return text === undefined ? undefined : Number(text || 0);
  };
  const result = format.replace(
    conversion,
    (_, key: string | undefined, flags: string, w: string, p, type: string) => {
      if (type === "%") return "%";
      if (type === "") fail("ValueError", "incomplete format");
      const width = w === "" ? 0 : star(w)!;
      const precision = star(p as string | undefined);
      if (key !== undefined && !(values instanceof Dict)) fail("TypeError", "format requires a mapping");
      if (key !== undefined) used = positional.length;
      const value =
        key === undefined ? next() : or((values as Dict).get(key), () => fail("KeyError", `'${key}'`));
      length += Math.abs(width) + (precision ?? 0);
      rt.budget.text(length);
      return pad(percentBody(rt, type, flags, precision, value), Math.abs(width), flags, width < 0, type);
    },
  );
  const isMapping =
    values instanceof Dict || (values !== null && Array.isArray(values)) || values instanceof Undefined;
  if (used < positional.length && !isMapping)
    fail("TypeError", "not all arguments converted during string formatting");
  return result;
}

function pad(body: string, width: number, flags: string, isLeft: boolean, type: string): string {
  const missing = width - lengthOf(body);
  if (missing <= 0) return body;
  if (isLeft || flags.includes("-")) return body + " ".repeat(missing);
  if (!flags.includes("0") || "srac".includes(type)) return " ".repeat(missing) + body;
  const sign = /^[-+ ]?(0[xXo])?/.exec(body)![0];
  return sign + "0".repeat(missing) + body.slice(sign.length);
}

function percentBody(
  rt: Runtime,
  type: string,
  flags: string,
  precision: number | undefined,
  value: Value,
): string {
  switch (type) {
    case "s":
    case "r":
    case "a": {
      const text = type === "s" ? str(rt, value) : repr(rt, value);
      return precision === undefined ? text : sliceText(text, 0, precision);
    }
    case "c":
      return typeof value === "string" ? value : String.fromCodePoint(Number(integerOf(value, "c")));
    case "d":
    case "i":
    case "u":
      return integerBody(numberOf(value, type), 10, flags, precision, "");
    case "x":
    case "X":
    case "o": {
      const body = integerBody(integerOf(value, type), type === "o" ? 8 : 16, flags, precision, type);
      return type === "X" ? body.toUpperCase() : body;
    }
    case "e":
    case "E":
    case "f":
    case "F":
    case "g":
    case "G": {
      const number = floatOf(value);
      const body = floatBody(type.toLowerCase(), Math.abs(number), precision ?? 6, flags.includes("#"));
      const signedBody = signOf(number < 0 || Object.is(number, -0), flags) + body;
      return type === type.toUpperCase() ? signedBody.toUpperCase() : signedBody;
    }
    default:
      return fail("ValueError", `unsupported format character '${type}'`);
  }
}

function signOf(isNegative: boolean, flags: string): string {
  return isNegative ? "-" : flags.includes("+") ? "+" : flags.includes(" ") ? " " : "";
}

function integerBody(
  value: bigint,
  base: number,
  flags: string,
  precision: number | undefined,
  type: string,
): string {
  const size = value < 0n ? -value : value;
  const digits = (base === 10 ? integerText(size) : size.toString(base)).padStart(precision ?? 0, "0");
  const prefix = flags.includes("#") && type !== "" ? `0${type.toLowerCase()}` : "";
  return signOf(value < 0n, flags) + prefix + digits;
}

function floatBody(type: string, size: number, precision: number, isAlternate: boolean): string {
  if (!Number.isFinite(size)) return Number.isNaN(size) ? "nan" : "inf";
  if (type === "f") return fixedText(size, precision);
  return type === "e" ? exponentialText(size, precision) : generalText(size, precision, isAlternate);
}

function integerOf(value: Value, type: string): bigint {
  const number = numeric(value);
  if (typeof number === "bigint") return number;
  return fail("TypeError", `%${type} format: an integer is required, not ${typeName(value)}`);
}

/** Operand of %d, which truncates floats. */
function numberOf(value: Value, type: string): bigint {
  const number = numeric(value);
  if (typeof number === "number") {
    if (Number.isNaN(number)) return fail("ValueError", "cannot convert float NaN to integer");
    if (!Number.isFinite(number)) return fail("OverflowError", "cannot convert float infinity to integer");
    return BigInt(Math.trunc(number));
  }
  if (number === undefined) {
    return fail("TypeError", `%${type} format: a real number is required, not ${typeName(value)}`);
  }
  return number;
}

function floatOf(value: Value): number {
  if (value instanceof Undefined) value.raise();
  const number = numeric(value);
  if (number === undefined) return fail("TypeError", `must be real number, not ${typeName(value)}`);
  return toFloat(number);
}

const specification =
  /^(?:([\s\S])([<>=^]))?([<>=^])?([-+ ])?(z)?(#)?(0)?(\d+)?([,_])?(?:\.(\d+))?([a-zA-Z%])?$/u;

/** `format(value, spec)`. */
export function formatValue(rt: Runtime, value: Value, spec: string): string {
  if (spec === "") return str(rt, value);
  const match = specification.exec(spec);
  if (match === null) return fail("ValueError", "Invalid format specifier");
  const [
    ,
    fillText,
    alignAfterFill,
    alignAlone,
    sign = "",
    ,
    alternate,
    zero,
    widthText,
    group,
    places,
    type,
  ] = match;
  const align = alignAfterFill ?? alignAlone;
  const width = Number(widthText ?? 0);
  const precision = places === undefined ? undefined : Number(places);
  rt.budget.text(width + (precision ?? 0));
  const number = numeric(value);
  if (number === undefined) {
    if (typeof value !== "string")
      fail("TypeError", `unsupported format string passed to ${typeName(value)}.__format__`);
    if (type !== undefined && type !== "s")
      fail("ValueError", `Unknown format code '${type}' for object of type 'str'`);
    if (sign !== "") fail("ValueError", "Sign not allowed in string format specifier");
    const text = precision === undefined ? value : sliceText(value, 0, precision);
    return align === "="
      ? fail("ValueError", "'=' alignment not allowed in string format specifier")
      : aligned(text, "", fillText ?? (zero ? "0" : " "), align ?? "<", width);
  }
  const isNegative = number < 0 || Object.is(number, -0);
  const flags = sign + (alternate ?? "");
  const body = numberBody(number, type, precision, alternate !== undefined);
  const fill = fillText ?? (zero ? "0" : " ");
  const side = align ?? (zero ? "=" : ">");
  const signText = signOf(isNegative, flags) + body.prefix;
  const grouped =
    group === undefined ? body.digits : grouping(body.digits, group, "xob".includes(type ?? " ") ? 4 : 3);
  return aligned(grouped, signText, fill, side, width);
}

function numberBody(
  number: bigint | number,
  type: string | undefined,
  precision: number | undefined,
  isAlternate: boolean,
): { readonly prefix: string; readonly digits: string } {
  const isFloatType = type !== undefined && "eEfFgG%".includes(type);
  if (typeof number === "bigint" && !isFloatType) {
    const size = number < 0n ? -number : number;
    const base = { x: 16, X: 16, o: 8, b: 2 }[type ?? ""];
    if (precision !== undefined) fail("ValueError", "Precision not allowed in integer format specifier");
    if (type === "c") return { prefix: "", digits: String.fromCodePoint(Number(size)) };
    if (base === undefined && type !== undefined && type !== "d" && type !== "n")
      fail("ValueError", `Unknown format code '${type}' for object of type 'int'`);
    const digits = base === undefined ? integerText(size) : size.toString(base);
    const prefix = isAlternate && base !== undefined ? `0${type}` : "";
    return { prefix, digits: type === "X" ? digits.toUpperCase() : digits };
  }
  const size = Math.abs(toFloat(number));
  if (type === undefined || type === "n") {
    if (precision === undefined)
      return {
        prefix: "",
        digits: type === undefined ? floatText(size) : floatBody("g", size, 6, isAlternate),
      };
    const general = floatBody("g", size, precision, isAlternate);
    const isWhole = type === undefined && /^\d+$/.test(general);
    return { prefix: "", digits: isWhole ? wholeWithPoint(general, precision, size) : general };
  }
  if (!isFloatType) fail("ValueError", `Unknown format code '${type}' for object of type 'float'`);
  const digits =
    type === "%"
      ? `${floatBody("f", size * 100, precision ?? 6, isAlternate)}%`
      : floatBody(type.toLowerCase(), size, precision ?? 6, isAlternate);
  return { prefix: "", digits: type === "E" || type === "F" || type === "G" ? digits.toUpperCase() : digits };
}

/** Format of a whole float without a type: at least one digit after the point, or an exponent. */
function wholeWithPoint(digits: string, precision: number, size: number): string {
  if (digits.length < precision || size === 0) return `${digits}.0`;
  return exponentialText(size, Math.max(0, precision - 1)).replace(/\.?0+e/, "e");
}

function grouping(digits: string, separator: string, size: number): string {
  const [whole = "", ...rest] = digits.split(/(?=[.e%])/);
  const groups = whole.replace(new RegExp(`\\B(?=([\\da-fA-F]{${size}})+$)`, "g"), separator);
  return groups + rest.join("");
}

function aligned(text: string, sign: string, fill: string, align: string, width: number): string {
  const missing = Math.max(0, width - lengthOf(text) - sign.length);
  switch (align) {
    case "<":
      return sign + text + fill.repeat(missing);
    case "^": {
      const left = Math.floor(missing / 2);
      return fill.repeat(left) + sign + text + fill.repeat(missing - left);
    }
    case "=":
      return sign + fill.repeat(missing) + text;
    default:
      return fill.repeat(missing) + sign + text;
  }
}
