import {
  chatService,
  type Finish,
  type Sampling,
  type SequenceId,
  type TokenId,
  type TokenLogprobs,
} from "../../scheduler/core.ts";
import type { Fleet } from "../../scheduler/fleet.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import { ChoiceText, type TextDelta, type TextRules } from "./choice-text.ts";

/**
 * From a parsed request to text: a prompt's sequences on the fleet become, per choice, text deltas, log
 * probabilities, one finish reason, and the request's usage. Knows nothing of HTTP.
 */

/** One prompt and how to continue it. Everything is validated at the door; defaults are applied. */
export interface GenerationRequest extends TextRules {
  readonly promptTokens: readonly TokenId[];
  /** Independent continuations, ≥ 1. Choice i draws with seed + i, so it equals a lone request with that
   *  seed. */
  readonly choices: number;
  readonly sampling: Sampling;
  /** Tokens to generate at most, ≥ 1; null: whatever the context has left after the prompt. */
  readonly tokensMax: number | null;
  /** Tokens that end a choice, besides the model's own end tokens. */
  readonly stopTokens: readonly TokenId[];
  /** The model's own end tokens do not end a choice. */
  readonly ignoreEos: boolean;
  readonly cacheSalt: string;
  /** Who pays; "" is everybody without a name. */
  readonly tenant: string;
}

export interface ChoiceFinish {
  readonly reason: "stop" | "length";
  /** The stop string or the stop token that ended the choice; null for the model's own end or the length. */
  readonly stopReason: string | TokenId | null;
}

export interface Usage {
  readonly promptTokens: number;
  /** Over all choices, end tokens included. */
  readonly completionTokens: number;
  /** Prompt tokens of choice 0 whose keys and values were already there. */
  readonly cachedTokens: number;
}

/** Why a request came to nothing (more). The sentence is fit for the client. */
export type GenerationFailure =
  | { readonly kind: "neverFits"; readonly needed: number; readonly limit: number }
  | { readonly kind: "queueFull"; readonly needed: number; readonly limit: number }
  | { readonly kind: "engineFailed"; readonly message: string };

/**
 * Who listens. Calls come on this thread, never from within `generate`. Per choice: deltas, then `onFinish`;
 * after all choices `onDone`, or `onFailed` at any moment instead. After `onDone`, `onFailed` or
 * `Generation.abort` nothing more is called.
 */
export interface GenerationSink {
  /** Choice 0 was admitted: it holds pages from now on. */
  onStarted?(cachedTokens: number): void;
  onDelta(choice: number, delta: TextDelta): void;
  onFinish(choice: number, finish: ChoiceFinish): void;
  onDone(usage: Usage): void;
  onFailed(failure: GenerationFailure, usage: Usage): void;
}

/** A request in flight. Every method may be called at any time, any number of times. */
export interface Generation {
  /** The reader is gone: the sequences end and the sink hears no more. */
  abort(): void;
  /** The reader is slow: no further steps for this request until `resume`. What was already drawn still
   *  arrives. */
  pause(): void;
  resume(): void;
  readonly usage: Usage;
}

/** What the generator has to know of the model. */
export interface ModelFacts {
  /** Longest sequence in tokens, prompt and output together. */
  readonly contextMax: number;
  /** Tokens with which the model ends its answer. */
  readonly eosTokens: readonly TokenId[];
}

/** What the generator asks of the fleet. */
export type SequenceRunner = Pick<Fleet, "submit" | "submitGang" | "abort" | "pause" | "resume">;

export class Generator {
  readonly #fleet: SequenceRunner;
  readonly #tokenizer: Tokenizer;
  readonly #facts: ModelFacts;
  readonly #running = new Set<RunningGeneration>();
  #gangs = 0;

  constructor(fleet: SequenceRunner, tokenizer: Tokenizer, facts: ModelFacts) {
    this.#fleet = fleet;
    this.#tokenizer = tokenizer;
    this.#facts = facts;
  }

