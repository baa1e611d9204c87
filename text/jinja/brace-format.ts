/** `str.format`: replacement fields in braces. */
import { fail } from "./errors.ts";
import { formatValue } from "./format.ts";
import { repr, str } from "./print.ts";
import type { Runtime } from "./runtime.ts";
import { or, type Value } from "./values.ts";

/** Values for the fields. */
export interface FieldSource {
  readonly positional: readonly Value[];
  named(name: string): Value | undefined;
  /** `{0.name}` and `{0[key]}`. */
  attribute(object: Value, name: string): Value;
  item(object: Value, key: Value): Value;
}

export function braceFormat(rt: Runtime, format: string, source: FieldSource): string {
  return new Formatter(rt, source).format(format, 0);
}

/** Path, conversion and specification of a field. */
const fieldParts = /^([^!:[]*(?:\[[^\]]*\][^!:[]*)*)(?:!([\s\S]))?(?::([\s\S]*))?$/;

class Formatter {
  readonly #rt: Runtime;
  readonly #source: FieldSource;
  /** Index of the next field without a name, counted in specifications too. */
  #automatic = 0;

  constructor(rt: Runtime, source: FieldSource) {
    this.#rt = rt;
    this.#source = source;
  }

  format(format: string, depth: number): string {
    if (depth > 2) return fail("ValueError", "Max string recursion exceeded");
    let result = "";
    for (let at = 0; at < format.length; ) {
      const brace = format.slice(at).search(/[{}]/);
      if (brace < 0) return this.#rt.made(result + format.slice(at));
      result += format.slice(at, at + brace);
      at += brace;
      const character = format[at]!;
      if (format[at + 1] === character) {
        result += character;
        at += 2;
        continue;
      }
      if (character === "}") return fail("ValueError", "Single '}' encountered in format string");
      const end = fieldEnd(format, at);
      result += this.#field(format.slice(at + 1, end), depth);
      at = end + 1;
    }
    return this.#rt.made(result);
  }

  #field(text: string, depth: number): string {
    const match = fieldParts.exec(text) ?? fail("ValueError", "expected ':' after conversion specifier");
    const [, path = "", conversion, spec = ""] = match;
    const [first = "", ...steps] = path.split(/(?=[.[])/);
    let value = this.#valueOf(first);
    for (const step of steps) value = this.#step(value, step);
    if (conversion === "r" || conversion === "a") value = repr(this.#rt, value);
    else if (conversion === "s") value = str(this.#rt, value);
    else if (conversion !== undefined) fail("ValueError", `Unknown conversion specifier ${conversion}`);
    return formatValue(this.#rt, value, spec.includes("{") ? this.format(spec, depth + 1) : spec);
  }

  #valueOf(name: string): Value {
    if (name !== "" && !/^\d+$/.test(name)) {
      return or(this.#source.named(name), () => fail("KeyError", `'${name}'`));
    }
    const index = name === "" ? this.#automatic++ : Number(name);
    return or(this.#source.positional[index], () =>
      fail("IndexError", `Replacement index ${index} out of range for positional args tuple`),
    );
  }

  #step(value: Value, step: string): Value {
    if (step.startsWith(".")) return this.#source.attribute(value, step.slice(1));
    const key = step.slice(1, -1);
    return this.#source.item(value, /^\d+$/.test(key) ? BigInt(key) : key);
  }
}

function fieldEnd(format: string, start: number): number {
  let depth = 0;
  for (let at = start; at < format.length; at++) {
    if (format[at] === "{") depth++;
    else if (format[at] === "}" && --depth === 0) return at;
  }
  return fail("ValueError", "expected '}' before end of string");
}
