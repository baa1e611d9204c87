import { CALL_NUMBER, type CallForm } from "../../../scheduler/constraint/call-form.ts";

/**
 * As Cohere's Command R7B, A and later write calls at the end of an answer, a list in JSON between marks of its own:
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
  place: "end",
  callsMax: null,
};
