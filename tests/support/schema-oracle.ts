import Ajv from "ajv";
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import { patternOfFormat } from "../../grammar/schema/formats.ts";

const options = { strict: false, allErrors: false, logger: false } as const;
const recent = withDecimalMultiples(addFormats.default(new Ajv2020(options)));
const older = withDecimalMultiples(addFormats.default(new Ajv(options)));

/** Makes Ajv check `multipleOf` in decimal; in floating point, 8504.37 is no multiple of 0.01. */
function withDecimalMultiples(ajv: Ajv): Ajv {
  ajv.removeKeyword("multipleOf");
  ajv.addKeyword({
    ...{ keyword: "multipleOf", type: "number", schemaType: "number" },
    validate: (step: number, value: number) => {
      const [a, b] = [decimalOf(value), decimalOf(step)];
      const exponent = Math.min(a.exponent, b.exponent);
      const scaled = (one: typeof a): bigint => one.digits * 10n ** BigInt(one.exponent - exponent);
      return scaled(a) % scaled(b) === 0n;
    },
  });
  return ajv;
}

/** Decimal as digits × 10^exponent. */
function decimalOf(value: number): { readonly digits: bigint; readonly exponent: number } {
  const [mantissa, power = "0"] = String(value).split("e") as [string, string?];
  const [whole, part = ""] = mantissa.split(".") as [string, string?];
  return { digits: BigInt(whole + part), exponent: Number(power) - part.length };
}

/** True if a JSON Schema allows a value, by Ajv: draft 7 if the schema says so, else 2020-12. */
export function allows(schema: unknown, value: unknown): boolean {
  const isOlder =
    typeof schema === "object" &&
    schema !== null &&
    "$schema" in schema &&
    String(schema.$schema).includes("-07");
  return (isOlder ? older : recent).validate(schema as object, value);
}

/**
 * Parses a JSON text. Null if a number has more digits than floating point holds, since Ajv would judge
 * another value.
 */
export function judgeable(text: string): { readonly value: Json } | null {
  const outside = text.replaceAll(/"(?:[^"\\]|\\.)*"/g, "");
  const isLong = (outside.match(/[\d.]+/g) ?? []).some(
    (number) => number.replaceAll(/^[0.]+|\./g, "").length > 15,
  );
  return isLong ? null : { value: JSON.parse(text) as Json };
}

export type Json = null | boolean | number | string | Json[] | { [name: string]: Json };
export type Holder = Json[] | { [name: string]: Json };

/** Returns every place in the value: its parent and its name there. */
export function placesOf(
  value: Json,
  into: (readonly [Holder, string])[] = [],
): (readonly [Holder, string])[] {
  if (typeof value !== "object" || value === null) return into;
  for (const [name, one] of Object.entries(value)) {
    into.push([value, name]);
    placesOf(one, into);
  }
  return into;
}

/**
 * Removes the parts of a schema that Ajv and JSON Schema treat differently. Ajv accepts each `$id` once and
 * no `id`, has no draft 4 here, and knows more formats.
 */
export function forgetDifferences(schema: Json): void {
  for (const [holder, name] of placesOf(schema)) {
    const at = holder as { [name: string]: Json };
    const word = at[name];
    // Otherwise it is the schema of a property of that name.
    if (typeof word !== "string") continue;
    const isForeign = name === "format" && patternOfFormat(word) === null;
    if (name === "$id" || name === "id" || name === "$schema" || isForeign) delete at[name];
  }
}

/** True if a published schema allows a value, by Ajv. Null: Ajv does not accept the schema. */
export function allowsReal(schema: Json, value: unknown): boolean | null {
  const known = structuredClone(schema);
  forgetDifferences(known);
  const isOlder = /"\$schema": *"[^"]*draft-0[3-7]/.test(JSON.stringify(schema));
  try {
    return (isOlder ? older : recent).validate(known as object, value);
  } catch {
    return null;
  }
}
