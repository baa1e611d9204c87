/** Golden texts of each format: their parsed calls, and their acceptance by the grammar. */
import { describe, expect, test } from "bun:test";
import { compileConstraint } from "../../grammar/compile.ts";
import { ConstraintError } from "../../grammar/error.ts";
import { Masks } from "../../grammar/mask/masks.ts";
import { Matcher, parserOf } from "../../grammar/mask/matcher.ts";
import { controlBytes, vocabularyOf } from "../../grammar/mask/vocabulary.ts";
import type { CallsSource } from "../../grammar/source.ts";
import type { CallForm } from "../../grammar/tools/call-form.ts";
import {
  callFormIn,
  cohere,
  functionGemma,
  gemma,
  gptOss,
  hermes,
  kimi,
  llamaJson,
  minimax,
  mistralArgs,
  mistralList,
  pythonic,
  qwenCoder,
  seed,
} from "./call-forms.ts";
import { CallReader, joined, type ReadPart } from "./call-reader.ts";
import { deepSeek, deepSeekFenced, deepSeekTagged } from "./deepseek.ts";
import { glm, glmLines } from "./glm.ts";

const parameters = {
  type: "object",
  properties: {
    city: { type: "string", maxLength: 12 },
    days: { type: "integer", minimum: 1 },
    units: { type: "string", enum: ["C", "F"] },
    exact: { type: "boolean" },
    tags: { type: "array", items: { type: "string" } },
  },
  required: ["city"],
  additionalProperties: false,
};
const functions = [
  { name: "get_weather", parameters, isStrict: true },
  {
    name: "now",
    parameters: { type: "object", properties: {}, additionalProperties: false },
    isStrict: true,
  },
];

interface Golden {
  readonly form: CallForm;
  /** Part of a template that identifies the format. */
  readonly template: string;
  /** A call of get_weather with Rome and 3 days, and in formats with several calls, one of now. */
  readonly calls: string;
  /** Parsed arguments: JSON keeps its white space. */
  readonly told: string;
  /** A call of get_weather with all arguments, and its parsed arguments. */
  readonly all: readonly [written: string, told: string];
  readonly controlTexts?: readonly string[];
}

const spaced = '{"city": "Rome", "days": 3}';
const allJson = '{"city": "A \\"b\\"", "days": 1, "units": "C", "exact": true, "tags": ["x", "}"]}';
const deepSeekMarks = ["calls▁begin", "call▁begin", "sep", "call▁end", "calls▁end"].map(
  (word) => `<｜tool▁${word}｜>`,
);

