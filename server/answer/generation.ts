import type { TokenId } from "../../base/token.ts";
import type { Constraint } from "../../grammar/constraint.ts";
import type { ConstraintSource } from "../../grammar/source.ts";
import type {
  AdapterId,
  EngineId,
  Finish,
  Sampling,
  SequenceId,
  Service,
  TokenLogprobs,
} from "../../scheduler/core.ts";
import { ownMs } from "../../scheduler/explain/causes.ts";
import type { Estimate } from "../../scheduler/explain/outlook.ts";
import type { Story } from "../../scheduler/explain/sequence-story.ts";
import type { Fleet, SequenceListener, StartedAt, Unplaced } from "../../scheduler/fleet/fleet.ts";
import type { CheckedDraft } from "../../scheduler/messages.ts";
import { HashedTokens } from "../../scheduler/session/hashed-tokens.ts";
import type { PastPrompt } from "../../scheduler/session/prompt-history.ts";
import type { SessionKeeper } from "../../scheduler/session/session-keeper.ts";
import { noNames, type SessionNames, type Turn } from "../../scheduler/session/session-table.ts";
import type { Tokenizer } from "../../text/tokenizer.ts";
import type { CacheAccount } from "./cache-account.ts";
import type { CacheOutcome } from "./cache-outcome.ts";
import { Choice, type ChoiceListener } from "./choice.ts";
import { ChoiceText, type TextRules } from "./choice-text.ts";
import type { AbortedBy, AnswerEvent, AnswerFailure, ChoiceFinish, DraftUsage, Usage } from "./events.ts";
import { PromptTokens } from "./token-text.ts";

/**
 * Runs a parsed request: its prompts become sequences on the fleet, and their tokens become answer events.
 */

/** Prompts with their generation options, validated and with defaults applied. */
export interface GenerationRequest extends TextRules {
  readonly prompts: readonly (readonly TokenId[])[];
  /**
   * Independent continuations of each prompt, ≥ 1. Choice i of a prompt uses seed + i, so it equals a lone
   * request with that seed.
   */
  readonly choices: number;
  readonly sampling: Sampling;
  /** Output tokens at most, ≥ 1, within the context left after the prompt; null: all of it. */
  readonly tokensMax: number | null;
  /** Tokens that end a choice, besides the model's own end tokens. */
  readonly stopTokens: readonly TokenId[];
  /** True if the model's own end tokens do not end a choice. */
  readonly ignoreEos: boolean;
  readonly cacheSalt: string;
  readonly adapter: AdapterId;
  /** Maximum draft tokens that a step verifies, see `SequenceSpec`. */
  readonly draftTokensMax?: number;
  /** Tokens of the text that the client expects the answer to resemble, see `SequenceSpec`. */
  readonly prediction?: ArrayLike<TokenId>;
  /**
   * Alternatives per prompt token in the prompt log probabilities of `done`; absent: no prompt log
   * probabilities.
   */
  readonly promptLogprobs?: number;
  /** True to emit `progress` events during the prefill of the first prompt. */
  readonly tellsProgress?: boolean;
  /** True if `done` waits for the last sequence to end, so that all of its time is known. */
  readonly tellsWhy?: boolean;
  /** Constraint on every choice's text; absent: any text. */
  readonly constraint?: RequestedConstraint;
  readonly service: RequestedService;
  /**
   * Place of a program's call: its task group (a number from `Generator.nextTaskGroup`) and its position in the
   * program.
   */
  readonly place?: Pick<Service, "taskGroup" | "program">;
  /**
   * Place among several answers in one prompt: the preceding answer, whose sequence is this prompt's prefix,
   * and whether this is the last.
   */
  readonly answers?: { readonly before: Generation | null; readonly isLast: boolean };
  /** Tenant of the API key; "" on a server without keys. */
  readonly tenant: string;
  /** Names that the client gives its conversation; absent: none. */
  readonly names?: SessionNames;
}

/** A constraint as the client wrote it. */
export interface RequestedConstraint {
  readonly source: ConstraintSource;
  /** Name of the request field of the constraint. */
  readonly param: string;
}

/** Service options that a request may choose. */
export type RequestedService = Omit<Service, "tenant" | "taskGroup" | "program" | "session">;

/** A request without its prompts, tenant and place. */
export type GenerationOptions = Omit<GenerationRequest, "prompts" | "tenant" | "place" | "answers">;

