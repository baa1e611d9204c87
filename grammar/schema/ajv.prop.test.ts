/**
 * Random schemas compared with Ajv: the grammar allows no value that Ajv rejects. Longer runs:
 * PROPERTY_TIMES=10 and more.
 */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { acceptsInAnyOrder } from "../../tests/support/any-order.ts";
import { drawnAnswer } from "../../tests/support/drawn-answer.ts";
import { runs } from "../../tests/support/property.ts";
import { allows, judgeable } from "../../tests/support/schema-oracle.ts";
import { compileConstraint } from "../compile.ts";
import { ConstraintError } from "../error.ts";
import type { Grammar } from "../grammar.ts";
import { Parser } from "../parser/parser.ts";
import { Regexes } from "../regex/regexes.ts";

const small = fc.integer({ min: -3, max: 12 });
const size = fc.integer({ min: 0, max: 3 });
const optional = <Value>(arbitrary: fc.Arbitrary<Value>): fc.Arbitrary<Value | undefined> =>
  fc.option(arbitrary, { nil: undefined, freq: 1 });

/** Arbitrary object without undefined values. */
function object(model: Record<string, fc.Arbitrary<unknown>>): fc.Arbitrary<object> {
  return fc
    .record(model)
    .map((given) => Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined)));
}

const key = fc.constantFrom("a", "b", "ab", "c");
const text = fc.string({ unit: fc.constantFrom("a", "b", "1", "é", '"', " "), maxLength: 4 });
const number = fc.oneof(small, fc.constantFrom(0.5, 1.5, -2.25, 100, 1000));
const value = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: "small" },
    fc.constantFrom(null, true, false),
    text,
    number,
    fc.array(tie("value"), { maxLength: 3 }),
    fc.dictionary(key, tie("value"), { maxKeys: 3, noNullPrototype: true }),
  ),
})).value;

const stringOf = (one: unknown): string => JSON.stringify(one);

const pattern = fc.constantFrom("^a", "b$", "^[ab]*$", "1", "^.{2}$", "a|é");
/** Item schemas with unbounded or large value sets, and some that run out of distinct values. */
const distinctItem = fc.oneof(
  object({
    type: fc.constant("string"),
    minLength: optional(size),
    maxLength: optional(size),
    pattern: optional(pattern),
  }),
  fc.constantFrom<object>(
    { type: "string", pattern: "^[ab]{0,3}$" },
    { type: "string", pattern: "^(a|ab|b[ab])$" },
    { type: ["string", "null", "boolean"], maxLength: 1 },
    { type: "integer" },
    { type: "integer", minimum: 1, maximum: 20 },
    { type: "number" },
    { type: ["number", "string"], maxLength: 2 },
    { anyOf: [{ enum: [1, 1.5, "a", null] }, { type: "number", minimum: 0 }] },
    { type: "string", format: "date" },
  ),
);
const set = object({
  type: fc.constant("array"),
  items: distinctItem,
  uniqueItems: fc.constant(true),
  minItems: optional(size),
  maxItems: optional(fc.integer({ min: 2, max: 5 })),
});
/** Alternative sets over the same items, sets within objects, and lists of the same items. */
const sets = fc.oneof(
  { weight: 3, arbitrary: set },
  fc
    .tuple(set, distinctItem)
    .map(([a, items]) => ({ anyOf: [a, { type: "array", items, minItems: 3, maxItems: 4 }] })),
  fc.tuple(set, set).map(([a, b]) => ({ anyOf: [a, b] })),
  set.map((items) => ({ type: "array", items, minItems: 1, maxItems: 3 })),
  set.map((a) => ({ type: "object", additionalProperties: a, minProperties: 1, maxProperties: 2 })),
);
const schema = fc.letrec<{ schema: unknown }>((tie) => ({
  schema: fc.oneof(
    { depthSize: "small" },
    fc.constantFrom<unknown>(true, {}, { type: "boolean" }, { type: "null" }, { type: ["string", "null"] }),
    object({
      type: fc.constantFrom("integer", "number"),
      minimum: optional(small),
      exclusiveMaximum: optional(small),
      multipleOf: optional(fc.constantFrom(1, 2, 3, 0.5)),
    }),
    object({
      type: fc.constant("string"),
      minLength: optional(size),
      maxLength: optional(size),
      pattern: optional(pattern),
    }),
    fc.record({ enum: fc.array(value, { minLength: 1, maxLength: 4 }) }),
    fc.record({ const: value }),
    object({
      type: fc.constant("array"),
      items: optional(tie("schema")),
      prefixItems: optional(fc.array(tie("schema"), { minLength: 1, maxLength: 2 })),
      minItems: optional(size),
      maxItems: optional(size),
    }),
    object({
      type: fc.constant("array"),
      contains: tie("schema"),
      minContains: optional(size),
      maxContains: optional(size),
      maxItems: optional(size),
    }),
    fc.record({
      type: fc.constant("array"),
      items: fc.record({ enum: fc.uniqueArray(value, { minLength: 1, maxLength: 4, selector: stringOf }) }),
      uniqueItems: fc.constant(true),
    }),
    set,
    object({
      type: fc.constantFrom("object", "object", undefined),
      properties: optional(fc.dictionary(key, tie("schema"), { maxKeys: 3, noNullPrototype: true })),
      required: optional(fc.uniqueArray(key, { maxLength: 2 })),
      additionalProperties: optional(fc.oneof(fc.constant(false), tie("schema"))),
      patternProperties: optional(
        fc.dictionary(fc.constantFrom("^a", "b"), tie("schema"), { maxKeys: 1, noNullPrototype: true }),
      ),
      propertyNames: optional(fc.constantFrom({ maxLength: 1 }, { pattern: "^a" }, { enum: ["b", "c"] })),
      minProperties: optional(size),
      maxProperties: optional(size),
    }),
    object({
      type: fc.constant("object"),
      properties: optional(fc.dictionary(key, tie("schema"), { maxKeys: 2, noNullPrototype: true })),
      dependentRequired: optional(
        fc.dictionary(key, fc.uniqueArray(key, { maxLength: 2 }), { maxKeys: 1, noNullPrototype: true }),
      ),
      dependentSchemas: optional(fc.dictionary(key, tie("schema"), { maxKeys: 1, noNullPrototype: true })),
    }),
    fc.record({ anyOf: fc.array(tie("schema"), { minLength: 1, maxLength: 3 }) }),
    fc.record({ oneOf: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }) }),
    fc.record({ allOf: fc.array(tie("schema"), { minLength: 1, maxLength: 2 }) }),
    fc.record({ not: tie("schema") }),
    // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema
    object({ if: tie("schema"), then: optional(tie("schema")), else: optional(tie("schema")) }),
  ),
})).schema;

