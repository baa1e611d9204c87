/**
 * Spans of one request, made from the breakdown of its time. They never contain text of a prompt or an
 * answer.
 */

import { CAUSES, causeIndex, causes, fitMs, type Phase } from "../../scheduler/explain/causes.ts";
import type { RequestFacts } from "../explain/request-facts.ts";

/** Values of attributes, as OpenTelemetry has them. */
export type SpanValue = string | number | boolean | readonly string[];
export type Attributes = Readonly<Record<string, SpanValue>>;

/** Span to be sent. The first one of a request is the parent of the others. */
export interface SpanPlan {
  readonly name: string;
  /** Times on the clock of `performance.now()`. */
  readonly startMs: number;
  readonly endMs: number;
  readonly attributes: Attributes;
  readonly isError: boolean;
}

/** Sampling parameters of a request, as far as its endpoint has them. */
export interface Asked {
  /** `gen_ai.operation.name`: chat, text_completion, embeddings, or score. */
  readonly operation: "chat" | "text_completion" | "embeddings" | "score";
  readonly isStream?: boolean;
  readonly tokensMax?: number | null;
  readonly sampling?: {
    readonly temperature: number;
    readonly topP: number;
    readonly topK: number;
    readonly presencePenalty: number;
    readonly frequencyPenalty: number;
  };
}

/** A request that has ended. */
export interface TracedRequest {
  readonly requestId: string;
  readonly method: string;
  /** Path of the route's row. */
  readonly route: string;
  readonly httpStatus: number;
  readonly arrivedMs: number;
  readonly endMs: number;
  /** Error code with which it ended; null for success. */
  readonly errorType: string | null;
  readonly asked: Asked | null;
  /** Finish reasons of its choices, in order. */
  readonly finishReasons: readonly string[];
  /** Its record; null if it was refused before it had one. */
  readonly facts: RequestFacts | null;
}

/** Finished answer within a batch or program: of a line, or of an output of a call. */
export interface TracedPart {
  /** Attributes that name the batch or program, and the part of it. */
  readonly own: Attributes;
  readonly startMs: number;
  readonly endMs: number;
  readonly errorType: string | null;
  readonly asked: Asked;
  readonly finishReasons: readonly string[];
  readonly facts: RequestFacts;
}

type Causes = RequestFacts["causes"];

/** Plans the spans of a request: the request, and queue, prefill and decode as far as it got. */
export function spansOf(request: TracedRequest): readonly [SpanPlan, ...SpanPlan[]] {
  const { facts, asked, method, route, arrivedMs, endMs, errorType, httpStatus } = request;
  const hasFailed = facts === null ? httpStatus >= 400 : facts.status === "failed";
  const whole: SpanPlan = {
    name: facts === null || asked === null ? `${method} ${route}` : `${asked.operation} ${facts.model}`,
    startMs: arrivedMs,
    endMs,
    attributes: {
      "http.request.method": method,
      "http.route": route,
      "http.response.status_code": httpStatus,
      "bunting.request.id": request.requestId,
      ...(errorType === null ? {} : { "error.type": errorType }),
      ...(facts === null || asked === null ? {} : answerAttributes(facts, asked, request.finishReasons)),
    },
    isError: hasFailed,
  };
  return [whole, ...(facts === null ? [] : partsOf(facts, arrivedMs, endMs))];
}

/** Plans the spans of an answer within a batch or program, as those of a request. */
export function partSpansOf(part: TracedPart): readonly [SpanPlan, ...SpanPlan[]] {
  const { own, startMs, endMs, errorType, asked, facts } = part;
  const whole: SpanPlan = {
    name: `${asked.operation} ${facts.model}`,
    startMs,
    endMs,
    attributes: {
      ...own,
      ...(errorType === null ? {} : { "error.type": errorType }),
      ...answerAttributes(facts, asked, part.finishReasons),
    },
    isError: facts.status === "failed",
  };
  return [whole, ...partsOf(facts, startMs, endMs)];
}

/** Child spans. Each is as long as its causes take together, and the next one begins where it ends. */
function partsOf(facts: RequestFacts, arrivedMs: number, wholeEndMs: number): SpanPlan[] {
  const before = facts.first_token_causes ?? facts.causes;
  const queue = ofPhases(before, ["waiting"]);
  const prefill = ofPhases(before, ["prompt", "answer", "machine", "reader"]);
  const spans: SpanPlan[] = [];
  let startMs = Math.min(arrivedMs + sum(ofPhases(before, ["arriving"])), wholeEndMs);
  const add = (name: string, parts: Causes, isLast: boolean): void => {
    // Rounding may let a span end a microsecond late.
    const endMs = isLast ? wholeEndMs : Math.min(startMs + sum(parts), wholeEndMs);
    if (sum(parts) > 0)
      spans.push({ name, startMs, endMs, attributes: causeAttributes(parts), isError: false });
    startMs = endMs;
  };
  const hasFirst = facts.first_token_causes !== null;
  add("queue", queue, sum(prefill) === 0 && !hasFirst);
  add("prefill", prefill, !hasFirst);
  if (hasFirst) add("decode", since(before, facts.causes, wholeEndMs - startMs), true);
  return spans;
}

