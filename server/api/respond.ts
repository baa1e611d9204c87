import type { AdapterId } from "../../scheduler/core.ts";
import type { PromptPart } from "../../text/conversation/prompt-outline.ts";
import { briefOutcome } from "../answer/cache-outcome.ts";
import type { AnswerEvent, AnswerFailure, Usage } from "../answer/events.ts";
import type { Generation, GenerationOptions, GenerationRequest } from "../answer/generation.ts";
import type { Generator } from "../answer/generator.ts";
import { Gatherer, type WholeAnswer } from "../answer/whole.ts";
import type { RequestRecord } from "../explain/request-record.ts";
import type { RequestRecorder } from "../explain/request-records.ts";
import type { CacheSaltFor } from "../http/auth.ts";
import { ApiError, badRequest, clientGone, engineError, unavailable, writesNoText } from "../http/errors.ts";
import { jsonResponse } from "../http/json/slices.ts";
import type { Lifecycle } from "../http/lifecycle.ts";
import type { HttpLimits } from "../http/limits.ts";
import { AnswerMeasures, type AnswerTelemetry } from "../http/measure.ts";
import type { ReplyTarget } from "../http/reply.ts";
import { whenAborted } from "../http/route.ts";
import { ResponseStream, type StreamLimits, sseFraming } from "../http/stream.ts";
import { requestLimits } from "../request/limits.ts";
import type { ReadyChat } from "../request/prompt.ts";
import type { AnswerTrace } from "../trace/traces.ts";
import { boundedOptions } from "./answer-bounds.ts";
import type { LookedUp } from "./cache-records.ts";
import type { Codec, ShownEvent } from "./codec.ts";
import { etaComment, etaHeader } from "./estimate-text.ts";
import { namesWith } from "./session-names.ts";

export type RespondLimits = StreamLimits & Pick<HttpLimits, "commitMs">;

/** Context of one HTTP request, with the services that answer it. */
export interface Exchange {
  readonly requestId: string;
  readonly signal: AbortSignal;
  readonly reply: ReplyTarget;
  /** Arrival time of the request's head, on the clock of `performance.now()`. */
  readonly arrivedMs: number;
  /** Wait for the model to be loaded; absent: the model was there. */
  readonly loadMs?: number | undefined;
  /** Tenant name of the API key; "" on a server without keys. */
  readonly tenant: string;
  /** Name of the conversation in a header; null: none. */
  readonly sessionName: string | null;
  /** Transport facts of the request, for its record; absent: it has no record. */
  readonly entry?: RequestEntry;
  readonly services: {
    readonly cacheSaltFor: CacheSaltFor;
    readonly generator: Generator;
    readonly lifecycle: Lifecycle;
    readonly telemetry: AnswerTelemetry;
    /** Keeps the prefix-cache report of a request; null: reports are not kept. */
    readonly recordCache: ((request: LookedUp) => void) | null;
    /** Opens the timing record of a request; null: records are not kept. */
    readonly recordRequest: RequestRecorder | null;
  };
  readonly limits: RespondLimits;
}

/** Transport facts of a request: its route, the time of its arrival, and a hook for the end of its answer. */
export interface RequestEntry {
  readonly route: string;
  /** Time at which its body was parsed, on the clock of `performance.now()`. */
  readonly readMs: number;
  /** True if the client asks for the record at the end of the answer (`x-bunting-why: 1`). */
  readonly wantsWhy: boolean;
  /** Calls `tell` once the answer is written. */
  whenSent(tell: () => void): void;
  readonly trace?: AnswerTrace | undefined;
  /** Headers with the client's trace context (`traceparent`); absent: requests are not traced. */
  readonly traceHeaders?: Headers | undefined;
}

/** Context of an HTTP request or batch line whose answer is not streamed. */
export type WholeExchange = Omit<Exchange, "reply" | "limits">;

