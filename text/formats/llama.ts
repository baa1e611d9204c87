import type { CallForm } from "../../grammar/tools/call-form.ts";

/** As Llama 3 writes a call, which is all of its answer: `{"name": "get_weather", "parameters": {"city": "Rome"}}`. */
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

/** As Llama 3.2 and 4 write calls when told so, which are all of an answer: `[get_weather(city="Rome"), get_time()]`. */
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
