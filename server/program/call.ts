import type { TokenId } from "../../base/token.ts";
import type { AdapterId, ProgramPlace } from "../../scheduler/core.ts";
import type { CallService, ReadyCall } from "../../scheduler/program/program.ts";
import type { OutputPart } from "../../scheduler/program/spec.ts";
import type { AnswerEvent, AnswerFailure, Usage } from "../answer/events.ts";
import {
  type AnswerListener,
  type Generation,
  type GenerationRequest,
  oneAnswer,
} from "../answer/generation.ts";
import type { Generator } from "../answer/generator.ts";
import { ApiError } from "../http/errors.ts";
import type { PromptServices } from "../request/prompt.ts";
import { nameWith } from "../request/served-model.ts";
import type { WholeTrace } from "../trace/traces.ts";
import type { Turns } from "./limits.ts";
import { OutputTrace } from "./output-trace.ts";
import { CallPrompt, type Drawn } from "./prompt.ts";
import type { TaskGroupStart } from "./task-group-start.ts";

/** Services that calls use. */
export interface CallServices extends PromptServices {
  readonly generator: Generator;
  /**
   * Limits concurrent tokenisation of prompts, so that one program's calls cannot fill the encoder's queue,
   * which all requests share.
   */
  readonly turns: Turns;
  /** Called for every generation of a call; the returned function receives its events. */
  measure(
    request: GenerationRequest,
  ): (
    event: AnswerEvent,
    generation: Pick<Generation, "usage" | "deviceMs" | "engine" | "cacheOutcomes">,
  ) => void;
}

/** Events of a call, in order; `ended` or `failed` is the last, unless the call was dropped. */
export interface CallListener {
  /** Current latency class and program of the call. */
  placeOf(call: string): { readonly service: CallService; readonly program: ProgramPlace };
  /** Called when computing begins. */
  started(call: string, usage: Usage): void;
  /** Called with new final text of output `index`. */
  drew(call: string, index: number, output: OutputPart, text: string): void;
  wrote(call: string, index: number, text: string): void;
  ended(call: string, usage: Usage): void;
  failed(call: string, code: string, message: string, usage: Usage): void;
}

/** Client on whose behalf calls run, with what they share prefixes by. */
export interface CallOwner {
  readonly tenant: string;
  readonly cacheSalt: string;
  readonly adapter: AdapterId;
}

/**
 * Running call: one generation per output. Each generation continues the previous one, whose pages are held
 * until it begins.
 */
export class RunningCall {
  readonly #name: string;
  readonly #prompt: CallPrompt;
  readonly #owner: CallOwner;
  readonly #services: CallServices;
  readonly #listener: CallListener;
  /** Task group with which the call starts; null once it has begun, or if it never will. */
  #taskGroup: TaskGroupStart | null;
  readonly #drawn: Drawn[] = [];
  #generation: Generation | null = null;
  #isEnded = false;
  /** Completion tokens of finished outputs. */
  #completionTokens = 0;
  readonly #trace: WholeTrace | null;
  #usage: Usage = { promptTokens: 0, completionTokens: 0, reasoningTokens: 0, cachedTokens: 0 };

  /**
   * `taskGroup`: group in which its first output begins; null to begin alone. `trace`: that of its program; null if
   * the server exports no traces.
   */
  constructor(
    call: ReadyCall,
    owner: CallOwner,
    services: CallServices,
    listener: CallListener,
    taskGroup: TaskGroupStart | null,
    trace: WholeTrace | null,
  ) {
    this.#trace = trace;
    this.#taskGroup = taskGroup;
    this.#name = call.call;
    this.#prompt = new CallPrompt(call.prompt, services);
    this.#owner = owner;
    this.#services = services;
    this.#listener = listener;
  }

  /**
   * Begins the call. Resolves when its first output is submitted, waits for its task group, or has failed. Never
   * rejects.
   */
  begin(): Promise<void> {
    return this.#next();
  }

  /** Usage of finished outputs. */
  get usage(): Usage {
    return this.#usage;
  }

