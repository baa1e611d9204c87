import { describe, expect, test } from "bun:test";
import { type AnswerPart, joined, ToolCallParser } from "./tool-calls.ts";

/** What the parser tells of pieces, one list per piece and one for the end. */
function toldOf(pieces: readonly string[]): AnswerPart[][] {
  const parser = new ToolCallParser();
  return [...pieces.map((piece) => parser.push(piece)), parser.end()];
}

const text = (content: string): AnswerPart => ({ kind: "text", text: content });
const call = (name: string, values: string): AnswerPart => ({
  kind: "call",
  call: { name, arguments: values },
});
/** What is told of an answer, neighbouring texts joined. */
function whole(answer: string): AnswerPart[] {
  return joined(toldOf([answer]).flat());
}

const rome = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>';
const toldRome = call("get_weather", '{"city": "Rome"}');

describe("calls", () => {
  const cases: [what: string, answer: string, told: AnswerPart[]][] = [
    ["alone", rome, [toldRome]],
    ["after text, less the white space between", `Let me look.\n\n${rome}`, [text("Let me look."), toldRome]],
    ["after white space alone", `\n\n${rome}`, [toldRome]],
    ["several", `${rome}\n${rome}\n`, [toldRome, toldRome]],
    ["before text, which keeps its white space", `${rome}\nDone. `, [toldRome, text("\nDone. ")]],
    ["without line breaks", '<tool_call>{"name":"f","arguments":{}}</tool_call>', [call("f", "{}")]],
    [
      "arguments first",
      '<tool_call>{"arguments": {"a": 1} , "name": "f"}</tool_call>',
      [call("f", '{"a": 1}')],
    ],
    [
      "with fields nobody asked for",
      '<tool_call>{"id": 1, "name": "f", "arguments": {}}</tool_call>',
      [call("f", "{}")],
    ],
    [
      "digits as they are",
      '<tool_call>{"name":"f","arguments":{"2":12345678901234567890,"1":1.0}}</tool_call>',
      [call("f", '{"2":12345678901234567890,"1":1.0}')],
    ],
    [
      "the last of two members",
      '<tool_call>{"name":"f","arguments":{"a":1},"arguments":{"b":2}}</tool_call>',
      [call("f", '{"b":2}')],
    ],
    [
      "a key in escapes",
      '<tool_call>{"name":"f","argument\\u0073":{"a":1}}</tool_call>',
      [call("f", '{"a":1}')],
    ],
    [
      "tags, brackets and quotes in strings",
      '<tool_call>{"name":"f","arguments":{"x":"</tool_call> \\"}{[ <tool_call> \\\\"}}</tool_call>',
      [call("f", '{"x":"</tool_call> \\"}{[ <tool_call> \\\\"}')],
    ],
    [
      "that lack only the closing tag",
      '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_',
      [call("f", "{}")],
    ],
    [
      "after a broken one",
      `<tool_call>\n{"name": "f", "arguments": {\n</tool_call>\n${rome}`,
      [text('<tool_call>\n{"name": "f", "arguments": {\n</tool_call>'), toldRome],
    ],
    ["after an opening tag of no use", `<tool_call>\n${rome}`, [text("<tool_call>"), toldRome]],
  ];
  test.each(cases)("%s", (_, answer, told) => {
    expect(whole(answer)).toEqual(told);
  });
});

describe("what is no call is text, to the letter", () => {
  test.each([
    "",
    " ",
    "a < b <tool <tool_calls> </tool_call> ",
    "<tool_call>",
    "<tool_call>\n",
    "<tool_call>\nget_weather(Rome)\n</tool_call>",
    '<tool_call>{"name": "f", "arguments": {"city": "Ro',
    '<tool_call>{"name": "f", "arguments": {}',
    '<tool_call>{"name": "f", "arguments": {},}</tool_call>',
    '<tool_call>{"name": "f", "arguments": {]}</tool_call>',
    '<tool_call>{"name": "f", "arguments": "{}"}</tool_call>',
    '<tool_call>{"name": "f", "arguments": []}</tool_call>',
    '<tool_call>{"name": "f", "arguments": null}</tool_call>',
    '<tool_call>{"name": "f"}</tool_call>',
    '<tool_call>{"name": "a b", "arguments": {}}</tool_call>',
    '<tool_call>{"name": 5, "arguments": {}}</tool_call>',
    '<tool_call>{"arguments": {}}</tool_call>',
    '<tool_call>[{"name": "f", "arguments": {}}]</tool_call>',
    '<tool_call>{"name": "f", "arguments": {}} and more</tool_call>',
    '<tool_call>{"name": "f", "arguments": {"a": "line\nbreak"}}</tool_call>',
    `<tool_call>{"name": "f", "arguments": ${'{"a":'.repeat(200)}1${"}".repeat(200)}}</tool_call>`,
  ])("%j", (answer) => {
    expect(whole(answer)).toEqual(answer === "" ? [] : [text(answer)]);
  });
});

test("text is held back only while it may become a call", () => {
  const pieces = [
    "Hi",
    " ",
    "there",
    "\n",
    "<",
    "b> <too",
    "l_call>",
    ' {"na',
    "me x",
    '"}',
    " y<tool_call",
    ">z",
  ];
  const told = toldOf(pieces).map((parts) =>
    parts.map((part) => (part.kind === "text" ? part.text : "a call")),
  );
  const held = ["", "", ""];
  const expected = [
    "Hi",
    "",
    " there",
    "",
    "",
    "\n<b>",
    ...held,
    "",
    ' <tool_call> {"name x"} y',
    "<tool_call>z",
  ];
  expect(told.map((parts) => parts.join(""))).toEqual([...expected, ""]);
});

test("a call is told as soon as its closing tag is whole", () => {
  const told = toldOf([rome.slice(0, -1), ">", " "]);
  expect(told).toEqual([[], [toldRome], [], []]);
});
