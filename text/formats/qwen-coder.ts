import type { CallForm } from "../../grammar/tools/call-form.ts";

/**
 * Call format of Qwen3-Coder, with a text for each argument:
 *
 *     <tool_call>
 *     <function=get_weather>
 *     <parameter=city>
 *     Rome
 *     </parameter>
 *     </function>
 *     </tool_call>
 */
export const qwenCoder: CallForm = {
  begin: "",
  beforeName: "<tool_call>\n<function=",
  afterName: ">\n",
  arguments: {
    kind: "tagged",
    beforeName: "<parameter=",
    afterName: ">\n",
    afterValue: "\n</parameter>\n",
    closing: "</parameter>",
  },
  afterArguments: "</function>\n</tool_call>",
  between: "\n",
  end: "",
  trigger: "<tool_call>",
  place: "anywhere",
  callsMax: null,
};
