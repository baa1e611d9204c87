/**
 * Answers as models write them are read, allowed, and written by their chat templates to the same text: prompts of later
 * turns begin with the earlier prompt and its answer.
 */
import { describe, expect, test } from "bun:test";
import { compileConstraint } from "../../grammar/compile.ts";
import { Masks } from "../../grammar/mask/masks.ts";
import { Matcher, parserOf } from "../../grammar/mask/matcher.ts";
import { vocabularyOf } from "../../grammar/mask/vocabulary.ts";
import { type CallsSource, type ConstraintSource, noMarks } from "../../grammar/source.ts";
import { dialects, THOUGHT } from "../../tests/support/dialects.ts";
import { readCalls } from "../../tests/support/read-calls.ts";
import { ControlTexts, plainText } from "../control-text.ts";
import type { ChatMessage } from "../conversation/messages.ts";
import { ChatTemplate } from "../template.ts";
import { answerFormat } from "./answer-format.ts";
import { type CallFormName, callFormNameIn, callForms } from "./call-forms.ts";
import { ThinkingReader, thinkingMarksIn } from "./thinking.ts";
import { writtenCalls } from "./written-calls.ts";

const types = { city: "string", days: "integer", exact: "boolean", size: "number", tags: "array" };
const properties = Object.fromEntries(Object.entries(types).map(([name, type]) => [name, { type }]));
const calls = [
  {
    name: "get_weather",
    arguments: { city: "Rome", days: 3, exact: true, size: 1.5, tags: ["x", "y"] },
    parameters: { type: "object", properties },
  },
  { name: "now", arguments: {}, parameters: { type: "object", properties: {} } },
];
const tools = calls.map(({ name, parameters }) => ({
  type: "function",
  function: { name, description: "Does it.", parameters },
}));
const functions = calls.map(({ name, parameters }) => ({ name, parameters, isStrict: true }));

const bytes = new Masks(vocabularyOf(256, (token) => Uint8Array.of(token)));

/** True if the constraint accepts the text, and lets it end. */
function obeys(source: ConstraintSource, text: string): boolean {
  const matcher = new Matcher(parserOf(compileConstraint(source).grammar, bytes), bytes);
  return new TextEncoder().encode(text).every((byte) => matcher.accept(byte)) && matcher.mayEnd;
}

describe.each([...dialects])("%s", (_, dialect) => {
  const source = { template: dialect.template, toolTemplate: null, specialTokens: {} };
  const template = new ChatTemplate(source, new ControlTexts([]));
  const write = (messages: readonly ChatMessage[]): string =>
    plainText(template.write(messages, { addGenerationPrompt: true, tools }));
  const question = { role: "user", content: "Weather?" };
  const prompt = write([question]);
  const format = answerFormat(dialect.template, prompt, null);

  test("is told from its template", () => {
    expect(callFormNameIn(dialect.template)).toBe(dialect.calls);
    expect(thinkingMarksIn(dialect.template)?.opening ?? null).toBe(dialect.thoughts);
    expect(prompt.endsWith(`assistant\n${dialect.opened}`)).toBe(true);
    expect(format.thinking?.isOpen ?? false).toBe(dialect.opened !== "");
  });

  const { calls: name } = dialect;
  const form = name === null ? null : callForms[name];
  const made = form === null ? [] : calls.slice(0, form.callsMax ?? 2);
  const called = form === null ? "Sun." : writtenCalls(form, made);
  const answer = dialect.thought + called;

  test("is read and allowed", () => {
    const reader = format.thinking === null ? null : new ThinkingReader(format.thinking);
    const read = reader === null ? [{ reasoning: "", answer }] : [reader.push(answer), reader.end()];
    expect(read.map(({ reasoning }) => reasoning).join("")).toBe(dialect.thought === "" ? "" : THOUGHT);
    const rest = read.map((part) => part.answer).join("");
    expect(rest).toBe(called);
    if (form === null) return;
    const told = readCalls(form, functions, [...rest]);
    const values = told.map((part) => {
      if (part.kind === "arguments") return JSON.parse(part.text) as unknown;
      return part.kind === "call" ? part.name : part;
    });
    expect(values).toEqual(made.flatMap((call) => [call.name, call.arguments]));
    const forced: CallsSource = {
      ...{ kind: "calls", form, functions, controlTexts: [], callsMax: null, mayTalk: false },
      ...{ otherwise: null, marks: noMarks },
    };
    const held = (inner: CallsSource): ConstraintSource =>
      format.thinking === null
        ? inner
        : { kind: "thinking", ...format.thinking, controlTexts: [], answer: inner, marks: noMarks };
    expect(obeys(held(forced), answer)).toBe(true);
    expect(obeys(held({ ...forced, mayTalk: true }), answer)).toBe(true);
    expect(obeys(held(forced), `${dialect.thought}Sun.`)).toBe(false);
  });

  test("is written as it was, so that the next prompt begins with this one and its answer", () => {
    const told = form === null ? [] : readCalls(form, functions, [called]);
    const ids = told.flatMap((part) => (part.kind === "call" ? [part.id] : []));
    const idOf = (index: number): string => ids[index] ?? `call_${index}`;
    const past = {
      role: "assistant",
      content: form === null ? "Sun." : "",
      ...(dialect.thoughts === null ? {} : { reasoning_content: THOUGHT }),
      tool_calls: made.map(({ name: of, arguments: values }, index) => ({
        id: idOf(index),
        type: "function",
        function: { name: of, arguments: values },
      })),
    };
    const results = made.map((_call, index) => ({
      role: "tool",
      tool_call_id: idOf(index),
      content: "Sun.",
    }));
    const next = write([question, past, ...results, { role: "user", content: "And then?" }]);
    expect(next.slice(0, prompt.length + answer.length)).toBe(prompt + answer);
  });
});

test("every form of calls is some model's", () => {
  const used = new Set([...dialects.values()].map((dialect) => dialect.calls));
  expect(Object.keys(callForms).filter((name) => !used.has(name as CallFormName))).toEqual([]);
});
