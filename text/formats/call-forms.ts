import { CALL_NUMBER, type CallForm } from "../../grammar/tools/call-form.ts";
import { deepSeek, deepSeekFenced, deepSeekTagged } from "./deepseek.ts";
import { glm, glmLines } from "./glm.ts";

/**
 * Call format of Cohere's Command R7B, A and later: in place of text, a JSON list between delimiters.
 *
 *     <|START_ACTION|>[
 *         {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Rome"}}
 *     ]<|END_ACTION|>
 */
export const cohere: CallForm = {
  begin: "<|START_ACTION|>[\n    ",
  beforeName: `{"tool_call_id": "${CALL_NUMBER}", "tool_name": "`,
  afterName: '", "parameters": ',
  arguments: { kind: "json" },
  afterArguments: "}",
  between: ",\n    ",
  end: "\n]<|END_ACTION|>",
  trigger: "<|START_ACTION|>",
  place: "alone",
  callsMax: null,
};

/**
 * Call format of Gemma 4, at the end of an answer:
 * `<|tool_call>call:get_weather{city:<|"|>Rome<|"|>,days:3}<tool_call|>`.
 */
export const gemma: CallForm = {
  begin: "",
  beforeName: "<|tool_call>call:",
  afterName: "{",
  arguments: { kind: "bare", quote: '<|"|>' },
  afterArguments: "}<tool_call|>",
  between: "",
  end: "",
  trigger: "<|tool_call>",
  place: "end",
  callsMax: null,
};

/** Call format of FunctionGemma: the same with other delimiters. */
export const functionGemma: CallForm = {
  ...gemma,
  beforeName: "<start_function_call>call:",
  arguments: { kind: "bare", quote: "<escape>" },
  afterArguments: "}<end_function_call>",
  trigger: "<start_function_call>",
};

/**
 * Call format of gpt-oss, a message in a channel of its own: `<|channel|>commentary to=functions.get_weather
 * <|constrain|>json<|message|>{"city": "Rome"}`.
 */
export const gptOss: CallForm = {
  begin: "",
  beforeName: "<|channel|>commentary to=functions.",
  afterName: " <|constrain|>json<|message|>",
  arguments: { kind: "json" },
  afterArguments: "",
  between: "",
  end: "",
  trigger: "<|channel|>commentary to=functions.",
  place: "alone",
  callsMax: 1,
};

/**
 * Call format of Hermes and most Qwen models:
 *
 *     <tool_call>
 *     {"name": "get_weather", "arguments": {"city": "Rome"}}
 *     </tool_call>
 */
export const hermes: CallForm = {
  begin: "",
  beforeName: '<tool_call>\n{"name": "',
  afterName: '", "arguments": ',
  arguments: { kind: "json" },
  afterArguments: "}\n</tool_call>",
  between: "\n",
  end: "",
  trigger: "<tool_call>",
  place: "anywhere",
  callsMax: null,
};

/**
 * Call format of Kimi K2, at the end of an answer, with call numbers that continue through the chat:
 * `<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Rome"}<|tool_call_end|>`.
 */
export const kimi: CallForm = {
  begin: "<|tool_calls_section_begin|>",
  beforeName: "<|tool_call_begin|>functions.",
  afterName: `:${CALL_NUMBER}<|tool_call_argument_begin|>`,
  arguments: { kind: "json" },
  afterArguments: "<|tool_call_end|>",
  between: "",
  end: "<|tool_calls_section_end|>",
  trigger: "<|tool_calls_section_begin|>",
  place: "end",
  callsMax: null,
};

/**
 * Call format of Llama 3, one call as the whole answer: `{"name": "get_weather", "parameters": {"city":
 * "Rome"}}`.
 */
export const llamaJson: CallForm = {
  begin: "",
  beforeName: '{"name": "',
  afterName: '", "parameters": ',
  arguments: { kind: "json" },
  afterArguments: "}",
  between: "",
  end: "",
  trigger: '{"name": "',
  place: "alone",
  callsMax: 1,
};

/**
 * Optional call format of Llama 3.2 and 4, several calls as the whole answer: `[get_weather(city="Rome"),
 * get_time()]`.
 */
export const pythonic: CallForm = {
  begin: "[",
  beforeName: "",
  afterName: "(",
  arguments: { kind: "python" },
  afterArguments: ")",
  between: ", ",
  end: "]",
  trigger: null,
  place: "alone",
  callsMax: null,
};

/**
 * Call format of MiniMax M2, at the end of an answer, with a text for each argument:
 *
 *     <minimax:tool_call>
 *     <invoke name="get_weather">
 *     <parameter name="city">Rome</parameter>
 *     </invoke>
 *     </minimax:tool_call>
 */
