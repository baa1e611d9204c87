/** OpenAI's Responses: POST /v1/responses and its related routes. */

import { noNames } from "../../../scheduler/session/session-table.ts";
import { asApiError, badRequest, quote } from "../../http/errors.ts";
import type { KeptStreams } from "../../http/kept-streams.ts";
import { type Call, whenAborted } from "../../http/route.ts";
import type { ChatMessage } from "../../request/chat-message.ts";
import { requestLimits } from "../../request/limits.ts";
import type { ChatPrompt, PromptServices } from "../../request/prompt.ts";
import { expectFits, readyChat } from "../../request/prompt.ts";
import { answerWhole, type Exchange, preparedChat, respond } from "../respond.ts";
import { answerKept, startingAfter } from "../resumable.ts";
import { type Keep, ResponseCodec } from "./codec.ts";
import { messagesOf } from "./conversation.ts";
import type { Item } from "./items.ts";
import { DELETED, expectItemsFit, type KeptResponses } from "./kept.ts";
import type { ResponsesRequest } from "./schema.ts";

export interface ResponsesDeps extends PromptServices {
  readonly responses: KeptResponses;
}

/** Services for responses whose streams outlive their connections. */
export interface StreamDeps extends ResponsesDeps {
  readonly streams: KeptStreams;
}

type Kept = Pick<StreamDeps, "responses" | "streams">;

/** POST /v1/responses */
export async function createResponse(
  exchange: Exchange,
  deps: StreamDeps,
  request: ResponsesRequest,
  call: Pick<Call, "reply" | "request" | "requestId">,
): Promise<Response | object> {
  const { tenant, requestId } = exchange;
  const { responses } = deps;
  const { input, keep, ...prepared } = await prepareResponse(tenant, deps, request);
  if (!request.background) return respond(exchange, prepared);
  const codec = prepared.codec();
  const begun = codec.begun();
  responses.mustKeep(tenant, { response: begun, input, previousId: request.previousId });
  if (request.stream) {
    const answer = (outer: Exchange, keepEnded: Keep) =>
      respond(outer, { ...prepared, codec: () => new ResponseCodec(request, keepEnded) });
    return (await streamInBackground(exchange, deps, { id: begun.id, keep, answer }, call)) as Response;
  }
  responses.run(begun.id, async (signal) => {
    try {
      await answerWhole({ ...exchange, signal }, { ...prepared, isStream: false, codec: () => codec });
    } catch (error) {
      if (signal.reason === DELETED) return;
      keep(codec.failed(asApiError(error, requestId), signal.aborted ? "cancelled" : "failed"));
    }
  });
  return begun;
}

/** Streams a background response: it continues without its client, and its events can be read again by its id. */
async function streamInBackground(
  exchange: Exchange,
  { responses, streams }: Kept,
  response: {
    readonly id: string;
    readonly keep: Keep;
    readonly answer: (exchange: Exchange, keep: Keep) => Promise<Response>;
  },
  call: Pick<Call, "reply" | "request" | "requestId">,
): Promise<unknown> {
  const { id, keep, answer } = response;
  const stream = streams.open(exchange.tenant, id, true);
  let stopped: AbortSignal | null = null;
  responses.run(id, async (signal) => {
    stopped = signal;
    whenAborted(signal, () => stream.abort());
    await stream.whenEnded;
    if (signal.reason === DELETED) streams.forget(exchange.tenant, id);
  });
  const keepEnded: Keep = (ended) => {
    if (stopped?.reason === DELETED) return ended;
    return keep(stopped?.aborted ? { ...ended, status: "cancelled" } : ended);
  };
  return await answerKept(call, stream, (reply) =>
    answer({ ...exchange, reply, signal: reply.signal }, keepEnded),
  );
}

/**
 * Prepares a response: its prompt holds the conversation of its predecessors and the request's input. Also returns
 * the request's own items (`input`) and the function that stores the ended response (`keep`). Throws 400 or 404.
 */
export async function prepareResponse(tenant: string, deps: ResponsesDeps, request: ResponsesRequest) {
  const { ready, input, first } = await chatOf(tenant, request, deps);
  expectFits(ready.tokens, request.generation, "input", deps);
  const keep: Keep = (response) => {
    const { previousId, conversationId } = request;
    const { status } = response;
    const hasAnswered = status === "completed" || status === "incomplete";
    const items = [...input, ...(response.output as readonly Item[])];
    const isLost =
      conversationId !== null && hasAnswered && !deps.responses.append(tenant, conversationId, items);
    const ended = isLost ? { ...response, conversation: null } : response;
    if (!request.store || deps.responses.keep(tenant, { response: ended, input, previousId })) return ended;
    return { ...ended, store: false };
  };
  const prepared = preparedChat(request, ready, () => new ResponseCodec(request, keep));
  const { names = noNames } = request.generation;
  // The id of the chain's first response names the session, unless the client names it.
  const options = { ...prepared.options, names: { ...names, session: names.session ?? first } };
  return { ...prepared, options, input, keep };
}

/** POST /v1/responses/input_tokens: the tokens that a response's `usage` would count as input. */
export async function countInputTokens(
  { tenant }: Pick<Exchange, "tenant">,
  deps: ResponsesDeps,
  request: ResponsesRequest,
): Promise<object> {
  const { ready } = await chatOf(tenant, request, deps);
  return { object: "response.input_tokens", input_tokens: ready.tokens.length };
}

