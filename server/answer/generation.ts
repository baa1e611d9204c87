import type { TokenId } from "../../base/token.ts";
import type { Constraint } from "../../grammar/constraint.ts";
import type { ConstraintSource } from "../../grammar/source.ts";
import type { Finish, Sampling, SequenceId, Service, TokenLogprobs } from "../../scheduler/core.ts";
import type { Fleet, SequenceListener, Unplaced } from "../../scheduler/fleet/fleet.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import { Choice, type ChoiceListener } from "./choice.ts";
import { ChoiceText, type TextRules } from "./choice-text.ts";
import type { AbortedBy, AnswerEvent, AnswerFailure, ChoiceFinish, Usage } from "./events.ts";
import { PromptTokens } from "./prompt-tokens.ts";

/** From a parsed request to answer events: prompts become sequences on the fleet, and their tokens text, thoughts and calls. */

/** Prompts and how to continue them. Everything is validated at the door; defaults are applied. */
export interface GenerationRequest extends TextRules {
  readonly prompts: readonly (readonly TokenId[])[];
  /** Independent continuations of each prompt, ≥ 1. Choice i of a prompt draws with seed + i, so it equals a lone
   *  request with that seed. */
  readonly choices: number;
  readonly sampling: Sampling;
  /** Tokens to generate at most, ≥ 1, of those that the context has left after the prompt; null: all of them. */
  readonly tokensMax: number | null;
  /** Tokens that end a choice, besides the model's own end tokens. */
  readonly stopTokens: readonly TokenId[];
  /** The model's own end tokens do not end a choice. */
  readonly ignoreEos: boolean;
  readonly cacheSalt: string;
  /** Of each prompt's tokens so many alternatives are told with `done`, and how likely they were; absent: nothing is. */
  readonly promptLogprobs?: number;
  /** It is told how much of its prompt is computed. */
  readonly tellsProgress?: boolean;
  /** What every choice's text must be; absent: any text. */
  readonly constraint?: RequestedConstraint;
  readonly service: RequestedService;
  /** Of a program's call: the task group that it is in (a number of `Generator.nextTaskGroup`), and its place in the program. */
  readonly place?: Pick<Service, "taskGroup" | "program">;
  /** Of one of several answers in one prompt: the one before, with which the prompt begins; and whether another comes after it. */
  readonly answers?: { readonly before: Generation | null; readonly isLast: boolean };
  /** The key that it is counted for; "" where no keys are needed. */
  readonly tenant: string;
}

/** A constraint as the client wrote it. */
export interface RequestedConstraint {
  readonly source: ConstraintSource;
  /** The field that it came in. */
  readonly param: string;
}

/** How a request is to be served, as far as it may choose. */
export type RequestedService = Omit<Service, "tenant" | "taskGroup" | "program">;

/** All of a request but its prompts and its key. */
export type GenerationOptions = Omit<GenerationRequest, "prompts" | "tenant" | "place" | "answers">;

/** One answer, where a wire format has no fields to ask for something else. */
export const oneAnswer = Object.freeze({
  choices: 1,
  tokensMin: 0,
  stopTokens: [],
  ignoreEos: false,
  includeStopString: false,
  skipSpecialTokens: true,
}) satisfies Partial<GenerationOptions>;

/** Called on this thread, never from within `generate`. */
export type AnswerListener = (event: AnswerEvent) => void;

/** A request in flight. Every method may be called at any time, any number of times. */
export interface Generation {
  /** Ends the sequences; the last event, `failed`, comes from within this call. */
  abort(by: AbortedBy): void;
  /** The reader is slow: no further steps for this request until `resume`. What was already drawn still arrives. */
  pause(): void;
  resume(): void;
  /** It is wanted more than it was; never less. */
  raise(service: RequestedService, taskGroup: number | null): void;
  /** No answer comes after it, although its request said so. */
  release(): void;
  /** Of its first choice; null: it is not submitted. */
  readonly sequence: SequenceId | null;
  readonly usage: Usage;
  /** What of its constraint demands nothing, or cannot be kept to and need not be; known when it has started. */
  readonly ignored: readonly string[];
}

/** What the generator has to know of the model. */
export interface ModelFacts {
  /** Longest sequence in tokens, prompt and output together. */
  readonly contextMax: number;
  /** Tokens with which the model ends its answer. */
  readonly eosTokens: readonly TokenId[];
  /** It has no vocabulary projection: nothing can be generated. Absent: it has one. */
  readonly isHeadless?: boolean;
}

/** What the generator asks of the fleet. */
export type SequenceRunner = Pick<
  Fleet,
  "submit" | "submitTaskGroup" | "abort" | "pause" | "resume" | "raise" | "release"
>;

