/** Arithmetic, comparison and containment. */
import { fail } from "./errors.ts";
import { percentFormat } from "./format.ts";
import { addMarkup, asMarkup, bare, escaped } from "./markup.ts";
import { type Numeric, numeric, toFloat } from "./numbers.ts";
import type { Runtime } from "./runtime.ts";
import type { BinaryOperator, CompareOperator } from "./syntax.ts";
import { compareTexts } from "./text.ts";
import {
  Callable,
  Dict,
  DictView,
  isList,
  itemsOf,
  iterate,
  Markup,
  Namespace,
  Range,
  Tuple,
  typeName,
  Undefined,
  type Value,
} from "./values.ts";

/** Bits of any intermediate int at most. */
const bitsMax = 65_536n;

/** Joins two texts. Only the shorter one needs new memory: JavaScript shares the other. */
export function join2(rt: Runtime, left: string, right: string): string {
  rt.budget.text(left.length + right.length, Math.min(left.length, right.length));
  return left + right;
}

export function binary(rt: Runtime, operator: BinaryOperator, left: Value, right: Value): Value {
  if (typeof left === "string" && typeof right === "string" && operator === "+")
    return join2(rt, left, right);
  const a = numeric(left);
  const b = numeric(right);
  if (a !== undefined && b !== undefined) return arithmetic(operator, a, b);
  if (left instanceof Markup || right instanceof Markup) {
    const markup = markupBinary(rt, operator, left, right);
    if (markup !== undefined) return markup;
  }
  // As in Python, the left value comes first.
  if (left instanceof Undefined) left.raise();
  if (operator === "%" && typeof left === "string") return rt.made(percentFormat(rt, left, right));
  if (right instanceof Undefined) right.raise();
  if (operator === "+") {
    if (isList(left) && isList(right)) return joinedItems(rt, left, right);
    if (left instanceof Tuple && right instanceof Tuple)
      return new Tuple(joinedItems(rt, left.items, right.items));
  }
  if (operator === "*") {
    if (typeof b === "bigint") return repeated(rt, left, b) ?? unsupported(operator, left, right);
    if (typeof a === "bigint") return repeated(rt, right, a) ?? unsupported(operator, left, right);
  }
  return unsupported(operator, left, right);
}

function markupBinary(rt: Runtime, operator: BinaryOperator, left: Value, right: Value): Value | undefined {
  if (operator === "+") return addMarkup(rt, left, right);
  if (operator === "%" && left instanceof Markup) {
    const values = right instanceof Tuple ? new Tuple(right.items.map(escaped)) : escaped(right);
    return new Markup(rt.made(percentFormat(rt, left.text, values)));
  }
  const times = numeric(right) ?? numeric(left);
  if (operator !== "*" || typeof times !== "bigint") return undefined;
  return asMarkup(repeated(rt, bare(left instanceof Markup ? left : right), times)!);
}

function unsupported(operator: string, left: Value, right: Value): never {
  const shown = operator === "**" ? "** or pow()" : operator;
  if (operator === "+" && typeof left === "string")
    fail("TypeError", `can only concatenate str (not "${typeName(right)}") to str`);
  return fail(
    "TypeError",
    `unsupported operand type(s) for ${shown}: '${typeName(left)}' and '${typeName(right)}'`,
  );
}

function joinedItems(rt: Runtime, left: readonly Value[], right: readonly Value[]): Value[] {
  rt.budget.spend(left.length + right.length);
  return [...left, ...right];
}

function repeated(rt: Runtime, value: Value, times: bigint): Value | undefined {
  const count = times < 0n ? 0 : Number(times);
  if (typeof value === "string") {
    rt.budget.text(value.length * count);
    return value.repeat(value === "" ? 0 : count);
  }
  const items = itemsOf(value);
  if (items === undefined) return undefined;
  rt.budget.spend(items.length * count);
  const all: Value[] = [];
  if (items.length > 0) for (let i = 0; i < count; i++) for (const item of items) all.push(item);
  return isList(value) ? all : new Tuple(all);
}

function arithmetic(operator: BinaryOperator, a: Numeric, b: Numeric): Numeric {
  if (typeof a === "bigint" && typeof b === "bigint") return integerArithmetic(operator, a, b);
  return floatArithmetic(operator, toFloat(a), toFloat(b));
}

