import { expect, test } from "bun:test";
import fc from "fast-check";
import { runs } from "../../tests/support/property.ts";
import { type AnswerPart, joined, ToolCallParser } from "./tool-calls.ts";

function toldOf(pieces: readonly string[]): AnswerPart[] {
  const parser = new ToolCallParser();
  return joined([...pieces.flatMap((piece) => parser.push(piece)), ...parser.end()]);
}

function expectSameHoweverCut(answer: string, sizes: readonly number[]): void {
  const whole = toldOf([answer]);
  for (let at = 0; at <= answer.length; at++) {
    expect(toldOf([answer.slice(0, at), answer.slice(at)])).toEqual(whole);
  }
  const pieces: string[] = [];
  for (let from = 0, i = 0; from < answer.length; from += sizes[i++ % sizes.length]!) {
    pieces.push(answer.slice(from, from + sizes[i % sizes.length]!));
  }
  expect(toldOf(pieces)).toEqual(whole);
  expect(toldOf([...answer])).toEqual(whole);
}

const sizes = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 6 });

/** Scraps that are put together to calls, to what is nearly one, and to anything. */
const scraps = fc
  .array(
    fc.constantFrom(
      ...[
        "<tool_call>",
        "</tool_call>",
        "<tool_call",
        "<",
        ">",
        "\n",
        " ",
        "{",
        "}",
        "[",
        "]",
        '"',
        "\\",
        ",",
        ":",
      ],
      ...[
        '{"name": "f", "arguments": {}}',
        '"name"',
        '"arguments"',
        '"f"',
        "{}",
        "1",
        "true",
        "x",
        "小",
        "🐦",
      ],
      ...['<tool_call>\n{"name": "g", "arguments": {"a": "<tool_call>"}}\n</tool_call>'],
    ),
    { maxLength: 14 },
  )
  .map((all) => all.join(""));

test("what is told does not depend on how the text was cut", () => {
  fc.assert(fc.property(scraps, sizes, expectSameHoweverCut), runs(1500));
});

test("calls come back as they were written, and text around them unchanged", () => {
  const name = fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/);
  const values = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 }), { maxKeys: 3 });
  const indent = fc.constantFrom(undefined, 2);
  const call = fc.tuple(name, values, indent).map(([called, given, spaces]) => ({
    name: called,
    arguments: JSON.stringify(given, null, spaces),
  }));
  const word = fc.stringMatching(/^[a-z.]{1,8}$/);
  const part = fc.oneof(
    call.map((told): AnswerPart => ({ kind: "call", call: told })),
    word.map((text): AnswerPart => ({ kind: "text", text })),
  );
  fc.assert(
    fc.property(fc.array(part, { maxLength: 5 }), sizes, (parts, cut) => {
      const answer = parts
        .map((told) =>
          told.kind === "text"
            ? told.text
            : `\n<tool_call>\n{"name": ${JSON.stringify(told.call.name)}, "arguments": ${told.call.arguments}}\n</tool_call>`,
        )
        .join("");
      const written = parts.flatMap((told) => (told.kind === "call" ? [told.call] : []));
      const told = toldOf([answer]);
      expect(told.flatMap((one) => (one.kind === "call" ? [one.call] : []))).toEqual(written);
      const texts = parts.map((one) => (one.kind === "text" ? one.text : "")).join("");
      expect(told.map((one) => (one.kind === "text" ? one.text : "")).join("")).toBe(texts);
      expect(toldOf([answer.slice(0, cut[0]), answer.slice(cut[0])])).toEqual(told);
    }),
    runs(1000),
  );
});

test("tags that lead nowhere are text, thousands of them at once or piece by piece", () => {
  const answer = '<tool_call>{"<tool_call> '.repeat(20_000);
  expect(toldOf([answer])).toEqual([{ kind: "text", text: answer }]);
  expect(toldOf(answer.split(/(?=<)/))).toEqual([{ kind: "text", text: answer }]);
});
