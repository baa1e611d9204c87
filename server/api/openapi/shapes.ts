/** JSON Schemas in short notation. */

export interface Schema {
  readonly [keyword: string]: unknown;
}

export const text: Schema = { type: "string" };
export const count: Schema = { type: "integer", minimum: 0 };
export const number: Schema = { type: "number" };
export const flag: Schema = { type: "boolean" };
export const anything: Schema = {};

/** An object. A name that ends in `?` may be missing. */
export function shape(fields: Readonly<Record<string, Schema>>): Schema {
  const names = Object.keys(fields);
  const required = names.filter((name) => !name.endsWith("?"));
  return {
    type: "object",
    properties: Object.fromEntries(names.map((name) => [name.replace(/\?$/, ""), fields[name]])),
    ...(required.length === 0 ? {} : { required }),
  };
}

/** Fields that are counts. */
export function counted(...names: readonly string[]): Readonly<Record<string, Schema>> {
  return Object.fromEntries(names.map((name) => [name, count]));
}

export function listOf(items: Schema): Schema {
  return { type: "array", items };
}

/** An object whose keys are names of any kind. */
export function mapOf(values: Schema): Schema {
  return { type: "object", additionalProperties: values };
}

export function nullable(schema: Schema): Schema {
  return { anyOf: [schema, { type: "null" }] };
}

export function oneOf(...values: readonly unknown[]): Schema {
  return { enum: values };
}

export function either(...schemas: readonly Schema[]): Schema {
  return { anyOf: schemas };
}

/** Reference to a named schema of the OpenAPI document. */
export function refTo(component: string): Schema {
  return { $ref: `#/components/schemas/${component}` };
}