function integerArithmetic(operator: BinaryOperator, a: bigint, b: bigint): Numeric {
  switch (operator) {
    case "+":
      return bounded(a + b);
    case "-":
      return bounded(a - b);
    case "*":
      return bounded(a * b);
    case "/":
      return trueDivision(a, b);
    case "//":
    case "%": {
      if (b === 0n) fail("ZeroDivisionError", "integer division or modulo by zero");
      const rest = a % b;
      const isRounded = rest !== 0n && rest < 0n !== b < 0n;
      if (operator === "%") return isRounded ? rest + b : rest;
      return isRounded ? a / b - 1n : a / b;
    }
    case "**": {
      if (b < 0n) return floatArithmetic("**", toFloat(a), toFloat(b));
      const size = a < 0n ? -a : a;
      if (size > 1n && BigInt(size.toString(2).length) * b > bitsMax * 2n) tooLarge();
      return bounded(a ** b);
    }
  }
}

function trueDivision(a: bigint, b: bigint): number {
  if (b === 0n) fail("ZeroDivisionError", "division by zero");
  if (fitsFloat(a) && fitsFloat(b)) return Number(a) / Number(b);
  const isNegative = a < 0n !== b < 0n;
  const [top, bottom] = [a < 0n ? -a : a, b < 0n ? -b : b];
  // A quotient of some 70 bits, whose last bit is set if there is a remainder: rounding it once is correct.
  const shift = 70 + bottom.toString(2).length - top.toString(2).length;
  const [up, down] = [BigInt(Math.max(0, shift)), BigInt(Math.max(0, -shift))];
  const quotient = (top << up) / (bottom << down);
  const isMore = quotient * (bottom << down) !== top << up;
  const result = Number(quotient | (isMore ? 1n : 0n)) * 2 ** -shift;
  if (!Number.isFinite(result)) fail("OverflowError", "integer division result too large for a float");
  return isNegative ? -result : result;
}

function fitsFloat(value: bigint): boolean {
  return value <= 2n ** 53n && value >= -(2n ** 53n);
}

function bounded(value: bigint): bigint {
  if (value > -(2n ** 63n) && value < 2n ** 63n) return value;
  if (BigInt(value.toString(16).length) * 4n > bitsMax) tooLarge();
  return value;
}

function tooLarge(): never {
  fail("LimitError", `the chat template made an integer of more than ${bitsMax} bits`);
}

function floatArithmetic(operator: BinaryOperator, a: number, b: number): number {
  switch (operator) {
    case "+":
      return a + b;
    case "-":
      return a - b;
    case "*":
      return a * b;
    case "/":
      if (b === 0) fail("ZeroDivisionError", "float division by zero");
      return a / b;
    case "//":
    case "%": {
      if (b === 0)
        fail("ZeroDivisionError", operator === "%" ? "float modulo" : "float floor division by zero");
      return operator === "%" ? floatModulo(a, b) : floorDivision(a, b);
    }
    case "**":
      return power(a, b);
  }
}

function floatModulo(a: number, b: number): number {
  const rest = a % b;
  if (rest === 0) return b < 0 ? -0 : 0;
  return rest < 0 !== b < 0 ? rest + b : rest;
}

