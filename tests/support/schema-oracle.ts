/** JSON Schema as its specification says it, for values that are there: slow, plain, and none of the server's code. */

type Schema = boolean | { readonly [keyword: string]: unknown };

const formats: Readonly<Record<string, (text: string) => boolean>> = {
  date: (text) => {
    const time = Date.parse(`${text}T00:00:00Z`);
    return (
      /^\d{4}-\d{2}-\d{2}$/.test(text) && !Number.isNaN(time) && new Date(time).toISOString().startsWith(text)
    );
  },
  email: (text) => /^[^@\s]+@[a-z0-9-]+(\.[a-z0-9-]+)+$/i.test(text),
};

/** Whether the schema allows the value. Throws for a keyword that it does not know. */
export function allows(schema: Schema, value: unknown, root: Schema = schema): boolean {
  if (typeof schema === "boolean") return schema;
  return Object.entries(schema).every(([keyword, wanted]) => {
    const check = checks[keyword];
    if (check === undefined) throw new Error(`the oracle does not know ${keyword}`);
    return check({ wanted, value, schema, holds: (inner, of) => allows(inner, of, root), root });
  });
}

interface Claim {
  readonly wanted: unknown;
  readonly value: unknown;
  readonly schema: { readonly [keyword: string]: unknown };
  readonly root: Schema;
  holds(schema: Schema, value: unknown): boolean;
}

type Check = (claim: Claim) => boolean;

const ofString = (check: (text: string, wanted: never) => boolean): Check => {
  return ({ value, wanted }) => typeof value !== "string" || check(value, wanted as never);
};
const ofNumber = (check: (number: number, wanted: number) => boolean): Check => {
  return ({ value, wanted }) => typeof value !== "number" || check(value, wanted as number);
};
const ofArray = (check: (items: unknown[], claim: Claim) => boolean): Check => {
  return (claim) => !Array.isArray(claim.value) || check(claim.value, claim);
};
const ofObject = (check: (entries: [string, unknown][], claim: Claim) => boolean): Check => {
  return (claim) => {
    const { value } = claim;
    const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
    return !isObject || check(Object.entries(value), claim);
  };
};
const isEqual = (a: unknown, b: unknown): boolean => JSON.stringify(a) === JSON.stringify(b);
const some = (wanted: unknown): Schema[] => wanted as Schema[];

const checks: Readonly<Record<string, Check>> = {
  $defs: () => true,
  $ref: ({ wanted, value, root, holds }) => {
    let target: unknown = root;
    for (const step of (wanted as string).split("/").slice(1))
      target = (target as Record<string, unknown>)[step];
    return holds(target as Schema, value);
  },
  type: ({ wanted, value }) =>
    (Array.isArray(wanted) ? wanted : [wanted]).some((type) => typesOf(value).includes(type)),
  enum: ({ wanted, value }) => (wanted as unknown[]).some((one) => isEqual(one, value)),
  const: ({ wanted, value }) => isEqual(wanted, value),
  anyOf: ({ wanted, value, holds }) => some(wanted).some((one) => holds(one, value)),
  allOf: ({ wanted, value, holds }) => some(wanted).every((one) => holds(one, value)),
  oneOf: ({ wanted, value, holds }) => some(wanted).filter((one) => holds(one, value)).length === 1,
  not: ({ wanted, value, holds }) => !holds(wanted as Schema, value),
  minLength: ofString((text, min) => [...text].length >= min),
  maxLength: ofString((text, max) => [...text].length <= max),
  pattern: ofString((text, pattern) => new RegExp(pattern, "u").test(text)),
  format: ofString((text, format) => formats[format]!(text)),
  minimum: ofNumber((number, min) => number >= min),
  maximum: ofNumber((number, max) => number <= max),
  exclusiveMinimum: ofNumber((number, min) => number > min),
  exclusiveMaximum: ofNumber((number, max) => number < max),
  multipleOf: ofNumber((number, step) => Number.isInteger(number / step)),
  minItems: ofArray((items, { wanted }) => items.length >= (wanted as number)),
  maxItems: ofArray((items, { wanted }) => items.length <= (wanted as number)),
  uniqueItems: ofArray((items) => new Set(items.map((item) => JSON.stringify(item))).size === items.length),
  prefixItems: ofArray((items, { wanted, holds }) =>
    some(wanted).every((schema, index) => index >= items.length || holds(schema, items[index])),
  ),
  items: ofArray((items, { wanted, schema, holds }) =>
    items.slice(some(schema.prefixItems ?? []).length).every((item) => holds(wanted as Schema, item)),
  ),
  required: ofObject((entries, { wanted }) =>
    (wanted as string[]).every((name) => entries.some(([key]) => key === name)),
  ),
  minProperties: ofObject((entries, { wanted }) => entries.length >= (wanted as number)),
  maxProperties: ofObject((entries, { wanted }) => entries.length <= (wanted as number)),
  properties: ofObject((entries, { wanted, holds }) =>
    entries.every(([key, value]) => {
      const schemas = wanted as Record<string, Schema>;
      return !Object.hasOwn(schemas, key) || holds(schemas[key]!, value);
    }),
  ),
  additionalProperties: ofObject((entries, { wanted, schema, holds }) =>
    entries.every(
      ([key, value]) =>
        Object.hasOwn((schema.properties ?? {}) as object, key) || holds(wanted as Schema, value),
    ),
  ),
};

function typesOf(value: unknown): string[] {
  if (value === null) return ["null"];
  if (Array.isArray(value)) return ["array"];
  if (typeof value === "number") return Number.isInteger(value) ? ["number", "integer"] : ["number"];
  return [typeof value];
}