  /** Requests in flight. */
  get active(): number {
    return this.#running.size;
  }

  /** Starts a request. Refusals arrive at the sink like everything else. */
  generate(request: GenerationRequest, sink: GenerationSink): Generation {
    const gang = request.choices > 1 ? this.#gangs++ : null;
    const onEnded = (): void => {
      this.#running.delete(generation);
    };
    const generation = new RunningGeneration(
      this.#fleet,
      this.#tokenizer,
      this.#facts,
      request,
      gang,
      sink,
      onEnded,
    );
    this.#running.add(generation);
    generation.start();
    return generation;
  }
}

class RunningGeneration implements Generation {
  readonly #fleet: SequenceRunner;
  readonly #facts: ModelFacts;
  readonly #request: GenerationRequest;
  /** What its choices have in common when there are several: they are placed together. */
  readonly #gang: number | null;
  readonly #sink: GenerationSink;
  readonly #onEnded: () => void;
  readonly #choices: ChoiceText[];
  /** Of choices that are still running, by choice. */
  readonly #sequences = new Map<number, SequenceId>();
  #choicesOpen: number;
  #isEnded = false;
  #isPaused = false;
  #completionTokens = 0;
  #cachedTokens = 0;
  /** What the fleet told while `start` ran; null afterwards. */
  #early: (() => void)[] | null = [];

