/** Call forms whose arguments are one JSON object. */
import { CALL_ID, CALL_NUMBER, type CallForm } from "../../../grammar/tools/call-form.ts";

/** Parts that most of these forms leave empty. */
const plain = {
  begin: "",
  arguments: { kind: "json" },
  afterArguments: "",
  between: "",
  end: "",
  callsMax: null,
} as const satisfies Partial<CallForm>;

/** A call as JSON of this server's grammar: `{"name": "get_weather", "arguments": {"city": "Rome"}}`. */
const object = {
  ...plain,
  beforeName: '{"name": "',
  afterName: '", "arguments": ',
  afterArguments: "}",
} as const satisfies Partial<CallForm>;

/** A JSON list of calls between two texts, at the end of an answer. */
function list(before: string, after: string): CallForm {
  return {
    ...object,
    begin: `${before}[`,
    between: ", ",
    end: `]${after}`,
    trigger: before.trimEnd(),
    place: "end",
  };
}

/**
 * Call form of Apertus, with the name as a key: `<|tools_prefix|>[{"get_weather": {"city": "Rome"}},
 * {"now": {}}]<|tools_suffix|>`.
 */
export const apertus: CallForm = {
  ...list("<|tools_prefix|>", "<|tools_suffix|>"),
  beforeName: '{"',
  afterName: '": ',
};

/**
 * Call form of Cohere's Command R7B, A and later: in place of text, a JSON list between delimiters.
 *
 *     <|START_ACTION|>[
 *         {"tool_call_id": "0", "tool_name": "get_weather", "parameters": {"city": "Rome"}}
 *     ]<|END_ACTION|>
 */
export const cohere: CallForm = {
  ...object,
  begin: "<|START_ACTION|>[\n    ",
  beforeName: `{"tool_call_id": "${CALL_NUMBER}", "tool_name": "`,
  afterName: '", "parameters": ',
  between: ",\n    ",
  end: "\n]<|END_ACTION|>",
  trigger: "<|START_ACTION|>",
  place: "alone",
};

/** Call form of DeepSeek V3.1: calls at the end of an answer, between delimiters of their own. */
export const deepSeek: CallForm = {
  ...plain,
  begin: "<｜tool▁calls▁begin｜>",
  beforeName: "<｜tool▁call▁begin｜>",
  afterName: "<｜tool▁sep｜>",
  afterArguments: "<｜tool▁call▁end｜>",
  end: "<｜tool▁calls▁end｜>",
  trigger: "<｜tool▁calls▁begin｜>",
  place: "end",
};

/** Call form of V3 and R1: each call has the type `function`, and its arguments are in a code block. */
export const deepSeekFenced: CallForm = {
  ...deepSeek,
  beforeName: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
  afterName: "\n```json\n",
  afterArguments: "\n```<｜tool▁call▁end｜>",
  between: "\n",
};

/**
 * Call form of gpt-oss, a message in a channel of its own: `<|channel|>commentary to=functions.get_weather
 * <|constrain|>json<|message|>{"city": "Rome"}`.
 */
export const gptOss: CallForm = {
  ...plain,
  beforeName: "<|channel|>commentary to=functions.",
  afterName: " <|constrain|>json<|message|>",
  trigger: "<|channel|>commentary to=functions.",
  place: "alone",
  callsMax: 1,
};

/** Call form of Granite 3: `<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Rome"}}]`. */
export const granite: CallForm = list("<|tool_call|>", "");

/**
 * Call form of Hermes, most Qwen models, Granite 4, Ling 2 and ERNIE 4.5:
 *
 *     <tool_call>
 *     {"name": "get_weather", "arguments": {"city": "Rome"}}
 *     </tool_call>
 */
export const hermes: CallForm = {
  ...object,
  beforeName: '<tool_call>\n{"name": "',
  afterArguments: "}\n</tool_call>",
  between: "\n",
  trigger: "<tool_call>",
  place: "anywhere",
};

/** Call form of EXAONE 4: the same on one line for each call. */
export const hermesLine: CallForm = {
  ...hermes,
  beforeName: '<tool_call>{"name": "',
  afterArguments: "}</tool_call>",
};

/**
 * Call form of Hunyuan, at the end of an answer, with arguments in a code block:
 *
 *     <tool_calls><tool_call>get_weather
 *     ```json
 *     {"city": "Rome"}
 *     ```</tool_call></tool_calls>
 */
export const hunyuan: CallForm = {
  ...plain,
  begin: "<tool_calls>",
  beforeName: "<tool_call>",
  afterName: "\n```json\n",
  afterArguments: "\n```</tool_call>",
  between: "\n",
  end: "</tool_calls>",
  trigger: "<tool_calls>",
  place: "end",
};

/** Call form of Hunyuan-A13B in another template: a list between `<tool_calls>` and `</tool_calls>`. */
export const hunyuanList: CallForm = list("<tool_calls>", "</tool_calls>");

/**
 * Call form of Kimi K2, at the end of an answer, with call numbers that continue through the chat:
 * `<|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{"city": "Rome"}<|tool_call_end|>`.
 */
export const kimi: CallForm = {
  ...plain,
  begin: "<|tool_calls_section_begin|>",
  beforeName: "<|tool_call_begin|>functions.",
  afterName: `:${CALL_NUMBER}<|tool_call_argument_begin|>`,
  afterArguments: "<|tool_call_end|>",
  end: "<|tool_calls_section_end|>",
  trigger: "<|tool_calls_section_begin|>",
  place: "end",
};

/**
 * Call form of Llama 3, one call as the whole answer: `{"name": "get_weather", "parameters": {"city":
 * "Rome"}}`.
 */
export const llamaJson: CallForm = {
  ...object,
  afterName: '", "parameters": ',
  trigger: '{"name": "',
  place: "alone",
  callsMax: 1,
};

/**
 * Call form of Mistral's later models, at the end of an answer: `[TOOL_CALLS]get_weather[ARGS]{"city":
 * "Rome"}`, one after the other.
 */
export const mistralArgs: CallForm = {
  ...plain,
  beforeName: "[TOOL_CALLS]",
  afterName: "[ARGS]",
  trigger: "[TOOL_CALLS]",
  place: "end",
};

/** The same with an id of each call: `[TOOL_CALLS]get_weather[CALL_ID]a1b2c3d4e[ARGS]{"city": "Rome"}`. */
export const mistralId: CallForm = { ...mistralArgs, afterName: `[CALL_ID]${CALL_ID}[ARGS]` };

/** Call form of Mistral's earlier models: `[TOOL_CALLS][{"name": …, "arguments": …}]`. */
export const mistralList: CallForm = list("[TOOL_CALLS]", "");

/** The same with a space, as older tokenizers of Mistral wrote it. */
export const mistralSpacedList: CallForm = list("[TOOL_CALLS] ", "");

/** Call form of Nemotron Nano 2 and Llama Nemotron: a list between `<TOOLCALL>` and `</TOOLCALL>`. */
export const nemotron: CallForm = list("<TOOLCALL>", "</TOOLCALL>");

/** Call form of Phi-4-mini: a list between `<|tool_call|>` and `<|/tool_call|>`. */
export const phi: CallForm = list("<|tool_call|>", "<|/tool_call|>");
