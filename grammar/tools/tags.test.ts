import { expect, test } from "bun:test";
import { compileConstraint } from "../compile.ts";
import { Parser, type ParseState } from "../parser/parser.ts";
import { Regexes } from "../regex/regexes.ts";
import type { Tag, TagFormat } from "../source.ts";

function accepts(format: TagFormat, text: string): boolean {
  const parser = Parser.of(compileConstraint({ kind: "tags", format }).grammar, new Regexes());
  let state: ParseState | null = parser.start;
  for (const byte of new TextEncoder().encode(text)) state = state && parser.next(state, byte);
  return state?.mayEnd ?? false;
}

function tag(name: string, schema: object, ends = ["</f>"]): Tag {
  const to = { kind: "schema", schema, layout: "compact" } as const;
  return { kind: "tag", begin: `<f=${name}>`, content: { kind: "held", to }, ends };
}
const tags = [tag("a", { type: "integer" }), tag("b", { enum: ["x"] }, ["</f>", "!"])];
const free = { atLeastOne: false, stopsAfterFirst: false };

test("free text goes on until a trigger, then one of its tags, and then free text again", () => {
  const format: TagFormat = { kind: "triggered", triggers: ["<f="], tags, ...free };
  for (const text of ["", "a < b <f", "<f=a>12</f>", 'so: <f=b>"x"!<f=a>-1</f> end']) {
    expect([text, accepts(format, text)]).toEqual([text, true]);
  }
  for (const text of ["<f=", "<f=c>1</f>", "<f=a>x</f>", "<f=a>1!", "then <f=a>1"]) {
    expect([text, accepts(format, text)]).toEqual([text, false]);
  }
  expect(accepts({ ...format, atLeastOne: true }, "none")).toBe(false);
  expect(accepts({ ...format, stopsAfterFirst: true }, "one <f=a>1</f>")).toBe(true);
  expect(accepts({ ...format, stopsAfterFirst: true }, "one <f=a>1</f> more")).toBe(false);
});

test("tags with separators, sequences, choices, and text up to the end of its tag", () => {
  const separated: TagFormat = { kind: "separated", tags, separator: "\n", ...free };
  for (const text of ["", "<f=a>1</f>", '<f=a>1</f>\n<f=b>"x"</f>'])
    expect(accepts(separated, text)).toBe(true);
  expect(accepts(separated, "<f=a>1</f><f=a>1</f>")).toBe(false);
  expect(accepts({ ...separated, atLeastOne: true }, "")).toBe(false);
  const thought: TagFormat = { kind: "tag", begin: "<t>", content: { kind: "text" }, ends: ["</t>"] };
  const answer: TagFormat = { kind: "or", elements: tags };
  const both: TagFormat = { kind: "sequence", elements: [thought, answer] };
  expect(accepts(both, "<t>hm <f=a></t><f=a>1</f>")).toBe(true);
  expect(accepts(both, "<t>a</t>b</t><f=a>1</f>")).toBe(false);
  expect(accepts(both, "<t></t>")).toBe(false);
});

test("a tag that no trigger begins could never be written", () => {
  const format: TagFormat = { kind: "triggered", triggers: ["<g"], tags, ...free };
  expect(() => accepts(format, "")).toThrow('the tag that begins "<f=a>" begins with none of the triggers');
});
