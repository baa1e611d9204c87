/**
 * Constraints on an answer's text: OpenAI's response_format, vLLM's structured_outputs and guided_*,
 * llama-server's fields.
 */

import type { JsonLayout } from "../../../grammar/schema/compile-schema.ts";
import type { ConstraintSource } from "../../../grammar/source.ts";
import type { RequestedConstraint } from "../../answer/generation.ts";
import { badRequest } from "../../http/errors.ts";
import { type FieldKind, type Fields, fieldsOf, jsonIn, refusal, textKind } from "../fields.ts";
import { structuralTag } from "./structural-tag.ts";

type Reader = (fields: Fields, name: string, layout: JsonLayout) => ConstraintSource | null;

/** Readers by field; each returns null if the field demands nothing. */
const readers: Readonly<Record<string, Reader>> = {
  response_format: responseFormat,
  structured_outputs: structuredOutputs,
  guided_json: schema,
  guided_regex: pattern,
  guided_choice: choice,
  guided_grammar: grammar,
  grammar,
  ebnf: grammar,
  json_schema: schema,
  regex: pattern,
};

/**
 * The one constraint of a request; null for none. Throws 400 for several, which are not combined.
 */
export function constraintOf(fields: Fields): RequestedConstraint | null {
  const layout = layoutOf(fields);
  const found: RequestedConstraint[] = [];
  for (const [param, read] of Object.entries(readers)) {
    if (isNothing(fields.raw(param, kindOf.get(read)))) continue;
    const source = read(fields, param, layout ?? "compact");
    if (source !== null) found.push({ source, param: paramOf(fields, param) });
  }
  const [first, second] = found;
  if (first !== undefined && second !== undefined) {
    throw badRequest(`only one of ${first.param} and ${second.param} may be given`, second.param);
  }
  if (layout !== null && first?.source.kind !== "schema") {
    const name = fields.pathOf("structured_outputs");
    const given = first === undefined ? "there is none" : `${first.param} is given`;
    throw badRequest(`${name}: white space is a setting of JSON that a schema describes, but ${given}`, name);
  }
  return first ?? null;
}

/** Values that a reader accepts. Clients send an unset option as an empty text. */
const kindOf: ReadonlyMap<Reader, FieldKind> = new Map<Reader, FieldKind>([
  [responseFormat, { type: ["object", "string"] }],
  [structuredOutputs, { type: ["object", "string"] }],
  [schema, { type: ["object", "boolean", "string"] }],
  [tags, { type: ["object", "string"] }],
  [pattern, { type: "string" }],
  [grammar, { type: "string" }],
  [choice, { type: ["array", "string"], items: textKind }],
]);

/** True for a missing field and for an unset option, sent as an empty text. */
function isNothing(value: unknown): boolean {
  return value === undefined || value === "";
}

/** The constraint of a wire format's own field, or one of the fields here. Throws 400 for both. */
export function constraintBeside(
  own: RequestedConstraint | null,
  fields: Fields,
): RequestedConstraint | null {
  const other = constraintOf(fields);
  if (other !== null && own !== null)
    throw badRequest(`only one of ${own.param} and ${other.param} may be given`, other.param);
  return own ?? other;
}

/** Fields for white space in JSON. */
const layoutFields = ["disable_any_whitespace", "indent"];
const patternFields = ["whitespace_pattern", "guided_whitespace_pattern"];
const indentMax = 8;

/**
 * White space as set in `structured_outputs`, also for JSON that another field describes; null if unset.
 * Throws 400 for a white-space pattern.
 */
function layoutOf(fields: Fields): JsonLayout | null {
  const outputs = isObject(fields.taken("structured_outputs")) ? fields.object("structured_outputs")! : null;
  for (const given of outputs === null ? [fields] : [fields, outputs]) {
    const pattern = patternFields.find((name) => given.raw(name, { enum: [] }) !== undefined);
    if (pattern === undefined) continue;
    const path = given.pathOf(pattern);
    const settings = layoutFields.map((name) => `structured_outputs.${name}`).join(" and ");
    throw badRequest(`${path}: a pattern of white space is not supported, but ${settings} are`, path);
  }
  const isTight = outputs?.boolean("disable_any_whitespace") === true;
  const indent = outputs?.integer("indent", { min: 1, max: indentMax });
  if (indent === undefined) return isTight ? "tight" : null;
  if (!isTight) return { indent };
  const path = outputs!.pathOf("indent");
  throw badRequest(`${path}: there are no lines to indent with disable_any_whitespace`, path);
}

