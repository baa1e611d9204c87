import type { AnswerEvent } from "../answer/events.ts";
import type { Generation, GenerationRequest } from "../answer/generation.ts";
import type { Telemetry } from "./telemetry.ts";

/** Where an answer's measures go. */
export type AnswerTelemetry = Pick<Telemetry, "observeRequest" | "countFinished" | "countTokens" | "log">;

/** How long an answer took; of several choices, from the first beginning to the last end. */
export interface AnswerTimes {
  /** From when its first sequence began to its first token. */
  readonly promptMs: number;
  /** From its first token to its last. */
  readonly answerMs: number;
  /** From the request's arrival on. */
  readonly totalMs: number;
}

interface ChoiceMeasures {
  /** Told so far. */
  tokens: number;
  /** When the last of them was; null: there was none. */
  lastMs: number | null;
}

/** Measures one answer by its events: what its client waits for, and how long it is. */
export class AnswerMeasures {
  readonly #telemetry: AnswerTelemetry;
  readonly #arrivedMs: number;
  readonly #choices: ChoiceMeasures[];
  #startedMs: number | null = null;
  #firstTokenMs: number | null = null;
  #choicesOpen: number;

  /** `arrivedMs`: when the request's head arrived, on the clock of `performance.now()`. */
  constructor(telemetry: AnswerTelemetry, request: GenerationRequest, arrivedMs: number) {
    this.#telemetry = telemetry;
    this.#arrivedMs = arrivedMs;
    this.#choicesOpen = request.prompts.length * request.choices;
    this.#choices = Array.from({ length: this.#choicesOpen }, () => ({ tokens: 0, lastMs: null }));
    for (const prompt of request.prompts) {
      telemetry.observeRequest("promptTokens", prompt.length);
      telemetry.observeRequest("choices", request.choices);
      if (request.tokensMax !== null) telemetry.observeRequest("tokensMax", request.tokensMax);
    }
  }

  /** Until now, or to the last token. */
  get times(): AnswerTimes {
    const firstMs = this.#firstTokenMs ?? performance.now();
    return {
      promptMs: firstMs - (this.#startedMs ?? firstMs),
      answerMs: Math.max(firstMs, ...this.#choices.map(({ lastMs }) => lastMs ?? firstMs)) - firstMs,
      totalMs: performance.now() - this.#arrivedMs,
    };
  }

  /** `answer` is counted up when its usage is asked for, which is only at the end. */
  note(event: AnswerEvent, answer: Pick<Generation, "usage">): void {
    const nowMs = performance.now();
    if (event.kind === "delta") this.#delta(event.choice, event.tokens.length, nowMs);
    else if (event.kind === "started") {
      this.#startedMs = nowMs;
      this.#observeSeconds("queue", nowMs - this.#arrivedMs);
    } else if (event.kind === "finish") {
      this.#choicesOpen--;
      this.#telemetry.countFinished(event.reason === "calls" ? "stop" : event.reason);
    } else {
      if (event.kind === "failed")
        this.#failed(event.failure.kind === "aborted" && event.failure.by !== "server");
      const { usage } = answer;
      this.#telemetry.countTokens(usage);
      this.#ended(usage.completionTokens, nowMs);
    }
  }

  /** Text that came of several tokens counts once, with its share of the time per token. */
  #delta(index: number, tokens: number, nowMs: number): void {
    const choice = this.#choices[index]!;
    const { lastMs } = choice;
    if (lastMs !== null && tokens > 0) {
      this.#observeSeconds("betweenTokens", (nowMs - lastMs) / tokens);
      this.#observeSeconds("betweenTokensFine", (nowMs - lastMs) / tokens);
    }
    choice.lastMs = nowMs;
    choice.tokens += tokens;
    if (this.#firstTokenMs !== null) return;
    this.#firstTokenMs = nowMs;
    this.#observeSeconds("firstToken", nowMs - this.#arrivedMs);
    this.#observeSeconds("firstTokenFine", nowMs - this.#arrivedMs);
    this.#observeSeconds("prefill", nowMs - (this.#startedMs ?? nowMs));
  }

  #failed(isReaderGone: boolean): void {
    this.#telemetry.countFinished(isReaderGone ? "abort" : "error", this.#choicesOpen);
  }

  #ended(completionTokens: number, nowMs: number): void {
    this.#observeSeconds("endToEnd", nowMs - this.#arrivedMs);
    this.#telemetry.observeRequest("generationTokens", completionTokens);
    this.#telemetry.observeRequest(
      "longestChoice",
      Math.max(0, ...this.#choices.map(({ tokens }) => tokens)),
    );
    if (this.#startedMs !== null) this.#observeSeconds("inference", nowMs - this.#startedMs);
    if (this.#firstTokenMs !== null) this.#observeSeconds("decode", nowMs - this.#firstTokenMs);
  }

  #observeSeconds(name: Parameters<Telemetry["observeRequest"]>[0], ms: number): void {
    this.#telemetry.observeRequest(name, ms / 1000);
  }
}
