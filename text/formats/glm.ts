import type { CallForm } from "../../grammar/tools/call-form.ts";

/**
 * Call format of GLM 4.5 and 4.6, with a text for each argument:
 *
 *     <tool_call>get_weather
 *     <arg_key>city</arg_key>
 *     <arg_value>Rome</arg_value>
 *     </tool_call>
 */
export const glmLines: CallForm = {
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

/** Call format of GLM 4.7 and later, without line breaks. */
export const glm: CallForm = {
  ...glmLines,
  afterName: "",
  arguments: {
    kind: "tagged",
    beforeName: "<arg_key>",
    afterName: "</arg_key><arg_value>",
    afterValue: "</arg_value>",
    closing: "</arg_value>",
  },
  between: "",
};