function isObject(value: unknown): boolean {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Path of the field that holds the constraint itself. */
function paramOf(fields: Fields, name: string): string {
  if (name === "response_format") {
    const isSchema = fields.object(name)?.taken("type") === "json_schema";
    return isSchema ? "response_format.json_schema.schema" : name;
  }
  if (name !== "structured_outputs") return name;
  const inner = fields.object(name)!;
  return `${name}.${Object.keys(structured).find((key) => !isNothing(inner.taken(key)))}`;
}

function responseFormat(fields: Fields, name: string, layout: JsonLayout): ConstraintSource | null {
  const format = fields.object(name)!;
  const type = format.raw("type", { enum: formatTypes });
  switch (type) {
    case "text":
      return null;
    case "json_object": {
      // llama-server's place for a schema.
      const given = format.taken("schema");
      return given === undefined ? jsonOf({ type: "object" }, layout) : schema(format, "schema", layout);
    }
    case "json_schema": {
      const described = format.object("json_schema");
      if (described === undefined) throw refusal(format.pathOf("json_schema"), "an object", undefined);
      described.string("name");
      described.string("description");
      described.boolean("strict"); // enforced in any case
      return schema(described, "schema", layout);
    }
    case "structural_tag":
      return structuralTag(format);
    default:
      throw refusal(format.pathOf("type"), "text, json_object, json_schema or structural_tag", type);
  }
}

const formatTypes = ["text", "json_object", "json_schema", "structural_tag"];

const structured: Readonly<Record<string, Reader>> = {
  json: schema,
  regex: pattern,
  choice,
  grammar,
  structural_tag: tags,
  json_object: (fields, name, layout) =>
    fields.boolean(name) === true ? jsonOf({ type: "object" }, layout) : null,
};

function structuredOutputs(fields: Fields, name: string, layout: JsonLayout): ConstraintSource | null {
  const outputs = fields.object(name)!;
  const isSet = layoutFields.filter((field) => outputs.taken(field) !== undefined).length > 0;
  const found = Object.entries(structured).filter(
    ([key, read]) => !isNothing(outputs.raw(key, kindOf.get(read))),
  );
  const [only, another] = found;
  if (another !== undefined) {
    throw badRequest(`${name} may hold one constraint only, but holds ${only![0]} and ${another[0]}`, name);
  }
  const unknown = outputs.unread();
  const isEmpty = Object.keys(structured).some((key) => outputs.has(key));
  if (only === undefined && (isSet || isEmpty) && unknown.length === 0) return null;
  if (only === undefined || unknown.length > 0) {
    const allowed = Object.keys(structured).join(", ");
    const given = unknown.length > 0 ? `but holds ${unknown.slice(0, 4).join(", ")}` : "but holds nothing";
    throw badRequest(`${name} must hold one of ${allowed}, ${given}`, name);
  }
  return only[1](outputs, only[0], layout);
}

function tags(fields: Fields, name: string): ConstraintSource {
  const given = parsed(fields, name, "a structural tag");
  return structuralTag(fieldsOf(given, fields.pathOf(name)));
}

function schema(fields: Fields, name: string, layout: JsonLayout): ConstraintSource {
  return jsonOf(parsed(fields, name, "a JSON Schema"), layout);
}

/** A JSON value, given directly or, as in vLLM, as its text. */
function parsed(fields: Fields, name: string, wanted: string): unknown {
  const given = fields.raw(name, { type: ["object", "boolean", "string"] });
  if (given === undefined) throw refusal(fields.pathOf(name), wanted, undefined);
  return typeof given === "string" ? jsonIn(given, fields.pathOf(name)) : given;
}

function jsonOf(given: unknown, layout: JsonLayout): ConstraintSource {
  return { kind: "schema", schema: given, layout };
}

function pattern(fields: Fields, name: string): ConstraintSource {
  return { kind: "regex", pattern: fields.string(name)! };
}

function grammar(fields: Fields, name: string): ConstraintSource {
  return { kind: "grammar", text: fields.string(name)! };
}

function choice(fields: Fields, name: string): ConstraintSource {
  return { kind: "choice", texts: fields.texts(name, 10_000)! };
}