/** Computes from the remainder, as CPython does, so that both agree. */
function floorDivision(a: number, b: number): number {
  const rest = a % b;
  let quotient = (a - rest) / b;
  if (rest !== 0 && rest < 0 !== b < 0) quotient -= 1;
  if (quotient === 0) return a / b < 0 || Object.is(a / b, -0) ? -0 : 0;
  const floor = Math.floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

function power(a: number, b: number): number {
  if (a === 0 && b < 0) fail("ZeroDivisionError", "0.0 cannot be raised to a negative power");
  if (a === 1 || b === 0) return 1;
  if (a === -1 && !Number.isFinite(b) && !Number.isNaN(b)) return 1;
  if (a < 0 && Number.isFinite(a) && Number.isFinite(b) && !Number.isInteger(b))
    fail("LimitError", "complex numbers are not supported in chat templates");
  const result = a ** b;
  if (!Number.isFinite(result) && Number.isFinite(a) && Number.isFinite(b))
    fail("OverflowError", "(34, 'Numerical result out of range')");
  return result;
}

export function signed(sign: "+" | "-", value: Value): Value {
  if (value instanceof Undefined) value.raise();
  const number = numeric(value);
  if (number === undefined)
    return fail("TypeError", `bad operand type for unary ${sign}: '${typeName(value)}'`);
  return sign === "+" ? number : -number;
}

export function isEqual(rt: Runtime, left: Value, right: Value): boolean {
  if (left instanceof Markup || right instanceof Markup) return isEqual(rt, bare(left), bare(right));
  if (typeof left === "string") {
    return typeof right === "string" && (left === right || rt.plain(left) === rt.plain(right));
  }
  const a = numeric(left);
  if (a !== undefined) {
    const b = numeric(right);
    // biome-ignore lint/suspicious/noDoubleEquals: an int and a float are compared by value.
    return b !== undefined && a == b;
  }
  if (left === right) return true;
  rt.budget.spend(1);
  if (left instanceof Undefined) return right instanceof Undefined;
  if (isList(left)) return isList(right) && areEqual(rt, left, right);
  if (left instanceof Tuple) return right instanceof Tuple && areEqual(rt, left.items, right.items);
  if (left instanceof Dict) return right instanceof Dict && areEqualDicts(rt, left, right);
  if (left instanceof Range)
    return right instanceof Range && areEqual(rt, [...iterate(left)], [...iterate(right)]);
  return false;
}

function areEqual(rt: Runtime, left: readonly Value[], right: readonly Value[]): boolean {
  return left.length === right.length && left.every((item, index) => isEqual(rt, item, right[index]!));
}

function areEqualDicts(rt: Runtime, left: Dict, right: Dict): boolean {
  if (left.size !== right.size) return false;
  for (const [key, value] of left.entries()) {
    const other = right.get(key);
    if (other === undefined || !isEqual(rt, value, other)) return false;
  }
  return true;
}

type Ordering = "<" | "<=" | ">" | ">=";

export function isOrdered(rt: Runtime, operator: Ordering, left: Value, right: Value): boolean {
  if (left instanceof Markup || right instanceof Markup)
    return isOrdered(rt, operator, bare(left), bare(right));
  if (typeof left === "string" && typeof right === "string") {
    return holds(operator, compareTexts(rt.plain(left), rt.plain(right)), 0);
  }
  const a = numeric(left);
  const b = numeric(right);
  if (a !== undefined && b !== undefined) return holds(operator, a, b);
  if (left instanceof Undefined) left.raise();
  if (right instanceof Undefined) right.raise();
  const isPair = (isList(left) && isList(right)) || (left instanceof Tuple && right instanceof Tuple);
  if (isPair) return isOrderedItems(rt, operator, itemsOf(left)!, itemsOf(right)!);
  return fail(
    "TypeError",
    `'${operator}' not supported between instances of '${typeName(left)}' and '${typeName(right)}'`,
  );
}

function isOrderedItems(
  rt: Runtime,
  operator: Ordering,
  left: readonly Value[],
  right: readonly Value[],
): boolean {
  rt.budget.spend(1);
  for (let i = 0; i < Math.min(left.length, right.length); i++) {
    if (!isEqual(rt, left[i]!, right[i]!)) return isOrdered(rt, operator, left[i]!, right[i]!);
  }
  return holds(operator, left.length, right.length);
}

function holds(operator: Ordering, a: Numeric, b: Numeric): boolean {
  switch (operator) {
    case "<":
      return a < b;
    case "<=":
      return a <= b;
    case ">":
      return a > b;
    case ">=":
      return a >= b;
  }
}

export function contains(rt: Runtime, container: Value, wanted: Value): boolean {
  if (container instanceof Markup || wanted instanceof Markup)
    return contains(rt, bare(container), bare(wanted));
  if (typeof container === "string") {
    if (typeof wanted !== "string")
      return fail("TypeError", `'in <string>' requires string as left operand, not ${typeName(wanted)}`);
    return rt.plain(container).includes(rt.plain(wanted));
  }
  if (container instanceof Dict) return container.has(wanted);
  if (container instanceof DictView && container.kind === "dict_keys") return container.dict.has(wanted);
  if (
    container instanceof Callable ||
    container instanceof Namespace ||
    numeric(container) !== undefined ||
    container === null
  )
    return fail("TypeError", `argument of type '${typeName(container)}' is not iterable`);
  for (const item of iterate(container)) {
    rt.budget.spend(1);
    if (isEqual(rt, item, wanted)) return true;
  }
  return false;
}

export function compare(rt: Runtime, operator: CompareOperator, left: Value, right: Value): boolean {
  switch (operator) {
    case "==":
      return isEqual(rt, left, right);
    case "!=":
      return !isEqual(rt, left, right);
    case "in":
      return contains(rt, right, left);
    case "not in":
      return !contains(rt, right, left);
    default:
      return isOrdered(rt, operator, left, right);
  }
}