/** Attributes of the answer, from OpenTelemetry's conventions for generative AI and our own. */
function answerAttributes(
  facts: RequestFacts,
  { operation, isStream, tokensMax = null, sampling }: Asked,
  finishReasons: readonly string[],
): Attributes {
  const { model, tokens, late, first_token_ms: firstMs, behind } = facts;
  return {
    "gen_ai.operation.name": operation,
    "gen_ai.provider.name": "bunting",
    "gen_ai.request.model": model,
    "gen_ai.response.model": model,
    ...(isStream === undefined ? {} : { "gen_ai.request.stream": isStream }),
    ...(tokensMax === null ? {} : { "gen_ai.request.max_tokens": tokensMax }),
    ...(sampling === undefined ? {} : samplingAttributes(sampling)),
    ...(facts.choices === 1 ? {} : { "gen_ai.request.choice.count": facts.choices }),
    "gen_ai.usage.input_tokens": tokens.prompt,
    "gen_ai.usage.output_tokens": tokens.generated,
    "gen_ai.usage.cache_read.input_tokens": tokens.found.memory + tokens.found.host + tokens.found.disk,
    ...(finishReasons.length === 0 ? {} : { "gen_ai.response.finish_reasons": finishReasons }),
    ...(firstMs === null ? {} : { "gen_ai.response.time_to_first_chunk": firstMs / 1000 }),
    "bunting.status": facts.status,
    "bunting.engines": facts.engines.map(String),
    "bunting.tokens.computed": tokens.computed,
    "bunting.tokens.recomputed": tokens.recomputed,
    "bunting.tokens.found_in_host": tokens.found.host,
    "bunting.tokens.found_on_disk": tokens.found.disk,
    "bunting.drafts.checked": tokens.drafts.checked,
    "bunting.drafts.right": tokens.drafts.right,
    "bunting.late.tokens": late.tokens,
    "bunting.late.ms": late.ms,
    "bunting.preemptions": facts.preemptions,
    ...(behind?.request == null ? {} : { "bunting.behind": behind.request }),
    ...causeAttributes(facts.causes),
  };
}

function samplingAttributes(sampling: NonNullable<Asked["sampling"]>): Attributes {
  const { temperature, topP, topK, presencePenalty, frequencyPenalty } = sampling;
  return {
    "gen_ai.request.temperature": temperature,
    "gen_ai.request.top_p": topP,
    ...(topK === 0 ? {} : { "gen_ai.request.top_k": topK }),
    ...(presencePenalty === 0 ? {} : { "gen_ai.request.presence_penalty": presencePenalty }),
    ...(frequencyPenalty === 0 ? {} : { "gen_ai.request.frequency_penalty": frequencyPenalty }),
  };
}

/** Milliseconds by cause. */
function causeAttributes(parts: Causes): Attributes {
  return Object.fromEntries(Object.entries(parts).map(([name, ms]) => [`bunting.cause_ms.${name}`, ms]));
}

function ofPhases(parts: Causes, phases: readonly Phase[]): Causes {
  const kept = causes.filter(({ name, phase }) => phases.includes(phase) && parts[name] !== undefined);
  return Object.fromEntries(kept.map(({ name }) => [name, parts[name]!]));
}

/**
 * Time by cause after the first token, which sums to `wantedMs`. The breakdown up to the first token is
 * corrected later, so a cause may have less time in `all` than in `before`.
 */
function since(before: Causes, all: Causes, wantedMs: number): Causes {
  const ms = new Float64Array(CAUSES);
  for (const [cause, { name }] of causes.entries())
    ms[cause] = Math.max(0, (all[name] ?? 0) - (before[name] ?? 0));
  fitMs(ms, wantedMs, causeIndex.writing);
  const parts = causes.map(({ name }, cause) => [name, Math.round(1000 * ms[cause]!) / 1000] as const);
  return Object.fromEntries(parts.filter(([, part]) => part > 0));
}

function sum(parts: Causes): number {
  return Object.values(parts).reduce((total, ms) => total + ms, 0);
}
