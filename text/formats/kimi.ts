import { CALL_NUMBER, type CallForm } from "../../grammar/tools/call-form.ts";

/**
 * Call format of Kimi K2, at the end of an answer, with numbers that run through the chat:
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
