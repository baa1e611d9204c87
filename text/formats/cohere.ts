import { CALL_NUMBER, type CallForm } from "../../grammar/tools/call-form.ts";
import type { ThinkingMarks } from "./thinking-marks.ts";

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

/** Cohere's reasoning, followed by calls or by text, which has delimiters too. */
export const cohereThinking: ThinkingMarks = {
  opening: "<|START_THINKING|>",
  closing: "<|END_THINKING|>",
  beforeText: "<|START_RESPONSE|>",
  afterText: "<|END_RESPONSE|>",
};