export const minimax: CallForm = {
  begin: "<minimax:tool_call>\n",
  beforeName: '<invoke name="',
  afterName: '">\n',
  arguments: {
    kind: "tagged",
    beforeName: '<parameter name="',
    afterName: '">',
    afterValue: "</parameter>\n",
    closing: "</parameter>",
  },
  afterArguments: "</invoke>\n",
  between: "",
  end: "</minimax:tool_call>",
  trigger: "<minimax:tool_call>",
  place: "end",
  callsMax: null,
};

/**
 * Call format of Mistral's later models, at the end of an answer: `[TOOL_CALLS]get_weather[ARGS]{"city":
 * "Rome"}`, one after the other.
 */
export const mistralArgs: CallForm = {
  begin: "",
  beforeName: "[TOOL_CALLS]",
  afterName: "[ARGS]",
  arguments: { kind: "json" },
  afterArguments: "",
  between: "",
  end: "",
  trigger: "[TOOL_CALLS]",
  place: "end",
  callsMax: null,
};

/**
 * Call format of Mistral's earlier models: `[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city":
 * "Rome"}}]`. `space`: some models write one behind the delimiter.
 */
export function mistralList(space: "" | " "): CallForm {
  return {
    begin: `[TOOL_CALLS]${space}[`,
    beforeName: '{"name": "',
    afterName: '", "arguments": ',
    arguments: { kind: "json" },
    afterArguments: "}",
    between: ", ",
    end: "]",
    trigger: "[TOOL_CALLS]",
    place: "end",
    callsMax: null,
  };
}

/**
 * Call format of Qwen3-Coder, with a text for each argument:
 *
 *     <tool_call>
 *     <function=get_weather>
 *     <parameter=city>
 *     Rome
 *     </parameter>
 *     </function>
 *     </tool_call>
 */
export const qwenCoder: CallForm = {
  begin: "",
  beforeName: "<tool_call>\n<function=",
  afterName: ">\n",
  arguments: {
    kind: "tagged",
    beforeName: "<parameter=",
    afterName: ">\n",
    afterValue: "\n</parameter>\n",
    closing: "</parameter>",
  },
  afterArguments: "</function>\n</tool_call>",
  between: "\n",
  end: "",
  trigger: "<tool_call>",
  place: "anywhere",
  callsMax: null,
};

/**
 * Call format of Seed-OSS, with a text for each argument:
 *
 *     <seed:tool_call>
 *     <function=get_weather>
 *     <parameter=city>Rome</parameter>
 *     </function>
 *     </seed:tool_call>
 */
export const seed: CallForm = {
  begin: "",
  beforeName: "<seed:tool_call>\n<function=",
  afterName: ">\n",
  arguments: {
    kind: "tagged",
    beforeName: "<parameter=",
    afterName: ">",
    afterValue: "</parameter>\n",
    closing: "</parameter>",
  },
  afterArguments: "</function>\n</seed:tool_call>",
  between: "\n",
  end: "",
  trigger: "<seed:tool_call>",
  place: "anywhere",
  callsMax: null,
};

/** Marks in a template that identify a call format, the most specific first. */
const telling: readonly (readonly [marks: readonly string[], form: CallForm])[] = [
  [["<tool_call>", "<function=", "<parameter="], qwenCoder],
  [["<seed:tool_call>", "<function="], seed],
  [["<minimax:tool_call>", "<invoke name="], minimax],
  [["</arg_key><arg_value>"], glm],
  [['"</arg_key>" -}}'], glm],
  [["<arg_key>"], glmLines],
  [["<|START_ACTION|>", "tool_name"], cohere],
  [["<|tool_calls_section_begin|>"], kimi],
  [["｜DSML｜", "function_calls>"], deepSeekTagged("function_calls")],
  [["｜DSML｜", "tool_calls>"], deepSeekTagged("tool_calls")],
  [["[TOOL_CALLS]", "[ARGS]"], mistralArgs],
  [["[TOOL_CALLS] ["], mistralList(" ")],
  [["[TOOL_CALLS]"], mistralList("")],
  [["<｜tool▁calls▁begin｜>", "```json"], deepSeekFenced],
  [["<｜tool▁calls▁begin｜>"], deepSeek],
  [["<|tool_call>call:"], gemma],
  [["<start_function_call>", "<escape>"], functionGemma],
  [["<tool_call>"], hermes],
  [["<|channel|>commentary", "functions."], gptOss],
  [["[func_name1("], pythonic],
  [['{"name": function name, "parameters"'], llamaJson],
];

/** All call formats. */
export const callForms: readonly CallForm[] = [...new Set(telling.map(([, form]) => form))];

/** A model's call format, as its chat template (Jinja) shows it; null if no known format matches. */
export function callFormIn(template: string): CallForm | null {
  return telling.find(([marks]) => marks.every((mark) => template.includes(mark)))?.[1] ?? null;
}
