/** Calls in every form as models write them, written by hand. */
import type { CallFormName } from "../../text/formats/call-forms.ts";

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
/** Functions that the calls name. */
export const weatherFunctions = [
  { name: "get_weather", parameters, isStrict: true },
  {
    name: "now",
    parameters: { type: "object", properties: {}, additionalProperties: false },
    isStrict: true,
  },
];

/** Texts of one call form. */
export interface GoldenCalls {
  /** Part of a template that identifies the format. */
  readonly template: string;
  /** A call of get_weather with Rome and 3 days, and in formats with several calls, one of now. */
  readonly calls: string;
  /** Parsed arguments: JSON keeps its white space. */
  readonly told: string;
  /** A call of get_weather with all arguments, and its parsed arguments. */
  readonly all: readonly [written: string, told: string];
  /** Ids of the calls, for models that make up some. */
  readonly ids?: readonly [string, string];
  readonly controlTexts?: readonly string[];
}

const spaced = '{"city": "Rome", "days": 3}';
const allJson = '{"city": "A \\"b\\"", "days": 1, "units": "C", "exact": true, "tags": ["x", "}"]}';
const deepSeekMarks = ["calls▁begin", "call▁begin", "sep", "call▁end", "calls▁end"].map(
  (word) => `<｜tool▁${word}｜>`,
);

