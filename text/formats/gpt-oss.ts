import type { CallForm } from "../../grammar/tools/call-form.ts";
import type { ThinkingMarks } from "./thinking-marks.ts";

/**
 * Call format of gpt-oss, a message in a channel of its own: `<|channel|>commentary to=functions.get_weather
 * <|constrain|>json<|message|>{"city": "Rome"}`.
 */
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

/** Reasoning of gpt-oss: a message of its own, as is the answer's text. */
export const gptOssThinking: ThinkingMarks = {
  opening: "<|channel|>analysis<|message|>",
  closing: "<|end|><|start|>assistant",
  beforeText: "<|channel|>final<|message|>",
};
