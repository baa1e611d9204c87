import type { TokenId } from "../../base/token.ts";
import { UNSATISFIABLE } from "../../gpu/constrained-device.ts";
import type { Finish, SequenceId, TokenLogprobs } from "../../scheduler/core.ts";
import type { Story } from "../../scheduler/explain/sequence-story.ts";
import type { SequenceListener, StartedAt } from "../../scheduler/fleet/fleet.ts";
import type { CheckedDraft } from "../../scheduler/messages.ts";
import type { ChoiceText } from "./choice-text.ts";
import type { AnswerFailure, Delta } from "./events.ts";

/** Callbacks from a choice to its answer. */
export interface ChoiceListener {
  onStarted(choice: Choice, cachedTokens: number, at: StartedAt): void;
  onPromptLogprobs(choice: Choice, start: number, logprobs: readonly TokenLogprobs[]): void;
  onProgress(tokens: number): void;
  onDraft(draft: CheckedDraft): void;
  /**
   * Called after the last delta. `finish` is null if a stop string ended the text while the sequence still
   * runs.
   */
  onEnd(choice: Choice, finish: Finish | null): void;
  onFailed(failure: AnswerFailure): void;
  /**
   * Called when the sequence has ended, also after a stop string or an abort, with all of its output tokens and
   * its time by cause. The choice's text is complete by then.
   */
  onDrawn(choice: Choice, drawn: readonly TokenId[], story: Story): void;
  /** Called last of all for the sequence. */
  onSettled(): void;
}

/**
 * A continuation of one prompt: turns its sequence's tokens into deltas. The state per token is in few
 * objects, because thousands of streams compete for the processor's caches.
 */
export class Choice implements SequenceListener {
  /** Index among all choices of the answer. */
  readonly index: number;
  /** Index of the prompt that the choice continues, and the choice's index among that prompt's choices. */
  readonly prompt: number;
  readonly place: number;
  readonly text: ChoiceText;
  /** Null before submission. */
  id: SequenceId | null = null;
  isOpen = true;
  readonly #onDelta: (delta: Delta) => void;
  readonly #listener: ChoiceListener;

  constructor(
    { index, prompt, place }: Pick<Choice, "index" | "prompt" | "place">,
    text: ChoiceText,
    onDelta: (delta: Delta) => void,
    listener: ChoiceListener,
  ) {
    this.index = index;
    this.prompt = prompt;
    this.place = place;
    this.text = text;
    this.#onDelta = onDelta;
    this.#listener = listener;
  }

  onStarted(cachedTokens: number, at: StartedAt): void {
    if (this.isOpen) this.#listener.onStarted(this, cachedTokens, at);
  }

  onPromptLogprobs(start: number, logprobs: readonly TokenLogprobs[]): void {
    this.#listener.onPromptLogprobs(this, start, logprobs);
  }

  onProgress(tokens: number): void {
    if (this.isOpen) this.#listener.onProgress(tokens);
  }

  onDraft(draft: CheckedDraft): void {
    if (this.isOpen) this.#listener.onDraft(draft);
  }

  onToken(token: TokenId, logprobs: TokenLogprobs | null): void {
    if (!this.isOpen) return; // generated before the fleet received the abort
    this.#tell(this.text.push(token, logprobs));
    if (this.text.matched !== null && this.isOpen) this.#listener.onEnd(this, null);
  }

  onFinish(finish: Finish, drawn: readonly TokenId[], story: Story): void {
    const failure = failureOf(finish);
    if (this.isOpen && failure === null) this.#tell(this.text.end());
    this.#listener.onDrawn(this, drawn, story);
    if (this.isOpen) this.#end(finish, failure);
    this.#listener.onSettled();
  }

  #end(finish: Finish, failure: AnswerFailure | null): void {
    if (failure === null) this.#listener.onEnd(this, finish);
    else {
      this.isOpen = false;
      this.#listener.onFailed(failure);
    }
  }

  #tell(delta: Delta | null): void {
    if (delta !== null) this.#onDelta(delta);
  }
}

/** Failure of a finished sequence; null if the sequence ended normally. */
export function failureOf(finish: Finish): AnswerFailure | null {
  switch (finish.kind) {
    case "stop":
    case "length":
    case "pooled":
      return null;
    case "rejected":
      return { kind: finish.reason, needed: finish.needed, limit: finish.limit };
    case "failed": {
      const kind = finish.reason.startsWith(UNSATISFIABLE) ? "unsatisfiable" : "engineFailed";
      return { kind, message: finish.reason };
    }
    case "aborted":
      return { kind: "engineFailed", message: "the server ended the request" };
  }
}
