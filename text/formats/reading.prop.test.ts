/** Property: the parsed parts of an answer do not depend on how its text was split, in every format. */
import { expect, test } from "bun:test";
import fc from "fast-check";
import { CALL_ID, CALL_NUMBER, type CallForm } from "../../grammar/tools/call-form.ts";
import { runs } from "../../tests/support/property.ts";
import { cutsOf, readCalls } from "../../tests/support/read-calls.ts";
import { callForms } from "./call-forms.ts";
import { joined, type ReadPart } from "./call-reader.ts";
import { ThinkingReader, thinkingMarksIn } from "./thinking.ts";

const parameters = { type: "object", properties: { a: { type: "string" } } };
const functions = ["f", "g"].map((name) => ({ name, parameters, isStrict: false }));

const toldOf = (pieces: readonly string[], form: CallForm = callForms.Hermes): ReadPart[] =>
  readCalls(form, functions, pieces);

const sizes = fc.array(fc.integer({ min: 1, max: 9 }), { minLength: 1, maxLength: 6 });

/** Scraps that combine to calls, near-calls, and anything else. */
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
      ],
      ...[
        '<tool_call>\n{"name": "',
        '", "arguments": ',
        '"f"',
        "f",
        "{}",
        '{"a": [1, "}"]}',
        "}\n</tool_call>",
      ],
      ...["<think>", "</think>", "小", "🐦", '<tool_call>\n{"name": "g", "arguments": {"a": "<tool_call>"}}'],
    ),
    { maxLength: 14 },
  )
  .map((all) => all.join(""));

test("calls, and scraps of them", () => {
  fc.assert(
    fc.property(scraps, sizes, (answer, cut) => {
      const whole = toldOf([answer]);
      for (const pieces of cutsOf(answer, cut)) expect(toldOf(pieces)).toEqual(whole);
    }),
    runs(800),
  );
});

test("calls and scraps of them in every form", () => {
  /** The delimiters of a format, whole and in halves, among other texts. */
  const scrapsOf = (form: CallForm) => {
    const { begin, beforeName, afterName, afterArguments, between, end } = form;
    const texts = [
      ...Object.values(form.arguments).slice(1),
      begin,
      beforeName,
      afterName,
      afterArguments,
      between,
      end,
    ];
    const marks = (texts as string[])
      .filter((text) => text !== "")
      .map((text) => text.replace(CALL_NUMBER, "10").replace(CALL_ID, "abcdefgh1"));
    const halves = marks.map((mark) => mark.slice(0, Math.ceil(mark.length / 2)));
    const others = ["f", "a", "=", "True", '{"a": "x"}', '"🐦', "小", "\n", " ", ")", "{", "}"];
    const call = `${begin}${beforeName}f${afterName}`.replace(CALL_NUMBER, "3").replace(CALL_ID, "abcdefgh1");
    return fc
      .array(fc.constantFrom(...marks, ...halves, ...others, call), { maxLength: 12 })
      .map((all) => all.join(""));
  };
  const cases = fc
    .constantFrom<CallForm[]>(...Object.values(callForms))
    .chain((form) => fc.tuple(fc.constant(form), scrapsOf(form), sizes));
  fc.assert(
    fc.property(cases, ([form, answer, cut]) => {
      const whole = toldOf([answer], form);
      for (const pieces of cutsOf(answer, cut)) expect(toldOf(pieces, form)).toEqual(whole);
    }),
    runs(800),
  );
});

test("calls come back as they were written, and text around them unchanged", () => {
  const name = fc.stringMatching(/^[A-Za-z0-9_-]{1,64}$/);
  const values = fc.dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 }), { maxKeys: 3 });
  const part = fc.oneof(
    fc.tuple(name, values, fc.constantFrom(undefined, 2)).map(([called, given, spaces]): ReadPart[] => [
      { kind: "call", name: called },
      { kind: "arguments", text: JSON.stringify(given, null, spaces) },
    ]),
    fc.stringMatching(/^[a-z.]{1,8}$/).map((text): ReadPart[] => [{ kind: "text", text }]),
  );
  fc.assert(
    fc.property(fc.array(part, { maxLength: 5 }), sizes, (parts, cut) => {
      const written = ([first, given]: ReadPart[]): string =>
        first!.kind === "call"
          ? `\n<tool_call>\n{"name": ${JSON.stringify(first!.name)}, "arguments": ${(given as { text: string }).text}}\n</tool_call>`
          : (first as { text: string }).text;
      const answer = parts.map(written).join("");
      for (const pieces of cutsOf(answer, cut)) expect(toldOf(pieces)).toEqual(joined(parts.flat()));
    }),
    runs(100),
  );
});

