import type { CallForm } from "../../../scheduler/constraint/call-form.ts";

/** As DeepSeek V3.1 writes calls at the end of an answer, between marks of their own. */
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

/** As V3 and R1 do: what is called is a function, and its arguments stand in a block of code. */
export const deepSeekFenced: CallForm = {
  ...deepSeek,
  beforeName: "<｜tool▁call▁begin｜>function<｜tool▁sep｜>",
  afterName: "\n```json\n",
  afterArguments: "\n```<｜tool▁call▁end｜>",
  between: "\n",
};
