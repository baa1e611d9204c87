import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../../tests/support/property.ts";
import type { Value } from "../spec.ts";
import { transforms } from "./table.ts";
import { parseStep, type Step, transformWith } from "./transform.ts";
import type { TextTools } from "./value.ts";
import { byteLength, valueLimits } from "./value.ts";

/** Tokenizer with one token per character. */
const tools: TextTools = { truncate: (text, tokensMax) => text.slice(0, tokensMax) };

function stepOf(given: unknown): Step {
  const step = parseStep(given);
  if ("problem" in step) throw new Error(step.problem);
  return step;
}

/** Returns the value, or the error sentence in <>. */
function after(value: Value, ...steps: unknown[]): Value {
  const result = transformWith(tools)(value, steps.map(stepOf));
  return result.kind === "value" ? result.value : `<${result.message}>`;
}

describe("what each transform does", () => {
  const rows: readonly (readonly [step: unknown, given: Value, expected: Value])[] = [
    ["strip", "  a b\n", "a b"],
    ["lower", "ÄbC", "äbc"],
    [{ regex: "= (\\d+)$" }, "47 + 38 = 70 + 15 = 85", "85"],
    [{ regex: { pattern: "(a)(b)", group: 2 } }, "ab", "b"],
    [{ regex: "z" }, "ab", "<regex: the pattern matches nowhere>"],
    [{ regex: "a|(b)" }, "a", "<regex: the pattern matches, but not its group>"],
    [{ json: "name" }, '{"name": "Nora", "age": 34}', "Nora"],
    [{ json: "$.age" }, '```json\n{"name": "Nora", "age": 34}\n```', "34"],
    ["json", '["a", 1, {"b": null}]', ["a", "1", '{"b":null}']],
    [{ json: "items[*].name" }, '{"items": [{"name": "a"}, {"name": "b"}]}', ["a", "b"]],
    [{ json: 'a["b c"][-1]' }, '{"a": {"b c": [1, true]}}', "true"],
    [{ json: "a.b" }, '{"a": 1}', "<json: there is nothing at $.a.b>"],
    [{ json: "a" }, '{"a": null}', "<json: there is null at $.a>"],
    ["json", "no", "<json: the text is not JSON>"],
    [{ split: "," }, "a,b,,c", ["a", "b", "", "c"]],
    [
      "lines",
      "1. apple\n2. pear\n\n- plum\n* fig\nand 3 more",
      ["apple", "pear", "plum", "fig", "and 3 more"],
    ],
    [{ item: 1 }, ["a", "b"], "b"],
    [{ item: -1 }, ["a", "b"], "b"],
    [{ item: 2 }, ["a", "b"], "<item: there is no item 2 in a list of 2>"],
    [{ item: 0 }, "a", "<item: it takes a list, but the value is a text>"],
    [{ join: ", " }, ["a", "b"], "a, b"],
    [{ join: "" }, [], ""],
    [{ truncate: 3 }, "abcde", "abc"],
    [{ template: "<{{value}}|{{value}}>" }, "a", "<a|a>"],
    [{ default: "none" }, "", "none"],
    [{ default: "none" }, [], "none"],
    [{ default: "none" }, "a", "a"],
    [{ enum: ["Yes", "No"] }, " yes\n", "Yes"],
    [{ enum: ["Yes", "No"] }, "maybe", '<enum: "maybe" is none of Yes, No>'],
    ["number", " -1.50e2 ", "-150"],
    ["number", "12 apples", '<number: "12 apples" is no number>'],
    ["number", "1e999", '<number: "1e999" is no number>'],
    ["date", "2024-02-29", "2024-02-29"],
    ["date", "2023-02-29", '<date: "2023-02-29" is no date of the form YYYY-MM-DD>'],
    [{ date: "DD.MM.YYYY" }, "3.7.1999", "1999-07-03"],
    [
      { date: "MMMM DD, YYYY" },
      "Sept 3, 2020",
      '<date: "Sept 3, 2020" is no date of the form MMMM DD, YYYY>',
    ],
    [{ date: "MMMM DD, YYYY" }, "sep 3, 2020", "2020-09-03"],
    [{ date: "DD MMMM YYYY" }, "31 december 2020", "2020-12-31"],
    ["strip", [" a ", "b "], ["a", "b"]],
    ["number", ["1", "x"], '<number: item 1: "x" is no number>'],
    ["lines", ["a"], "<lines: it takes a text, but the value is a list>"],
  ];
  test.each(rows)("%p of %p is %p", (step, given, expected) => {
    expect(after(given, step)).toEqual(expected);
  });

  test("every one of the table is among them", () => {
    const shown = new Set(rows.map(([step]) => stepOf(step).kind));
    expect(Object.keys(transforms).filter((name) => !shown.has(name))).toEqual([]);
  });
});

