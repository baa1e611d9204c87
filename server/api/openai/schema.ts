/**
 * Parsers of OpenAI's bodies: JSON of unknown content in, a typed request with every default applied out.
 * They refuse unsupported fields by name and list fields without effect in `ignored`.
 */

import type { ChatTemplate } from "../../../text/template.ts";
import type { GenerationOptions } from "../../answer/generation.ts";
import { badRequest, ModelNotFound } from "../../http/errors.ts";
import type { ChatMessage, Prompt } from "../../request/chat-message.ts";
import { requestLimits } from "../../request/limits.ts";
import { namesWithAdapters, type ServedModel, servedNames } from "../../request/served-model.ts";
import { Fields, refusal } from "../fields.ts";
import { endingFill, type Fill, fillOf } from "../fill.ts";
import { noTargets, type Targets } from "../targets.ts";
import { thinkingOf } from "../thinking.ts";
import { generationOf, type Particulars } from "./generation.ts";
import { messagesOf, promptEndOf, promptKind, promptsOf } from "./inputs.ts";
import { predictionOf } from "./prediction.ts";
import { chatLogprobs } from "./sampling.ts";
import { type ServiceTier, serviceOf } from "./service.ts";
import { constraintOf } from "./structure.ts";
import { isOneOf, notSupported, settleTheRest } from "./support.ts";
import { toolsOf, toolUseOf } from "./tools.ts";

/** Fields shared by chat and text completions. */
export interface CommonRequest {
  /** Model name from the request; one of the served names. */
  readonly model: string;
  readonly generation: GenerationOptions;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly continuousUsage: boolean;
  /** True if every chunk, or the body, reports timings as llama-server does. */
  readonly tellsTimings: boolean;
  readonly returnTokenIds: boolean;
  /** True if tokens in logprobs are `token_id:N` instead of text. */
  readonly tokensAsIds: boolean;
  /** Service tier in the response; null when the request names none. */
  readonly serviceTier: ServiceTier | null;
  /** Names of accepted fields without effect. */
  readonly ignored: readonly string[];
}

export interface ChatRequest extends CommonRequest {
  readonly messages: readonly ChatMessage[];
  readonly addGenerationPrompt: boolean;
  readonly continuesLast: boolean;
  readonly templateArguments: Readonly<Record<string, unknown>>;
  /** The client's tool definitions for the chat template; empty if the model may call none. */
  readonly tools: readonly object[];
  /** Reasoning tokens at most; null: no limit. */
  readonly thoughtsMax: number | null;
  /** True if the answer shows the model's reasoning. */
  readonly tellsReasoning: boolean;
  /** Text that the answer is expected to resemble; null: none. */
  readonly prediction: string | null;
}

export interface CompletionRequest extends CommonRequest {
  readonly prompts: readonly Prompt[];
  /** Text behind the gap to fill; null: none. */
  readonly fill: Fill | null;
  readonly echo: boolean;
  /**
   * True if the answer holds the prompt alone (`max_tokens` is 0): the model generates one token, which is
   * left out.
   */
  readonly isEchoOnly: boolean;
  readonly addSpecialTokens: boolean;
  /** `prompt_logprobs`; null if absent. */
  readonly promptLogprobs: number | null;
}

export function parseChatRequest(
  body: Readonly<Record<string, unknown>>,
  served: ServedModel,
  targets: Targets = noTargets,
  template: ChatTemplate | null = null,
): ChatRequest {
  const fields = new Fields(body);
  const { tools, calls, ignored: ignoredOfTools } = toolUseOf(fields);
  if (fields.boolean("echo") === true) throw notSupported("echo", "true");
  if (!isOneOf(fields.raw("suffix", { enum: [""] }) ?? "", [""]))
    throw notSupported("suffix", "filling in a chat");
  const topLogprobs = chatLogprobs(fields);
  const replaced = new Set<string>();
  const messages = messagesOf(fields, replaced);
  const end = promptEndOf(fields);
  if (fields.boolean("add_special_tokens") === true) {
    throw notSupported("add_special_tokens", "adding to what the chat template writes");
  }
  const thinking = thinkingOf(fields, template, tools.length > 0, true);
  const prediction = predictionOf(fields);
  const common = parseCommon(fields, served, {
    topLogprobs,
    bound: "max_completion_tokens",
    tokensLeast: 1,
    calls,
    targets,
  });
  return {
    ...common,
    messages,
    ...end,
    templateArguments: thinking.templateArguments,
    tools,
    thoughtsMax: thinking.tokensMax,
    tellsReasoning: !thinking.isHidden,
    prediction,
    ignored: [...new Set([...ignoredOfTools, ...replaced, ...thinking.ignored, ...common.ignored])],
  };
}

