import type { TokenId } from "../../../scheduler/core.ts";
import { Answer, type AnswerServices } from "../../answer/answer.ts";
import type { TextDelta, TokenEntry } from "../../answer/choice-text.ts";
import type { ChoiceFinish, GenerationRequest, Usage } from "../../answer/generation.ts";
import { ApiError, errorBody } from "../../http/errors.ts";
import { EventStream, type EventStreamLimits } from "../../http/sse.ts";
import type { CommonRequest } from "./schema.ts";

export interface RespondLimits extends EventStreamLimits {
  /** How long a stream may wait for admission before its headers are sent. Refusals within it have their own status. */
  readonly commitMs: number;
}

/** What one HTTP request brings along. */
export interface Exchange {
  readonly signal: AbortSignal;
  /** When its head arrived, on the clock of `performance.now()`. */
  readonly arrivedMs: number;
  /** Who asks; "" is everybody without a name. */
  readonly tenant: string;
  readonly services: AnswerServices;
  readonly limits: RespondLimits;
}

/** A choice when all is told. */
export interface WholeChoice {
  readonly text: string;
  readonly tokens: readonly TokenId[];
  readonly logprobs: readonly TokenEntry[] | null;
  readonly finish: ChoiceFinish;
}

/** How an answer looks on one route. */
export interface AnswerFormat {
  readonly id: string;
  readonly objectName: string;
  readonly chunkObjectName: string;
  /** One choice of the body. */
  choice(index: number, whole: WholeChoice): object;
  /** Fields of the body besides id, object, created, model, choices and usage. */
  readonly extras: object;
  /** JSON of the choice in a stream's chunks: before the first text, for text, at the end. */
  opening(index: number): string | null;
  delta(index: number, delta: TextDelta): readonly string[];
  closing(index: number, finish: ChoiceFinish): readonly string[];
}

/** Answers with one JSON body or with a stream, as the request asks. */
export function respond(
  exchange: Exchange,
  request: CommonRequest,
  prompts: readonly (readonly TokenId[])[],
  format: AnswerFormat,
): Promise<Response> {
  exchange.services.lifecycle.expectReady(); // tokenising may have taken a while
  const generations = prompts.map((promptTokens) => ({
    ...request.generation,
    promptTokens,
    tenant: exchange.tenant,
  }));
  const created = Math.floor(Date.now() / 1000);
  return request.stream
    ? streamAnswer(exchange, request, generations, format, created)
    : wholeAnswer(exchange, request, generations, format, created);
}

interface Gathered {
  text: string;
  tokens: TokenId[];
  logprobs: TokenEntry[] | null;
  finish: ChoiceFinish | null;
}

async function wholeAnswer(
  { signal, arrivedMs, services }: Exchange,
  request: CommonRequest,
  generations: readonly GenerationRequest[],
  format: AnswerFormat,
  created: number,
): Promise<Response> {
  const count = generations.length * request.generation.choices;
  const wantsLogprobs = request.generation.sampling.topLogprobs !== null;
  const choices: Gathered[] = Array.from({ length: count }, () => ({
    text: "",
    tokens: [],
    logprobs: wantsLogprobs ? [] : null,
    finish: null,
  }));
  const done = Promise.withResolvers<Usage>();
  const answer = new Answer(services, generations, arrivedMs, {
    onStarted() {},
    onDelta(index, delta) {
      const choice = choices[index]!;
      choice.text += delta.text;
      choice.tokens.push(...delta.tokens);
      choice.logprobs?.push(...(delta.logprobs ?? []));
    },
    onFinish(index, finish) {
      choices[index]!.finish = finish;
    },
    onDone: done.resolve,
    onFailed: done.reject,
  });
  onAbort(signal, () => {
    answer.abort();
    done.reject(clientGone());
  });
  const usage = await done.promise;
  return Response.json({
    id: format.id,
    object: format.objectName,
    created,
    model: request.model,
    choices: choices.map((choice, index) => format.choice(index, { ...choice, finish: choice.finish! })),
    usage: usageJson(usage),
    ...format.extras,
  });
}

async function streamAnswer(
  { signal, arrivedMs, services, limits }: Exchange,
  request: CommonRequest,
  generations: readonly GenerationRequest[],
  format: AnswerFormat,
  created: number,
): Promise<Response> {
  const { id, chunkObjectName: object } = format;
  const head = `${JSON.stringify({ id, object, created, model: request.model }).slice(0, -1)},"choices":[`;
  const tail = () => {
    if (request.continuousUsage) return `],"usage":${JSON.stringify(usageJson(answer.usage))}}`;
    return request.includeUsage ? `],"usage":null}` : "]}";
  };
  const sendChoice = (choice: string) => stream.send(head + choice + tail());
  const opened = new Set<number>();
  const open = (index: number) => {
    if (opened.has(index)) return;
    opened.add(index);
    const opening = format.opening(index);
    if (opening !== null) sendChoice(opening);
  };

  /** Settles when it is known what the response's status is. */
  const committed = Promise.withResolvers<void>();
  let isCommitted = false;
  const commit = () => {
    isCommitted = true;
    committed.resolve();
  };
  const patience = setTimeout(commit, limits.commitMs);
  const answer = new Answer(services, generations, arrivedMs, {
    onStarted: commit,
    onDelta(index, delta) {
      open(index);
      format.delta(index, delta).forEach(sendChoice);
    },
    onFinish(index, finish) {
      open(index);
      format.closing(index, finish).forEach(sendChoice);
    },
    onDone(usage) {
      commit();
      if (request.includeUsage) stream.send(`${head}],"usage":${JSON.stringify(usageJson(usage))}}`);
      stream.end();
    },
    onFailed(error) {
      if (isCommitted) stream.fail(errorBody(error));
      else committed.reject(error);
    },
  });
  const stream = new EventStream(signal, limits, {
    onCongested: () => answer.pause(),
    onDrained: () => answer.resume(),
    onTooSlow() {
      answer.abort();
      stream.fail(errorBody(tooSlow()));
    },
    onDisconnected() {
      answer.abort();
      committed.reject(clientGone());
    },
  });

  try {
    await committed.promise;
  } finally {
    clearTimeout(patience);
  }
  return stream.response();
}

export function usageJson(usage: Usage): object {
  return {
    prompt_tokens: usage.promptTokens,
    completion_tokens: usage.completionTokens,
    total_tokens: usage.promptTokens + usage.completionTokens,
    prompt_tokens_details: { cached_tokens: usage.cachedTokens },
  };
}

function onAbort(signal: AbortSignal, run: () => void): void {
  if (signal.aborted) run();
  else signal.addEventListener("abort", run, { once: true });
}

/** Nobody reads this answer; the status is the one that proxies log for it. */
function clientGone(): ApiError {
  return new ApiError(499, "client_error", "the client went away");
}

function tooSlow(): ApiError {
  return new ApiError(408, "timeout_error", "the answer was not read as fast as it must be", {
    apiCode: "slow_reader",
  });
}
