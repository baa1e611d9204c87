/** OpenAI's compaction: POST /v1/responses/compact. */

import { ApiError, badRequest } from "../../http/errors.ts";
import { sseFraming } from "../../http/stream.ts";
import type { PromptServices } from "../../request/prompt.ts";
import { expectFits } from "../../request/prompt.ts";
import type { Codec } from "../codec.ts";
import { notSupported } from "../openai/support.ts";
import { type Exchange, preparedChat, respond } from "../respond.ts";
import { sealedText } from "../sealed.ts";
import { noTargets, type Targets } from "../targets.ts";
import { nowSeconds, usageJson } from "./codec.ts";
import type { CompactionItem, Item } from "./items.ts";
import { chatOf, type ResponsesDeps } from "./responses.ts";
import { parseResponsesRequest, type ResponsesRequest } from "./schema.ts";

/** Request for a summary, behind the conversation. */
const ASK =
  "Write a summary of this conversation for yourself: you will go on from it, and from the user's messages, and see nothing else of what was said. Tell what was done and found, with the names, places and values that are needed; what was decided, and why; what is open, and what comes next. Answer with the summary alone.";

/** Fields of a response that say nothing about a summary. */
const withoutEffect = [
  ...["text", "include", "top_logprobs", "tool_choice", "parallel_tool_calls", "max_tool_calls"],
  ...["metadata", "store"],
];

export function parseCompactRequest(
  body: Readonly<Record<string, unknown>>,
  served: Pick<PromptServices, "model" | "template">,
  targets: Targets = noTargets,
): ResponsesRequest {
  const [left, read] = [new Set(withoutEffect), Object.entries(body)];
  const request = parseResponsesRequest(
    Object.fromEntries(read.filter(([name]) => !left.has(name))),
    served,
    targets,
  );
  if (request.stream) throw notSupported("stream", "true for a summary");
  if (request.background) throw notSupported("background", "true for a summary");
  const unused = read.filter(([name, value]) => left.has(name) && value != null).map(([name]) => name);
  return { ...request, ignored: [...new Set([...request.ignored, ...unused])] };
}

/**
 * Answers with items that stand for the conversation in later requests: its messages but the assistant's, and a summary
 * that the model writes. The prompt has the tools of the request, so that what was cached of the conversation is found.
 */
export async function compactConversation(
  exchange: Exchange,
  deps: ResponsesDeps,
  request: ResponsesRequest,
): Promise<Response> {
  const { generation } = request;
  const ask = { role: "user", content: ASK } as const;
  const { ready, items } = await chatOf(exchange.tenant, request, deps, [ask]);
  expectFits(ready.tokens, generation, "input", deps);
  return respond(
    exchange,
    preparedChat(request, ready, () => compactionCodec(request, items)),
  );
}

/** Codec of an answer that is the summary. Throws if the answer is none. */
function compactionCodec({ key }: ResponsesRequest, items: readonly Item[]): Codec {
  const kept = items.filter((item) => item.type === "message" && item.role !== "assistant");
  return {
    framing: sseFraming,
    body: ({ choices: [choice], usage }) => {
      const { parts, finish } = choice!;
      const { completionTokens } = usage;
      if (finish.reason === "length")
        throw badRequest(
          `the summary did not end within ${completionTokens} tokens: give max_output_tokens more, or compact while the context has more room`,
          "max_output_tokens",
        );
      const text = parts
        .map((part) => (part.kind === "text" ? part.text : ""))
        .join("")
        .trim();
      if (text === "") throw new ApiError(500, "server_error", "the model wrote no summary");
      const summary: CompactionItem = {
        type: "compaction",
        id: `cmp_${key}_0`,
        status: "completed",
        encrypted_content: sealedText(text),
      };
      return {
        id: `resp_${key}`,
        object: "response.compaction",
        created_at: nowSeconds(),
        output: [...kept, summary],
        usage: usageJson(usage),
      };
    },
    chunk: () => "",
    failure: () => "",
  };
}