  /** Updates the running generation's class after it may have become more urgent. */
  raise(): void {
    if (this.#generation === null) return; // it will ask when it begins
    const { service, place } = this.#serviceNow();
    this.#generation.raise(service, place.taskGroup);
  }

  /** Aborts the call, which is no longer needed; reports nothing from here on. */
  drop(): void {
    this.#isEnded = true;
    this.#leaveTaskGroup();
    this.#generation?.abort("reader");
    this.#generation?.release();
  }

  /** Starts the next output. Never rejects. */
  async #next(): Promise<void> {
    if (this.#isEnded) return;
    const beganMs = performance.now();
    try {
      const tokens = await this.#services.turns.run(() => this.#prompt.tokensAfter(this.#drawn));
      if (this.#isEnded) return;
      this.#generate(tokens, this.#prompt.outputs[this.#drawn.length]!, beganMs);
    } catch (error) {
      if (this.#isEnded) return;
      if (error instanceof ApiError) this.#fail(error.detail.apiCode ?? "bad_prompt", error.message);
      else {
        console.error(`the call ${this.#name} of a program failed:`, error);
        this.#fail("internal_error", "the server made a mistake");
      }
    }
  }

  #generate(promptTokens: readonly TokenId[], output: OutputPart, beganMs: number): void {
    const index = this.#drawn.length;
    const request = this.#request(promptTokens, output);
    const traced = this.#traceOf(request, index, beganMs);
    const onSettled = (): void => traced?.settled();
    const measure = this.#services.measure(request);
    const drawn = { text: "", tokens: [] as TokenId[] };
    const listener: AnswerListener = (event) => {
      const generation = this.#generation!;
      measure(event, generation);
      traced?.note(event, event.kind === "failed" ? codeOf(event.failure)[0] : null);
      if (this.#isEnded) return;
      switch (event.kind) {
        case "started":
          this.#listener.started(this.#name, this.#with(generation.usage));
          return;
        case "delta": {
          const text = event.parts.map((part) => (part.kind === "text" ? part.text : "")).join("");
          drawn.text += text;
          drawn.tokens.push(...event.tokens);
          if (text !== "") this.#listener.drew(this.#name, index, output, text);
          return;
        }
        case "finish":
          return;
        case "done":
          this.#usage = this.#with(event.usage);
          this.#completionTokens += event.usage.completionTokens;
          this.#written(index, drawn);
          return;
        case "failed":
          this.#usage = this.#with(generation.usage);
          this.#fail(...codeOf(event.failure));
      }
    };
    // A call with a constraint to compile begins alone.
    if (request.constraint !== undefined) this.#leaveTaskGroup();
    const taskGroup = this.#taskGroup;
    this.#taskGroup = null;
    const onStarted = (generation: Generation): void => {
      this.#generation = generation;
      traced?.follow(generation);
    };
    if (taskGroup === null) onStarted(this.#services.generator.generate(request, listener, onSettled));
    else {
      const onBegun = (generation: Generation): void => {
        onStarted(generation);
        this.#begun();
      };
      taskGroup.join({ request, listener, onSettled, onStarted: onBegun });
    }
  }

  /** Trace of one output; null: it has none. */
  #traceOf(request: GenerationRequest, index: number, beganMs: number): OutputTrace | null {
    const own = { "bunting.program.call": this.#name, "bunting.program.output": index };
    const part = this.#trace?.part(own) ?? null;
    if (part === null) return null;
    const { operation } = this.#prompt;
    const model = nameWith(this.#owner.adapter, this.#services.model);
    return new OutputTrace(part, request, { model, operation, beganMs });
  }

  #begun(): void {
    if (this.#isEnded)
      this.drop(); // dropped while it waited for the others
    else this.raise();
  }

  #request(
    promptTokens: readonly TokenId[],
    { sampling, tokensMax, stop, ends, constraint }: OutputPart,
  ): GenerationRequest {
    return {
      ...oneAnswer,
      prompts: [promptTokens],
      sampling,
      tokensMax,
      stopStrings: stop,
      ...ends,
      cacheSalt: this.#owner.cacheSalt,
      adapter: this.#owner.adapter,
      tenant: this.#owner.tenant,
      ...this.#serviceNow(),
      answers: {
        before: this.#generation,
        isLast: this.#drawn.length === this.#prompt.outputs.length - 1,
      },
      ...(constraint === undefined ? {} : { constraint }),
    };
  }

  #serviceNow(): Required<Pick<GenerationRequest, "service" | "place">> {
    const { service, program } = this.#listener.placeOf(this.#name);
    const { objective, taskGroup, ttftMs, tbtMs } = service;
    return { service: { objective, ttftMs, tbtMs, priority: 0 }, place: { taskGroup, program } };
  }

  #written(index: number, drawn: Drawn): void {
    this.#drawn.push(drawn);
    this.#listener.wrote(this.#name, index, drawn.text);
    if (this.#isEnded) return; // the listener dropped it because of an invalid value
    if (this.#drawn.length < this.#prompt.outputs.length) {
      void this.#next();
      return;
    }
    this.#isEnded = true;
    this.#listener.ended(this.#name, this.#usage);
  }

  /** Usage of the call including the running output, whose prompt contains the earlier outputs. */
  #with({ promptTokens, completionTokens, reasoningTokens, cachedTokens }: Usage): Usage {
    const before = this.#drawn.reduce((sum, { tokens }) => sum + tokens.length, 0);
    return {
      promptTokens: promptTokens - before,
      completionTokens: this.#completionTokens + completionTokens,
      reasoningTokens,
      cachedTokens: this.#drawn.length === 0 ? cachedTokens : this.#usage.cachedTokens,
    };
  }

  #leaveTaskGroup(): void {
    const taskGroup = this.#taskGroup;
    this.#taskGroup = null;
    taskGroup?.leave();
  }

  #fail(code: string, message: string): void {
    this.#isEnded = true;
    this.#leaveTaskGroup();
    this.#generation?.release();
    this.#listener.failed(this.#name, code, message, this.#usage);
  }
}

/** Error code and message of a failure. */
function codeOf(failure: AnswerFailure): [code: string, message: string] {
  switch (failure.kind) {
    case "neverFits":
      return [
        "context_length_exceeded",
        `the call needs room for ${failure.needed} tokens, but this server has room for ${failure.limit}`,
      ];
    case "queueFull":
      return ["server_overloaded", `the queue is full: it holds ${failure.limit} requests at most`];
    case "engineFailed":
      return ["engine_error", failure.message];
    case "writesNoText":
      return ["invalid_request_error", "this model writes no text: it gives embeddings or scores alone"];
    case "badConstraint":
      return ["invalid_schema", failure.message];
    case "unsatisfiable":
      return ["constraint_unsatisfiable", failure.message];
    case "aborted":
      return ["cancelled", "the call was ended"];
  }
}
