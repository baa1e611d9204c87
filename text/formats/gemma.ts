import type { CallForm } from "../../grammar/tools/call-form.ts";
import type { ThinkingMarks } from "./thinking-marks.ts";

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

/** Reasoning of Gemma 4, a channel. */
export const gemmaThinking: ThinkingMarks = { opening: "<|channel>thought", closing: "<channel|>" };
