/**
 * A batch's line as a request: it passes the same checks as an HTTP request, and its answer is not streamed.
 */

import { cacheKeyOf } from "../../../scheduler/core.ts";
import type { GenerationOptions, RequestedService } from "../../answer/generation.ts";
import type { ReasoningField } from "../../config.ts";
import { whenAborted } from "../../http/route.ts";
import type { LineAnswer, LineCall, LineDoor, LinePrompt } from "../../jobs/door.ts";
import type { BatchEndpoint } from "../../jobs/records.ts";
import { chatPromptTokens, expectFits, promptTokens } from "../../request/prompt.ts";
import type { Encoder } from "../../text/encoder.ts";
import type { EmbedServices } from "../embed.ts";
import { completionTokens } from "../fill.ts";
import type { Exchange } from "../respond.ts";
import { createResponse, type ResponsesDeps, responsePromptTokens } from "../responses/responses.ts";
import { parseResponsesRequest, type ResponsesRequest } from "../responses/schema.ts";
import { noTargets } from "../targets.ts";
import { answerChat } from "./chat.ts";
import { answerCompletion } from "./completions.ts";
import { answerEmbeddings, parseEmbeddingsRequest } from "./embeddings.ts";
import { type CommonRequest, parseChatRequest, parseCompletionRequest } from "./schema.ts";
import { notSupported } from "./support.ts";

type Body = Readonly<Record<string, unknown>>;

/** Services that answer lines, the same for each line. */
export interface LineServices extends EmbedServices, ResponsesDeps {
  readonly services: Exchange["services"];
  readonly limits: Exchange["limits"];
  readonly reasoningField: ReasoningField;
}

/** Gateway for lines. `encoder` tokenises the prompts of whole files, ahead of their answers. */
export function lineDoor(deps: LineServices, encoder: Encoder): LineDoor {
  return {
    prompt: (endpoint, body, tenant) => promptOf({ ...deps, encoder }, endpoint, body, tenant),
    answer: (endpoint, body, call) => answer(deps, endpoint, body, call),
  };
}

async function promptOf(
  deps: LineServices,
  endpoint: BatchEndpoint,
  body: Body,
  tenant: string,
): Promise<LinePrompt> {
  if (endpoint === "/v1/chat/completions") {
    const request = chatOf(deps, body);
    return linePrompt(deps, await chatPromptTokens(request, deps), request.generation, "messages");
  }
  if (endpoint === "/v1/embeddings") {
    const { inputs, cacheSalt } = parseEmbeddingsRequest(body, deps);
    const tokens = await promptTokens(inputs[0]!, true, deps);
    return { tokens, cacheKey: cacheKeyOf({ adapter: 0, cacheSalt }), answerTokensMax: 0 };
  }
  if (endpoint === "/v1/responses") {
    const request = responseOf(deps, body);
    return linePrompt(deps, await responsePromptTokens(tenant, deps, request), request.generation, "input");
  }
  const request = completionOf(deps, body);
  const tokens = await completionTokens(request.prompts[0]!, request.fill, request.addSpecialTokens, deps);
  return linePrompt(deps, tokens, request.generation, "prompt");
}

function linePrompt(
  deps: LineServices,
  tokens: LinePrompt["tokens"] & readonly number[],
  generation: GenerationOptions,
  param: string,
): LinePrompt {
  expectFits(tokens, generation, param, deps);
  const { tokensMax, cacheSalt } = generation;
  const answerTokensMax = Math.min(
    tokensMax ?? Number.POSITIVE_INFINITY,
    deps.model.contextMax - tokens.length,
  );
  return { tokens, cacheKey: cacheKeyOf({ adapter: 0, cacheSalt }), answerTokensMax };
}

async function answer(
  deps: LineServices,
  endpoint: BatchEndpoint,
  body: Body,
  { tenant, priority, signal }: LineCall,
): Promise<LineAnswer> {
  const { services, limits } = deps;
  // The job's signal outlives its lines and would hold on to every listener: each line has a signal of its
  // own.
  const ending = new AbortController();
  const unheed = whenAborted(signal, () => ending.abort());
  const exchange = {
    requestId: "",
    signal: ending.signal,
    reply: null,
    arrivedMs: performance.now(),
    tenant,
    services,
    limits,
  };
  let text: string;
  try {
    const response = await responseTo(endpoint, exchange, deps, body, priority);
    text = await response.text();
  } finally {
    unheed();
  }
  return { body: text, usage: usageOf((JSON.parse(text) as { readonly usage: Usage }).usage) };
}

/** Usage of a completion or of a response. */
type Usage =
  | {
      readonly prompt_tokens: number;
      readonly completion_tokens?: number;
      readonly prompt_tokens_details: { readonly cached_tokens: number };
    }
  | {
      readonly input_tokens: number;
      readonly output_tokens: number;
      readonly input_tokens_details: { readonly cached_tokens: number };
    };

function usageOf(usage: Usage): LineAnswer["usage"] {
  if ("input_tokens" in usage) {
    const { input_tokens: promptTokens, output_tokens: completionTokens, input_tokens_details } = usage;
    return { promptTokens, cachedTokens: input_tokens_details.cached_tokens, completionTokens };
  }
  return {
    promptTokens: usage.prompt_tokens,
    cachedTokens: usage.prompt_tokens_details.cached_tokens,
    completionTokens: usage.completion_tokens ?? 0,
  };
}

async function responseTo(
  endpoint: BatchEndpoint,
  exchange: Exchange,
  deps: LineServices,
  body: Body,
  priority: number,
): Promise<Response> {
  switch (endpoint) {
    case "/v1/chat/completions":
      return answerChat(exchange, deps, unread(chatOf(deps, body), priority));
    case "/v1/completions":
      return answerCompletion(exchange, deps, unread(completionOf(deps, body), priority));
    case "/v1/embeddings":
      return answerEmbeddings(exchange, deps, {
        ...parseEmbeddingsRequest(body, deps),
        service: offline(priority),
      });
    case "/v1/responses": {
      const request = responseOf(deps, body);
      const generation = { ...request.generation, service: offline(priority) };
      const unkept = {
        ...request,
        store: false,
        echo: { ...request.echo, store: false, service_tier: "flex" },
      };
      const answer = await createResponse(exchange, deps, {
        ...unkept,
        generation,
      });
      return answer as Response;
    }
  }
}

function chatOf({ model, template }: LineServices, body: Body) {
  return whole(parseChatRequest(body, model, noTargets, template));
}

function completionOf({ model }: LineServices, body: Body) {
  return whole(parseCompletionRequest(body, model));
}

/**
 * Parses a line's Responses request. Throws 400 for `background`. Its answer is a result of the batch and not
 * stored besides, since the bounded store would evict other responses for it.
 */
function responseOf(deps: LineServices, body: Body): ResponsesRequest {
  const request = whole(parseResponsesRequest(body, deps));
  if (request.background) throw notSupported("background", "true in a batch");
  return request;
}

function whole<Request extends Pick<CommonRequest, "stream">>(request: Request): Request {
  if (request.stream) throw notSupported("stream", "true in a batch");
  return request;
}

function offline(priority: number): RequestedService {
  return { objective: "throughput", tbtMs: null, ttftMs: null, priority };
}

/** The request as an offline one: no client waits for any single answer. */
function unread<Request extends CommonRequest>(request: Request, priority: number): Request {
  const serviceTier = request.serviceTier === null ? null : "flex"; // the tier that serves it, whichever the line names
  return { ...request, serviceTier, generation: { ...request.generation, service: offline(priority) } };
}
