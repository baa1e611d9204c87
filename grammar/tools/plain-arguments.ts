/** Common parts of call forms whose arguments are not JSON. */
import { ConstraintError } from "../error.ts";
import type { GrammarBuilder } from "../grammar.ts";
import { compilePattern } from "../regex/pattern.ts";
import type { Regex, Regexes } from "../regex/regexes.ts";
import { allCharacters, plainEncoding } from "../regex/text.ts";
import { patternOfFormat } from "../schema/formats.ts";
import type { MarkedTexts } from "./marked-texts.ts";

export type Schema = Readonly<Record<string, unknown>>;

/** Supported keywords of the arguments object; others with an effect are refused. */
const known = new Set(["type", "properties", "required", "additionalProperties"]);
/** Keywords with an effect that cannot be expressed argument by argument. */
const demanding = [
  ...["$ref", "$dynamicRef", "allOf", "anyOf", "oneOf", "not", "if", "then", "else", "enum", "const"],
  ...["patternProperties", "propertyNames", "minProperties", "maxProperties", "unevaluatedProperties"],
  ...["dependentRequired", "dependentSchemas", "dependencies"],
];

/** Properties of an object. */
interface ObjectSchema {
  readonly names: readonly string[];
  readonly required: readonly unknown[];
  /** True if it allows no other properties. */
  readonly isClosed: boolean;
}

/**
 * Reads the arguments schema; throws ConstraintError for unsupported parts. Adds keywords without known
 * meaning to `ignored`.
 */
export function objectOf(schema: unknown, ignored: string[]): ObjectSchema {
  if (!isObject(schema)) throw new ConstraintError("parameters must be an object", "#");
  const refused = demanding.find((word) => Object.hasOwn(schema, word));
  if (refused !== undefined) {
    throw new ConstraintError(
      `${refused} cannot be enforced in the form in which this model writes arguments`,
      `#/${refused}`,
    );
  }
  ignored.push(
    ...Object.keys(schema).filter((word) => !known.has(word) && !/^\$|^(title|description)$/.test(word)),
  );
  const { properties, required, additionalProperties } = schema;
  const names = isObject(properties) ? Object.keys(properties) : [];
  const wanted = Array.isArray(required) ? required : [];
  const missing = wanted.find((name) => !names.includes(name as string));
  if (missing !== undefined)
    throw new ConstraintError(`no property is called ${JSON.stringify(missing)}`, "#/required");
  return { names, required: wanted, isClosed: additionalProperties === false };
}

/** Matches a string written plainly, up to `closing`. */
export function plainText(
  property: Schema,
  closing: string,
  texts: MarkedTexts,
  { regexes }: GrammarBuilder,
  ignored: string[],
): Regex {
  const encoding = plainEncoding(regexes);
  // Valid characters only, since they become JSON.
  const parts = [encoding.anyText, texts.without([closing])];
  const allowed = Object.hasOwn(property, "const") ? [property.const] : property.enum;
  if (Array.isArray(allowed)) {
    const strings = allowed.filter((one) => typeof one === "string");
    parts.push(regexes.literals(strings.map(encoding.bytesOf)));
  }
  const { minLength, maxLength, pattern, format } = property;
  if (minLength !== undefined || maxLength !== undefined) {
    const [min, max] = [minLength ?? 0, maxLength ?? Number.POSITIVE_INFINITY].map(Number) as [
      number,
      number,
    ];
    parts.push(regexes.repeat(encoding.oneOf(allCharacters), min, max));
  }
  if (typeof pattern === "string") parts.push(compilePattern(regexes, pattern, encoding, "anywhere"));
  const ofFormat = typeof format === "string" ? patternOfFormat(format) : null;
  if (ofFormat !== null) parts.push(compilePattern(regexes, ofFormat, encoding, "anywhere"));
  else if (format !== undefined) ignored.push("format");
  return regexes.and(parts);
}

/** Matches the name of an undeclared argument. */
export function anyName(regexes: Regexes): Regex {
  const letters: [number, number][] = [
    [65, 90],
    [95, 95],
    [97, 122],
  ];
  const first = regexes.bytes(...letters);
  return regexes.cat(first, regexes.repeat(regexes.bytes(...letters, [48, 57]), 0, 63));
}

/** True for JSON objects. */
export function isObject(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