const goldens: Readonly<Record<string, Golden>> = {
  "Hermes and Qwen": {
    form: hermes,
    template: '<tool_call>\n{"name": <function-name>',
    calls: `<tool_call>\n{"name": "get_weather", "arguments": ${spaced}}\n</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>`,
    told: spaced,
    all: [`<tool_call>\n{"name": "get_weather", "arguments": ${allJson}}\n</tool_call>`, allJson],
  },
  "Qwen3-Coder": {
    form: qwenCoder,
    template: "<tool_call>\n<function=example>\n<parameter=a>",
    calls:
      "<tool_call>\n<function=get_weather>\n<parameter=city>\nRome\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n</tool_call>\n" +
      "<tool_call>\n<function=now>\n</function>\n</tool_call>",
    told: spaced,
    all: [
      '<tool_call>\n<function=get_weather>\n<parameter=city>\nA "b"\n</parameter>\n<parameter=days>\n1\n</parameter>\n<parameter=units>\nC\n</parameter>\n<parameter=exact>\ntrue\n</parameter>\n<parameter=tags>\n["x", "}"]\n</parameter>\n</function>\n</tool_call>',
      allJson,
    ],
  },
  "Seed-OSS": {
    form: seed,
    template: "<seed:tool_call>\n<function=example_function_name>",
    calls:
      "<seed:tool_call>\n<function=get_weather>\n<parameter=city>Rome</parameter>\n<parameter=days>3</parameter>\n</function>\n</seed:tool_call>\n" +
      "<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
    told: spaced,
    all: [
      '<seed:tool_call>\n<function=get_weather>\n<parameter=city>A "b"</parameter>\n<parameter=days>1</parameter>\n<parameter=units>C</parameter>\n<parameter=exact>true</parameter>\n<parameter=tags>["x", "}"]</parameter>\n</function>\n</seed:tool_call>',
      allJson,
    ],
    controlTexts: ["<seed:tool_call>", "</seed:tool_call>"],
  },
  "GLM 4.7": {
    form: glm,
    template: "<tool_call>{name}<arg_key>{key}</arg_key><arg_value>",
    calls:
      "<tool_call>get_weather<arg_key>city</arg_key><arg_value>Rome</arg_value><arg_key>days</arg_key><arg_value>3</arg_value></tool_call>" +
      "<tool_call>now</tool_call>",
    told: spaced,
    all: [
      '<tool_call>get_weather<arg_key>city</arg_key><arg_value>A "b"</arg_value><arg_key>days</arg_key><arg_value>1</arg_value><arg_key>units</arg_key><arg_value>C</arg_value><arg_key>exact</arg_key><arg_value>true</arg_value><arg_key>tags</arg_key><arg_value>["x", "}"]</arg_value></tool_call>',
      allJson,
    ],
    controlTexts: ["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"],
  },
  Cohere: {
    form: cohere,
    template: '<|START_ACTION|>[{"tool_call_id": "0", "tool_name": "',
    calls: `<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "get_weather", "parameters": ${spaced}},\n    {"tool_call_id": "12", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>`,
    told: spaced,
    all: [
      `<|START_ACTION|>[\n    {"tool_call_id": "3", "tool_name": "get_weather", "parameters": ${allJson}}\n]<|END_ACTION|>`,
      allJson,
    ],
    controlTexts: ["<|START_ACTION|>", "<|END_ACTION|>"],
  },
  "Gemma 4": {
    form: gemma,
    template: "<|tool_call>call:",
    calls:
      '<|tool_call>call:get_weather{city:<|"|>Rome<|"|>,days:3}<tool_call|><|tool_call>call:now{}<tool_call|>',
    told: spaced,
    all: [
      '<|tool_call>call:get_weather{city:<|"|>A "b"<|"|>,days:1,exact:true,tags:[<|"|>x<|"|>,<|"|>}<|"|>],units:<|"|>C<|"|>}<tool_call|>',
      '{"city": "A \\"b\\"", "days": 1, "exact": true, "tags": ["x", "}"], "units": "C"}',
    ],
    controlTexts: ["<|tool_call>", "<tool_call|>", '<|"|>'],
  },
  FunctionGemma: {
    form: functionGemma,
    template: "<start_function_call>call:{{ name }}<escape>",
    calls:
      "<start_function_call>call:get_weather{city:<escape>Rome<escape>,days:3}<end_function_call><start_function_call>call:now{}<end_function_call>",
    told: spaced,
    all: [
      '<start_function_call>call:get_weather{city:<escape>A "b"<escape>,days:1,exact:true,tags:[<escape>x<escape>,<escape>}<escape>],units:<escape>C<escape>}<end_function_call>',
      '{"city": "A \\"b\\"", "days": 1, "exact": true, "tags": ["x", "}"], "units": "C"}',
    ],
    controlTexts: ["<start_function_call>", "<end_function_call>", "<escape>"],
  },
  "Kimi K2": {
    form: kimi,
    template: "<|tool_calls_section_begin|>",
    calls: `<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>${spaced}<|tool_call_end|><|tool_call_begin|>functions.now:10<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>`,
    told: spaced,
    all: [
      `<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>${allJson}<|tool_call_end|><|tool_calls_section_end|>`,
      allJson,
    ],
    controlTexts: [
      ...["<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"],
      ...["<|tool_call_argument_begin|>", "<|tool_call_end|>"],
    ],
  },
  "DeepSeek V3.2": {
    form: deepSeekTagged("function_calls"),
    template: "<' + '｜DSML｜' + 'function_calls>",
    calls:
      '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n' +
      '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
    told: spaced,
    all: [
      '<｜DSML｜function_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">A "b"</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">1</｜DSML｜parameter>\n<｜DSML｜parameter name="units" string="true">C</｜DSML｜parameter>\n<｜DSML｜parameter name="exact" string="false">true</｜DSML｜parameter>\n<｜DSML｜parameter name="tags" string="false">["x", "}"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>',
      allJson,
    ],
    controlTexts: ["｜DSML｜"],
  },
  "MiniMax M2": {
    form: minimax,
    template: "<minimax:tool_call>\n<invoke name=",
    calls:
      '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">Rome</parameter>\n<parameter name="days">3</parameter>\n</invoke>\n' +
      '<invoke name="now">\n</invoke>\n</minimax:tool_call>',
    told: spaced,
    all: [
      '<minimax:tool_call>\n<invoke name="get_weather">\n<parameter name="city">A "b"</parameter>\n<parameter name="days">1</parameter>\n<parameter name="units">C</parameter>\n<parameter name="exact">true</parameter>\n<parameter name="tags">["x", "}"]</parameter>\n</invoke>\n</minimax:tool_call>',
      allJson,
    ],
    controlTexts: ["<minimax:tool_call>", "</minimax:tool_call>"],
  },
  "GLM 4.5": {
    form: glmLines,
    template: "<tool_call>{name}\n<arg_key>",
    calls:
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n" +
      "<tool_call>now\n</tool_call>",
    told: spaced,
    all: [
      '<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>A "b"</arg_value>\n<arg_key>days</arg_key>\n<arg_value>1</arg_value>\n<arg_key>units</arg_key>\n<arg_value>C</arg_value>\n<arg_key>exact</arg_key>\n<arg_value>true</arg_value>\n<arg_key>tags</arg_key>\n<arg_value>["x", "}"]</arg_value>\n</tool_call>',
      allJson,
    ],
  },
  "Llama's JSON": {
    form: llamaJson,
    template: 'Respond in the format {"name": function name, "parameters": dictionary',
    calls: `{"name": "get_weather", "parameters": ${spaced}}`,
    told: spaced,
    all: [`{"name": "get_weather", "parameters": ${allJson}}`, allJson],
  },
  "Llama's Python": {
    form: pythonic,
    template: "[func_name1(params_name1=params_value1)]",
    calls: '[get_weather(city="Rome", days=3), now()]',
    told: spaced,
    all: ['[get_weather(city="A \\"b\\"", days=1, units="C", exact=True, tags=["x", "}"])]', allJson],
  },
  "Mistral's list": {
    form: mistralList(" "),
    template: "[TOOL_CALLS] [",
    calls: `[TOOL_CALLS] [{"name": "get_weather", "arguments": ${spaced}}, {"name": "now", "arguments": {}}]`,
    told: spaced,
    all: [`[TOOL_CALLS] [{"name": "get_weather", "arguments": ${allJson}}]`, allJson],
    controlTexts: ["[TOOL_CALLS]"],
  },
  "Mistral's [ARGS]": {
    form: mistralArgs,
    template: '"[TOOL_CALLS]" + name + "[ARGS]"',
    calls: `[TOOL_CALLS]get_weather[ARGS]${spaced}[TOOL_CALLS]now[ARGS]{}`,
    told: spaced,
    all: [`[TOOL_CALLS]get_weather[ARGS]${allJson}`, allJson],
    controlTexts: ["[TOOL_CALLS]", "[ARGS]"],
  },
  "gpt-oss": {
    form: gptOss,
    template: '"<|channel|>commentary " to="functions."',
    calls: `<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>${spaced}`,
    told: spaced,
    all: [`<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>${allJson}`, allJson],
    controlTexts: ["<|channel|>", "<|constrain|>", "<|message|>"],
  },
  "DeepSeek V3.1": {
    form: deepSeek,
    template: "<｜tool▁calls▁begin｜>",
    calls: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>${spaced}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
    told: spaced,
    all: [
      `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>${allJson}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
      allJson,
    ],
  },
  "DeepSeek V3": {
    form: deepSeekFenced,
    template: "<｜tool▁calls▁begin｜> ```json",
    calls: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n\`\`\`json\n${spaced}\n\`\`\`<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n\`\`\`json\n{}\n\`\`\`<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
    told: spaced,
    all: [
      `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n\`\`\`json\n${allJson}\n\`\`\`<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
      allJson,
    ],
    controlTexts: deepSeekMarks,
  },
};

function toldOf(form: CallForm, pieces: readonly string[]): ReadPart[] {
  const reader = new CallReader(form, functions);
  return joined([...pieces.flatMap((piece) => reader.push(piece)), ...reader.end()]);
}

/** Matcher whose tokens are single bytes and control texts. */
function matcherOf({ form, controlTexts = [] }: Golden, more: Partial<CallsSource> = {}) {
  const encode = (text: string) => new TextEncoder().encode(text);
  const masks = new Masks(
    vocabularyOf(256 + controlTexts.length, (token) =>
      token < 256 ? Uint8Array.of(token) : controlBytes(encode(controlTexts[token - 256]!)),
    ),
  );
  const source: CallsSource = {
    ...{
      kind: "calls",
      form,
      controlTexts,
      functions,
      callsMax: null,
      mayTalk: true,
      otherwise: null,
      beforeText: "",
      afterText: "",
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

describe.each(Object.entries(goldens))("%s", (_, golden) => {
  const { form, template, calls, told, all } = golden;
  const isMany = form.callsMax === null;
  const expected: ReadPart[] = [
    { kind: "call", name: "get_weather" },
    { kind: "arguments", text: told },
    ...(isMany
      ? ([
          { kind: "call", name: "now" },
          { kind: "arguments", text: "{}" },
        ] as const)
      : []),
  ];

  test("is told from a template", () => {
    expect(callFormIn(`{{ '...' }}${template}{{ name }}`)).toEqual(form);
  });

  test("is read however it is cut", () => {
    expect(toldOf(form, [calls])).toEqual(expected);
    expect(toldOf(form, [...calls])).toEqual(expected);
    for (let at = 0; at <= calls.length; at++)
      expect(toldOf(form, [calls.slice(0, at), calls.slice(at)])).toEqual(expected);
    expect(toldOf(form, [...all[0]])).toEqual([
      { kind: "call", name: "get_weather" },
      { kind: "arguments", text: all[1] },
    ]);
  });

  test("is read as far as it goes: arguments of a call that was cut off are a beginning of the whole ones", () => {
    for (let at = 0; at < all[0].length; at++) {
      const parts = toldOf(form, [all[0].slice(0, at)]);
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
    expect(toldOf(form, [text + calls])).toEqual(after);
    expect(toldOf(form, [text])).toEqual([{ kind: "text", text }]);
    const obeys = matcherOf(golden);
    expect(obeys(text)).toBe(true);
    // Control tokens are no text.
    expect(obeys(text + calls)).toBe(form.place !== "alone" || golden.controlTexts === undefined);
  });

  test("is what models are held to", () => {
    const obeys = matcherOf(golden);
    expect(obeys(calls)).toBe(true);
    expect(obeys(all[0])).toBe(true);
    const forced = matcherOf(golden, { mayTalk: false });
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
    if (golden.controlTexts !== undefined)
      expect([forced(calls, false), obeys(calls, false)]).toEqual([false, false]);
    const one = matcherOf(golden, { callsMax: 1 });
    expect([one(all[0]), one(calls)]).toEqual([true, !isMany]);
  });

  test("may be used, or else the answer have a structure", () => {
    const otherwise = { kind: "choice" as const, texts: ["yes"] };
    const obeys = matcherOf(golden, { otherwise });
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
      beforeText: "",
      afterText: "",
    });

  test("that cannot be kept to are refused of strict functions, and any of others", () => {
    for (const form of [qwenCoder, pythonic]) {
      for (const schema of [{ anyOf: [{}] }, { properties: {}, required: ["a"] }, { minProperties: 1 }]) {
        expect(() => compile(form, schema, true)).toThrow(ConstraintError);
        expect(compile(form, schema, false).ignored).toHaveLength(1);
      }
    }
    expect(() => compile(pythonic, { properties: { "a b": {} } }, true)).toThrow("no name of an argument");
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
    const obeys = matcherOf(goldens["Gemma 4"]!, { functions: [strict], mayTalk: false });
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
      const parts = toldOf(gemma, [...call(inside)]);
      expect(parts).toEqual([
        { kind: "call", name: "get_weather" },
        { kind: "arguments", text: told },
      ]);
      JSON.parse(told);
    }
    for (const property of [{ anyOf: [{}] }, { type: "array", uniqueItems: true }])
      expect(() => compile(gemma, { type: "object", properties: { a: property } }, true)).toThrow(
        ConstraintError,
      );
  });

  test("of functions that say nothing of them may be any", () => {
    const free = { name: "get_weather", parameters: null, isStrict: false };
    const obeys = matcherOf(goldens["Llama's Python"]!, { functions: [free] });
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
    const obeys = matcherOf(goldens["Qwen3-Coder"]!, { functions: [strict], mayTalk: false });
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
