import type { CallForm } from "../../grammar/tools/call-form.ts";

/**
 * Call format of MiniMax M2, at the end of an answer, with a text for each argument:
 *
 *     <minimax:tool_call>
 *     <invoke name="get_weather">
 *     <parameter name="city">Rome</parameter>
 *     </invoke>
 *     </minimax:tool_call>
 */
export const minimax: CallForm = {
  begin: "<minimax:tool_call>\n",
  beforeName: '<invoke name="',
  afterName: '">\n',
  arguments: {
    kind: "tagged",
    beforeName: '<parameter name="',
    afterName: '">',
    afterValue: "</parameter>\n",
    closing: "</parameter>",
  },
  afterArguments: "</invoke>\n",
  between: "",
  end: "</minimax:tool_call>",
  trigger: "<minimax:tool_call>",
  place: "end",
  callsMax: null,
};
