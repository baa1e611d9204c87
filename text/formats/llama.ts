import type { CallForm } from "../../grammar/tools/call-form.ts";

/**
 * Call format of Llama 3, one call as the whole answer: `{"name": "get_weather", "parameters": {"city":
 * "Rome"}}`.
 */
export const llamaJson: CallForm = {
  begin: "",
  beforeName: '{"name": "',
  afterName: '", "parameters": ',
  arguments: { kind: "json" },
  afterArguments: "}",
  between: "",
  end: "",
  trigger: '{"name": "',
  place: "alone",
  callsMax: 1,
};

/**
 * Optional call format of Llama 3.2 and 4, several calls as the whole answer: `[get_weather(city="Rome"),
 * get_time()]`.
 */
export const pythonic: CallForm = {
  begin: "[",
  beforeName: "",
  afterName: "(",
  arguments: { kind: "python" },
  afterArguments: ")",
  between: ", ",
  end: "]",
  trigger: null,
  place: "alone",
  callsMax: null,
};