/** A parsed request whose prompts are tokens. */
export interface PreparedRequest {
  readonly prompts: GenerationRequest["prompts"];
  readonly options: GenerationOptions;
  readonly isStream: boolean;
  /** Names of fields that the template does not read, or reads as another value; absent: none. */
  readonly ignored?: readonly string[];
  /** Positions of a chat's messages in its prompt; absent: the request is not a chat. */
  readonly outline?: readonly PromptPart[];
  /** Creates the codec of one answer. */
  readonly codec: () => Codec;
  /** Selects what a whole answer shows; absent: all of it. */
  readonly shown?: (answer: WholeAnswer) => WholeAnswer;
}

/** Builds the prepared request of a chat whose prompt is tokenised. */
export function preparedChat<Written extends Codec>(
  { generation, stream: isStream }: { readonly generation: GenerationOptions; readonly stream: boolean },
  { tokens, format, outline, ignored }: Pick<ReadyChat, "tokens" | "format" | "outline" | "ignored">,
  codec: () => Written,
) {
  return { prompts: [tokens], options: { ...generation, format }, isStream, outline, ignored, codec };
}

/** A complete answer in its wire format. */
export interface AnsweredWhole {
  /** JSON body. */
  readonly body: object;
  readonly usage: Usage;
  /** Names for the header `x-bunting-ignored`. */
  readonly ignored: readonly string[];
  /** Value of the header `x-bunting-cache`. */
  readonly cache: string;
}

/** Answers with one JSON body or with a stream. */
export async function respond(exchange: Exchange, prepared: PreparedRequest): Promise<Response> {
  if (prepared.isStream) return answerStream(exchange, prepared);
  const { body, ignored, cache } = await answerWhole(exchange, prepared);
  return withNotes(await jsonResponse(body), ignored, cache);
}

/** Answers with one JSON body. Rejects with the ApiError of a request that is refused or fails. */
export async function answerWhole(
  exchange: WholeExchange,
  prepared: PreparedRequest,
): Promise<AnsweredWhole> {
  const codec = prepared.codec();
  const request = requestOf(exchange, prepared, codec);
  const done = Promise.withResolvers<WholeAnswer>();
  const wantsLogprobs = request.sampling.topLogprobs !== null;
  const gatherer = new Gatherer(request.prompts.length * request.choices, wantsLogprobs);
  const onEvent = (event: ShownEvent): void => {
    const whole = gatherer.take(event);
    if (whole !== null) done.resolve(whole);
  };
  const { generation, measures, record } = generate(exchange, request, prepared, onEvent, done.reject);
  const unheed = whenAborted(exchange.signal, () => generation.abort("reader"));
  const whole = await done.promise.finally(unheed);
  const answer = prepared.shown?.(whole) ?? whole;
  const ignored = [...(prepared.ignored ?? []), ...generation.ignored];
  const cache = cacheText(generation);
  const body = withWhy(codec.body(answer, measures.times), whyOf(exchange, record));
  return { body, usage: answer.usage, ignored, cache };
}

/**
 * Answers with a stream. Resolves once the first sequence is admitted, or after `commitMs`. Rejects with the
 * ApiError of a request that is refused or fails before that.
 */
