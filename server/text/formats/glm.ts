import type { CallForm } from "../../../scheduler/constraint/call-form.ts";

/**
 * As GLM 4.5 and later write calls, with a text for each argument:
 *
 *     <tool_call>get_weather
 *     <arg_key>city</arg_key>
 *     <arg_value>Rome</arg_value>
 *     </tool_call>
 */
export const glm: CallForm = {
  begin: "",
  beforeName: "<tool_call>",
  afterName: "\n",
  arguments: {
    kind: "tagged",
    beforeName: "<arg_key>",
    afterName: "</arg_key>\n<arg_value>",
    afterValue: "</arg_value>\n",
    closing: "</arg_value>",
  },
  afterArguments: "</tool_call>",
  between: "\n",
  end: "",
  trigger: "<tool_call>",
  place: "anywhere",
  callsMax: null,
};
