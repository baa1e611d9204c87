import { expect, test } from "bun:test";
import type { ConstraintSource } from "../../../grammar/source.ts";
import { Fields } from "../fields.ts";
import { constraintOf } from "./structure.ts";

const read = (body: Record<string, unknown>) => constraintOf(new Fields(body));
const held = (to: ConstraintSource) => ({ kind: "held" as const, to });
const integer = held({ kind: "schema", schema: { type: "integer" }, layout: "compact" });
const older = {
  type: "structural_tag",
  structures: [{ begin: "<f=a>", schema: { type: "integer" }, end: "</f>" }],
  triggers: ["<f="],
};
const counts = { atLeastOne: false, stopsAfterFirst: false };
const tag = { kind: "tag", begin: "<f=a>", content: integer, ends: ["</f>"] };
const triggered = { kind: "triggered", triggers: ["<f="], tags: [tag], ...counts };

test("the older form, as JSON, as its text, and as a response format", () => {
  const source = { kind: "tags", format: triggered };
  for (const given of [older, JSON.stringify(older)]) {
    expect(read({ structured_outputs: { structural_tag: given } })).toEqual({
      source: source as ConstraintSource,
      param: "structured_outputs.structural_tag",
    });
  }
  expect(read({ response_format: older })).toEqual({
    source: source as ConstraintSource,
    param: "response_format",
  });
});

test("every format", () => {
  const content = { type: "json_schema", json_schema: { type: "integer" } };
  const tags = [{ begin: "<f=a>", content, end: "</f>" }];
  const elements = [
    { type: "any_text" },
    { type: "const_string", value: "x" },
    {
      type: "or",
      elements: [
        { type: "regex", pattern: "a+" },
        { type: "grammar", grammar: 'start: "x"' },
      ],
    },
    { type: "tag", begin: "(", content: { type: "any_text" }, end: [")", "]"] },
    { type: "triggered_tags", triggers: ["<f="], tags },
    { type: "tags_with_separator", tags, separator: ",", at_least_one: true, stop_after_first: true },
  ];
  const given = { type: "structural_tag", format: { type: "sequence", elements } };
  expect(read({ response_format: given })?.source as unknown).toEqual({
    kind: "tags",
    format: {
      kind: "sequence",
      elements: [
        { kind: "text" },
        held({ kind: "choice", texts: ["x"] }),
        {
          kind: "or",
          elements: [held({ kind: "regex", pattern: "a+" }), held({ kind: "grammar", text: 'start: "x"' })],
        },
        { kind: "tag", begin: "(", content: { kind: "text" }, ends: [")", "]"] },
        triggered,
        { kind: "separated", separator: ",", tags: [tag], atLeastOne: true, stopsAfterFirst: true },
      ],
    },
  });
});

test("what is not understood is refused with its place", () => {
  const refused = (format: unknown): string | null => {
    try {
      read({ response_format: { type: "structural_tag", format } });
      return null;
    } catch (error) {
      return (error as Error).message;
    }
  };
  expect(refused({ type: "xml" })).toContain("response_format.format.type");
  expect(refused({ type: "any_text", excludes: ["a"] })).toContain("excludes");
  expect(refused({ type: "triggered_tags", triggers: [""], tags: [] })).toContain(
    "response_format.format.triggers",
  );
  expect(refused({ type: "sequence", elements: [] })).toContain("response_format.format.elements");
});
