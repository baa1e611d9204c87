import type { CallForm } from "../../grammar/tools/call-form.ts";

/**
 * Call format of Hermes and most Qwen models:
 *
 *     <tool_call>
 *     {"name": "get_weather", "arguments": {"city": "Rome"}}
 *     </tool_call>
 */
export const hermes: CallForm = {
  begin: "",
  beforeName: '<tool_call>\n{"name": "',
  afterName: '", "arguments": ',
  arguments: { kind: "json" },
  afterArguments: "}\n</tool_call>",
  between: "\n",
  end: "",
  trigger: "<tool_call>",
  place: "anywhere",
  callsMax: null,
};
