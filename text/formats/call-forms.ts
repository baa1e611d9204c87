import type { CallForm } from "../../grammar/tools/call-form.ts";
import { cohere } from "./cohere.ts";
import { deepSeek, deepSeekFenced, deepSeekTagged } from "./deepseek.ts";
import { functionGemma, gemma } from "./gemma.ts";
import { glm, glmLines } from "./glm.ts";
import { gptOss } from "./gpt-oss.ts";
import { hermes } from "./hermes.ts";
import { kimi } from "./kimi.ts";
import { llamaJson, pythonic } from "./llama.ts";
import { minimax } from "./minimax.ts";
import { mistralArgs, mistralList } from "./mistral.ts";
import { qwenCoder } from "./qwen-coder.ts";
import { seed } from "./seed.ts";

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

/** A model's call format, as its chat template (Jinja) shows it; null if no known format matches. */
export function callFormIn(template: string): CallForm | null {
  return telling.find(([marks]) => marks.every((mark) => template.includes(mark)))?.[1] ?? null;
}
