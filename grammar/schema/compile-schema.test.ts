import { describe, expect, test } from "bun:test";
import { compileConstraint } from "../compile.ts";
import { ConstraintError } from "../error.ts";
import { Parser, type ParseState } from "../parser/parser.ts";
import { Regexes } from "../regex/regexes.ts";
import type { JsonLayout } from "./compile-schema.ts";

function compile(schema: unknown, layout: JsonLayout = "compact"): (text: string) => boolean {
  const { grammar } = compileConstraint({ kind: "schema", schema, layout });
  const parser = Parser.of(grammar, new Regexes());
  return (text) => {
    let state: ParseState | null = parser.start;
    for (const byte of new TextEncoder().encode(text)) {
      state = parser.next(state, byte);
      if (state === null) return false;
    }
    return state.mayEnd;
  };
}

/** Cases by schema: allowed values, and values that are not. */
const cases: readonly {
  readonly name: string;
  readonly schema: unknown;
  readonly yes: unknown[];
  readonly no: unknown[];
}[] = [
  {
    name: "objects have their properties in order, the required ones, and others after them",
    schema: {
      type: "object",
      properties: { a: { type: "integer" }, b: { type: "string" } },
      required: ["b"],
    },
    yes: [{ a: 1, b: "x" }, { b: "" }, { b: "x", c: [1, { d: null }] }],
    no: [{ a: 1 }, { a: "1", b: "x" }, {}, [], { b: 1 }],
  },
  {
    name: "closed objects have no others",
    schema: { properties: { a: true, b: {} }, additionalProperties: false, type: "object" },
    yes: [{}, { a: 1 }, { b: 2 }, { a: null, b: [] }],
    no: [{ c: 1 }, { a: 1, c: 1 }],
  },
  {
    name: "names by patterns, each with all conditions that it meets",
    schema: {
      type: "object",
      patternProperties: { "^n": { type: "number" }, x$: { minimum: 5 } },
      additionalProperties: { type: "string" },
      propertyNames: { maxLength: 3 },
    },
    yes: [{ n: 1 }, { nx: 5 }, { q: "s" }, { ax: "not a number" }],
    no: [{ n: "1" }, { nx: 4 }, { q: 1 }, { long: "s" }],
  },
  {
    name: "properties are counted",
    schema: {
      type: "object",
      properties: { a: {}, b: {}, c: {} },
      additionalProperties: false,
      minProperties: 1,
      maxProperties: 2,
    },
    yes: [{ a: 1 }, { c: 1 }, { a: 1, c: 1 }],
    no: [{}, { a: 1, b: 1, c: 1 }],
  },
  {
    name: "tuples, and items after them",
    schema: {
      type: "array",
      prefixItems: [{ type: "integer" }, { type: "boolean" }],
      items: { type: "null" },
      minItems: 1,
      maxItems: 4,
    },
    yes: [[1], [1, true], [1, false, null, null]],
    no: [[], [true], [1, true, 1], [1, true, null, null, null]],
  },
  {
    name: "arrays that contain",
    schema: {
      type: "array",
      contains: { const: 1 },
      minContains: 2,
      items: { type: "integer" },
      maxItems: 4,
    },
    yes: [
      [1, 1],
      [2, 1, 3, 1],
    ],
    no: [[], [1], [1, 2, 3], [1, 1, 1, 1, 1]],
  },
  {
    name: "few values, each once",
    schema: { type: "array", items: { enum: ["a", "b", 3] }, uniqueItems: true, minItems: 1 },
    yes: [["a"], [3, "a", "b"]],
    no: [[], ["a", "a"], ["a", "b", "a"]],
  },
  {
    name: "ten values, each once",
    schema: { type: "array", items: { type: "integer", minimum: 1, maximum: 10 }, uniqueItems: true },
    yes: [[], [10, 9, 8, 7, 6, 5, 4, 3, 2, 1], [1, 10]],
    no: [[1, 1], [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 1], [11]],
  },
  {
    name: "many values, two of them at most, each once",
    schema: {
      ...{ type: "array", uniqueItems: true, maxItems: 2 },
      items: { enum: Array.from({ length: 44 }, (_, index) => `v${index}`) },
    },
    yes: [[], ["v43"], ["v40", "v4"]],
    no: [
      ["v4", "v4"],
      ["v1", "v2", "v3"],
    ],
  },
  {
    name: "booleans and null, each once",
    schema: { type: "array", items: { type: ["boolean", "null"] }, uniqueItems: true, minItems: 2 },
    yes: [
      [true, false],
      [null, false, true],
    ],
    no: [[true], [true, true], [null, true, null]],
  },
  {
    name: "strings of any text, each once",
    schema: { type: "array", items: { type: "string" }, uniqueItems: true, minItems: 2 },
    yes: [["a", "ab"], ["", "\n", '"', "a", "é"], Array.from({ length: 64 }, (_, index) => `v${index}`)],
    no: [
      ["a"],
      ["a", "a"],
      ["\n", "a", "\n"],
      ["é", "b", "é"],
      [1, "a"],
      Array.from({ length: 65 }, (_, index) => `v${index}`),
    ],
  },
  {
    name: "strings of a pattern, each once",
    schema: { type: "array", items: { type: "string", pattern: "^[ab]{2}$" }, uniqueItems: true },
    yes: [[], ["aa", "ab", "ba", "bb"]],
    no: [["aa", "aa"], ["aa", "ab", "ba", "bb", "aa"], ["a"]],
  },
  {
    name: "numbers and strings, each once",
    schema: { type: "array", items: { type: ["number", "string"] }, uniqueItems: true },
    yes: [[1, 1.5, "1", -1, 0, 100]],
    no: [
      [1, 1],
      [1.5, "a", 1.5],
      [0, -1, 0],
    ],
  },
  {
    name: "sets in a list, each by itself",
    schema: { type: "array", items: { type: "array", items: { type: "string" }, uniqueItems: true } },
    yes: [[["a"], ["a", "b"], [], ["a"]]],
    no: [[["a", "a"]], [["a"], ["b", "a", "b"]]],
  },
  {
    name: "eleven values, each once",
    schema: {
      type: "array",
      items: { type: "integer", minimum: 1, maximum: 11 },
      uniqueItems: true,
      minItems: 11,
    },
    yes: [[11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]],
    no: [
      [1, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
      [11, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10],
    ],
  },
  {
    name: "one text, which differs from all others",
    schema: { type: "array", items: { type: "string" }, uniqueItems: true, maxItems: 1 },
    yes: [[], ["any"]],
    no: [["a", "b"], [1]],
  },
  {
    name: "strings by pattern, length and format at once",
    schema: { type: "string", pattern: "^[a-zé]+$", minLength: 2, maxLength: 3 },
    yes: ["ab", "éé", "abc"],
    no: ["a", "abcd", "aB", ""],
  },
  {
    name: "dates that exist",
    schema: { type: "string", format: "date" },
    yes: ["2024-02-29", "1999-12-31"],
    no: ["2023-02-29", "1999-13-01", "1999-4-01", ""],
  },
  {
    name: "numbers between bounds",
    schema: { type: "number", exclusiveMinimum: -1.5, maximum: 10 },
    yes: [-1.49, 0, 10, 9.99],
    no: [-1.5, 10.01, 11, "1"],
  },
  {
    name: "multiples",
    schema: { type: "integer", multipleOf: 7, minimum: 0 },
    yes: [0, 7, 70, 1001],
    no: [1, 8, -7],
  },
  {
    name: "all of several",
    schema: {
      allOf: [
        { type: "object", properties: { a: { minimum: 3 } }, required: ["a"] },
        { properties: { a: { type: "integer", maximum: 4 } }, additionalProperties: false },
      ],
    },
    yes: [{ a: 3 }, { a: 4 }],
    no: [{ a: 2 }, { a: 5 }, { a: 3.5 }, { a: 3, b: 1 }, {}],
  },
  {
    name: "exactly one of several, though they overlap",
    schema: { type: "integer", oneOf: [{ minimum: 10 }, { multipleOf: 3 }] },
    yes: [10, 9, 11],
    no: [12, 8],
  },
  {
    name: "exactly one of several that are told apart by a constant",
    schema: {
      oneOf: [
        { type: "object", properties: { kind: { const: "a" }, x: { type: "integer" } }, required: ["kind"] },
        { type: "object", properties: { kind: { const: "b" }, y: { type: "string" } }, required: ["kind"] },
      ],
    },
    yes: [
      { kind: "a", x: 1 },
      { kind: "b", y: "" },
    ],
    no: [{ kind: "c" }, { kind: "a", x: "" }, {}],
  },
  {
    name: "if, then, else",
    schema: JSON.parse(
      '{"type": "integer", "if": {"maximum": 5}, "then": {"minimum": 3}, "else": {"multipleOf": 10}}',
    ),
    yes: [3, 5, 10, 20],
    no: [2, 6, 15],
  },
  {
    name: "not",
    schema: { not: { type: ["string", "number"] } },
    yes: [null, true, [], {}],
    no: ["", 1],
  },
  {
    name: "dependencies",
    schema: {
      type: "object",
      properties: { a: {}, b: {} },
      dependentRequired: { a: ["b"] },
      additionalProperties: false,
    },
    yes: [{}, { b: 1 }, { a: 1, b: 1 }],
    no: [{ a: 1 }],
  },
  {
    name: "references, also to themselves",
    schema: {
      $ref: "#/$defs/tree",
      $defs: {
        tree: {
          type: "object",
          properties: { of: { type: "array", items: { $ref: "#/$defs/tree" } } },
          additionalProperties: false,
        },
      },
    },
    yes: [{}, { of: [] }, { of: [{ of: [{}] }, {}] }],
    no: [{ of: [1] }, { of: {} }],
  },
  {
    name: "values written out, in whatever way they are compared",
    schema: { enum: ['q"\n', null, 1.5, 1e-7, { a: [1, true] }], type: ["string", "number", "object"] },
    yes: ['q"\n', 1.5, { a: [1, true] }],
    no: [null, "q", 2, { a: [1] }],
  },
  {
    name: "before draft 2019-09 nothing counts beside a reference",
    schema: {
      $schema: "http://json-schema.org/draft-07/schema#",
      definitions: { a: { type: "null" } },
      $ref: "#/definitions/a",
      maximum: 1,
    },
    yes: [null],
    no: [1],
  },
];

describe("JSON Schema", () => {
  for (const { name, schema, yes, no } of cases) {
    test(name, () => {
      const allows = compile(schema);
      const told = (values: readonly unknown[]): unknown[] =>
        values.map((value) => [value, allows(JSON.stringify(value))]);
      expect(told(yes)).toEqual(yes.map((value) => [value, true]));
      expect(told(no)).toEqual(no.map((value) => [value, false]));
    });
  }

  test("white space is at most one space after a comma or a colon, or none, or with lines an indented line", () => {
    const schema = {
      type: "object",
      properties: { a: { type: "array", items: { type: "integer" } } },
      additionalProperties: false,
    };
    const compact = compile(schema);
    const tight = compile(schema, "tight");
    const lines = compile(schema, { indent: 2 });
    const texts = [
      '{"a":[1,2]}',
      '{"a": [1, 2]}',
      '{"a":  [1]}',
      '{ "a":[1]}',
      '{"a":[1]} ',
      '{\n  "a": [\n    1,\n    2\n  ]\n}',
      '{\n   "a": [1]\n}',
      '{\n\n  "a": [1]\n}',
      `{\n${" ".repeat(66)}"a": [1]\n}`,
      "{}",
    ];
    expect(texts.map(tight)).toEqual([true, false, false, false, false, false, false, false, false, true]);
    expect(texts.map(compact)).toEqual([true, true, false, false, false, false, false, false, false, true]);
    expect(texts.map(lines)).toEqual([true, true, false, false, false, true, false, false, false, true]);
  });

  test("numbers of a set are written in one way, so that equal ones are the same text", () => {
    const obeys = compile({ type: "array", items: { type: "number" }, uniqueItems: true });
    for (const text of ["[1, 1.5,-2]", "[0]", "[0.5,5]"]) expect([text, obeys(text)]).toEqual([text, true]);
    for (const text of ["[1.0]", "[-0]", "[1e2]", "[0.50]", "[1,10,1]"])
      expect([text, obeys(text)]).toEqual([text, false]);
  });

  test("a set of long texts is closed, unless it needs more of them", () => {
    const items = { type: "string" };
    const long = "x".repeat(8191);
    for (const [minItems, isAllowed] of [
      [0, false],
      [2, true],
    ] as const) {
      const obeys = compile({ type: "array", items, uniqueItems: true, minItems });
      expect(obeys(JSON.stringify([long.slice(2), "a"]))).toBe(true);
      expect(obeys(JSON.stringify([long, "a"]))).toBe(isAllowed);
      expect(obeys(JSON.stringify([long, long]))).toBe(false);
      expect(obeys(JSON.stringify([long, `${long}y`]))).toBe(isAllowed);
    }
  });

  test("what is not understood is refused with its place, and what demands nothing is told", () => {
    const refusal = (schema: unknown): [string, string] => {
      try {
        compile(schema);
      } catch (error) {
        if (error instanceof ConstraintError) return [error.pointer, error.message];
        throw error;
      }
      return ["", "compiled"];
    };
    const mayRepeat = "minProperties counts names of the reader's own choice, which may repeat";
    const free = { type: "object", patternProperties: { "^[a-z]+$": {} }, additionalProperties: false };
    expect(refusal({ ...free, minProperties: 1 })).toEqual(["", "compiled"]);
    expect(refusal({ ...free, minProperties: 2 })).toEqual(["#/minProperties", mayRepeat]);
    const own = { ...free, properties: { A: {} }, required: ["A"] };
    expect(refusal({ ...own, minProperties: 2 })).toEqual(["", "compiled"]);
    expect(refusal({ ...own, minProperties: 3, maxProperties: 9 })).toEqual(["#/minProperties", mayRepeat]);
    expect(refusal({ properties: { a: { type: "float128" } } })).toEqual([
      "#/properties/a/type",
      'type "float128" is none of JSON\'s',
    ]);
    expect(refusal({ items: { pattern: "(a)\\1" } })).toEqual([
      "#/items/pattern",
      'the regular expression "(a)\\\\1" has a back reference, which is not supported',
    ]);
    expect(refusal({ anyOf: [] })).toEqual(["#/anyOf", "anyOf must be an array of schemas"]);
    expect(refusal({ allOf: [{ unevaluatedProperties: false, anyOf: [true] }] })).toEqual([
      "#/allOf/0/unevaluatedProperties",
      "unevaluatedProperties beside anyOf is not supported",
    ]);
    expect(refusal({ properties: { "a/b": { uniqueItems: true } } })[0]).toBe(
      "#/properties/a~1b/uniqueItems",
    );
    const unique = (items: object) => refusal({ type: "array", items, uniqueItems: true });
    expect(unique({ type: "object" })).toEqual([
      "#/uniqueItems",
      "uniqueItems is supported where the items are strings, numbers, booleans or null, but here they may be objects or arrays",
    ]);
    expect(refusal({ type: "array", items: { type: "string" }, uniqueItems: true, minItems: 65 })[1]).toBe(
      "uniqueItems is supported with 64 items at most, but minItems asks for 65",
    );
    // More items than distinct values.
    expect(
      refusal({
        type: "array",
        items: { pattern: "^[ab]?$", type: "string" },
        uniqueItems: true,
        minItems: 4,
      })[1],
    ).toBe("nothing can be written that obeys it");
    expect(refusal({ items: { $ref: "https://elsewhere.example/x" } })).toEqual([
      "#/items/$ref",
      '$ref "https://elsewhere.example/x" leads out of the schema, and nothing is fetched',
    ]);
    expect(refusal({ $ref: "#" })[1]).toBe("a schema that only means itself");
    expect(refusal(false)[1]).toBe("nothing can be written that obeys it");
    expect(refusal({ type: "object", properties: { a: { $ref: "#" } }, required: ["a"] })[1]).toBe(
      "nothing can be written that obeys it",
    );
    expect(refusal([])[1]).toBe("a schema must be an object or a boolean");
    const { ignored } = compileConstraint({
      kind: "schema",
      schema: { requird: ["a"], format: "colour", title: "t" },
      layout: "compact",
    });
    expect(ignored).toEqual(["format colour", "requird"]);
  });

  test("each limit is named when it is passed", () => {
    const deep = (levels: number): unknown => (levels === 1 ? {} : { items: deep(levels - 1) });
    const many = Array.from({ length: 10_001 }, (_, value) => value);
    const clash = { anyOf: many.slice(0, 30).map((minLength) => ({ minLength, maxItems: minLength })) };
    expect(() => compile({ enum: many })).toThrow("10000 values at most, but has 10001");
    expect(() => compile({ title: "x".repeat(70_000) })).toThrow(
      "65536 characters of JSON at most, but has 70012",
    );
    expect(() => compile(deep(64))).not.toThrow();
    expect(() => compile(deep(65))).toThrow("nested 64 deep at most, but is 65 deep");
    expect(() => compile({ minItems: 1e9 })).toThrow("minItems may be 1000000 at most, but is 1000000000");
    expect(() => compile({ allOf: [clash, clash, clash, { anyOf: clash.anyOf }] })).toThrow(
      "combine in more than 512 ways",
    );
  });

  test("what is more work than is allowed is refused, each time after as much of it", () => {
    // No text's nineteenth letter from the end is both; to see that, a compiler would visit all 2 ** 19
    // suffixes.
    const letters = ["a", "b"].map((letter) => ({ type: "string", pattern: `^[ab]*${letter}[ab]{18}$` }));
    for (let time = 0; time < 2; time++)
      expect(() => compile({ allOf: letters })).toThrow("it takes more than 3000000 steps of work");
  });
});