async function answerStream(exchange: Exchange, prepared: PreparedRequest): Promise<Response> {
  const codec = prepared.codec();
  const request = requestOf(exchange, prepared, codec);
  const committed = Promise.withResolvers<void>();
  const onEvent = (event: ShownEvent): void => {
    if (event.kind === "started" || event.kind === "done") committed.resolve();
    stream.write(codec.chunk(event, state));
    if (event.kind === "done") stream.end();
  };
  const onFailed = (error: ApiError): void => {
    committed.reject(error); // has no effect once the response is committed
    stream.write(codec.failure(error));
    stream.end();
  };
  const onProgress = (tokens: number): void => stream.write(codec.progress?.(tokens, state) ?? "");
  const { generation, measures, record } = generate(
    exchange,
    request,
    prepared,
    onEvent,
    onFailed,
    onProgress,
  );
  const state = {
    get usage() {
      return generation.usage;
    },
    get times() {
      return measures.times;
    },
    get why() {
      return whyOf(exchange, record);
    },
  };
  const stream = new ResponseStream(exchange.reply, codec.framing, exchange.limits, generation);
  const patience = setTimeout(committed.resolve, exchange.limits.commitMs);
  try {
    await committed.promise;
  } finally {
    clearTimeout(patience);
  }
  const ignored = [...(prepared.ignored ?? []), ...generation.ignored];
  const cache = cacheText(generation);
  const response = withNotes(stream.response(), ignored, cache);
  if (cache !== "" || generation.hasBegun) return response;
  const { estimate } = generation;
  if (estimate !== null) response.headers.set("x-bunting-eta", etaHeader(estimate));
  if (codec.framing === sseFraming) tellWait(generation, stream);
  return response;
}

/** Writes comments with the estimated time of the first token, until the answer begins. */
function tellWait(generation: Generation, stream: ResponseStream): void {
  const tell = (): void => {
    if (stream.isClosed || generation.hasBegun) clearInterval(ticks);
    else if (generation.estimate !== null) stream.write(etaComment(generation.estimate));
  };
  const ticks = setInterval(tell, WAIT_TOLD_EVERY_MS);
  tell();
}

/** Time between two comments to a client that waits for its first token. */
const WAIT_TOLD_EVERY_MS = 1000;

/** The generation that a request asks for, within the bounds of one answer. */
function requestOf(
  { tenant, services, sessionName, entry }: WholeExchange,
  { prompts, options: asked, isStream }: PreparedRequest,
  codec: Codec,
): GenerationRequest {
  services.lifecycle.expectReady(); // tokenising may have taken a while
  services.telemetry.ledger.expectWithin(tenant);
  const logprobsMax = codec.logprobsMax ?? (isStream ? null : requestLimits.answerLogprobsMax);
  const options = boundedOptions(asked, prompts, services.generator.contextMax, logprobsMax);
  const cacheSalt = services.cacheSaltFor(tenant, options.cacheSalt);
  const names = namesWith(sessionName, options.names);
  return { ...options, prompts, tenant, cacheSalt, names, tellsWhy: entry?.wantsWhy ?? false };
}

/** Adds the record of a request to its body; to the last object of a list. */
function withWhy(body: object, why: object | null): object {
  if (why === null) return body;
  if (!Array.isArray(body)) return { ...body, bunting: { why } };
  return body.with(-1, withWhy(body.at(-1) as object, why));
}

/** The record of a request for its answer; null: the client has not asked for it. */
function whyOf({ entry }: WholeExchange, record: RequestRecord | null): object | null {
  return entry?.wantsWhy === true && record !== null ? record.json() : null;
}

/** Value of the header `x-bunting-ignored`: fields without effect, or read as another value; "" for none. */
export function ignoredText(ignored: readonly string[]): string {
  const { ignoredNamesMax: max, ignoredNameCharactersMax: charactersMax } = requestLimits;
  return [...new Set(ignored)]
    .filter(({ length }) => length <= charactersMax)
    .slice(0, max)
    .map((name) => encodeURI(name))
    .join(", ");
}

/** Prompts that the header `x-bunting-cache` names at most. */
const CACHE_PROMPTS_MAX = 8;

/** Prefix-cache outcomes of the prompts as a header's value; "" if none has been admitted. */
function cacheText({ cacheOutcomes }: Generation): string {
  return cacheOutcomes.slice(0, CACHE_PROMPTS_MAX).map(briefOutcome).join(", ");
}

function withNotes(response: Response, ignored: readonly string[], cache: string): Response {
  const names = ignoredText(ignored);
  if (names !== "") response.headers.append("x-bunting-ignored", names);
  if (cache !== "") response.headers.set("x-bunting-cache", cache);
  return response;
}