export function parseCompletionRequest(
  body: Readonly<Record<string, unknown>>,
  served: ServedModel,
  targets: Targets = noTargets,
): CompletionRequest {
  const fields = new Fields(body);
  const prompts = promptsOf(fields.raw("prompt", promptKind), served);
  if (toolsOf(fields).length > 0) throw notSupported("tools", "calling functions outside of a chat");
  const fill = fillOf(fields.string("suffix"), "suffix", served);
  const topLogprobs = fields.integer("logprobs", { min: 0, max: requestLimits.topLogprobsMax }) ?? null;
  const echo = fields.boolean("echo") ?? false;
  if (fill !== null && echo) throw notSupported("echo", "true together with suffix");
  const addSpecialTokens = fields.boolean("add_special_tokens") ?? true;
  const common = parseCommon(fields, served, {
    topLogprobs,
    bound: "max_tokens",
    tokensLeast: echo ? 0 : 1,
    calls: null,
    targets,
  });
  const promptLogprobs = common.generation.promptLogprobs ?? null;
  const isEchoOnly = common.generation.tokensMax === 0;
  if (isEchoOnly && common.stream) throw notSupported("max_tokens", "0 in a stream");
  const own = endingFill(isEchoOnly ? { ...common.generation, tokensMax: 1 } : common.generation, fill);
  const request = {
    ...common,
    generation: own,
    prompts,
    fill,
    echo,
    isEchoOnly,
    addSpecialTokens,
    promptLogprobs,
  };
  if (!echo || topLogprobs === null) return request;
  if (common.stream) throw notSupported("echo", "true together with logprobs in a stream");
  return {
    ...request,
    generation: { ...own, promptLogprobs: Math.max(topLogprobs, promptLogprobs ?? 0) },
  };
}

interface Own extends Pick<Particulars, "topLogprobs" | "bound" | "tokensLeast" | "calls"> {
  readonly targets: Targets;
}

function parseCommon(fields: Fields, served: ServedModel, { targets, ...own }: Own): CommonRequest {
  const model = modelOf(fields, served);
  const stream = fields.boolean("stream") ?? false;
  const streamOptions = fields.object("stream_options");
  if (streamOptions !== undefined && !stream) {
    throw badRequest("stream_options is only allowed together with stream: true", "stream_options");
  }
  const choices = fields.integer("n", { min: 1, max: requestLimits.choicesMax }) ?? 1;
  const bestOf = fields.integer("best_of", { min: 1, max: requestLimits.choicesMax });
  if (bestOf !== undefined && bestOf !== choices)
    throw badRequest(
      `best_of other than n (${choices}) is not supported, but ${bestOf} was given`,
      "best_of",
    );
  const { service, tier: serviceTier } = serviceOf(fields, targets);
  const generation: GenerationOptions = {
    ...generationOf(fields, served, { ...own, model, constraint: constraintOf(fields), service }),
    choices,
  };
  const includeUsage = streamOptions?.boolean("include_usage") ?? false;
  const continuousUsage = streamOptions?.boolean("continuous_usage_stats") ?? false;
  const tellsTimings = fields.boolean("timings_per_token") ?? false;
  const tellsProgress = fields.boolean("return_progress") ?? false;
  const returnTokenIds = fields.boolean("return_token_ids") ?? false;
  const tokensAsIds = fields.boolean("return_tokens_as_token_ids") ?? false;
  const promptLogprobs = fields.integer("prompt_logprobs", { min: 0, max: requestLimits.topLogprobsMax });
  if (promptLogprobs !== undefined && stream) throw notSupported("prompt_logprobs", "a prompt's in a stream");
  const ignored = settleTheRest(fields);
  return {
    model,
    generation: {
      ...generation,
      ...(promptLogprobs === undefined ? {} : { promptLogprobs }),
      ...(tellsProgress && stream ? { tellsProgress } : {}),
    },
    stream,
    includeUsage,
    continuousUsage,
    tellsTimings,
    returnTokenIds,
    tokensAsIds,
    serviceTier,
    ignored,
  };
}

/**
 * The requested name of the model or of an adapter of it, by default the model's id. SGLang's `lora_path` names an
 * adapter too. Throws 400 for a program's name and 404 for an unknown one.
 */
export function modelOf(fields: Fields, served: ServedModel): string {
  const name = fields.string("model") ?? served.names[0]!;
  if (served.programs?.includes(name) === true)
    throw badRequest(
      `the model ${JSON.stringify(name)} is a program: only POST /v1/chat/completions takes it`,
      "model",
    );
  if (!namesWithAdapters(served).includes(name) && served.answersToAny !== true)
    throw new ModelNotFound(name, servedNames(served));
  const adapter = fields.string("lora_path");
  if (adapter === undefined) return name;
  const adapters = [...(served.adapters?.keys() ?? [])];
  if (!adapters.includes(adapter))
    throw refusal(
      "lora_path",
      `the name of an adapter (${adapters.join(", ") || "there are none"})`,
      adapter,
    );
  if (adapters.includes(name) && name !== adapter)
    throw badRequest(`model and lora_path name two adapters, ${name} and ${adapter}`, "lora_path");
  return adapter;
}
