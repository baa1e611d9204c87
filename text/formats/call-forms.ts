import type { CallForm } from "../../grammar/tools/call-form.ts";
import * as json from "./forms/json.ts";
import * as named from "./forms/named.ts";
import * as tagged from "./forms/tagged.ts";

/** All call forms, by the names that docs/reference/models.md uses. */
export const callForms = {
  Hermes: json.hermes,
  "EXAONE 4": json.hermesLine,
  "Qwen3-Coder": tagged.qwenCoder,
  "Seed-OSS": tagged.seed,
  "MiniCPM 5": tagged.miniCpm,
  "MiniMax M2": tagged.minimax,
  "GLM 4.5": tagged.glmLines,
  "GLM 4.7": tagged.glm,
  "Ling 3": tagged.ling,
  "DeepSeek V3": json.deepSeekFenced,
  "DeepSeek V3.1": json.deepSeek,
  "DeepSeek V3.2": tagged.deepSeekFunctions,
  "DeepSeek V4": tagged.deepSeekTools,
  "Kimi K2": json.kimi,
  "gpt-oss": json.gptOss,
  "Gemma 4": named.gemma,
  FunctionGemma: named.functionGemma,
  "Mistral's [ARGS]": json.mistralArgs,
  "Mistral's [CALL_ID]": json.mistralId,
  "Mistral's list": json.mistralList,
  "Mistral's spaced list": json.mistralSpacedList,
  "Llama's JSON": json.llamaJson,
  "Llama's Python": named.pythonic,
  Hunyuan: json.hunyuan,
  "Hunyuan's list": json.hunyuanList,
  Cohere: json.cohere,
  "Granite 3": json.granite,
  "Phi-4-mini": json.phi,
  "Nemotron 2": json.nemotron,
  LFM2: named.lfm,
  "OLMo 3": named.olmo,
  Apertus: json.apertus,
} as const satisfies Readonly<Record<string, CallForm>>;

export type CallFormName = keyof typeof callForms;

/** Texts in a template that identify a call form, the most specific first. */
const telling: readonly (readonly [texts: readonly string[], name: CallFormName])[] = [
  [["<tool_call>", "<function=", "<parameter="], "Qwen3-Coder"],
  [["<seed:tool_call>", "<function="], "Seed-OSS"],
  [["<minimax:tool_call>", "<invoke name="], "MiniMax M2"],
  [["<function name=", "<param name="], "MiniCPM 5"],
  [["<arg_key>", "'\\n</tool_call>'"], "Ling 3"],
  [["</arg_key><arg_value>"], "GLM 4.7"],
  [['"</arg_key>" -}}'], "GLM 4.7"],
  [["<arg_key>"], "GLM 4.5"],
  [["<|START_ACTION|>", "tool_name"], "Cohere"],
  [["<|tool_calls_section_begin|>"], "Kimi K2"],
  [["｜DSML｜", "function_calls>"], "DeepSeek V3.2"],
  [["｜DSML｜", "tool_calls>"], "DeepSeek V4"],
  [["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"], "Mistral's [CALL_ID]"],
  [["[TOOL_CALLS]", "[ARGS]"], "Mistral's [ARGS]"],
  [["[TOOL_CALLS] ["], "Mistral's spaced list"],
  [["[TOOL_CALLS]"], "Mistral's list"],
  [["<｜tool▁calls▁begin｜>", "```json"], "DeepSeek V3"],
  [["<｜tool▁calls▁begin｜>"], "DeepSeek V3.1"],
  [["<|tool_call>call:"], "Gemma 4"],
  [["<start_function_call>", "<escape>"], "FunctionGemma"],
  [["<tool_calls>", "<tool_call>", "```json"], "Hunyuan"],
  [["<tool_calls>["], "Hunyuan's list"],
  [['<tool_call>\\n{"name'], "Hermes"],
  [['<tool_call>\n{"name'], "Hermes"],
  [['<tool_call>\\n{\\"name'], "Hermes"],
  [['<tool_call>{"name": '], "EXAONE 4"],
  [['<tool_call>{\\"name\\": '], "EXAONE 4"],
  [["<tool_call>"], "Hermes"],
  [["<TOOLCALL>["], "Nemotron 2"],
  [["<|tool_call|>", "<|/tool_call|>"], "Phi-4-mini"],
  [["<|tool|>", "<|/tool|>"], "Phi-4-mini"],
  [["<|tool_call|>"], "Granite 3"],
  [["<|tool_call_start|>"], "LFM2"],
  [["<|tool_list_start|>"], "LFM2"],
  [["List of tools: [", "<|im_start|>"], "LFM2"],
  [["<function_calls>", "<functions>"], "OLMo 3"],
  [["<|tools_prefix|>"], "Apertus"],
  [["<|channel|>commentary", "functions."], "gpt-oss"],
  [["[func_name1("], "Llama's Python"],
  [['{"name": function name, "parameters"'], "Llama's JSON"],
];

/** Name of the call form that a chat template (Jinja) shows; null if no known form matches. */
export function callFormNameIn(template: string): CallFormName | null {
  return telling.find(([texts]) => texts.every((text) => template.includes(text)))?.[1] ?? null;
}

/** Call form that a chat template shows; null if no known form matches. */
export function callFormIn(template: string): CallForm | null {
  const name = callFormNameIn(template);
  return name === null ? null : callForms[name];
}
