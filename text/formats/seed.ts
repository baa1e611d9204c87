import type { CallForm } from "../../grammar/tools/call-form.ts";

/**
 * Call format of Seed-OSS, with a text for each argument:
 *
 *     <seed:tool_call>
 *     <function=get_weather>
 *     <parameter=city>Rome</parameter>
 *     </function>
 *     </seed:tool_call>
 */
export const seed: CallForm = {
  begin: "",
  beforeName: "<seed:tool_call>\n<function=",
  afterName: ">\n",
  arguments: {
    kind: "tagged",
    beforeName: "<parameter=",
    afterName: ">",
    afterValue: "</parameter>\n",
    closing: "</parameter>",
  },
  afterArguments: "</function>\n</seed:tool_call>",
  between: "\n",
  end: "",
  trigger: "<seed:tool_call>",
  place: "anywhere",
  callsMax: null,
};