/** Two schemas that refer to each other and to themselves. */
const recursive = fc.tuple(schema, schema).map(([a, b]) => ({
  $ref: "#/$defs/a",
  $defs: { a: { anyOf: [a, tie("b")] }, b: { anyOf: [b, tie("a")] } },
}));
function tie(name: string): object {
  const of = { $ref: `#/$defs/${name}` };
  return { type: ["array", "object"], items: of, additionalProperties: of, maxItems: 2, maxProperties: 2 };
}

/** Compiles a schema; null: refused, or too much work. */
function compiled(source: unknown): Grammar | null {
  try {
    return compileConstraint({ kind: "schema", schema: source, layout: "compact" }).grammar;
  } catch (error) {
    if (error instanceof ConstraintError) return null;
    throw error;
  }
}

test("a schema that compiles allows what Ajv says that it allows", () => {
  fc.assert(
    fc.property(
      fc.oneof({ arbitrary: schema, weight: 4 }, recursive),
      fc.array(value, { minLength: 1, maxLength: 12 }),
      (source, instances) => {
        const grammar = compiled(source);
        if (grammar === null) return;
        const parser = Parser.of(grammar, new Regexes());
        for (const instance of instances) {
          expect([instance, acceptsInAnyOrder(parser, instance)]).toEqual([
            instance,
            allows(source, instance),
          ]);
        }
      },
    ),
    runs(150),
  );
});

/** Draws an answer for each schema; Ajv must allow all of them. Returns the number of completed answers. */
function drawnAnswers(sources: fc.Arbitrary<unknown>, count: number): number {
  let finished = 0;
  fc.assert(
    fc.property(sources, fc.infiniteStream(fc.nat(1_000_000)), (source, numbers) => {
      const grammar = compiled(source);
      if (grammar === null) return;
      const answer = drawnAnswer(grammar, () => numbers.next().value!);
      const judged = answer === null ? null : judgeable(answer);
      if (judged === null) return;
      finished++;
      expect([answer, allows(source, judged.value)]).toEqual([answer, true]);
    }),
    runs(count),
  );
  return finished;
}

test("a schema of sets allows what Ajv says that it allows", () => {
  const few = fc.array(fc.oneof(fc.constantFrom("", "a", "b", "ab", "aa", 1, 1.5, null, true), value), {
    maxLength: 5,
  });
  const given = fc.oneof(
    few,
    fc.array(few, { maxLength: 3 }),
    fc.dictionary(key, few, { maxKeys: 2, noNullPrototype: true }),
  );
  fc.assert(
    fc.property(sets, fc.array(given, { minLength: 1, maxLength: 12 }), (source, instances) => {
      const grammar = compiled(source);
      if (grammar === null) return;
      const parser = Parser.of(grammar, new Regexes());
      for (const instance of instances)
        expect([instance, acceptsInAnyOrder(parser, instance)]).toEqual([instance, allows(source, instance)]);
    }),
    runs(60),
  );
});

test("every answer of sets that is drawn at random and ends is valid by Ajv", () => {
  expect(drawnAnswers(sets, 50)).toBeGreaterThan(20);
});

test("every answer that is drawn at random and ends is valid by Ajv", () => {
  expect(drawnAnswers(schema, 100)).toBeGreaterThan(30);
});

test.each([
  ...["date", "time", "date-time", "duration", "uuid", "ipv4", "ipv6", "hostname", "email", "uri", "regex"],
])("every text of the format %s that is drawn at random is valid by Ajv", (format) => {
  expect(drawnAnswers(fc.constant({ type: "string", format }), 20)).toBeGreaterThan(0);
});
