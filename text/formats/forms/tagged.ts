/** Call forms with a text for each argument. */
import type { ArgumentsForm, CallForm } from "../../../grammar/tools/call-form.ts";

/** Arguments between tags. The closing tag is `afterValue` without its line breaks. */
function tagged(
  beforeName: string,
  afterName: string,
  afterValue: string,
): Extract<ArgumentsForm, { kind: "tagged" }> {
  return { kind: "tagged", beforeName, afterName, afterValue, closing: afterValue.trim() };
}

/** Parts of forms whose calls stand anywhere in an answer, each on lines of its own. */
const lines = {
  begin: "",
  between: "\n",
  end: "",
  place: "anywhere",
  callsMax: null,
} as const satisfies Partial<CallForm>;

/**
 * Call form of Qwen3-Coder, Qwen 3.5 and later, and Nemotron 3:
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
  ...lines,
  beforeName: "<tool_call>\n<function=",
  afterName: ">\n",
  arguments: tagged("<parameter=", ">\n", "\n</parameter>\n"),
  afterArguments: "</function>\n</tool_call>",
  trigger: "<tool_call>",
};

/**
 * Call form of Seed-OSS:
 *
 *     <seed:tool_call>
 *     <function=get_weather>
 *     <parameter=city>Rome</parameter>
 *     </function>
 *     </seed:tool_call>
 */
export const seed: CallForm = {
  ...lines,
  beforeName: "<seed:tool_call>\n<function=",
  afterName: ">\n",
  arguments: tagged("<parameter=", ">", "</parameter>\n"),
  afterArguments: "</function>\n</seed:tool_call>",
  trigger: "<seed:tool_call>",
};

/** Call form of MiniCPM 5: `<function name="get_weather"><param name="city">Rome</param></function>`. */
export const miniCpm: CallForm = {
  ...lines,
  beforeName: '<function name="',
  afterName: '">',
  arguments: tagged('<param name="', '">', "</param>"),
  afterArguments: "</function>",
  trigger: '<function name="',
};

/**
 * Call form of GLM 4.5 and 4.6:
 *
 *     <tool_call>get_weather
 *     <arg_key>city</arg_key>
 *     <arg_value>Rome</arg_value>
 *     </tool_call>
 */
export const glmLines: CallForm = {
  ...lines,
  beforeName: "<tool_call>",
  afterName: "\n",
  arguments: tagged("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"),
  afterArguments: "</tool_call>",
  trigger: "<tool_call>",
};

/** Call form of GLM 4.7 and later, without line breaks. */
export const glm: CallForm = {
  ...glmLines,
  afterName: "",
  arguments: tagged("<arg_key>", "</arg_key><arg_value>", "</arg_value>"),
  between: "",
};

/** Call form of Ling 3: no line breaks between arguments, and one behind them. */
export const ling: CallForm = {
  ...glmLines,
  arguments: tagged("<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>"),
  afterArguments: "\n</tool_call>",
};

/**
 * Call form of MiniMax M2, at the end of an answer:
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
  arguments: tagged('<parameter name="', '">', "</parameter>\n"),
  afterArguments: "</invoke>\n",
  between: "",
  end: "</minimax:tool_call>",
  trigger: "<minimax:tool_call>",
  place: "end",
  callsMax: null,
};

/**
 * Call form of DeepSeek V3.2 and later. Each argument says whether it is a string:
 *
 *     <｜DSML｜function_calls>
 *     <｜DSML｜invoke name="get_weather">
 *     <｜DSML｜parameter name="city" string="true">Rome</｜DSML｜parameter>
 *     </｜DSML｜invoke>
 *     </｜DSML｜function_calls>
 *
 * `block`: name of the tag around the calls.
 */
function deepSeekTagged(block: "function_calls" | "tool_calls"): CallForm {
  return {
    ...minimax,
    begin: `<｜DSML｜${block}>\n`,
    beforeName: '<｜DSML｜invoke name="',
    arguments: {
      ...tagged('<｜DSML｜parameter name="', '" string="false">', "</｜DSML｜parameter>\n"),
      afterTextName: '" string="true">',
    },
    afterArguments: "</｜DSML｜invoke>\n",
    end: `</｜DSML｜${block}>`,
    trigger: `<｜DSML｜${block}>`,
  };
}

export const deepSeekFunctions: CallForm = deepSeekTagged("function_calls");
export const deepSeekTools: CallForm = deepSeekTagged("tool_calls");
