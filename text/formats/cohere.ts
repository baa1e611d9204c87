import { CALL_NUMBER, type CallForm } from "../../grammar/tools/call-form.ts";
import type { ThinkingMarks } from "./thinking-marks.ts";

/**
 * As Cohere's Command R7B, A and later write calls, in place of text, a list in JSON between marks of its own:
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

/** An answer is thoughts, and then calls or text, which has marks too. */
export const cohereThinking: ThinkingMarks = {
  opening: "<|START_THINKING|>",
  closing: "<|END_THINKING|>",
  beforeText: "<|START_RESPONSE|>",
  afterText: "<|END_RESPONSE|>",
};
