/** Golden texts of each format: their parsed calls, and their acceptance by the grammar. */
import { describe, expect, test } from "bun:test";
import { compileConstraint } from "../../grammar/compile.ts";
import { ConstraintError } from "../../grammar/error.ts";
import { Masks } from "../../grammar/mask/masks.ts";
import { Matcher, parserOf } from "../../grammar/mask/matcher.ts";
import { controlBytes, vocabularyOf } from "../../grammar/mask/vocabulary.ts";
import { type CallsSource, noMarks } from "../../grammar/source.ts";
import type { CallForm } from "../../grammar/tools/call-form.ts";
import { weatherFunctions as functions, goldenCalls } from "../../tests/support/golden-calls.ts";
import { readCalls } from "../../tests/support/read-calls.ts";
import { type CallFormName, callFormIn, callForms } from "./call-forms.ts";
import type { ReadPart } from "./call-reader.ts";

/** Matcher whose tokens are single bytes and control texts. */
function matcherOf(name: CallFormName, more: Partial<CallsSource> = {}) {
  const { controlTexts = [] } = goldenCalls[name];
  const encode = (text: string) => new TextEncoder().encode(text);
  const masks = new Masks(
    vocabularyOf(256 + controlTexts.length, (token) =>
      token < 256 ? Uint8Array.of(token) : controlBytes(encode(controlTexts[token - 256]!)),
    ),
  );
  const source: CallsSource = {
    ...{
      kind: "calls",
      form: callForms[name],
      controlTexts,
      functions,
      callsMax: null,
      mayTalk: true,
      otherwise: null,
      marks: noMarks,
    },
    ...more,
  };
  const matcher = new Matcher(parserOf(compileConstraint(source).grammar, masks), masks);
  /** True if the grammar accepts the text and allows it to end. */
  return (text: string, asTokens = true): boolean => {
    const tokens: number[] = [];
    for (let at = 0; at < text.length; ) {
      const control = asTokens ? controlTexts.findIndex((one) => text.startsWith(one, at)) : -1;
      const length =
        control < 0 ? String.fromCodePoint(text.codePointAt(at)!).length : controlTexts[control]!.length;
      if (control < 0) tokens.push(...encode(text.slice(at, at + length)));
      else tokens.push(256 + control);
      at += length;
    }
    const mine = matcher.fork();
    return tokens.every((token) => mine.accept(token)) && mine.mayEnd;
  };
}

describe.each(Object.keys(callForms) as CallFormName[])("%s", (name) => {
  const form: CallForm = callForms[name];
  const { template, calls, told, all, controlTexts, ids } = goldenCalls[name];
  const called = (one: string, index: number): ReadPart =>
    ids === undefined ? { kind: "call", name: one } : { kind: "call", name: one, id: ids[index]! };
  const toldOf = (pieces: readonly string[]) => readCalls(form, functions, pieces);
  const isMany = form.callsMax === null;
  const expected: ReadPart[] = [
    called("get_weather", 0),
    { kind: "arguments", text: told },
    ...(isMany ? ([called("now", 1), { kind: "arguments", text: "{}" }] as const) : []),
  ];

  test("is told from a template", () => {
    expect(callFormIn(`{{ '...' }}${template}{{ name }}`)).toEqual(form);
  });

  test("is read however it is cut", () => {
    expect(toldOf([calls])).toEqual(expected);
    expect(toldOf([...calls])).toEqual(expected);
    for (let at = 0; at <= calls.length; at++)
      expect(toldOf([calls.slice(0, at), calls.slice(at)])).toEqual(expected);
    expect(toldOf([...all[0]])).toEqual([called("get_weather", 0), { kind: "arguments", text: all[1] }]);
  });

  test("is read as far as it goes: arguments of a call that was cut off are a beginning of the whole ones", () => {
    for (let at = 0; at < all[0].length; at++) {
      const parts = toldOf([all[0].slice(0, at)]);
      const given = parts.map((part) => (part.kind === "arguments" ? part.text : "")).join("");
      expect(all[1].startsWith(given.replace(/[A-Za-z]*$/, ""))).toBe(true);
      expect(parts.length).toBeLessThanOrEqual(2);
    }
  });

  test("may follow text where the form has it", () => {
    const text = "Let me look.";
    const after =
      form.place === "alone"
        ? [{ kind: "text" as const, text: text + calls }]
        : [{ kind: "text" as const, text }, ...expected];
    expect(toldOf([text + calls])).toEqual(after);
    expect(toldOf([text])).toEqual([{ kind: "text", text }]);
    const obeys = matcherOf(name);
    expect(obeys(text)).toBe(true);
    // Control tokens are no text.
    expect(obeys(text + calls)).toBe(form.place !== "alone" || controlTexts === undefined);
  });

  test("is what models are held to", () => {
    const obeys = matcherOf(name);
    expect(obeys(calls)).toBe(true);
    expect(obeys(all[0])).toBe(true);
    const forced = matcherOf(name, { mayTalk: false });
    expect([forced(calls), forced(all[0]), forced("text"), forced("")]).toEqual([true, true, false, false]);
    const wrong = (from: string, to: string): string => {
      expect(all[0]).toContain(from);
      return all[0].replace(from, to);
    };
    for (const text of [
      wrong("get_weather", "get_wether"),
      wrong("days", "hours"),
      wrong("1", "0"),
      all[0].slice(0, -1),
    ])
      expect([text, forced(text)]).toEqual([text, false]);
    if (controlTexts !== undefined)
      expect([forced(calls, false), obeys(calls, false)]).toEqual([false, false]);
    const one = matcherOf(name, { callsMax: 1 });
    expect([one(all[0]), one(calls)]).toEqual([true, !isMany]);
  });

  test("may be used, or else the answer have a structure", () => {
    const otherwise = { kind: "choice" as const, texts: ["yes"] };
    const obeys = matcherOf(name, { otherwise });
    expect([obeys(calls), obeys("yes"), obeys("no")]).toEqual([true, true, false]);
  });
});

