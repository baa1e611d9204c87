/** Agreement of the OpenAPI document with the parsers: it describes each field that they read and what they accept. */
import { describe, expect, test } from "bun:test";
import { join } from "node:path";
import Ajv2020 from "ajv/dist/2020.js";
import { Glob } from "bun";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import { requestFields } from "../../../tests/support/request-fields.ts";
import { ApiError } from "../../http/errors.ts";
import { withReadings } from "../fields.ts";
import { anthropicOperations, llamaOperations, ollamaOperations } from "./dialects.ts";
import { openaiOperations } from "./openai.ts";
import type { Operation } from "./operation.ts";
import { programOperations, serverOperations } from "./own.ts";
import { parrotOperations } from "./parrot.ts";
import { Components, schemaOfBody } from "./recorded.ts";
import type { Schema } from "./shapes.ts";

type Body = Readonly<Record<string, unknown>>;

const operations = Object.entries({
  ...openaiOperations,
  ...anthropicOperations,
  ...ollamaOperations,
  ...llamaOperations,
  ...programOperations,
  ...serverOperations,
  ...parrotOperations,
}).flatMap(([key, rows]) => [rows].flat().map((row) => [row.path ?? key, row as Operation] as const));

const components = new Components();
const bodies = operations.flatMap(([name, { body }]) =>
  body === undefined || "form" in body ? [] : [{ name, body, schema: schemaOfBody(body, components) }],
);
const schemas = components.schemas();

const ajv = new Ajv2020({ strict: false });

/** The schema, or the one that it refers to. */
function resolved(schema: Schema): Schema {
  const { $ref, anyOf } = schema as { readonly $ref?: string; readonly anyOf?: readonly [Schema, Schema] };
  const ref = $ref ?? anyOf?.[0].$ref;
  return typeof ref === "string" ? schemas[ref.replace(/.*\//, "")]! : schema;
}

/** The schema of an object in a body; null if there is none. */
function schemaAt(schema: Schema, path: string): Schema | null {
  let at = schema;
  for (const segment of path.match(/\[\d+\]|[^.[\]]+/g) ?? []) {
    const { properties, items, additionalProperties } = at as {
      readonly [keyword in "properties" | "items" | "additionalProperties"]?: Schema;
    };
    const inner = segment.startsWith("[")
      ? items
      : ((properties?.[segment] as Schema | undefined) ?? additionalProperties);
    if (inner === undefined) return null;
    at = resolved(inner);
  }
  return at;
}

function isDescribed(schema: Schema, path: string, name: string): boolean {
  return Object.hasOwn((schemaAt(schema, path)?.properties as object | undefined) ?? {}, name);
}

/** Names in `source` that readers of `Fields` and of queries read. */
function namesRead(source: string): string[] {
  const readers =
    /\.(?:boolean|string|requiredString|number|integer|integers|list|texts|object|entries|raw)\(\s*"([^"]+)"/g;
  const queries =
    /(?:search|query|searchParams|url)\.get\(\s*"([^"]+)"|(?:switchOf|numberOf)\(\w+, "([^"]+)"/g;
  return [readers, queries].flatMap((pattern) =>
    [...source.matchAll(pattern)].map(([, first, second]) => first ?? second!),
  );
}

test("every field that a reader names is described somewhere", async () => {
  const described = new Set<string>();
  const collect = (schema: unknown): void => {
    if (typeof schema !== "object" || schema === null) return;
    const { properties, ...others } = schema as { readonly properties?: object };
    for (const [name, inner] of Object.entries(properties ?? {})) {
      described.add(name);
      collect(inner);
    }
    for (const inner of Object.values(others)) collect(inner);
  };
  for (const { schema } of bodies) collect(schema);
  collect(schemas);
  for (const [, { query = {} }] of operations) for (const name of Object.keys(query)) described.add(name);
  const folder = join(import.meta.dir, "..");
  const lacking: string[] = [];
  for await (const path of new Glob("**/*.ts").scan(folder)) {
    // Files of programs are the operator's.
    if (/\.test\.ts$|^openapi\/|programs\/files\.ts$/.test(path)) continue;
    const names = namesRead(await Bun.file(join(folder, path)).text());
    lacking.push(...names.filter((name) => !described.has(name)).map((name) => `${path}: ${name}`));
  }
  expect(lacking).toEqual([]);
});

test("readers that the rule above looks for are those that there are", () => {
  expect(namesRead('fields.string("a"), inner.list("b", 3), search.get("c"), switchOf(query, "d")')).toEqual([
    ...["a", "b"],
    ...["c", "d"],
  ]);
});

describe.each(bodies.map((row) => [row.name, row] as const))("%s", (_, { body, schema }) => {
  const isValid = ajv.compile({ ...schema, components: { schemas } });

  test("takes its examples as described", () => {
    for (const example of body.examples)
      expect([example, isValid(example), isValid.errors]).toEqual([example, true, null]);
  });

  test("reads no field of random requests that is not described, and takes none that does not fit", () => {
    const some = fc.uniqueArray(
      fc
        .constantFrom(...Object.keys(requestFields))
        .chain((name) => fc.tuple(fc.constant(name), fc.constantFrom(...requestFields[name]!))),
      { maxLength: 4, selector: ([name]) => name },
    );
    const inOptions = fc.boolean();
    fc.assert(
      fc.property(some, inOptions, fc.constantFrom(...body.examples), (given, isInner, example) => {
        const fields = Object.fromEntries(given);
        const request: Body =
          isInner && "options" in example ? { ...example, options: fields } : { ...example, ...fields };
        const lacking: string[] = [];
        try {
          withReadings(
            (path, name) => {
              if (!isDescribed(schema, path, name)) lacking.push(`${path} ${name}`);
            },
            () => body.read(request),
          );
          expect([request, isValid(request), isValid.errors]).toEqual([request, true, null]);
        } catch (error) {
          if (!(error instanceof ApiError)) throw error;
        }
        expect(lacking).toEqual([]);
      }),
      runs(100),
    );
  }, 120_000);
});
