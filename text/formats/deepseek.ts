import type { CallForm } from "../../grammar/tools/call-form.ts";

/** Call format of DeepSeek V3.1: calls at the end of an answer, between delimiters of their own. */
export const deepSeek: CallForm = {
  begin: "<｜tool▁calls▁begin｜>",
  beforeName: "<｜tool▁call▁begin｜>",
  afterName: "<｜tool▁sep｜>",
  arguments: { kind: "json" },
  afterArguments: "<｜tool▁call▁end｜>",
  between: "",
  end: "<｜tool▁calls▁end｜>",
  trigger: "<｜tool▁calls▁begin｜>",
  place: "end",
  callsMax: null,
};

/** Call format of V3 and R1: each call has the type `function`, and its arguments are in a code block. */
export const deepSeekFenced: CallForm = {
  ...deepSeek,
  beforeName: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
  afterName: "\n```json\n",
  afterArguments: "\n```<｜tool▁call▁end｜>",
  between: "\n",
};

/**
 * Call format of V3.2 and later, with a text for each argument that says whether it is a string:
 *
 *     <｜DSML｜function_calls>
 *     <｜DSML｜invoke name="get_weather">
 *     <｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>
 *     </｜DSML｜invoke>
 *     </｜DSML｜function_calls>
 *
 * `block`: name of the tag around the calls, `function_calls` or `tool_calls`.
 */
export function deepSeekTagged(block: "function_calls" | "tool_calls"): CallForm {
  return {
    begin: `<｜DSML｜${block}>\n`,
    beforeName: '<｜DSML｜invoke name="',
    afterName: '">\n',
    arguments: {
      kind: "tagged",
      beforeName: '<｜DSML｜parameter name="',
      afterName: '" string="false">',
      afterTextName: '" string="true">',
      afterValue: "</｜DSML｜parameter>\n",
      closing: "</｜DSML｜parameter>",
    },
    afterArguments: "</｜DSML｜invoke>\n",
    between: "",
    end: `</｜DSML｜${block}>`,
    trigger: `<｜DSML｜${block}>`,
    place: "end",
    callsMax: null,
  };
}
