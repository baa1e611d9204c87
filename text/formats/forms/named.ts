/** Call forms whose arguments are `name=value` or `name:value`. */
import type { CallForm } from "../../../grammar/tools/call-form.ts";

/**
 * Optional call form of Llama 3.2 and 4, several calls as the whole answer: `[get_weather(city="Rome"),
 * get_time()]`.
 */
export const pythonic: CallForm = {
  begin: "[",
  beforeName: "",
  afterName: "(",
  arguments: { kind: "python", words: "python" },
  afterArguments: ")",
  between: ", ",
  end: "]",
  trigger: null,
  place: "alone",
  callsMax: null,
};

/** Call form of LFM2: the same between delimiters, with text before or behind. */
export const lfm: CallForm = {
  ...pythonic,
  begin: "<|tool_call_start|>[",
  end: "]<|tool_call_end|>",
  trigger: "<|tool_call_start|>",
  place: "anywhere",
};

/** Call form of OLMo 3, at the end of an answer, with a line for each call. */
export const olmo: CallForm = {
  ...pythonic,
  begin: "<function_calls>",
  arguments: { kind: "python", words: "json" },
  between: "\n",
  end: "</function_calls>",
  trigger: "<function_calls>",
  place: "end",
};

/**
 * Call form of Gemma 4, at the end of an answer:
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

/** Call form of FunctionGemma: the same with other delimiters. */
export const functionGemma: CallForm = {
  ...gemma,
  beforeName: "<start_function_call>call:",
  arguments: { kind: "bare", quote: "<escape>" },
  afterArguments: "}<end_function_call>",
  trigger: "<start_function_call>",
};
