import { describe, expect, test } from "bun:test";
import type { JsonLayout } from "../../../grammar/schema/compile-schema.ts";
import { ApiError } from "../../http/errors.ts";
import { Fields } from "../fields.ts";
import { constraintOf } from "./structure.ts";

const schema = { type: "integer" };

/** Layout of a body's constraint, or the field and the message of its refusal. */
function layoutIn(
  body: Record<string, unknown>,
): JsonLayout | null | [param: string | undefined, message: string] {
  try {
    const source = constraintOf(new Fields(body))?.source;
    return source?.kind === "schema" ? source.layout : null;
  } catch (error) {
    if (error instanceof ApiError) return [error.detail.param, error.message];
    throw error;
  }
}

describe("white space in JSON", () => {
  test("is set beside the schema, or for a schema in another field", () => {
    const described = { type: "json_schema", json_schema: { name: "a", schema } };
    for (const [settings, layout] of [
      [{}, "compact"],
      [{ disable_any_whitespace: false }, "compact"],
      [{ disable_any_whitespace: true }, "tight"],
      [{ indent: 2 }, { indent: 2 }],
      [{ indent: 8, disable_any_whitespace: false }, { indent: 8 }],
    ] as const) {
      expect(layoutIn({ structured_outputs: { json: schema, ...settings } })).toEqual(layout);
      expect(layoutIn({ structured_outputs: { json_object: true, ...settings } })).toEqual(layout);
      if (Object.keys(settings).length === 0) continue;
      expect(layoutIn({ response_format: described, structured_outputs: settings })).toEqual(layout);
      expect(layoutIn({ guided_json: schema, structured_outputs: settings })).toEqual(layout);
    }
    expect(layoutIn({ structured_outputs: { disable_any_whitespace: false } })).toBeNull();
  });

  test("is refused where it cannot be kept to", () => {
    const name = "structured_outputs";
    const pattern =
      "a pattern of white space is not supported, but structured_outputs.disable_any_whitespace and structured_outputs.indent are";
    const setting = `${name}: white space is a setting of JSON that a schema describes, but`;
    for (const [body, param, message] of [
      [
        { guided_whitespace_pattern: " ?" },
        "guided_whitespace_pattern",
        `guided_whitespace_pattern: ${pattern}`,
      ],
      [
        { [name]: { json: schema, whitespace_pattern: " ?" } },
        `${name}.whitespace_pattern`,
        `${name}.whitespace_pattern: ${pattern}`,
      ],
      [{ [name]: { indent: 2 } }, name, `${setting} there is none`],
      [{ [name]: { regex: "a", indent: 2 } }, name, `${setting} ${name}.regex is given`],
      [
        { [name]: { json: schema, indent: 9 } },
        `${name}.indent`,
        `${name}.indent must be an integer from 1 to 8, but 9 was given`,
      ],
      [
        { [name]: { json: schema, indent: 2, disable_any_whitespace: true } },
        `${name}.indent`,
        `${name}.indent: there are no lines to indent with disable_any_whitespace`,
      ],
    ] as const) {
      expect(layoutIn(body)).toEqual([param, message]);
    }
  });
});