test("channels of gpt-oss, and scraps of them", () => {
  const marks = thinkingMarksIn("<|channel|>analysis<|message|>")!;
  const { opening, closing, beforeText } = marks;
  const read = (pieces: readonly string[]) => {
    const reader = new ThinkingReader({ ...marks, isOpen: false, tokensMax: null });
    const told = [...pieces.map((piece) => reader.push(piece)), reader.end()];
    return [told.map(({ reasoning }) => reasoning).join(""), told.map(({ answer }) => answer).join("")];
  };
  const call = "<|channel|>commentary to=functions.f";
  const cases = [
    [`${opening}Two.${closing}${beforeText}Four.`, "Two.", "Four."],
    [`${beforeText}Four.`, "", "Four."],
    [`${opening}Look.${closing}${call}`, "Look.", call],
  ] as const;
  for (const [answer, reasoning, rest] of cases)
    for (const pieces of cutsOf(answer, [3])) expect(read(pieces)).toEqual([reasoning, rest]);
  const words = fc.constantFrom(opening, closing, beforeText!, call, "<|channel|>", "<|", "final", "a", "\n");
  const text = fc.array(words, { maxLength: 8 }).map((all) => all.join(""));
  fc.assert(
    fc.property(text, sizes, (answer, cut) => {
      const whole = read([answer]);
      for (const pieces of cutsOf(answer, cut)) expect(read(pieces)).toEqual(whole);
    }),
    runs(300),
  );
});

test("answers between tags, and scraps of them", () => {
  const form = { ...thinkingMarksIn("<think> .split('<answer>')")!, tokensMax: null };
  const read = (pieces: readonly string[], isOpen: boolean) => {
    const reader = new ThinkingReader({ ...form, isOpen });
    const told = [...pieces.map((piece) => reader.push(piece)), reader.end()];
    return [told.map(({ reasoning }) => reasoning).join(""), told.map(({ answer }) => answer).join("")];
  };
  const words = fc.constantFrom("<think>", "</think>", "<answer>", "</answer>", "<ans", "</", "\n", " ", "a");
  const text = fc.array(words, { maxLength: 10 }).map((all) => all.join(""));
  fc.assert(
    fc.property(text, sizes, fc.boolean(), (answer, cut, isOpen) => {
      const whole = read([answer], isOpen);
      for (const pieces of cutsOf(answer, cut)) expect(read(pieces, isOpen)).toEqual(whole);
    }),
    runs(400),
  );
});

test("marks that lead nowhere are text, thousands of them at once or piece by piece", () => {
  const answer = '<tool_call>{"<tool_call> '.repeat(20_000);
  const told = [{ kind: "text" as const, text: answer }];
  expect(toldOf([answer])).toEqual(told);
  expect(toldOf(answer.split(/(?=<)/))).toEqual(told);
});

test("thoughts, and scraps of them", () => {
  const read = (pieces: readonly string[], isOpen: boolean) => {
    const reader = new ThinkingReader({ opening: "<think>", closing: "</think>", isOpen, tokensMax: null });
    const told = [...pieces.map((piece) => reader.push(piece)), reader.end()];
    return [told.map(({ reasoning }) => reasoning).join(""), told.map(({ answer }) => answer).join("")];
  };
  const words = fc.constantFrom("<think>", "</think>", "<thi", "</", "<", "nk>", "\n", " ", "a", "So", "小");
  const text = fc.array(words, { maxLength: 12 }).map((all) => all.join(""));
  fc.assert(
    fc.property(text, sizes, fc.boolean(), (answer, cut, isOpen) => {
      const whole = read([answer], isOpen);
      for (const pieces of cutsOf(answer, cut)) expect(read(pieces, isOpen)).toEqual(whole);
      // Expected result from the whole text.
      const [, thought, after] =
        /^\s*<think>(.*?)(?:<\/think>(.*))?$/s.exec(isOpen ? `<think>${answer}` : answer) ?? [];
      expect(whole).toEqual(
        thought === undefined ? ["", answer] : [thought.trim(), (after ?? "").replace(/^\n+/, "")],
      );
    }),
    runs(800),
  );
});
