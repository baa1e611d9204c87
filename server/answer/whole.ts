import type { TokenId } from "../../scheduler/core.ts";
import type { ToolCall } from "../text/tool-calls.ts";
import type { AnswerEvent, ChoiceFinish, Part, TokenEntry, Usage } from "./events.ts";

/** A choice when everything of it is known. */
export interface WholeChoice {
  /** Text and calls in their order, no text beside another. */
  readonly parts: readonly Part[];
  readonly text: string;
  readonly calls: readonly ToolCall[];
  readonly tokens: readonly TokenId[];
  /** null when the request asked for none. */
  readonly logprobs: readonly TokenEntry[] | null;
  readonly finish: ChoiceFinish;
}

/** An answer when everything of it is known. */
export interface WholeAnswer {
  readonly choices: readonly WholeChoice[];
  readonly usage: Usage;
}

interface Gathered {
  readonly parts: Part[];
  text: string;
  readonly calls: ToolCall[];
  readonly tokens: TokenId[];
  readonly logprobs: TokenEntry[] | null;
  finish: ChoiceFinish;
}

/** Gathers an answer's events until it is done. */
export class Gatherer {
  readonly #choices: readonly Gathered[];

  constructor(choices: number, wantsLogprobs: boolean) {
    this.#choices = Array.from({ length: choices }, () => ({
      parts: [],
      text: "",
      calls: [],
      tokens: [],
      logprobs: wantsLogprobs ? [] : null,
      finish: { reason: "stop", stopReason: null },
    }));
  }

  /** The answer with its last event, before that null. */
  take(event: AnswerEvent): WholeAnswer | null {
    if (event.kind === "done") return { choices: this.#choices, usage: event.usage };
    if (event.kind === "finish") this.#choices[event.choice]!.finish = event;
    if (event.kind !== "delta") return null;
    const choice = this.#choices[event.choice]!;
    for (const part of event.parts) {
      append(choice.parts, part);
      if (part.kind === "text") choice.text += part.text;
      else choice.calls.push(part.call);
    }
    choice.tokens.push(...event.tokens);
    choice.logprobs?.push(...(event.logprobs ?? []));
    return null;
  }
}

function append(parts: Part[], part: Part): void {
  const last = parts.at(-1);
  if (part.kind === "text" && last?.kind === "text") {
    parts[parts.length - 1] = { kind: "text", text: last.text + part.text };
  } else parts.push(part);
}
