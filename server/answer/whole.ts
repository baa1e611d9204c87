import type { TokenId } from "../../base/token.ts";
import type { AnswerEvent, ChoiceFinish, Part, PromptEntry, TokenEntry, Usage } from "./events.ts";

/**
 * A call of a function with its arguments: JSON of an object, truncated if the answer reached its length
 * limit. Numbers keep their digits and keys their order.
 */
export interface ToolCall {
  /** Id that the model made up; absent for most models. */
  readonly id?: string;
  readonly name: string;
  readonly arguments: string;
}

/** A part merged with the following parts of its kind. */
export type WholePart =
  | { readonly kind: "text" | "reasoning"; readonly text: string }
  | { readonly kind: "call"; readonly index: number; readonly call: ToolCall };

/** A complete choice. */
export interface WholeChoice {
  /** Parts in order; adjacent texts, and adjacent reasoning, are merged. */
  readonly parts: readonly WholePart[];
  readonly text: string;
  readonly reasoning: string;
  readonly calls: readonly ToolCall[];
  readonly tokens: readonly TokenId[];
  /** Null if the request asks for none. */
  readonly logprobs: readonly TokenEntry[] | null;
  readonly finish: ChoiceFinish;
}

/** A complete answer. */
export interface WholeAnswer {
  readonly choices: readonly WholeChoice[];
  readonly usage: Usage;
  /** Log probabilities by prompt; absent: the request asks for none. */
  readonly promptLogprobs?: readonly (readonly PromptEntry[])[];
}

interface Gathered {
  readonly parts: WholePart[];
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
      tokens: [],
      logprobs: wantsLogprobs ? [] : null,
      finish: { reason: "stop", stopReason: null },
    }));
  }

  /** Takes an event. Returns the answer with the last event, null before that. */
  take(event: AnswerEvent): WholeAnswer | null {
    if (event.kind === "done") {
      const { usage, promptLogprobs } = event;
      const choices = this.#choices.map(wholeOf);
      return promptLogprobs === undefined ? { choices, usage } : { choices, usage, promptLogprobs };
    }
    if (event.kind === "finish") this.#choices[event.choice]!.finish = event;
    if (event.kind !== "delta") return null;
    const choice = this.#choices[event.choice]!;
    for (const part of event.parts) append(choice.parts, part);
    choice.tokens.push(...event.tokens);
    choice.logprobs?.push(...(event.logprobs ?? []));
    return null;
  }
}

function append(parts: WholePart[], part: Part): void {
  const last = parts.at(-1);
  if (part.kind === "call") {
    const { kind, index, ...called } = part;
    parts.push({ kind, index, call: { ...called, arguments: "" } });
  } else if (part.kind === "arguments") {
    if (last?.kind !== "call") throw new Error("arguments follow their call");
    const { index, call } = last;
    parts[parts.length - 1] = {
      kind: "call",
      index,
      call: { ...call, arguments: call.arguments + part.text },
    };
  } else if (last?.kind === part.kind) {
    parts[parts.length - 1] = { kind: part.kind, text: last.text + part.text };
  } else parts.push(part);
}

function wholeOf(gathered: Gathered): WholeChoice {
  const { parts } = gathered;
  const textOf = (kind: "text" | "reasoning"): string =>
    parts.map((part) => (part.kind === kind ? part.text : "")).join("");
  const calls = parts.flatMap((part) => (part.kind === "call" ? [part.call] : []));
  return { ...gathered, text: textOf("text"), reasoning: textOf("reasoning"), calls };
}