/** Options of one answer, for wire formats without fields for more. */
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
  /** Aborts the sequences and emits the last event, `failed`, synchronously. */
  abort(by: AbortedBy): void;
  /**
   * Pauses the request for a slow reader: no further steps until `resume`. Tokens of the step in flight still
   * arrive.
   */
  pause(): void;
  resume(): void;
  /** Raises the request's service class; never lowers it. */
  raise(service: RequestedService, taskGroup: number | null): void;
  /** Releases the KV cache held for a further answer in the same prompt: none will continue the sequence. */
  release(): void;
  /** Sequence of the first choice; null before submission. */
  readonly sequence: SequenceId | null;
  readonly usage: Usage;
  /**
   * Names of constraint parts without effect: they demand nothing, or are optional and cannot be enforced.
   * Complete once the constraint is compiled.
   */
  readonly ignored: readonly string[];
  /** Prefix-cache outcomes of the prompts that engines have admitted. */
  readonly cacheOutcomes: readonly CacheOutcome[];
  /** Engine that admitted its first sequence; null: none has yet. */
  readonly engine: EngineId | null;
  /** Ids of its submitted sequences. */
  readonly sequences: readonly SequenceId[];
  /** Time by cause of the first sequence that runs; of the one that ended last if none does. Null: none was submitted. */
  readonly story: Story | null;
  /** Device time attributed to it so far: the steps' milliseconds as if each sequence ran alone. */
  readonly deviceMs: number;
  /** True if it has a token, or has ended. */
  readonly hasBegun: boolean;
  /** Estimated begin and end of its first sequence; null: there is none yet, or that has its first token. */
  readonly estimate: Estimate | null;
}

/** Model facts that the generator needs. */
export interface ModelFacts {
  /** Longest sequence in tokens, prompt and output together. */
  readonly contextMax: number;
  /** Tokens with which the model ends its answer. */
  readonly eosTokens: readonly TokenId[];
  /** True if the model has no vocabulary projection and cannot generate text. Absent: false. */
  readonly isHeadless?: boolean;
}

/** Part of the fleet that the generator uses. */
export type SequenceRunner = Pick<
  Fleet,
  "submit" | "submitTaskGroup" | "abort" | "pause" | "resume" | "raise" | "release" | "storyOf" | "outlook"
>;

/** Sequences of one prompt, for the fleet. */
export interface Submission {
  readonly specs: readonly Unplaced[];
  readonly listeners: readonly SequenceListener[];
  /** Receives the sequences' ids, in order. */
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
  /** Called once no sequence runs: after the last event, also where that waited for the sequences (`tellsWhy`). */
  readonly #onSettled: () => void;
  /** Submitted sequences that have not ended. */
  #unsettled = 0;
  #isSettled = false;
  #isDone = false;
  #story: Story | null = null;
  /** Device time attributed to its ended sequences, as in `deviceMs`. */
  #deviceMs = 0;
  readonly #account: CacheAccount;
  /** Outcomes by prompt; undefined before its start. */
  readonly #outcomes: (CacheOutcome | undefined)[] = [];
  /** Null: prompts belong to no sessions. */
  readonly #sessions: SessionKeeper | null;
  /** Turns of sessions, by prompt. */
  readonly #turns: (Turn | null)[] = [];
  /** History entries by prompt; null if the history does not keep it, undefined before its start. */
  readonly #pasts: (PastPrompt | null | undefined)[] = [];
  readonly #choices: readonly Choice[];
  #choicesOpen: number;
  #isStarted = false;
  engine: EngineId | null = null;
  #isEnded = false;
  #isPaused = false;
  #promptCount = 0;
  #cachedTokens = 0;
  #drafts: DraftUsage | null = null;
  #predicted: DraftUsage | null = null;
  /** Highest reported progress in the first prompt. */
  #computedTokens = 0;
  #constraint: Constraint | null = null;
  readonly #tokenizer: Tokenizer;
  /** Prompts with log probabilities to report; empty if the request asks for none. */
  readonly #promptTokens: readonly PromptTokens[];