/** GET /v1/responses/{id} and /v1/responses/{id}/input_items; null if there is no such route. */
export function readResponse(call: Call, { responses, streams }: Kept): object | null {
  const { request, reply, rest, tenant } = call;
  const [id = "", what, ...more] = rest.split("/");
  if (more.length > 0 || (what !== undefined && what !== "input_items")) return null;
  const search = new URL(request.url).searchParams;
  const { response, input } = responses.expect(tenant, id);
  if (what === "input_items") return pageOf(input, search);
  if (search.get("stream") !== "true") return response;
  const stream = streams.find(tenant, id);
  if (stream !== null) return stream.read(reply, startingAfter(call));
  const message = `the events of the response ${quote(id)} are not kept: those of one with background and stream are, until some minutes after its end; without stream it is read whole`;
  throw badRequest(message, "stream");
}

/** DELETE /v1/responses/{id}; null if there is no such route. */
export function deleteResponse(
  { rest: id, tenant }: Call,
  { responses }: Pick<Kept, "responses">,
): object | null {
  if (id.includes("/")) return null;
  responses.delete(tenant, id);
  return { id, object: "response", deleted: true };
}

/** POST /v1/responses/{id}/cancel; null if there is no such route. */
export async function cancelResponse(
  { rest, tenant }: Call,
  { responses }: Pick<Kept, "responses">,
): Promise<object | null> {
  const [id = "", what, ...more] = rest.split("/");
  if (what !== "cancel" || more.length > 0) return null;
  const { response } = responses.expect(tenant, id);
  if (response.background !== true)
    throw badRequest(
      `the response ${quote(id)} was not made in the background, so it cannot be cancelled`,
      "id",
    );
  await responses.stop(id);
  return responses.expect(tenant, id).response;
}

/**
 * The chat with `after` behind it, the request's own items, and all items. `first`: the id of its conversation, or of
 * the first response of its chain.
 */
export async function chatOf(
  tenant: string,
  request: ResponsesRequest,
  deps: ResponsesDeps,
  after: readonly ChatMessage[] = [],
) {
  const { instructions, tools, templateArguments, thoughtsMax } = request;
  const { items: before, first } = await historyOf(tenant, request, deps);
  const input = deps.responses.resolve(tenant, request.input, { known: before, param: "input" });
  const items = [...before, ...input];
  if (request.conversationId !== null) expectItemsFit(items, "input");
  if (items.length === 0) throw badRequest("input must hold an item, since nothing comes before it", "input");
  const messages = [...messagesOf(instructions, items), ...after];
  const prompt: ChatPrompt = { messages, tools, addGenerationPrompt: true, templateArguments, thoughtsMax };
  return { ready: await readyChat(prompt, deps, "input"), input, items, first };
}

interface History {
  readonly items: readonly Item[];
  /** Id of the conversation, or of the first response. */
  readonly first: string;
}

/** Items before a request's own: those of its conversation, or of the response that it continues. */
async function historyOf(
  tenant: string,
  { previousId, conversationId, key }: ResponsesRequest,
  deps: ResponsesDeps,
): Promise<History> {
  if (previousId !== null) return await chainOf(tenant, previousId, deps);
  if (conversationId === null) return { items: [], first: `resp_${key}` };
  const { items } = deps.responses.conversation(tenant, conversationId, "conversation");
  return { items, first: conversationId };
}

/** Input and output items of a response and all its predecessors. */
async function chainOf(tenant: string, previousId: string, { responses }: ResponsesDeps): Promise<History> {
  const chain = await responses.chain(tenant, previousId);
  const items = chain.flatMap(({ response, input }) => {
    if (response.status === "in_progress") {
      const message = `the response ${quote(response.id)} has not ended, so nothing can go on from it`;
      throw badRequest(message, "previous_response_id");
    }
    return [...input, ...(response.output as readonly Item[])];
  });
  if (items.length <= requestLimits.messagesMax) return { items, first: chain[0]!.response.id };
  throw badRequest(
    `a conversation may hold ${requestLimits.messagesMax} items at most, but that of previous_response_id holds ${items.length}`,
    "previous_response_id",
  );
}

const PAGE_DEFAULT = 20;
const PAGE_MAX = 100;

/** A page of items, newest first as in OpenAI's API, unless `order` is asc. */
export function pageOf(items: readonly Item[], search: URLSearchParams): object {
  const limit = Number(search.get("limit") ?? PAGE_DEFAULT);
  if (!Number.isInteger(limit) || limit < 1 || limit > PAGE_MAX)
    throw badRequest(
      `limit must be an integer from 1 to ${PAGE_MAX}, but is ${quote(search.get("limit"))}`,
      "limit",
    );
  const order = search.get("order") ?? "desc";
  if (order !== "asc" && order !== "desc")
    throw badRequest(`order must be asc or desc, but is ${quote(order)}`, "order");
  const ordered = order === "asc" ? items : items.toReversed();
  const after = search.get("after");
  const from = after === null ? 0 : ordered.findIndex(({ id }) => id === after) + 1;
  if (after !== null && from === 0)
    throw badRequest(`after names ${quote(after)}, which is no item here`, "after");
  const data = ordered.slice(from, from + limit);
  return {
    object: "list",
    data,
    first_id: data[0]?.id ?? null,
    last_id: data.at(-1)?.id ?? null,
    has_more: from + limit < ordered.length,
  };
}
