import { describe, expect, test } from "bun:test";
import { readCalls } from "../../tests/support/read-calls.ts";
import { callForms } from "./call-forms.ts";
import { CallReader, joined, type ReadPart } from "./call-reader.ts";

const functions = ["get_weather", "f"].map((name) => ({ name, parameters: null, isStrict: false }));

/** Parsed parts, one list per piece and one for the end. */
function toldOf(pieces: readonly string[]): ReadPart[][] {
  const reader = new CallReader(callForms.Hermes, functions);
  return [...pieces.map((piece) => reader.push(piece)), reader.end()];
}

const text = (content: string): ReadPart => ({ kind: "text", text: content });
const call = (name: string, values: string): ReadPart[] => [
  { kind: "call", name },
  { kind: "arguments", text: values },
];
const whole = (answer: string): ReadPart[] => joined(toldOf([answer]).flat());

const rome = '<tool_call>\n{"name": "get_weather", "arguments": {"city": "Rome"}}\n</tool_call>';
const toldRome = call("get_weather", '{"city": "Rome"}');

describe("calls", () => {
  const digits = '{"2":12345678901234567890,"1":1.0}';
  const marks = '{"x":"</tool_call> \\"}{[ <tool_call> \\\\"}';
  const cases: [what: string, answer: string, told: ReadPart[]][] = [
    ["alone", rome, toldRome],
    [
      "after text, less the white space between",
      `Let me look.\n\n${rome}`,
      [text("Let me look."), ...toldRome],
    ],
    ["after white space alone", `\n\n${rome}`, toldRome],
    ["several", `${rome}\n${rome}\n`, [...toldRome, ...toldRome]],
    ["before text, which keeps its white space", `${rome}\nDone. `, [...toldRome, text("\nDone. ")]],
    [
      "with digits as they are",
      `<tool_call>\n{"name": "f", "arguments": ${digits}}\n</tool_call>`,
      call("f", digits),
    ],
    [
      "with marks, brackets and quotes in strings",
      `<tool_call>\n{"name": "f", "arguments": ${marks}}\n</tool_call>`,
      call("f", marks),
    ],
    ["cut off after their arguments", rome.slice(0, -9), toldRome],
    [
      "cut off within their arguments",
      rome.slice(0, rome.indexOf("ome")),
      call("get_weather", '{"city": "R'),
    ],
    ["cut off before them", rome.slice(0, rome.indexOf('{"city')), [{ kind: "call", name: "get_weather" }]],
    ["after a mark of no use", `<tool_call>\n${rome}`, [text("<tool_call>"), ...toldRome]],
  ];
  test.each(cases)("%s", (_, answer, told) => {
    expect(whole(answer)).toEqual(told);
  });
});

test("names are those of the functions, whatever they hold, and else of letters, digits, _ and -", () => {
  const names = ["files.read", "files.read:all", "a b/c", "x".repeat(200), 'say "hi"'];
  const offered = names.map((name) => ({ name, parameters: null, isStrict: false }));
  for (const name of [...names, "unknown_1"]) {
    const answer = `<tool_call>\n{"name": "${name}", "arguments": {}}\n</tool_call>`;
    for (const pieces of [[answer], [...answer]]) {
      expect(readCalls(callForms.Hermes, offered, pieces)).toEqual(call(name, "{}"));
    }
  }
  const odd = '<tool_call>\n{"name": "odd.name", "arguments": {}}\n</tool_call>';
  expect(readCalls(callForms.Hermes, offered, [odd])).toEqual([text(odd)]);
});

describe("what is no call is text, to the letter", () => {
  test.each([
    "",
    " ",
    "a < b <tool <tool_calls> </tool_call> ",
    "<tool_call>",
    "<tool_call>\n",
    "<tool_call>\nget_weather(Rome)\n</tool_call>",
    '<tool_call>\n{"name": "a b", "arguments": {}}\n</tool_call>',
    `<tool_call>\n{"name": "${"a".repeat(65)}", "arguments": {}}\n</tool_call>`,
    '<tool_call>\n{"name": "", "arguments": {}}\n</tool_call>',
    '<tool_call>\n{"name": "f"',
  ])("%j", (answer) => {
    expect(whole(answer)).toEqual(answer === "" ? [] : [text(answer)]);
  });
});

test("text is held back only while it may become a call", () => {
  const pieces = ["Hi", " ", "there", "\n", "<", "b> <too", "l_call>", "x", " y<tool_call", ">z"];
  const told = toldOf(pieces).map((parts) =>
    parts.map((part) => (part.kind === "text" ? part.text : "a call")),
  );
  const expected = ["Hi", "", " there", "", "", "\n<b>", "", " <tool_call>x", " y", "<tool_call>z", ""];
  expect(told.map((parts) => parts.join(""))).toEqual(expected);
});

test("a call is told as soon as its name is certain, and its arguments as they are written", () => {
  const pieces = ['<tool_call>\n{"name": "f", "arg', 'uments": ', '{"a"', ": [", "1]}}\n", "</tool_call>"];
  expect(toldOf(pieces)).toEqual([
    [],
    [{ kind: "call", name: "f" }],
    [{ kind: "arguments", text: '{"a"' }],
    [{ kind: "arguments", text: ": [" }],
    [{ kind: "arguments", text: "1]}" }],
    [],
    [],
  ]);
});

test("of two names the longer one is read, where nothing marks the end of a name", () => {
  const answer = "<tool_call>get_weather<arg_key>a</arg_key><arg_value>b</arg_value></tool_call>";
  const offered = ["get", "get_weather", "get_weather_now"].map((name) => ({
    name,
    parameters: { properties: { a: { type: "string" } } },
    isStrict: false,
  }));
  for (const pieces of [[answer], [...answer]])
    expect(readCalls(callForms["GLM 4.7"], offered, pieces)).toEqual(call("get_weather", '{"a": "b"}'));
});
