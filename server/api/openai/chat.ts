import type { TokenId } from "../../../base/token.ts";
import type { ChoiceFinish, Part } from "../../answer/events.ts";
import type { WholeChoice } from "../../answer/whole.ts";
import type { ReasoningField } from "../../config.ts";
import { requestLimits } from "../../request/limits.ts";
import { expectFits, expectTellable, type PromptServices, readyChat } from "../../request/prompt.ts";
import { expectRepeatable } from "../answer-bounds.ts";
import { type PreparedRequest, preparedChat } from "../respond.ts";
import { type ChoiceFormat, openaiCodec } from "./codec.ts";
import { chatLogprobs, promptLogprobsJson } from "./logprobs.ts";
import { predictedTokens } from "./prediction.ts";
import type { ChatRequest } from "./schema.ts";

/** POST /v1/chat/completions */
export async function prepareChat(
  services: PromptServices & { readonly reasoningField: ReasoningField },
  request: ChatRequest,
): Promise<PreparedRequest> {
  const ready = await readyChat(request, services);
  const { tokens } = ready;
  expectFits(tokens, request.generation, "messages", services);
  expectTellable([tokens], request.generation.promptLogprobs);
  if (request.stream) expectRepeatable([tokens], request.generation.choices, request.returnTokenIds ? 1 : 0);
  const { reasoningField } = services;
  const { prediction, generation } = request;
  const predicted = prediction === null ? {} : { prediction: await predictedTokens(prediction, services) };
  return preparedChat({ ...request, generation: { ...generation, ...predicted } }, ready, () =>
    openaiCodec(request, chatFormat(request, tokens, reasoningField)),
  );
}

/** Format of a chat's choices. */
export function chatFormat(
  request: Pick<ChatRequest, "returnTokenIds" | "tokensAsIds" | "tellsReasoning">,
  promptTokens: readonly TokenId[],
  reasoningField: ReasoningField = "both",
): ChoiceFormat {
  const { returnTokenIds, tokensAsIds, tellsReasoning } = request;
  const thoughts = (text: string): object =>
    tellsReasoning && text !== "" ? reasoningJson(text, reasoningField) : {};
  const random = crypto.randomUUID().replaceAll("-", "");
  /** Tool call id of at most 40 characters, as OpenAI's. */
  const callId = (choice: number, index: number): string => `call_${random.slice(-24)}_${choice}_${index}`;
  return {
    id: `chatcmpl-${random}`,
    objectName: "chat.completion",
    chunkObjectName: "chat.completion.chunk",
    extras: ({ promptLogprobs }) => ({
      ...(returnTokenIds ? { prompt_token_ids: promptTokens } : {}),
      ...(promptLogprobs === undefined
        ? {}
        : { prompt_logprobs: promptLogprobsJson(promptLogprobs[0]!, requestLimits.topLogprobsMax) }),
    }),
    whole: (index, choice) => ({
      index,
      message: messageOf(choice, thoughts(choice.reasoning), (call) => callId(index, call)),
      logprobs: choice.logprobs === null ? null : chatLogprobs(choice.logprobs, tokensAsIds),
      finish_reason: reasonOf(choice.finish),
      stop_reason: choice.finish.stopReason,
      ...(returnTokenIds ? { token_ids: choice.tokens } : {}),
    }),
    opening: (index) => {
      const prompt = returnTokenIds ? `,"prompt_token_ids":${JSON.stringify(promptTokens)}` : "";
      return `{"index":${index},"delta":{"role":"assistant","content":""},"finish_reason":null${prompt}}`;
    },
    delta: ({ choice, parts, tokens, logprobs }) => {
      const deltas: string[] = [];
      for (const part of parts) {
        if (part.kind === "text") deltas.push(`{"content":${JSON.stringify(part.text)}}`);
        else if (part.kind !== "reasoning")
          deltas.push(JSON.stringify(deltaOf(part, (call) => callId(choice, call))));
        else if (tellsReasoning) deltas.push(JSON.stringify(thoughts(part.text)));
      }
      const tellsTokens = returnTokenIds && tokens.length > 0;
      if (deltas.length === 0 && (logprobs !== null || tellsTokens)) deltas.push('{"content":""}');
      return deltas.map((delta, part) => {
        const isFirst = part === 0; // which carries the tokens
        const logprobsJson =
          logprobs === null || !isFirst
            ? ""
            : `,"logprobs":${JSON.stringify(chatLogprobs(logprobs, tokensAsIds))}`;
        const ids = tellsTokens && isFirst ? `,"token_ids":${JSON.stringify(tokens)}` : "";
        return `{"index":${choice},"delta":${delta}${logprobsJson},"finish_reason":null${ids}}`;
      });
    },
    around: (index) =>
      returnTokenIds ? null : [`{"index":${index},"delta":{"content":`, `},"finish_reason":null}`],
    closing: (index, finish) =>
      `{"index":${index},"delta":{},"finish_reason":"${reasonOf(finish)}","stop_reason":${JSON.stringify(finish.stopReason)}}`,
  };
}

/** Reasoning text in the field or fields that the setting names. */
function reasoningJson(text: string, field: ReasoningField): object {
  return field === "both" ? { reasoning_content: text, reasoning: text } : { [field]: text };
}

function reasonOf({ reason }: ChoiceFinish): string {
  return reason === "calls" ? "tool_calls" : reason;
}

function messageOf({ text, calls }: WholeChoice, thoughts: object, idOf: (call: number) => string): object {
  if (calls.length === 0) return { role: "assistant", content: text, refusal: null, ...thoughts };
  const toolCalls = calls.map(({ id, ...call }, index) => ({
    id: id ?? idOf(index),
    type: "function",
    function: call,
  }));
  return {
    role: "assistant",
    content: text === "" ? null : text,
    refusal: null,
    ...thoughts,
    tool_calls: toolCalls,
  };
}

/**
 * A call's part as a delta. Clients expect a call's id, type and name once, first and without arguments, and
 * then arguments alone.
 */
function deltaOf(part: Extract<Part, { index: number }>, idOf: (call: number) => string): object {
  switch (part.kind) {
    case "call": {
      const { index, name, id = idOf(index) } = part;
      return {
        tool_calls: [{ index, id, type: "function", function: { name, arguments: "" } }],
      };
    }
    case "arguments":
      return { tool_calls: [{ index: part.index, function: { arguments: part.text } }] };
  }
}
