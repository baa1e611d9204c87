import type { CallForm } from "../../grammar/tools/call-form.ts";

/** As Mistral's later models write calls at the end of an answer: `[TOOL_CALLS]get_weather[ARGS]{"city": "Rome"}`, one after
 *  the other. */
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

/** As its earlier models do: `[TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Rome"}}]`. `space` is what some of
 *  them have after the mark. */
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
