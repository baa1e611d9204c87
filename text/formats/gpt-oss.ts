import type { CallForm } from "../../grammar/tools/call-form.ts";
import type { ThinkingMarks } from "./thinking-marks.ts";

/** As gpt-oss writes a call, a message in a channel of its own:
 *  `<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{"city": "Rome"}`. */
export const gptOss: CallForm = {
  begin: "",
  beforeName: "<|channel|>commentary to=functions.",
  afterName: " <|constrain|>json<|message|>",
  arguments: { kind: "json" },
  afterArguments: "",
  between: "",
  end: "",
  trigger: "<|channel|>commentary to=functions.",
  place: "alone",
  callsMax: 1,
};

/** Its thoughts are a message of their own too, and so is its answer's text. */
export const gptOssThinking: ThinkingMarks = {
  opening: "<|channel|>analysis<|message|>",
  closing: "<|end|><|start|>assistant",
  beforeText: "<|channel|>final<|message|>",
};
