import type { CallForm } from "../../grammar/tools/call-form.ts";

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