export const goldenCalls: Readonly<Record<CallFormName, GoldenCalls>> = {
  Hermes: {
    template: '<tool_call>\n{"name": <function-name>',
    calls: `<tool_call>\n{"name": "get_weather", "arguments": ${spaced}}\n</tool_call>\n<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>`,
    told: spaced,
    all: [`<tool_call>\n{"name": "get_weather", "arguments": ${allJson}}\n</tool_call>`, allJson],
  },
  "Qwen3-Coder": {
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
    template: 'Respond in the format {"name": function name, "parameters": dictionary',
    calls: `{"name": "get_weather", "parameters": ${spaced}}`,
    told: spaced,
    all: [`{"name": "get_weather", "parameters": ${allJson}}`, allJson],
  },
  "Llama's Python": {
    template: "[func_name1(params_name1=params_value1)]",
    calls: '[get_weather(city="Rome", days=3), now()]',
    told: spaced,
    all: ['[get_weather(city="A \\"b\\"", days=1, units="C", exact=True, tags=["x", "}"])]', allJson],
  },
  "Mistral's spaced list": {
    template: "[TOOL_CALLS] [",
    calls: `[TOOL_CALLS] [{"name": "get_weather", "arguments": ${spaced}}, {"name": "now", "arguments": {}}]`,
    told: spaced,
    all: [`[TOOL_CALLS] [{"name": "get_weather", "arguments": ${allJson}}]`, allJson],
    controlTexts: ["[TOOL_CALLS]"],
  },
  "Mistral's [ARGS]": {
    template: '"[TOOL_CALLS]" + name + "[ARGS]"',
    calls: `[TOOL_CALLS]get_weather[ARGS]${spaced}[TOOL_CALLS]now[ARGS]{}`,
    told: spaced,
    all: [`[TOOL_CALLS]get_weather[ARGS]${allJson}`, allJson],
    controlTexts: ["[TOOL_CALLS]", "[ARGS]"],
  },
  "Mistral's [CALL_ID]": {
    template: '"[TOOL_CALLS]" + name + "[CALL_ID]" + id + "[ARGS]"',
    calls: `[TOOL_CALLS]get_weather[CALL_ID]a7b2C3d4e[ARGS]${spaced}[TOOL_CALLS]now[CALL_ID]000000000[ARGS]{}`,
    ids: ["a7b2C3d4e", "000000000"],
    told: spaced,
    all: [`[TOOL_CALLS]get_weather[CALL_ID]a7b2C3d4e[ARGS]${allJson}`, allJson],
    controlTexts: ["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"],
  },
  "gpt-oss": {
    template: '"<|channel|>commentary " to="functions."',
    calls: `<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>${spaced}`,
    told: spaced,
    all: [`<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>${allJson}`, allJson],
    controlTexts: ["<|channel|>", "<|constrain|>", "<|message|>"],
  },
  "DeepSeek V3.1": {
    template: "<｜tool▁calls▁begin｜>",
    calls: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>${spaced}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
    told: spaced,
    all: [
      `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>${allJson}<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
      allJson,
    ],
  },
  "DeepSeek V3": {
    template: "<｜tool▁calls▁begin｜> ```json",
    calls: `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n\`\`\`json\n${spaced}\n\`\`\`<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n\`\`\`json\n{}\n\`\`\`<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
    told: spaced,
    all: [
      `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n\`\`\`json\n${allJson}\n\`\`\`<｜tool▁call▁end｜><｜tool▁calls▁end｜>`,
      allJson,
    ],
    controlTexts: deepSeekMarks,
  },
  "EXAONE 4": {
    template: '<tool_call>{"name": function_1_name, "arguments": {}}</tool_call>',
    calls: `<tool_call>{"name": "get_weather", "arguments": ${spaced}}</tool_call>\n<tool_call>{"name": "now", "arguments": {}}</tool_call>`,
    told: spaced,
    all: [`<tool_call>{"name": "get_weather", "arguments": ${allJson}}</tool_call>`, allJson],
  },
  "Ling 3": {
    template: "'<tool_call>' + name <arg_key> '\\n</tool_call>'",
    calls:
      "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Rome</arg_value><arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call>\n" +
      "<tool_call>now\n\n</tool_call>",
    told: spaced,
    all: [
      '<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>A "b"</arg_value><arg_key>days</arg_key>\n<arg_value>1</arg_value><arg_key>units</arg_key>\n<arg_value>C</arg_value><arg_key>exact</arg_key>\n<arg_value>true</arg_value><arg_key>tags</arg_key>\n<arg_value>["x", "}"]</arg_value>\n</tool_call>',
      allJson,
    ],
    controlTexts: ["<tool_call>", "</tool_call>"],
  },
  "MiniCPM 5": {
    template: '<function name="f"><param name="a">',
    calls:
      '<function name="get_weather"><param name="city">Rome</param><param name="days">3</param></function>\n' +
      '<function name="now"></function>',
    told: spaced,
    all: [
      '<function name="get_weather"><param name="city">A "b"</param><param name="days">1</param><param name="units">C</param><param name="exact">true</param><param name="tags">["x", "}"]</param></function>',
      allJson,
    ],
  },
  "DeepSeek V4": {
    template: "<' + '｜DSML｜' + 'tool_calls>",
    calls:
      '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">3</｜DSML｜parameter>\n</｜DSML｜invoke>\n' +
      '<｜DSML｜invoke name="now">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
    told: spaced,
    all: [
      '<｜DSML｜tool_calls>\n<｜DSML｜invoke name="get_weather">\n<｜DSML｜parameter name="city" string="true">A "b"</｜DSML｜parameter>\n<｜DSML｜parameter name="days" string="false">1</｜DSML｜parameter>\n<｜DSML｜parameter name="units" string="true">C</｜DSML｜parameter>\n<｜DSML｜parameter name="exact" string="false">true</｜DSML｜parameter>\n<｜DSML｜parameter name="tags" string="false">["x", "}"]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>',
      allJson,
    ],
    controlTexts: ["｜DSML｜"],
  },
  "Mistral's list": {
    template: "[TOOL_CALLS][",
    calls: `[TOOL_CALLS][{"name": "get_weather", "arguments": ${spaced}}, {"name": "now", "arguments": {}}]`,
    told: spaced,
    all: [`[TOOL_CALLS][{"name": "get_weather", "arguments": ${allJson}}]`, allJson],
    controlTexts: ["[TOOL_CALLS]"],
  },
  Hunyuan: {
    template: "<tool_calls><tool_call>' + name + '\\n' + '```json",
    calls: `<tool_calls><tool_call>get_weather\n\`\`\`json\n${spaced}\n\`\`\`</tool_call>\n<tool_call>now\n\`\`\`json\n{}\n\`\`\`</tool_call></tool_calls>`,
    told: spaced,
    all: [
      `<tool_calls><tool_call>get_weather\n\`\`\`json\n${allJson}\n\`\`\`</tool_call></tool_calls>`,
      allJson,
    ],
    controlTexts: ["<tool_calls>", "</tool_calls>", "<tool_call>", "</tool_call>"],
  },
  "Hunyuan's list": {
    template: '<tool_calls>[{"name": "func_name1", ...]</tool_calls>',
    calls: `<tool_calls>[{"name": "get_weather", "arguments": ${spaced}}, {"name": "now", "arguments": {}}]</tool_calls>`,
    told: spaced,
    all: [`<tool_calls>[{"name": "get_weather", "arguments": ${allJson}}]</tool_calls>`, allJson],
  },
  "Granite 3": {
    template: "respond only with <|tool_call|> followed by a JSON list",
    calls: `<|tool_call|>[{"name": "get_weather", "arguments": ${spaced}}, {"name": "now", "arguments": {}}]`,
    told: spaced,
    all: [`<|tool_call|>[{"name": "get_weather", "arguments": ${allJson}}]`, allJson],
    controlTexts: ["<|tool_call|>"],
  },
  "Phi-4-mini": {
    template: "'<|tool|>' + tools + '<|/tool|>'",
    calls: `<|tool_call|>[{"name": "get_weather", "arguments": ${spaced}}, {"name": "now", "arguments": {}}]<|/tool_call|>`,
    told: spaced,
    all: [`<|tool_call|>[{"name": "get_weather", "arguments": ${allJson}}]<|/tool_call|>`, allJson],
    controlTexts: ["<|tool_call|>", "<|/tool_call|>"],
  },
  "Nemotron 2": {
    template: "<TOOLCALL>[",
    calls: `<TOOLCALL>[{"name": "get_weather", "arguments": ${spaced}}, {"name": "now", "arguments": {}}]</TOOLCALL>`,
    told: spaced,
    all: [`<TOOLCALL>[{"name": "get_weather", "arguments": ${allJson}}]</TOOLCALL>`, allJson],
  },
  LFM2: {
    template: "<|tool_call_start|>[",
    calls: "<|tool_call_start|>[get_weather(city='Rome', days=3), now()]<|tool_call_end|>",
    told: spaced,
    all: [
      '<|tool_call_start|>[get_weather(city=\'A "b"\', days=1, units="C", exact=True, tags=["x", "}"])]<|tool_call_end|>',
      allJson,
    ],
    controlTexts: ["<|tool_call_start|>", "<|tool_call_end|>"],
  },
  "OLMo 3": {
    template: "<functions> {{ tools }} </functions> <function_calls>",
    calls: '<function_calls>get_weather(city="Rome", days=3)\nnow()</function_calls>',
    told: spaced,
    all: [
      '<function_calls>get_weather(city="A \\"b\\"", days=1, units=\'C\', exact=true, tags=["x", "}"])</function_calls>',
      allJson,
    ],
  },
  Apertus: {
    template: "'<|tools_prefix|>' + '['",
    calls: `<|tools_prefix|>[{"get_weather": ${spaced}}, {"now": {}}]<|tools_suffix|>`,
    told: spaced,
    all: [`<|tools_prefix|>[{"get_weather": ${allJson}}]<|tools_suffix|>`, allJson],
    controlTexts: ["<|tools_prefix|>", "<|tools_suffix|>"],
  },
};