/** The sequences of one prompt, for the fleet. */
export interface Submission {
  readonly specs: readonly Unplaced[];
  readonly listeners: readonly SequenceListener[];
  /** Told their ids, in order. */
  onSubmitted(ids: readonly SequenceId[]): void;
}

/** A request in flight, from its submission to its last event. */
export class RunningGeneration implements Generation, ChoiceListener {
  ignored: readonly string[] = [];
  readonly #fleet: SequenceRunner;
  readonly #facts: ModelFacts;
  #request: GenerationRequest;
  readonly #listener: AnswerListener;
  /** Called before the last event. */
  readonly #onEnd: () => void;
  readonly #choices: readonly Choice[];
  #choicesOpen: number;
  #isStarted = false;
  #isEnded = false;
  #isPaused = false;
  #promptCount = 0;
  #cachedTokens = 0;
  /** Of the first prompt, as far as it was told. */
  #computedTokens = 0;
  #constraint: Constraint | null = null;
  readonly #tokenizer: Tokenizer;
  /** Of which something is told, by prompt. */
  readonly #promptTokens: readonly PromptTokens[];

  constructor(
    fleet: SequenceRunner,
    tokenizer: Tokenizer,
    facts: ModelFacts,
    request: GenerationRequest,
    { listener, onEnd }: { readonly listener: AnswerListener; readonly onEnd: () => void },
  ) {
    this.#fleet = fleet;
    this.#facts = facts;
    this.#request = request;
    this.#listener = listener;
    this.#onEnd = onEnd;
    this.#tokenizer = tokenizer;
    this.#promptTokens =
      request.promptLogprobs === undefined ? [] : request.prompts.map((prompt) => new PromptTokens(prompt));
    const stopTokens = this.#stopTokens();
    this.#choices = request.prompts.flatMap((tokens, prompt) => {
      this.#promptCount += tokens.length;
      return Array.from({ length: request.choices }, (_, place) => {
        const index = prompt * request.choices + place;
        const text = new ChoiceText(index, tokenizer, stopTokens, request);
        return new Choice({ index, prompt, place }, text, listener, this);
      });
    });
    this.#choicesOpen = this.#choices.length;
  }

  get usage(): Usage {
    return {
      promptTokens: this.#promptCount,
      completionTokens: this.#choices.reduce((sum, { text }) => sum + text.tokens, 0),
      reasoningTokens: this.#choices.reduce((sum, { text }) => sum + text.reasoningTokens, 0),
      cachedTokens: this.#cachedTokens,
    };
  }

  /** What to submit, prompt by prompt; nothing once it has ended. */
  *submissions(nextTaskGroup: () => number, constraint: Constraint | null): IterableIterator<Submission> {
    const { prompts, choices } = this.#request;
    this.#constraint = constraint;
    for (const [first, promptTokens] of prompts.entries()) {
      if (this.#isEnded) return;
      const own = this.#choices.slice(first * choices, (first + 1) * choices);
      const submission = this.#submission(promptTokens, own, nextTaskGroup);
      if (submission !== null) yield submission;
    }
  }

  refuse(failure: AnswerFailure): void {
    this.#fail(failure);
  }

  abort(by: AbortedBy): void {
    this.#fail({ kind: "aborted", by });
  }

  pause(): void {
    if (this.#isPaused) return;
    this.#isPaused = true;
    for (const id of this.#running()) this.#fleet.pause(id);
  }

  resume(): void {
    if (!this.#isPaused) return;
    this.#isPaused = false;
    for (const id of this.#running()) this.#fleet.resume(id);
  }

  raise(service: RequestedService, taskGroup: number | null): void {
    const { place, tenant } = this.#request;
    const program = place?.program ?? null;
    this.#request = { ...this.#request, service, place: { taskGroup, program } }; // of what is submitted later
    for (const id of this.#running()) this.#fleet.raise(id, { ...service, tenant, taskGroup, program });
  }

  release(): void {
    const { before = null, isLast = true } = this.#request.answers ?? {};
    if (this.sequence === null) before?.release();
    else if (!isLast) this.#fleet.release(this.sequence);
  }

  get sequence(): SequenceId | null {
    return this.#choices[0]!.id;
  }

  /** Null when the prompt never fits, of which the listener has been told. */
  #submission(
    promptTokens: readonly TokenId[],
    choices: readonly Choice[],
    nextTaskGroup: () => number,
  ): Submission | null {
    const { sampling, tokensMin, cacheSalt, tenant, promptLogprobs } = this.#request;
    const room = this.#facts.contextMax - promptTokens.length;
    const tokensMax = Math.min(this.#request.tokensMax ?? room, room);
    if (tokensMax < 1) {
      this.#fail({ kind: "neverFits", needed: promptTokens.length + 1, limit: this.#facts.contextMax });
      return null;
    }
    const stop = { tokensMax, tokensMin: Math.min(tokensMin, tokensMax), stopTokens: this.#stopTokens() };
    const { taskGroup, program } = this.#request.place ?? { taskGroup: null, program: null };
    const ownTaskGroup = taskGroup ?? (choices.length > 1 ? nextTaskGroup() : null);
    const service = { ...this.#request.service, tenant, taskGroup: ownTaskGroup, program };
    const { before = null, isLast = true } = this.#request.answers ?? {};
    const specs = choices.map((_, i) => {
      return {
        promptTokens,
        sampling: { ...sampling, seed: seedOf(sampling.seed, i) },
        stop,
        cacheSalt,
        adapter: 0,
        service,
        ...(this.#constraint === null ? {} : { constraint: this.#constraint }),
        ...(this.#request.tellsProgress === true && choices[i]!.index === 0 ? { tellsProgress: true } : {}),
        ...(isLast ? {} : { isHeld: true }),
        ...(before === null || before.sequence === null ? {} : { continues: before.sequence }),
        // What is told of a prompt is told by its first choice, which shares no prefix: all of it is to be computed.
        ...(i === 0 && promptLogprobs !== undefined
          ? { promptLogprobs, cacheSalt: crypto.randomUUID() }
          : {}),
      };
    });
    return {
      specs,
      listeners: choices,
      onSubmitted: (ids) => {
        choices.forEach((choice, i) => {
          choice.id = ids[i]!;
        });
        // Refused from within the call, or paused before it.
        if (this.#isEnded) for (const id of ids) this.#fleet.abort(id);
        else if (this.#isPaused) for (const id of ids) this.#fleet.pause(id);
      },
    };
  }

  onStarted({ place }: Choice, cachedTokens: number): void {
    if (place === 0) this.#cachedTokens += cachedTokens;
    if (this.#isStarted) return;
    this.#isStarted = true;
    this.#listener({ kind: "started" });
  }

  onPromptLogprobs({ prompt }: Choice, start: number, logprobs: readonly TokenLogprobs[]): void {
    this.#promptTokens[prompt]!.take(start, logprobs);
  }

  onProgress(tokens: number): void {
    if (tokens <= this.#computedTokens) return;
    this.#computedTokens = tokens;
    this.#listener({ kind: "progress", tokens });
  }

  onEnd(choice: Choice, finish: Finish | null): void {
    if (finish === null) this.#fleet.abort(choice.id!);
    choice.isOpen = false;
    this.#choicesOpen--;
    this.#listener({ kind: "finish", choice: choice.index, ...this.#finishOf(choice.text, finish) });
    if (this.#choicesOpen > 0 || this.#isEnded) return;
    this.#isEnded = true;
    this.#onEnd();
    const { usage } = this;
    const promptLogprobs = this.#promptTokens.map((prompt) => prompt.entries(this.#tokenizer));
    this.#listener({ kind: "done", usage, ...(promptLogprobs.length === 0 ? {} : { promptLogprobs }) });
  }

  onFailed(failure: AnswerFailure): void {
    this.#fail(failure);
  }

  /** Ids of the choices that go on. */
  #running(): SequenceId[] {
    return this.#choices.flatMap(({ id, isOpen }) => (isOpen && id !== null ? [id] : []));
  }

  #fail(failure: AnswerFailure): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    for (const id of this.#running()) this.#fleet.abort(id);
    for (const choice of this.#choices) choice.isOpen = false;
    this.#onEnd();
    this.#listener({ kind: "failed", failure });
  }

  #stopTokens(): readonly TokenId[] {
    const { ignoreEos, stopTokens } = this.#request;
    const { eosTokens } = this.#facts;
    if (ignoreEos) return stopTokens;
    return stopTokens.length === 0 ? eosTokens : [...new Set([...eosTokens, ...stopTokens])];
  }

  #finishOf({ matched, hasCalls }: ChoiceText, finish: Finish | null): ChoiceFinish {
    if (matched === null && finish?.kind === "length") return { reason: "length", stopReason: null };
    const reason = hasCalls ? "calls" : "stop";
    if (matched !== null || finish?.kind !== "stop") return { reason, stopReason: matched };
    const isEos = !this.#request.ignoreEos && this.#facts.eosTokens.includes(finish.token);
    return { reason, stopReason: isEos ? null : finish.token };
  }
}

/** The 64-bit seed plus the choice's index. */
function seedOf([low, high]: readonly [number, number], choice: number): readonly [number, number] {
  const sum = low + choice;
  return [sum >>> 0, (high + (sum > 0xffffffff ? 1 : 0)) >>> 0];
}
