import { type ApiError, badRequest, engineError, unavailable } from "../http/errors.ts";
import type { Lifecycle } from "../http/lifecycle.ts";
import type { Telemetry } from "../http/telemetry.ts";
import type { TextDelta } from "./choice-text.ts";
import type {
  ChoiceFinish,
  Generation,
  GenerationFailure,
  GenerationRequest,
  Generator,
  Usage,
} from "./generation.ts";

export interface AnswerServices {
  readonly generator: Generator;
  readonly lifecycle: Lifecycle;
  readonly telemetry: Telemetry;
}

/** Who hears of an answer. After `onDone`, `onFailed` or `Answer.abort` nothing more is called. */
export interface AnswerSink {
  /** Something of the answer is admitted: it has begun to be computed. */
  onStarted(): void;
  onDelta(index: number, delta: TextDelta): void;
  onFinish(index: number, finish: ChoiceFinish): void;
  onDone(usage: Usage): void;
  onFailed(error: ApiError): void;
}

/**
 * The answer to one HTTP request: one generation per prompt, whose choices are numbered through. Lives as long as
 * anything of it is computed, is counted as in flight, and measured.
 */
export class Answer {
  readonly #services: AnswerServices;
  readonly #sink: AnswerSink;
  readonly #generations: Generation[] = [];
  readonly #untrack: () => void;
  readonly #arrivedMs: number;
  readonly #lastTokenMs: number[] = [];
  /** Tokens told, per choice. */
  readonly #tokens: number[];
  #startedMs: number | null = null;
  #firstTokenMs: number | null = null;
  #generationsOpen: number;
  #choicesOpen: number;
  #isEnded = false;

  /** `arrivedMs`: when the request's head arrived, on the clock of `performance.now()`. */
  constructor(
    services: AnswerServices,
    requests: readonly GenerationRequest[],
    arrivedMs: number,
    sink: AnswerSink,
  ) {
    this.#services = services;
    this.#sink = sink;
    this.#arrivedMs = arrivedMs;
    this.#generationsOpen = requests.length;
    this.#choicesOpen = requests.reduce((sum, request) => sum + request.choices, 0);
    this.#tokens = new Array<number>(this.#choicesOpen).fill(0);
    this.#untrack = services.lifecycle.track({ cut: (error) => this.#fail(error) });
    let first = 0;
    for (const request of requests) {
      this.#generations.push(this.#start(request, first));
      first += request.choices;
      services.telemetry.observeRequest("promptTokens", request.promptTokens.length);
      services.telemetry.observeRequest("choices", request.choices);
      if (request.tokensMax !== null) services.telemetry.observeRequest("tokensMax", request.tokensMax);
    }
  }

  get usage(): Usage {
    const usages = this.#generations.map((generation) => generation.usage);
    return {
      promptTokens: usages.reduce((sum, usage) => sum + usage.promptTokens, 0),
      completionTokens: usages.reduce((sum, usage) => sum + usage.completionTokens, 0),
      cachedTokens: usages.reduce((sum, usage) => sum + usage.cachedTokens, 0),
    };
  }

  /** Nobody waits for it any more. */
  abort(): void {
    if (!this.#isEnded) this.#end("abort");
  }

  pause(): void {
    for (const generation of this.#generations) generation.pause();
  }

  resume(): void {
    for (const generation of this.#generations) generation.resume();
  }

  #start(request: GenerationRequest, first: number): Generation {
    return this.#services.generator.generate(request, {
      onStarted: () => this.#started(),
      onDelta: (choice, delta) => this.#delta(first + choice, delta),
      onFinish: (choice, finish) => this.#finished(first + choice, finish),
      onDone: () => {
        this.#generationsOpen--;
        if (this.#generationsOpen > 0 || this.#isEnded) return;
        const usage = this.usage;
        this.#end("stop");
        this.#sink.onDone(usage);
      },
      onFailed: (failure) => this.#fail(errorOf(failure, this.#services.lifecycle)),
    });
  }

  #started(): void {
    if (this.#startedMs !== null) return;
    this.#startedMs = performance.now();
    this.#services.telemetry.observeRequest("queue", (this.#startedMs - this.#arrivedMs) / 1000);
    this.#sink.onStarted();
  }

  #delta(index: number, delta: TextDelta): void {
    this.#measure(index, delta.tokens.length);
    this.#sink.onDelta(index, delta);
  }

  /** Text that came of several tokens counts once, with its share of the time per token. */
  #measure(index: number, tokens: number): void {
    const { telemetry } = this.#services;
    const now = performance.now();
    const last = this.#lastTokenMs[index];
    if (last !== undefined && tokens > 0) {
      telemetry.observeRequest("betweenTokens", (now - last) / 1000 / tokens);
      telemetry.observeRequest("betweenTokensFine", (now - last) / 1000 / tokens);
    }
    this.#lastTokenMs[index] = now;
    this.#tokens[index]! += tokens;
    if (this.#firstTokenMs !== null) return;
    this.#firstTokenMs = now;
    telemetry.observeRequest("firstToken", (now - this.#arrivedMs) / 1000);
    telemetry.observeRequest("firstTokenFine", (now - this.#arrivedMs) / 1000);
    telemetry.observeRequest("prefill", (now - (this.#startedMs ?? now)) / 1000);
  }

  #finished(index: number, finish: ChoiceFinish): void {
    this.#choicesOpen--;
    this.#services.telemetry.countFinished(finish.reason);
    this.#sink.onFinish(index, finish);
  }

  #fail(error: ApiError): void {
    if (this.#isEnded) return;
    this.#end("error");
    this.#sink.onFailed(error);
  }

  /** `label` is how the choices still open have ended. */
  #end(label: "stop" | "abort" | "error"): void {
    this.#isEnded = true;
    const { telemetry } = this.#services;
    if (label !== "stop") telemetry.countFinished(label, this.#choicesOpen);
    const now = performance.now();
    telemetry.observeRequest("endToEnd", (now - this.#arrivedMs) / 1000);
    telemetry.observeRequest("generationTokens", this.usage.completionTokens);
    telemetry.observeRequest("longestChoice", Math.max(0, ...this.#tokens));
    if (this.#startedMs !== null) telemetry.observeRequest("inference", (now - this.#startedMs) / 1000);
    if (this.#firstTokenMs !== null) telemetry.observeRequest("decode", (now - this.#firstTokenMs) / 1000);
    for (const generation of this.#generations) generation.abort();
    this.#untrack();
  }
}

const overloadedRetrySeconds = 2;

function errorOf(failure: GenerationFailure, lifecycle: Lifecycle): ApiError {
  switch (failure.kind) {
    case "neverFits":
      return badRequest(
        `The request needs room for ${failure.needed} tokens, but this server has room for ${failure.limit}.`,
        undefined,
        "context_length_exceeded",
      );
    case "queueFull":
      return unavailable(
        "server_overloaded",
        `the queue is full: it holds ${failure.limit} requests at most`,
        overloadedRetrySeconds,
      );
    case "engineFailed":
      // The request is to blame unless the engine is gone with everything on it: then another try may well do.
      return lifecycle.state === "lost" ? lifecycle.refusal()! : engineError(failure.message);
  }
}
