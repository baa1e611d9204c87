import type { TokenId } from "../../../base/token.ts";
import { ApiError, badRequest } from "../../http/errors.ts";
import type { Call } from "../../http/route.ts";
import type { ChatMessage } from "../../request/chat-message.ts";
import {
  type ChatPrompt,
  chatPromptText,
  chatPromptTokens,
  expectFits,
  type PromptServices,
  type ReadyChat,
  readyChat,
} from "../../request/prompt.ts";
import { type Exchange, preparedChat, respond, type WholeExchange } from "../respond.ts";
import { messagesCodec } from "./codec.ts";
import type { KeptPrefixes } from "./kept-prefixes.ts";
import type { CountRequest, MessagesRequest } from "./schema.ts";

/** POST /v1/messages */
export async function answerMessages(
  exchange: Exchange,
  services: PromptServices & { readonly keptPrefixes: KeptPrefixes },
  request: MessagesRequest,
  { requestId }: Pick<Call, "requestId">,
): Promise<Response> {
  const { prepared, keepMarked } = await prepareMessages(services, request, requestId);
  const response = await respond(exchange, prepared);
  keepMarked(exchange, services.keptPrefixes);
  return response;
}

/**
 * Prepares an answer. Also returns the function that keeps the marked prefixes of the prompt, to be called when the
 * fleet has chosen the engine that computes the tokens. Throws 400.
 */
export async function prepareMessages(services: PromptServices, request: MessagesRequest, requestId: string) {
  const ready = await readyChat(request.prompt, services);
  const { tokens } = ready;
  expectRoom(tokens, request.generation, services);
  const { model, generation, prompt, omitsThoughts } = request;
  const marked: { readonly ttlMs: number; readonly end: number }[] = [];
  for (const { messages, ttlMs } of request.marks)
    marked.push({ ttlMs, end: await tokensBefore(messages, prompt, ready, services) });
  const markedTokens = marked.at(-1)?.end ?? 0;
  const codec = () => messagesCodec({ model, omitsThoughts, markedTokens }, requestId);
  const keepMarked = ({ tenant, services }: WholeExchange, prefixes: KeptPrefixes): void => {
    const cacheSalt = services.cacheSaltFor(tenant, generation.cacheSalt);
    const owner = { tenant, cacheSalt, adapter: generation.adapter };
    for (const { ttlMs, end } of marked) prefixes.keep(owner, tokens.slice(0, end), ttlMs);
  };
  return { prepared: preparedChat(request, ready, codec), keepMarked };
}

/**
 * Number of prompt tokens before the message at index `messages`: those that the chat template writes before its
 * content. All tokens if there is no such message, or the template refuses the shortened conversation.
 */
async function tokensBefore(
  messages: number,
  prompt: ChatPrompt,
  { tokens, text }: Pick<ReadyChat, "tokens" | "text">,
  services: PromptServices,
): Promise<number> {
  const next = prompt.messages[messages];
  if (next === undefined) return tokens.length;
  const shorter = { role: next.role, content: "" } as ChatMessage;
  const before = [...prompt.messages.slice(0, messages), shorter];
  const other = await textOf(
    { ...prompt, messages: before, addGenerationPrompt: false, continuesLast: false },
    services,
  );
  if (other === null) return tokens.length;
  let end = 0;
  while (end < other.length && other.charCodeAt(end) === text.charCodeAt(end)) end++;
  let bytes = Buffer.byteLength(text.slice(0, end));
  const first = tokens.findIndex((token) => {
    bytes -= services.tokenizer.bytesOf(token).length;
    return bytes < 0;
  });
  return first < 0 ? tokens.length : first;
}

/** Text of a prompt; null if the template refuses the conversation. */
async function textOf(prompt: ChatPrompt, services: PromptServices): Promise<string | null> {
  try {
    return await chatPromptText(prompt, services);
  } catch (error) {
    if (error instanceof ApiError) return null;
    throw error;
  }
}

/** POST /v1/messages/count_tokens: the tokens that an answer's `usage` would count as input. */
export async function countTokens(services: PromptServices, request: CountRequest): Promise<object> {
  const tokens = await chatPromptTokens(request.prompt, services);
  return { input_tokens: tokens.length };
}

/** Throws 400 in the words of Anthropic's API: clients read the numbers and shorten their conversation. */
function expectRoom(
  tokens: readonly TokenId[],
  generation: MessagesRequest["generation"],
  services: PromptServices,
): void {
  const { length } = tokens;
  const { contextMax } = services.model;
  if (length >= contextMax)
    throw badRequest(`prompt is too long: ${length} tokens > ${contextMax - 1} maximum`, "messages");
  expectFits(tokens, generation, "messages", services);
}
