import type { TokenId } from "../../../scheduler/core.ts";
import type { ChoiceFinish } from "../../answer/generation.ts";
import { type MessagePart, MessageReader } from "../../answer/message.ts";
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
  const tokens = await chatPromptTokens({ ...request, tools: request.toolUse.tools }, services);
  expectFits(tokens, request.generation.tokensMax, "messages", services);
  return respond(exchange, request, [tokens], chatFormat(request, tokens));
}

function chatFormat(request: ChatRequest, promptTokens: readonly TokenId[]): AnswerFormat {
  const { returnTokenIds, tokensAsIds } = request;
  const id = `chatcmpl-${crypto.randomUUID().replaceAll("-", "")}`;
  const readers = Array.from(
    { length: request.generation.choices },
    (_, index) => new MessageReader(request.toolUse, id, index),
  );
  return {
    id,
    objectName: "chat.completion",
    chunkObjectName: "chat.completion.chunk",
    extras: returnTokenIds ? { prompt_token_ids: promptTokens } : {},
    choice: (index, { text, tokens, logprobs, finish }) => {
      const reader = readers[index]!;
      const message = messageOf([...reader.push(text), ...reader.end()]);
      return {
        index,
        message,
        logprobs: logprobs === null ? null : chatLogprobs(logprobs, tokensAsIds),
        finish_reason: reasonOf(finish, reader),
        stop_reason: finish.stopReason,
        ...(returnTokenIds ? { token_ids: tokens } : {}),
      };
    },
    opening: (index) => {
      const prompt = returnTokenIds ? `,"prompt_token_ids":${JSON.stringify(promptTokens)}` : "";
      return `{"index":${index},"delta":{"role":"assistant","content":""},"finish_reason":null${prompt}}`;
    },
    delta: (index, { text, tokens, logprobs }) => {
      const deltas = readers[index]!.push(text).flatMap(deltasOf);
      if (deltas.length === 0 && (logprobs !== null || returnTokenIds)) deltas.push({ content: "" });
      return deltas.map((delta, part) => {
        const isFirst = part === 0; // which tells of the tokens
        const told =
          logprobs === null || !isFirst
            ? ""
            : `,"logprobs":${JSON.stringify(chatLogprobs(logprobs, tokensAsIds))}`;
        const ids = returnTokenIds && isFirst ? `,"token_ids":${JSON.stringify(tokens)}` : "";
        return `{"index":${index},"delta":${JSON.stringify(delta)}${told},"finish_reason":null${ids}}`;
      });
    },
    closing: (index, finish) => {
      const reader = readers[index]!;
      const rest = reader.end().flatMap(deltasOf);
      const reason = JSON.stringify(reasonOf(finish, reader));
      return [
        ...rest.map((delta) => `{"index":${index},"delta":${JSON.stringify(delta)},"finish_reason":null}`),
        `{"index":${index},"delta":{},"finish_reason":${reason},"stop_reason":${JSON.stringify(finish.stopReason)}}`,
      ];
    },
  };
}

/** What is cut off at its length stays "length": there may have been more to come. */
function reasonOf({ reason }: ChoiceFinish, { hasCalls }: MessageReader): string {
  return reason === "stop" && hasCalls ? "tool_calls" : reason;
}

function messageOf(parts: readonly MessagePart[]): object {
  const text = parts.map((part) => (part.kind === "text" ? part.text : "")).join("");
  const calls = parts.flatMap((part) =>
    part.kind === "call" ? [{ id: part.id, type: "function", function: part.call }] : [],
  );
  if (calls.length === 0) return { role: "assistant", content: text, refusal: null };
  return { role: "assistant", content: text === "" ? null : text, refusal: null, tool_calls: calls };
}

/** Clients want a call's id, type and name once and first, without arguments, and then arguments alone. */
function deltasOf(part: MessagePart): object[] {
  if (part.kind === "text") return [{ content: part.text }];
  const { index, id, call } = part;
  return [
    { tool_calls: [{ index, id, type: "function", function: { name: call.name, arguments: "" } }] },
    { tool_calls: [{ index, function: { arguments: call.arguments } }] },
  ];
}
