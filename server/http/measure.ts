import type { EngineId } from "../../scheduler/core.ts";
import type { AnswerEvent } from "../answer/events.ts";
import type { Generation, GenerationRequest } from "../answer/generation.ts";
import type { UsageOutcome } from "../usage/use.ts";
import type { RequestHistogram, Telemetry } from "./telemetry.ts";

/** Receiver of an answer's measurements. */
export type AnswerTelemetry = Pick<
  Telemetry,
  "observeRequest" | "countFinished" | "countTokens" | "ledger" | "log"
>;

/** Durations of an answer; of several choices, from the first beginning to the last end. */
export interface AnswerTimes {
  /** From the admission of its first sequence to its first token. */
  readonly promptMs: number;
  /** From its first token to its last. */
  readonly answerMs: number;
  /** From the request's arrival on. */
  readonly totalMs: number;
  /** Wait for the model to be loaded. */
  readonly loadMs: number;
}

interface ChoiceMeasures {
  /** Tokens reported so far. */
  tokens: number;
  /** Times of the first and the last of them; null if there was none. */
  firstMs: number | null;
  lastMs: number | null;
}

/** Measures one answer by its events: the client's waiting times, and the answer's length. */
export class AnswerMeasures {
  readonly #telemetry: AnswerTelemetry;
  readonly #request: GenerationRequest;
  /** Engine on which it began; null: on none. */
  #engine: EngineId | null = null;
  readonly #arrivedMs: number;
  readonly #loadMs: number;
  readonly #choices: ChoiceMeasures[];
  #startedMs: number | null = null;
  #firstTokenMs: number | null = null;
  #choicesOpen: number;

  /** `arrivedMs`: arrival of the request's head, on the clock of `performance.now()`. */
  constructor(telemetry: AnswerTelemetry, request: GenerationRequest, arrivedMs: number, loadMs = 0) {
    this.#telemetry = telemetry;
    this.#arrivedMs = arrivedMs;
    this.#loadMs = loadMs;
    this.#choicesOpen = request.prompts.length * request.choices;
    this.#choices = Array.from({ length: this.#choicesOpen }, () => ({
      tokens: 0,
      firstMs: null,
      lastMs: null,
    }));
    this.#request = request;
  }

  /** Durations so far. */
  get times(): AnswerTimes {
    const firstMs = this.#firstTokenMs ?? performance.now();
    return {
      promptMs: firstMs - (this.#startedMs ?? firstMs),
      answerMs: Math.max(firstMs, ...this.#choices.map(({ lastMs }) => lastMs ?? firstMs)) - firstMs,
      totalMs: performance.now() - this.#arrivedMs,
      loadMs: this.#loadMs,
    };
  }

  /** Records an event. Reads `answer.usage` only at the end, because each read computes it. */
  note(
    event: AnswerEvent,
    answer: Pick<Generation, "usage" | "deviceMs" | "engine" | "cacheOutcomes">,
  ): void {
    const nowMs = performance.now();
    if (event.kind === "delta") this.#delta(event.choice, event.tokens.length, nowMs);
    else if (event.kind === "started") {
      this.#startedMs = nowMs;
      this.#engine = answer.engine;
      this.#observeSeconds("queue", nowMs - this.#arrivedMs);
    } else if (event.kind === "finish") {
      this.#choicesOpen--;
      this.#telemetry.countFinished(event.reason === "calls" ? "stop" : event.reason, 1, this.#engine);
    } else {
      if (event.kind === "failed")
        this.#failed(event.failure.kind === "aborted" && event.failure.by !== "server");
      const { usage } = answer;
      this.#telemetry.countTokens(usage);
      const { deviceMs } = answer;
      this.#telemetry.ledger.charge(this.#request.tenant, { ...usage, deviceMs, outcome: outcomeOf(event) });
      for (const { promptTokens, cachedTokens } of answer.cacheOutcomes)
        this.#observe("computedPrompt", promptTokens - cachedTokens);
      this.#ended(usage.completionTokens, nowMs);
    }
  }

  /** Observes one inter-token latency per delta: the time since the previous delta, divided by its tokens. */
  #delta(index: number, tokens: number, nowMs: number): void {
    const choice = this.#choices[index]!;
    const { lastMs } = choice;
    if (lastMs !== null && tokens > 0) {
      this.#observeSeconds("betweenTokens", (nowMs - lastMs) / tokens);
      this.#observeSeconds("betweenTokensFine", (nowMs - lastMs) / tokens);
    }
    choice.firstMs ??= nowMs;
    choice.lastMs = nowMs;
    choice.tokens += tokens;
    if (this.#firstTokenMs !== null) return;
    this.#firstTokenMs = nowMs;
    this.#observeSeconds("firstToken", nowMs - this.#arrivedMs);
    this.#observeSeconds("firstTokenFine", nowMs - this.#arrivedMs);
    this.#observeSeconds("prefill", nowMs - (this.#startedMs ?? nowMs));
  }

  #failed(isReaderGone: boolean): void {
    this.#telemetry.countFinished(isReaderGone ? "abort" : "error", this.#choicesOpen, this.#engine);
  }

  #ended(completionTokens: number, nowMs: number): void {
    const { prompts, choices, tokensMax } = this.#request;
    for (const prompt of prompts) {
      this.#observe("promptTokens", prompt.length);
      this.#observe("choices", choices);
      if (tokensMax !== null) this.#observe("tokensMax", tokensMax);
    }
    this.#observeSeconds("endToEnd", nowMs - this.#arrivedMs);
    this.#observe("generationTokens", completionTokens);
    this.#observe("longestChoice", Math.max(0, ...this.#choices.map(({ tokens }) => tokens)));
    for (const { tokens, firstMs, lastMs } of this.#choices) {
      if (firstMs !== null)
        this.#observeSeconds("tokenSeconds", (lastMs! - firstMs) / Math.max(1, tokens - 1));
    }
    if (this.#startedMs !== null) this.#observeSeconds("inference", nowMs - this.#startedMs);
    if (this.#firstTokenMs !== null) this.#observeSeconds("decode", nowMs - this.#firstTokenMs);
  }

  #observeSeconds(name: RequestHistogram, ms: number): void {
    this.#observe(name, ms / 1000);
  }

  #observe(name: RequestHistogram, value: number): void {
    this.#telemetry.observeRequest(name, value, this.#engine);
  }
}

function outcomeOf(event: AnswerEvent): UsageOutcome {
  if (event.kind !== "failed") return "answered";
  return event.failure.kind === "aborted" && event.failure.by === "reader" ? "cancelled" : "failed";
}