  constructor(
    fleet: SequenceRunner,
    tokenizer: Tokenizer,
    facts: ModelFacts,
    request: GenerationRequest,
    gang: number | null,
    sink: GenerationSink,
    onEnded: () => void,
  ) {
    this.#fleet = fleet;
    this.#facts = facts;
    this.#request = request;
    this.#gang = gang;
    this.#sink = sink;
    this.#onEnded = onEnded;
    const stopTokens = stopTokensOf(request, facts);
    this.#choices = Array.from(
      { length: request.choices },
      () => new ChoiceText(tokenizer, stopTokens, request),
    );
    this.#choicesOpen = request.choices;
  }

  get usage(): Usage {
    return {
      promptTokens: this.#request.promptTokens.length,
      completionTokens: this.#completionTokens,
      cachedTokens: this.#cachedTokens,
    };
  }

  start(): void {
    const { promptTokens, sampling, tokensMin, cacheSalt, tenant } = this.#request;
    const tokensMax = this.#request.tokensMax ?? this.#facts.contextMax - promptTokens.length;
    if (tokensMax < 1) {
      const limit = this.#facts.contextMax;
      this.#inOrder(() => this.#fail({ kind: "neverFits", needed: promptTokens.length + 1, limit }));
    } else {
      const stopTokens = [...stopTokensOf(this.#request, this.#facts)];
      const gang = this.#gang;
      const specs = this.#choices.map((_, choice) => ({
        promptTokens,
        sampling: { ...sampling, seed: seedOf(sampling.seed, choice) },
        stop: { tokensMax, tokensMin: Math.min(tokensMin, tokensMax), stopTokens },
        cacheSalt,
        service: { ...chatService, tenant, gang },
      }));
      const listeners = this.#choices.map((_, choice) => ({
        onStarted: (cachedTokens: number) => this.#inOrder(() => this.#started(choice, cachedTokens)),
        onToken: (token: TokenId, logprobs: TokenLogprobs | null) =>
          this.#inOrder(() => this.#token(choice, token, logprobs)),
        onFinish: (finish: Finish) => this.#inOrder(() => this.#finished(choice, finish)),
      }));
      const ids =
        gang === null
          ? [this.#fleet.submit(specs[0]!, listeners[0]!)]
          : this.#fleet.submitGang(specs, listeners);
      ids.forEach((id, choice) => {
        this.#sequences.set(choice, id);
      });
    }
    if (this.#early?.length === 0) this.#early = null;
    else queueMicrotask(() => this.#catchUp());
  }

  abort(): void {
    if (!this.#isEnded) this.#end();
  }

  pause(): void {
    if (this.#isEnded || this.#isPaused) return;
    this.#isPaused = true;
    for (const id of this.#sequences.values()) this.#fleet.pause(id);
  }

  resume(): void {
    if (this.#isEnded || !this.#isPaused) return;
    this.#isPaused = false;
    for (const id of this.#sequences.values()) this.#fleet.resume(id);
  }

  /** Runs now, or, while `start` is on the stack, right after it: the caller holds the generation first. */
  #inOrder(event: () => void): void {
    if (this.#early === null) event();
    else this.#early.push(event);
  }

  #catchUp(): void {
    const early = this.#early ?? [];
    this.#early = null;
    for (const event of early) event();
  }

  #started(choice: number, cachedTokens: number): void {
    if (this.#isEnded || choice !== 0) return;
    this.#cachedTokens = cachedTokens;
    this.#sink.onStarted?.(cachedTokens);
  }

  #token(choice: number, token: TokenId, logprobs: TokenLogprobs | null): void {
    if (this.#isEnded || !this.#sequences.has(choice)) return; // drawn before the fleet heard of the end
    this.#completionTokens++;
    const { delta, matched } = this.#choices[choice]!.push(token, logprobs);
    if (delta !== null) this.#sink.onDelta(choice, delta);
    if (matched !== null && !this.#isEnded) {
      this.#fleet.abort(this.#sequences.get(choice)!);
      this.#close(choice, { reason: "stop", stopReason: matched });
    }
  }

  #finished(choice: number, finish: Finish): void {
    if (this.#isEnded || !this.#sequences.has(choice)) return;
    switch (finish.kind) {
      case "stop":
      case "length": {
        const { delta, matched } = this.#choices[choice]!.end();
        if (delta !== null) this.#sink.onDelta(choice, delta);
        if (!this.#isEnded) this.#close(choice, finishOf(finish, matched, this.#request, this.#facts));
        return;
      }
      case "rejected":
        this.#sequences.delete(choice);
        this.#fail({ kind: finish.reason, needed: finish.needed, limit: finish.limit });
        return;
      case "aborted":
      case "failed":
        this.#sequences.delete(choice);
        this.#fail({
          kind: "engineFailed",
          message: finish.kind === "failed" ? finish.reason : "the server ended the request",
        });
        return;
    }
  }

  #close(choice: number, finish: ChoiceFinish): void {
    this.#sequences.delete(choice);
    this.#choicesOpen--;
    this.#sink.onFinish(choice, finish);
    if (this.#choicesOpen > 0 || this.#isEnded) return;
    this.#end();
    this.#sink.onDone(this.usage);
  }

  #fail(failure: GenerationFailure): void {
    if (this.#isEnded) return;
    this.#end();
    this.#sink.onFailed(failure, this.usage);
  }

  #end(): void {
    this.#isEnded = true;
    for (const id of this.#sequences.values()) this.#fleet.abort(id);
    this.#sequences.clear();
    this.#onEnded();
  }
}

function stopTokensOf(request: GenerationRequest, facts: ModelFacts): ReadonlySet<TokenId> {
  return new Set(request.ignoreEos ? request.stopTokens : [...facts.eosTokens, ...request.stopTokens]);
}

function finishOf(
  finish: Extract<Finish, { kind: "stop" | "length" }>,
  matched: string | null,
  request: GenerationRequest,
  facts: ModelFacts,
): ChoiceFinish {
  if (matched !== null) return { reason: "stop", stopReason: matched };
  if (finish.kind === "length") return { reason: "length", stopReason: null };
  const isEos = !request.ignoreEos && facts.eosTokens.includes(finish.token);
  return { reason: "stop", stopReason: isEos ? null : finish.token };
}

/** The 64-bit seed plus the choice's index. */
function seedOf([low, high]: readonly [number, number], choice: number): readonly [number, number] {
  const sum = low + choice;
  return [sum >>> 0, (high + (sum > 0xffffffff ? 1 : 0)) >>> 0];
}
