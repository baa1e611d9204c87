import type { TokenId } from "../../../scheduler/core.ts";
import { badRequest } from "../../http/errors.ts";
import { chatPromptTokens, type PromptServices, readyChat } from "../prompt.ts";
import { type Exchange, respond } from "../respond.ts";
import { messagesCodec } from "./codec.ts";
import type { CountRequest, MessagesRequest } from "./schema.ts";

/** POST /v1/messages */
export async function answerMessages(
  exchange: Exchange,
  services: PromptServices,
  request: MessagesRequest,
  requestId: string,
): Promise<Response> {
  const { tokens, format } = await readyChat(request.prompt, services);
  expectFits(tokens, request.generation.tokensMax, services.model.contextMax);
  const codec = messagesCodec(request, requestId);
  return respond(exchange, { ...request.generation, format }, [tokens], codec, request.stream);
}

/** POST /v1/messages/count_tokens: the tokens that an answer's `usage` would count as input. */
export async function countTokens(services: PromptServices, request: CountRequest): Promise<object> {
  const tokens = await chatPromptTokens(request.prompt, services);
  return { input_tokens: tokens.length };
}

/** Throws 400 in the words of Anthropic's API: clients read the numbers, and ask for less or shorten what they send. */
function expectFits({ length: tokens }: readonly TokenId[], tokensMax: number, contextMax: number): void {
  if (tokens >= contextMax) {
    throw badRequest(`prompt is too long: ${tokens} tokens > ${contextMax - 1} maximum`, "messages");
  }
  if (tokens + tokensMax > contextMax) {
    throw badRequest(
      `input length and \`max_tokens\` exceed context limit: ${tokens} + ${tokensMax} > ${contextMax}, decrease input length or \`max_tokens\` and try again`,
      "max_tokens",
    );
  }
}