/** Opens the record of a request whose sequences are about to be submitted; null: it has none. */
export function openRecord(
  { services, arrivedMs, loadMs = 0, requestId, tenant, entry }: WholeExchange,
  adapter: AdapterId,
  choices: number,
): RequestRecord | null {
  if (entry === undefined || services.recordRequest === null) return null;
  const { route, readMs } = entry;
  const times = { arrivedMs, readMs, loadMs, startedMs: performance.now() };
  const record = services.recordRequest({ id: requestId, tenant, route, adapter, choices, ...times });
  entry.whenSent(() => record.sent());
  entry.trace?.follow(record);
  return record;
}

/** Starts the generation of one request, which counts as in flight and is measured until its last event. */
function generate(
  exchange: WholeExchange,
  request: GenerationRequest,
  { prompts, outline, isStream }: Pick<PreparedRequest, "prompts" | "outline" | "isStream">,
  onEvent: (event: ShownEvent) => void,
  onFailed: (error: ApiError) => void,
  onProgress: (tokens: number) => void = () => {},
): {
  readonly generation: Generation;
  readonly measures: AnswerMeasures;
  readonly record: RequestRecord | null;
} {
  const { services, arrivedMs, loadMs, requestId, tenant } = exchange;
  const { generator, lifecycle, telemetry, recordCache } = services;
  const trace = exchange.entry?.trace;
  trace?.asks({
    operation: outline === undefined ? "text_completion" : "chat",
    isStream,
    tokensMax: request.tokensMax,
    sampling: request.sampling,
  });
  const record = openRecord(exchange, request.adapter, prompts.length * request.choices);
  const measures = new AnswerMeasures(telemetry, request, arrivedMs, loadMs);
  let cut: ApiError | null = null;
  const untrack = lifecycle.track({
    cut: (error) => {
      cut = error;
      generation.abort("server");
    },
  });
  const onAnswer = (event: AnswerEvent): void => {
    if (event.kind === "progress") {
      onProgress(event.tokens);
      return;
    }
    measures.note(event, generation);
    // Several prompts begin at different times.
    if (event.kind === (prompts.length === 1 ? "started" : "done")) {
      const { cacheOutcomes: outcomes } = generation;
      const chat = outline === undefined ? {} : { outline };
      recordCache?.({ tenant, requestId, adapter: request.adapter, prompts, outcomes, ...chat });
    }
    if (event.kind === "started") record?.started();
    if (event.kind === "finish") trace?.finished(event.choice, event.reason);
    if (event.kind === "done" || event.kind === "failed") {
      untrack();
      telemetry.log?.answered(requestId, event, generation, measures.times);
    }
    if (event.kind === "failed") {
      const error = cut ?? errorOf(event.failure, lifecycle);
      const isCancelled = event.failure.kind === "aborted" && event.failure.by === "reader";
      trace?.failed(error);
      record?.ended(isCancelled ? "cancelled" : "failed", error.message);
      onFailed(error);
      return;
    }
    if (event.kind === "done") record?.ended("answered", null);
    onEvent(event);
  };
  const generation = generator.generate(request, onAnswer, () => record?.settled());
  record?.follow(generation);
  return { generation, measures, record };
}

const overloadedRetrySeconds = 2;

export function errorOf(failure: AnswerFailure, lifecycle: Lifecycle): ApiError {
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
      // The request is to blame unless the whole engine is lost: then a retry may succeed.
      return lifecycle.state === "lost" ? lifecycle.refusal()! : engineError(failure.message);
    case "writesNoText":
      return writesNoText("model");
    case "badConstraint":
      return badRequest(failure.message, failure.param, "invalid_schema");
    case "unsatisfiable":
      return badRequest(failure.message, undefined, "constraint_unsatisfiable");
    case "aborted":
      return failure.by === "slowReader" ? tooSlow() : clientGone();
  }
}

function tooSlow(): ApiError {
  return new ApiError(408, "timeout_error", "the answer was not read as fast as it must be", {
    apiCode: "slow_reader",
  });
}
