/**
 * A batch's line as a request: it passes the same checks as an HTTP request, and its answer is not streamed.
 */

import { cacheKeyOf } from "../../../scheduler/core.ts";
import type { GenerationOptions, RequestedService } from "../../answer/generation.ts";
import type { ReasoningField } from "../../config.ts";
import { recordAlone } from "../../explain/request-record.ts";
import type { RequestRecorder } from "../../explain/request-records.ts";
import type { LineDoor, LineRequest, PreparedLine } from "../../jobs/door.ts";
import { newId } from "../../jobs/records.ts";
import { nameWith } from "../../request/served-model.ts";
import type { PartTrace } from "../../trace/traces.ts";
import type { KeptPrefixes } from "../anthropic/kept-prefixes.ts";
import { prepareMessages } from "../anthropic/messages.ts";
import { parseMessagesRequest } from "../anthropic/schema.ts";
import { type EmbedServices, embeddingTokens, embedTokens } from "../embed.ts";
import { answerWhole, ignoredText, type PreparedRequest, type WholeExchange } from "../respond.ts";
import { prepareResponse, type ResponsesDeps } from "../responses/responses.ts";
import { parseResponsesRequest, type ResponsesRequest } from "../responses/schema.ts";
import { noTargets } from "../targets.ts";
import { prepareChat } from "./chat.ts";
import { prepareCompletion } from "./completions.ts";
import { embeddingsBody, parseEmbeddingsRequest } from "./embeddings.ts";
import { type CommonRequest, parseChatRequest, parseCompletionRequest } from "./schema.ts";
import { notSupported } from "./support.ts";

/** Services that all lines share. */
export interface LineServices extends EmbedServices, ResponsesDeps {
  readonly services: WholeExchange["services"];
  readonly reasoningField: ReasoningField;
  readonly keptPrefixes: KeptPrefixes;
}

export function lineDoor(deps: LineServices): LineDoor {
  return async (line) => {
    const { endpoint, body, tenant, priority } = line;
    const { model, template } = deps;
    switch (endpoint) {
      case "/v1/chat/completions": {
        const request = unread(parseChatRequest(body, model, noTargets, template), priority);
        return generated(deps, line, await prepareChat(deps, request), request.ignored);
      }
      case "/v1/completions": {
        const request = unread(parseCompletionRequest(body, model), priority);
        return generated(deps, line, await prepareCompletion(deps, request), request.ignored);
      }
      case "/v1/responses": {
        const request = unkept(parseResponsesRequest(body, deps), priority);
        return generated(deps, line, await prepareResponse(tenant, deps, request), request.ignored);
      }
      case "/v1/messages": {
        const request = offlineOf(parseMessagesRequest(body, deps), priority);
        const { prepared, keepMarked } = await prepareMessages(deps, request, newId("req_"));
        return generated(deps, line, prepared, request.ignored, (exchange) =>
          keepMarked(exchange, deps.keptPrefixes),
        );
      }
      case "/v1/embeddings":
        return embedded(deps, line);
    }
  };
}

/** `onAnswered`: called with the exchange of an answered line. */
function generated(
  deps: LineServices,
  line: LineRequest,
  prepared: PreparedRequest,
  ignored: readonly string[],
  onAnswered: (exchange: WholeExchange) => void = () => {},
): PreparedLine {
  const { tokensMax } = prepared.options;
  const tokens = prepared.prompts[0]!;
  return {
    tokens,
    cacheKey: cacheKeyOf(prepared.options),
    answerTokensMax: Math.min(tokensMax ?? Number.POSITIVE_INFINITY, deps.model.contextMax - tokens.length),
    answer: async (signal, trace) => {
      const exchange = exchangeOf(deps, line, signal, trace);
      const whole = await answerWhole(exchange, prepared);
      onAnswered(exchange);
      return { ...whole, ignored: ignoredText([...ownIgnored(line.body), ...ignored, ...whole.ignored]) };
    },
  };
}

async function embedded(deps: LineServices, line: LineRequest): Promise<PreparedLine> {
  const { body, priority } = line;
  const request = { ...parseEmbeddingsRequest(body, deps), service: offline(priority) };
  const tokens = await embeddingTokens(request, deps);
  return {
    tokens: tokens.find(({ length }) => length > 0)!,
    cacheKey: cacheKeyOf(request),
    answerTokensMax: 0,
    answer: async (signal, trace) => {
      const vectors = await embedTokens(exchangeOf(deps, line, signal, trace), deps, request, tokens);
      const { promptTokens, cachedTokens } = vectors;
      const usage = { promptTokens, cachedTokens, completionTokens: 0 };
      const ignored = ignoredText([...ownIgnored(body), ...request.ignored]);
      return { body: embeddingsBody(request, vectors), usage, ignored };
    },
  };
}

/** Names of a line's fields that have no effect, because the batch sets them for all of its lines. */
function ownIgnored(body: LineRequest["body"]): readonly string[] {
  return body.priority == null ? [] : ["priority"];
}

function exchangeOf(
  { services, model }: LineServices,
  { tenant, endpoint }: LineRequest,
  signal: AbortSignal,
  trace: PartTrace | null,
): WholeExchange {
  const nowMs = performance.now();
  const exchange = { requestId: "", signal, arrivedMs: nowMs, tenant, sessionName: null, services };
  if (trace === null) return exchange;
  // The record serves the spans only. No client waits for a last byte, so the answer counts as sent at once.
  const entry = {
    route: endpoint,
    readMs: nowMs,
    wantsWhy: false,
    whenSent: (tell: () => void) => tell(),
    trace,
  };
  const recordRequest: RequestRecorder = (facts) => recordAlone(facts, nameWith(facts.adapter, model));
  return { ...exchange, entry, services: { ...services, recordRequest } };
}

function offline(priority: number): RequestedService {
  return { objective: "throughput", tbtMs: null, ttftMs: null, priority };
}

/** The request as an offline one: no client waits for any single answer. Throws 400 for a stream. */
function offlineOf<Request extends { readonly stream: boolean; readonly generation: GenerationOptions }>(
  request: Request,
  priority: number,
): Request {
  if (request.stream) throw notSupported("stream", "true in a batch");
  return { ...request, generation: { ...request.generation, service: offline(priority) } };
}

function unread<Request extends CommonRequest>(request: Request, priority: number): Request {
  const serviceTier = request.serviceTier === null ? null : "flex"; // the tier that serves it, whichever the line names
  return { ...offlineOf(request, priority), serviceTier };
}

/**
 * The response as an offline one. Its answer is a result of the batch and not stored besides, since the
 * bounded store would evict other responses for it. Throws 400 for a stream, and for `background`.
 */
function unkept(request: ResponsesRequest, priority: number): ResponsesRequest {
  if (request.background) throw notSupported("background", "true in a batch");
  if (request.conversationId !== null)
    throw notSupported("conversation", "in a batch, whose lines run in any order, a conversation");
  const echo = { ...request.echo, store: false, service_tier: "flex" };
  return { ...offlineOf(request, priority), store: false, echo };
}
