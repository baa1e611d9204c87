/** str() and repr(). */
import { fail } from "./errors.ts";
import { digitsMax, floatText } from "./numbers.ts";
import type { Runtime } from "./runtime.ts";
import {
  Callable,
  Dict,
  DictView,
  isList,
  iterate,
  Lazy,
  Markup,
  Namespace,
  Range,
  Tuple,
  Undefined,
  type Value,
} from "./values.ts";

export function str(rt: Runtime, value: Value): string {
  if (typeof value === "string") return value;
  if (value instanceof Markup) return value.text;
  if (value instanceof Undefined) return "";
  return repr(rt, value);
}

export function repr(rt: Runtime, value: Value): string {
  if (value === null) return "None";
  switch (typeof value) {
    case "string":
      return rt.made(quoted(value));
    case "boolean":
      return value ? "True" : "False";
    case "bigint":
      return integerText(value);
    case "number":
      return floatText(value);
  }
  rt.budget.spend(1);
  if (isList(value)) return `[${list(rt, value)}]`;
  if (value instanceof Tuple) return `(${list(rt, value.items)}${value.items.length === 1 ? "," : ""})`;
  if (value instanceof Dict) return dict(rt, value);
  if (value instanceof DictView) return `${value.kind}([${list(rt, [...iterate(value)])}])`;
  if (value instanceof Range) {
    const stop = value.start + value.step * BigInt(value.length);
    return `range(${value.start}, ${stop}${value.step === 1n ? "" : `, ${value.step}`})`;
  }
  if (value instanceof Undefined) return "Undefined";
  if (value instanceof Markup) return `Markup(${quoted(value.text)})`;
  if (value instanceof Namespace) return `<Namespace ${dict(rt, value.attributes)}>`;
  if (value instanceof Lazy) return `<${value.typeName} object>`;
  return value instanceof Callable && value.typeName === "Macro"
    ? `<Macro '${value.name}'>`
    : `<${value.typeName} ${value.name}>`;
}

export function integerText(value: bigint): string {
  const text = String(value);
  if (text.length > digitsMax) {
    fail("ValueError", `Exceeds the limit (${digitsMax} digits) for integer string conversion`);
  }
  return text;
}

function list(rt: Runtime, items: readonly Value[]): string {
  return joined(
    rt,
    items.map((item) => repr(rt, item)),
  );
}

function dict(rt: Runtime, value: Dict): string {
  return `{${joined(
    rt,
    [...value.entries()].map(([key, item]) => `${repr(rt, key)}: ${repr(rt, item)}`),
  )}}`;
}

function joined(rt: Runtime, parts: readonly string[]): string {
  rt.budget.text(parts.reduce((sum, part) => sum + part.length + 2, 2));
  return parts.join(", ");
}

const escapes: Readonly<Record<string, string>> = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };
const unprintable = /[\\\n\r\t]|[\p{C}\p{Z}]/gu;

/** Quotes a text as Python does. */
function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const body = text.replace(unprintable, (character) => {
    const known = escapes[character];
    if (known !== undefined || character === " ") return known ?? character;
    const code = character.codePointAt(0)!;
    if (code < 0x100) return `\\x${code.toString(16).padStart(2, "0")}`;
    return code < 0x10000
      ? `\\u${code.toString(16).padStart(4, "0")}`
      : `\\U${code.toString(16).padStart(8, "0")}`;
  });
  return quote + (quote === "'" ? body.replaceAll("'", "\\'") : body) + quote;
}