test("steps follow each other, and a default takes the place of what failed before it", () => {
  expect(after("Fruits: Pear, Fig", { regex: ": (.*)" }, { split: ", " }, "lower", { item: 1 })).toBe("fig");
  expect(
    after("nothing", { regex: ": (.*)" }, "lower", { default: "none" }, { template: "({{value}})" }),
  ).toBe("(none)");
});

test.each([
  ["shout", /must be one of strip, lower/],
  [{ split: ",", item: 0 }, /must be one of/],
  [3, /must be one of/],
  [{ strip: 3 }, /strip: it takes no argument/],
  [{ split: "" }, /must not be empty/],
  [{ item: 0.5 }, /must be an integer/],
  [{ truncate: 0 }, /must be an integer from 1/],
  [{ regex: "(a" }, /the pattern cannot be used: it has a \( without a \)/],
  [{ json: "a..b" }, /must be a path/],
  [{ json: "a[*].b[*]" }, /must be a path/],
  [{ enum: [] }, /must be an array of texts/],
  [{ date: "MM/DD" }, /must be a form/],
  [{ constructor: null }, /must be one of/],
])("%p is refused", (given, problem) => {
  const step = parseStep(given);
  expect("problem" in step ? step.problem : "").toMatch(problem);
});

test("an argument has 65,536 bytes at most", () => {
  expect(stepOf({ template: "x".repeat(65_536) }).kind).toBe("template");
  const problem = "template: its argument has 65537 bytes, but 65536 are allowed";
  expect(parseStep({ template: "x".repeat(65_537) })).toEqual({ problem });
});

describe("no value is beyond its limits", () => {
  const { bytesMax, itemsMax } = valueLimits;
  const half = "é".repeat(bytesMax / 4);

  const bytesOf = (value: Value): number => byteLength(value as string);

  test("a value of all bytes passes, one more does not, whichever transform makes it", () => {
    const refused = (name: string, bytes: number): string =>
      `<${name}: it would make ${bytes} bytes, but ${bytesMax} are allowed>`;
    expect(bytesOf(after(half + half))).toBe(bytesMax);
    expect(after(`${half}${half}a`)).toBe(`<a value of ${bytesMax + 1} bytes, but ${bytesMax} are allowed>`);
    expect(bytesOf(after(half, { template: "{{value}}{{value}}" }))).toBe(bytesMax);
    expect(after(half, { template: "{{value}}a{{value}}" })).toBe(refused("template", bytesMax + 1));
    expect(bytesOf(after([half, half], { join: "" }))).toBe(bytesMax);
    expect(after([half, half], { join: "," })).toBe(refused("join", bytesMax + 1));
  });

  test("a list of all items passes, one more does not", () => {
    const list = "a,".repeat(itemsMax - 1);
    expect(after(list, { split: "," })).toHaveLength(itemsMax);
    expect(after(`${list},`, { split: "," })).toBe(`<split: more than ${itemsMax} parts>`);
    expect(after("a\n".repeat(itemsMax), "lines")).toHaveLength(itemsMax);
    expect(after("a\n".repeat(itemsMax + 1), "lines")).toMatch(/^<lines: a list of 1025 items/);
  });
});

test("bytes are UTF-8's", () => {
  fc.assert(
    fc.property(fc.string({ unit: "grapheme" }), (text) => {
      expect(byteLength(text)).toBe(Buffer.byteLength(text));
    }),
    runs(300),
  );
});