describe("arguments one by one", () => {
  const compile = (form: CallForm, schema: object, isStrict: boolean) =>
    compileConstraint({
      kind: "calls",
      form,
      controlTexts: [],
      functions: [{ name: "f", parameters: schema, isStrict }],
      callsMax: null,
      mayTalk: true,
      otherwise: null,
      marks: noMarks,
    });

  test("that cannot be kept to are refused of strict functions, and any of others", () => {
    for (const form of [callForms["Qwen3-Coder"], callForms["Llama's Python"]]) {
      for (const schema of [{ anyOf: [{}] }, { properties: {}, required: ["a"] }, { minProperties: 1 }]) {
        expect(() => compile(form, schema, true)).toThrow(ConstraintError);
        expect(compile(form, schema, false).ignored).toHaveLength(1);
      }
    }
    expect(() => compile(callForms["Llama's Python"], { properties: { "a b": {} } }, true)).toThrow(
      "no name of an argument",
    );
  });

  test("without quotes hold nested values, or any where nothing is said", () => {
    const schema = {
      type: "object",
      properties: {
        place: {
          type: "object",
          properties: {
            lat: { type: "number" },
            names: { type: "array", items: { type: "string" }, maxItems: 2 },
          },
          required: ["lat"],
        },
        free: {},
        maybe: { type: ["string", "null"] },
      },
    };
    const strict = { name: "get_weather", parameters: schema, isStrict: true };
    const obeys = matcherOf("Gemma 4", { functions: [strict], mayTalk: false });
    const call = (inside: string): string => `<|tool_call>call:get_weather{${inside}}<tool_call|>`;
    const cases: [inside: string, told: string | null][] = [
      ["place:{lat:1.5,names:[]}", '{"place": {"lat": 1.5, "names": []}}'],
      ['place:{lat:-2,names:[<|"|>a{<|"|>]}', '{"place": {"lat": -2, "names": ["a{"]}}'],
      ["free:{a:[null,{b:true}],c:{}}", '{"free": {"a": [null, {"b": true}], "c": {}}}'],
      ["free:1,place:{lat:2}", '{"free": 1, "place": {"lat": 2}}'],
      ["", "{}"],
      ["maybe:null", '{"maybe": null}'],
      ['maybe:<|"|><|"|>', '{"maybe": ""}'],
      ["maybe:1", null],
      ["place:{}", null],
      ['place:{lat:<|"|>1<|"|>}', null],
      ['place:{lat:1,names:[<|"|>a<|"|>,<|"|>b<|"|>,<|"|>c<|"|>]}', null],
      ["free: 1", null],
      ["other:1", null],
    ];
    expect(cases.map(([inside]) => [inside, obeys(call(inside))])).toEqual(
      cases.map(([inside, told]) => [inside, told !== null]),
    );
    for (const [inside, told] of cases) {
      if (told === null) continue;
      const parts = readCalls(callForms["Gemma 4"], functions, [...call(inside)]);
      expect(parts).toEqual([
        { kind: "call", name: "get_weather" },
        { kind: "arguments", text: told },
      ]);
      JSON.parse(told);
    }
    for (const property of [{ anyOf: [{}] }, { type: "array", uniqueItems: true }])
      expect(() =>
        compile(callForms["Gemma 4"], { type: "object", properties: { a: property } }, true),
      ).toThrow(ConstraintError);
  });

  test("of functions that say nothing of them may be any", () => {
    const free = { name: "get_weather", parameters: null, isStrict: false };
    const obeys = matcherOf("Llama's Python", { functions: [free] });
    expect(obeys('[get_weather(a=1, b=["x"])]')).toBe(true);
    expect(obeys("[get_weather()]")).toBe(true);
  });

  test("hold strings to their pattern, length and format, without the mark that ends them", () => {
    const schema = {
      type: "object",
      properties: {
        code: { type: "string", pattern: "^[a-z]+$", minLength: 2 },
        day: { type: "string", format: "date" },
        note: { type: "string" },
      },
    };
    const strict = { name: "get_weather", parameters: schema, isStrict: true };
    const obeys = matcherOf("Qwen3-Coder", { functions: [strict], mayTalk: false });
    const call = (name: string, value: string) =>
      `<tool_call>\n<function=get_weather>\n<parameter=${name}>\n${value}\n</parameter>\n</function>\n</tool_call>`;
    expect(["ab", "a", "A1"].map((value) => obeys(call("code", value)))).toEqual([true, false, false]);
    expect(["2026-11-22", "22.11."].map((value) => obeys(call("day", value)))).toEqual([true, false]);
    expect(["two\nlines <b>", "a </parameter> b"].map((value) => obeys(call("note", value)))).toEqual([
      true,
      false,
    ]);
  });
});