  constructor(
    fleet: SequenceRunner,
    tokenizer: Tokenizer,
    facts: ModelFacts,
    request: GenerationRequest,
    {
      listener,
      onEnd,
      onSettled,
      account,
      sessions,
    }: {
      readonly listener: AnswerListener;
      readonly onEnd: () => void;
      readonly onSettled: () => void;
      readonly account: CacheAccount;
      readonly sessions: SessionKeeper | null;
    },
  ) {
    this.#fleet = fleet;
    this.#facts = facts;
    this.#request = request;
    this.#listener = listener;
    this.#onEnd = onEnd;
    this.#onSettled = onSettled;
    this.#account = account;
    this.#sessions = sessions;
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
      ...(this.#drafts === null ? {} : { drafts: this.#drafts }),
      ...(this.#request.prediction === undefined
        ? {}
        : { predicted: this.#predicted ?? { tokens: 0, accepted: 0 } }),
    };
  }

  /** Submissions, prompt by prompt; stops once the request has ended. */
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
    this.#request = { ...this.#request, service, place: { taskGroup, program } }; // for later submissions
    for (const id of this.#running())
      this.#fleet.raise(id, { ...service, tenant, taskGroup, program, session: null });
  }

  release(): void {
    const { before = null, isLast = true } = this.#request.answers ?? {};
    if (this.sequence === null) before?.release();
    else if (!isLast) this.#fleet.release(this.sequence);
  }

  get sequence(): SequenceId | null {
    return this.#choices[0]!.id;
  }

  /** Submission of one prompt. Null if the prompt never fits; the listener then has the failure. */
  #submission(
    promptTokens: readonly TokenId[],
    choices: readonly Choice[],
    nextTaskGroup: () => number,
  ): Submission | null {
    const { sampling, tokensMin, cacheSalt, adapter, tenant, promptLogprobs, draftTokensMax, prediction } =
      this.#request;
    const room = this.#facts.contextMax - promptTokens.length;
    const tokensMax = Math.min(this.#request.tokensMax ?? room, room);
    if (tokensMax < 1) {
      this.#fail({ kind: "neverFits", needed: promptTokens.length + 1, limit: this.#facts.contextMax });
      return null;
    }
    const stop = { tokensMax, tokensMin: Math.min(tokensMin, tokensMax), stopTokens: this.#stopTokens() };
    const { taskGroup, program } = this.#request.place ?? { taskGroup: null, program: null };
    const ownTaskGroup = taskGroup ?? (choices.length > 1 ? nextTaskGroup() : null);
    const turn = this.#turnOf(promptTokens);
    this.#turns[choices[0]!.prompt] = turn;
    const session = turn?.place ?? null;
    const service = { ...this.#request.service, tenant, taskGroup: ownTaskGroup, program, session };
    const { before = null, isLast = true } = this.#request.answers ?? {};
    const specs = choices.map((_, i) => {
      return {
        promptTokens,
        sampling: { ...sampling, seed: seedOf(sampling.seed, i) },
        stop,
        cacheSalt,
        adapter,
        service,
        ...(draftTokensMax === undefined ? {} : { draftTokensMax }),
        ...(prediction === undefined ? {} : { prediction }),
        ...(this.#constraint === null ? {} : { constraint: this.#constraint }),
        ...(this.#request.tellsProgress === true && choices[i]!.index === 0 ? { tellsProgress: true } : {}),
        ...(isLast ? {} : { isHeld: true }),
        ...(before === null || before.sequence === null ? {} : { continues: before.sequence }),
        // The first choice reports the prompt's log probabilities. A random salt keeps it from sharing a
        // prefix, so that the engine computes all of the prompt.
        ...(i === 0 && promptLogprobs !== undefined
          ? { promptLogprobs, cacheSalt: crypto.randomUUID() }
          : {}),
      };
    });
    this.#unsettled += choices.length;
    return {
      specs,
      listeners: choices,
      onSubmitted: (ids) => {
        choices.forEach((choice, i) => {
          choice.id = ids[i]!;
        });
        if (turn !== null) this.#sessions!.submitted(turn);
        // Refused from within the call, or paused before it.
        if (this.#isEnded) for (const id of ids) this.#fleet.abort(id);
        else if (this.#isPaused) for (const id of ids) this.#fleet.pause(id);
      },
    };
  }

  /**
   * Begins the session's turn for a prompt that a client may continue. Null for calls of programs, requests for
   * prompt logprobs and offline requests.
   */
  #turnOf(promptTokens: readonly TokenId[]): Turn | null {
    const {
      tenant,
      cacheSalt: salt,
      adapter,
      promptLogprobs,
      service,
      place,
      answers,
      names,
    } = this.#request;
    const isAlone = place === undefined && answers === undefined && promptLogprobs === undefined;
    if (!isAlone || service.objective === "throughput") return null;
    const prompt = { tenant, salt, adapter, names: names ?? noNames };
    return this.#sessions?.begin({ ...prompt, tokens: HashedTokens.of(promptTokens) }) ?? null;
  }

  get cacheOutcomes(): readonly CacheOutcome[] {
    return this.#outcomes.filter((outcome) => outcome !== undefined);
  }

  onStarted({ place, prompt }: Choice, cachedTokens: number, at: StartedAt): void {
    if (place === 0) {
      this.#cachedTokens += cachedTokens;
      const { tenant, cacheSalt: salt, adapter, promptLogprobs, prompts, service } = this.#request;
      const turn = this.#turns[prompt] ?? null;
      const started = {
        tokens: turn?.tokens ?? HashedTokens.of(prompts[prompt]!),
        ...{ tenant, salt, adapter, turn },
        hasLogprobs: promptLogprobs !== undefined,
        isKept: service.objective !== "throughput",
      };
      [this.#outcomes[prompt], this.#pasts[prompt]] = this.#account.started(started, cachedTokens, at);
    }
    if (this.#isStarted) return;
    this.#isStarted = true;
    this.engine = at.engine;
    this.#listener({ kind: "started" });
  }

  get sequences(): readonly SequenceId[] {
    return this.#choices.flatMap(({ id }) => (id === null ? [] : [id]));
  }

  get deviceMs(): number {
    let sum = this.#deviceMs;
    for (const id of this.#unsettled === 0 ? [] : this.sequences) {
      const story = this.#fleet.storyOf(id);
      if (story !== null) sum += ownMs(story.ms);
    }
    return sum;
  }

  get hasBegun(): boolean {
    return this.#isEnded || this.#choices.some(({ text }) => text.tokens > 0);
  }

  get estimate(): Estimate | null {
    return this.sequence === null ? null : this.#fleet.outlook.estimateOf(this.sequence);
  }

  get story(): Story | null {
    for (const { id } of this.#unsettled === 0 ? [] : this.#choices) {
      const story = id === null ? null : this.#fleet.storyOf(id);
      if (story !== null) return story;
    }
    return this.#story;
  }

  onDrawn({ place, prompt, text }: Choice, drawn: readonly TokenId[], story: Story): void {
    this.#unsettled -= 1;
    this.#story = story;
    this.#deviceMs += ownMs(story.ms);
    if (place !== 0) return;
    const past = this.#pasts[prompt] ?? null;
    const turn = this.#turns[prompt] ?? null;
    if (past !== null) this.#account.ended(past, drawn);
    if (turn !== null) this.#sessions!.ended(turn, drawn.length === 0 ? null : past, { tools: text.called });
  }

  onPromptLogprobs({ prompt }: Choice, start: number, logprobs: readonly TokenLogprobs[]): void {
    this.#promptTokens[prompt]!.take(start, logprobs);
  }

  onProgress(tokens: number): void {
    if (tokens <= this.#computedTokens) return;
    this.#computedTokens = tokens;
    this.#listener({ kind: "progress", tokens });
  }

  onDraft({ tokens, accepted, isPredicted = false }: CheckedDraft): void {
    this.#drafts = added(this.#drafts, tokens, accepted);
    if (isPredicted) this.#predicted = added(this.#predicted, tokens, accepted);
  }

  onEnd(choice: Choice, finish: Finish | null): void {
    if (finish === null) this.#fleet.abort(choice.id!);
    choice.isOpen = false;
    this.#choicesOpen--;
    this.#listener({ kind: "finish", choice: choice.index, ...this.#finishOf(choice.text, finish) });
    if (this.#choicesOpen > 0 || this.#isEnded) return;
    this.#isEnded = true;
    this.#onEnd();
    if (this.#request.tellsWhy !== true) this.#done();
  }

  #done(): void {
    this.#isDone = true;
    const { usage } = this;
    const promptLogprobs = this.#promptTokens.map((prompt) => prompt.entries(this.#tokenizer));
    this.#listener({ kind: "done", usage, ...(promptLogprobs.length === 0 ? {} : { promptLogprobs }) });
  }

  onSettled(): void {
    if (!this.#isEnded || this.#unsettled > 0 || this.#isSettled) return;
    this.#isSettled = true;
    if (!this.#isDone) this.#done();
    this.#onSettled();
  }

  onFailed(failure: AnswerFailure): void {
    this.#fail(failure);
  }

  /** Ids of the running choices. */
  #running(): SequenceId[] {
    return this.#choices.flatMap(({ id, isOpen }) => (isOpen && id !== null ? [id] : []));
  }

  #fail(failure: AnswerFailure): void {
    if (this.#isEnded) return;
    this.#isEnded = true;
    for (const id of this.#running()) this.#fleet.abort(id);
    for (const choice of this.#choices) choice.isOpen = false;
    this.#isDone = true;
    this.#onEnd();
    this.#listener({ kind: "failed", failure });
    this.onSettled();
  }

  #stopTokens(): readonly TokenId[] {
    const { ignoreEos, stopTokens } = this.#request;
    const { eosTokens } = this.#facts;
    if (ignoreEos) return stopTokens;
    return stopTokens.length === 0 ? eosTokens : [...new Set([...eosTokens, ...stopTokens])];
  }

  #finishOf({ matched, called }: ChoiceText, finish: Finish | null): ChoiceFinish {
    if (matched === null && finish?.kind === "length") return { reason: "length", stopReason: null };
    const reason = called.length > 0 ? "calls" : "stop";
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

/** Adds a draft of `tokens` verified tokens, of which `accepted` were accepted. */
function added(before: DraftUsage | null, tokens: number, accepted: number): DraftUsage {
  return { tokens: (before?.tokens ?? 0) + tokens, accepted: (before?.accepted ?? 0) + accepted };
}
