import type { TokenId } from "../../scheduler/core.ts";
import { chatLogprobs } from "./logprobs.ts";
import { chatPromptTokens, expectFits, type PromptServices } from "./prompt.ts";
import { type AnswerFormat, type Exchange, respond } from "./respond.ts";
import type { ChatRequest } from "./schema.ts";

/** POST /v1/chat/completions */
export async function answerChat(
  exchange: Exchange,
  services: PromptServices,
  request: ChatRequest,
): Promise<Response> {
  const tokens = await chatPromptTokens(request, services);
  expectFits(tokens, request.generation.tokensMax, "messages", services);
  return respond(exchange, request, [tokens], chatFormat(request, tokens));
}

function chatFormat(request: ChatRequest, promptTokens: readonly TokenId[]): AnswerFormat {
  const { returnTokenIds, tokensAsIds } = request;
  return {
    id: `chatcmpl-${crypto.randomUUID().replaceAll("-", "")}`,
    objectName: "chat.completion",
    chunkObjectName: "chat.completion.chunk",
    extras: returnTokenIds ? { prompt_token_ids: promptTokens } : {},
    choice: (index, { text, tokens, logprobs, finish }) => ({
      index,
      message: { role: "assistant", content: text, refusal: null },
      logprobs: logprobs === null ? null : chatLogprobs(logprobs, tokensAsIds),
      finish_reason: finish.reason,
      stop_reason: finish.stopReason,
      ...(returnTokenIds ? { token_ids: tokens } : {}),
    }),
    opening: (index) => {
      const prompt = returnTokenIds ? `,"prompt_token_ids":${JSON.stringify(promptTokens)}` : "";
      return `{"index":${index},"delta":{"role":"assistant","content":""},"finish_reason":null${prompt}}`;
    },
    delta: (index, { text, tokens, logprobs }) => {
      if (text === "" && logprobs === null && !returnTokenIds) return null;
      const told =
        logprobs === null ? "" : `,"logprobs":${JSON.stringify(chatLogprobs(logprobs, tokensAsIds))}`;
      const ids = returnTokenIds ? `,"token_ids":${JSON.stringify(tokens)}` : "";
      return `{"index":${index},"delta":{"content":${JSON.stringify(text)}}${told},"finish_reason":null${ids}}`;
    },
    closing: (index, { reason, stopReason }) =>
      `{"index":${index},"delta":{},"finish_reason":"${reason}","stop_reason":${JSON.stringify(stopReason)}}`,
  };
}
