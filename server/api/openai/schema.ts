/**
 * The door: JSON of unknown content in, a typed request with every default applied out. What could not be honoured is
 * refused by name; what changes nothing in the answer is accepted and listed in `ignored`.
 */

import type { OfferedCalls } from "../../answer/choice-text.ts";
import type { GenerationOptions } from "../../answer/generation.ts";
import { badRequest, modelNotFound } from "../../http/errors.ts";
import type { ChatTemplate } from "../../text/template.ts";
import { Fields } from "../fields.ts";
import { requestLimits } from "../request-limits.ts";
import type { ServedModel } from "../served-model.ts";
import { noTargets, type Targets } from "../targets.ts";
import { effortOf, settleThinking, type ThinkingAsked, withGiven } from "../thinking.ts";
import {
  type ChatMessage,
  messagesOf,
  type Prompt,
  promptEndOf,
  promptsOf,
  templateArgumentsOf,
} from "./inputs.ts";
import { cacheSaltOf, chatLogprobs, samplingOf, stopStringsOf, tokenRange } from "./sampling.ts";
import { type ServiceTier, serviceOf } from "./service.ts";
import { constraintOf } from "./structure.ts";
import { notSupported, settleTheRest } from "./support.ts";
import { toolsOf, toolUseOf } from "./tools.ts";

/** What chat and text completions have in common. */
export interface CommonRequest {
  /** As the client wrote it; one of the served names. */
  readonly model: string;
  readonly generation: GenerationOptions;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly continuousUsage: boolean;
  /** Every chunk, or the body, tells how long it took, as llama-server's do. */
  readonly tellsTimings: boolean;
  readonly returnTokenIds: boolean;
  /** Tokens in logprobs are written `token_id:N` instead of as text. */
  readonly tokensAsIds: boolean;
  /** What the response says of the service; null when the request named no tier. */
  readonly serviceTier: ServiceTier | null;
  /** Fields that were accepted and had no effect. */
  readonly ignored: readonly string[];
}

export interface ChatRequest extends CommonRequest {
  readonly messages: readonly ChatMessage[];
  readonly addGenerationPrompt: boolean;
  readonly continuesLast: boolean;
  readonly templateArguments: Readonly<Record<string, unknown>>;
  /** As the client wrote them, for the chat template; empty: nothing is called. */
  readonly tools: readonly object[];
  /** Tokens of thoughts at most; null: any number. */
  readonly thoughtsMax: number | null;
  /** The client is told the model's thoughts. */
  readonly tellsReasoning: boolean;
}

export interface CompletionRequest extends CommonRequest {
  readonly prompts: readonly Prompt[];
  readonly echo: boolean;
  /** The prompt alone is told of (`max_tokens` is 0): one token is drawn, and left out. */
  readonly isEchoOnly: boolean;
  readonly addSpecialTokens: boolean;
  /** `prompt_logprobs`; null: not asked for. */
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
  const topLogprobs = chatLogprobs(fields);
  const replaced = new Set<string>();
  const messages = messagesOf(fields, replaced);
  const end = promptEndOf(fields);
  if (fields.boolean("add_special_tokens") === true) {
    throw notSupported("add_special_tokens", "adding to what the chat template writes");
  }
  const thinking = settleThinking(thinkingOf(fields), template, tools.length > 0);
  const { templateArguments, tokensMax: thoughtsMax } = thinking;
  const tellsReasoning = fields.boolean("include_reasoning") ?? true;
  const tokensMaxNew = fields.integer("max_completion_tokens", { min: 1, max: Number.MAX_SAFE_INTEGER });
  const common = parseCommon(fields, served, { topLogprobs, tokensLeast: 1, tokensMaxNew, calls, targets });
  const ignoredOfThinking = thinking.hasEffect
    ? []
    : thinkingFields.filter((name) => fields.raw(name) !== undefined);
  return {
    ...common,
    messages,
    ...end,
    templateArguments: withGiven(templateArguments, templateArgumentsOf(fields)),
    tools,
    thoughtsMax,
    tellsReasoning,
    ignored: [...new Set([...ignoredOfTools, ...replaced, ...ignoredOfThinking, ...common.ignored])],
  };
}

const thinkingFields = ["reasoning_effort", "thinking_token_budget", "thinking_budget_tokens"];

/** OpenAI's effort, and limits as vLLM and llama-server name them. */
function thinkingOf(fields: Fields): ThinkingAsked {
  const range = { min: 0, max: Number.MAX_SAFE_INTEGER };
  const unlimited = fields.raw("thinking_budget_tokens") === -1;
  const tokensMax =
    fields.integer("thinking_token_budget", range) ??
    (unlimited ? null : fields.integer("thinking_budget_tokens", range)) ??
    null;
  return { isWanted: null, effort: effortOf(fields, "reasoning_effort"), tokensMax };
}

export function parseCompletionRequest(
  body: Readonly<Record<string, unknown>>,
  served: ServedModel,
  targets: Targets = noTargets,
): CompletionRequest {
  const fields = new Fields(body);
  const prompts = promptsOf(fields.raw("prompt"), served);
  if (toolsOf(fields).length > 0) throw notSupported("tools", "calling functions outside of a chat");
  if (fields.raw("suffix") !== undefined) throw notSupported("suffix", "filling in the middle");
  const topLogprobs = fields.integer("logprobs", { min: 0, max: requestLimits.topLogprobsMax }) ?? null;
  const echo = fields.boolean("echo") ?? false;
  const addSpecialTokens = fields.boolean("add_special_tokens") ?? true;
  const n = fields.integer("n", { min: 1, max: requestLimits.choicesMax }) ?? 1;
  const bestOf = fields.integer("best_of", { min: 1, max: requestLimits.choicesMax });
  if (bestOf !== undefined && bestOf !== n) {
    throw badRequest(`best_of other than n (${n}) is not supported, but ${bestOf} was given`, "best_of");
  }
  const common = parseCommon(fields, served, {
    topLogprobs,
    tokensLeast: echo ? 0 : 1,
    tokensMaxNew: undefined,
    calls: null,
    targets,
  });
  const promptLogprobs = common.generation.promptLogprobs ?? null;
  const isEchoOnly = common.generation.tokensMax === 0;
  if (isEchoOnly && common.stream) throw notSupported("max_tokens", "0 in a stream");
  const own = isEchoOnly ? { ...common.generation, tokensMax: 1 } : common.generation;
  const request = { ...common, generation: own, prompts, echo, isEchoOnly, addSpecialTokens, promptLogprobs };
  if (!echo || topLogprobs === null) return request;
  if (common.stream) throw notSupported("echo", "true together with logprobs in a stream");
  return {
    ...request,
    generation: { ...own, promptLogprobs: Math.max(topLogprobs, promptLogprobs ?? 0) },
  };
}

interface Particulars {
  readonly topLogprobs: number | null;
  /** Fewest tokens that may be asked for. */
  readonly tokensLeast: 0 | 1;
  readonly tokensMaxNew: number | undefined;
  /** Null: nothing may be called. */
  readonly calls: OfferedCalls | null;
  readonly targets: Targets;
}

function parseCommon(fields: Fields, served: ServedModel, particulars: Particulars): CommonRequest {
  const model = modelOf(fields, served);
  const stream = fields.boolean("stream") ?? false;
  const streamOptions = fields.object("stream_options");
  if (streamOptions !== undefined && !stream) {
    throw badRequest("stream_options is only allowed together with stream: true", "stream_options");
  }
  const tokensMaxOld = fields.integer("max_tokens", {
    min: particulars.tokensLeast,
    max: Number.MAX_SAFE_INTEGER,
  });
  const tokensMax = particulars.tokensMaxNew ?? tokensMaxOld ?? null;
  const tokensMin = fields.integer("min_tokens", { min: 0, max: tokensMax ?? served.contextMax }) ?? 0;
  const { service, tier: serviceTier } = serviceOf(fields, particulars.targets);
  const generation: GenerationOptions = {
    choices: fields.integer("n", { min: 1, max: requestLimits.choicesMax }) ?? 1,
    sampling: samplingOf(fields, served, particulars.topLogprobs),
    tokensMax,
    tokensMin,
    stopStrings: stopStringsOf(fields),
    stopTokens: fields.integers("stop_token_ids", requestLimits.stopTokensMax, tokenRange(served)) ?? [],
    ignoreEos: fields.boolean("ignore_eos") ?? false,
    includeStopString: fields.boolean("include_stop_str_in_output") ?? false,
    skipSpecialTokens: fields.boolean("skip_special_tokens") ?? true,
    cacheSalt: cacheSaltOf(fields),
    service,
  };
  const includeUsage = streamOptions?.boolean("include_usage") ?? false;
  const continuousUsage = streamOptions?.boolean("continuous_usage_stats") ?? false;
  const tellsTimings = fields.boolean("timings_per_token") ?? false;
  const tellsProgress = fields.boolean("return_progress") ?? false;
  const returnTokenIds = fields.boolean("return_token_ids") ?? false;
  const tokensAsIds = fields.boolean("return_tokens_as_token_ids") ?? false;
  const promptLogprobs = fields.integer("prompt_logprobs", { min: 0, max: requestLimits.topLogprobsMax });
  if (promptLogprobs !== undefined && stream) throw notSupported("prompt_logprobs", "a prompt's in a stream");
  const { calls } = particulars;
  const constraint = constraintOf(fields);
  const held = constraint ?? calls;
  if (held !== null && generation.ignoreEos) {
    throw badRequest(`ignore_eos together with ${held.param} is not supported`, "ignore_eos");
  }
  const ignored = settleTheRest(fields);
  return {
    model,
    generation: {
      ...generation,
      ...(promptLogprobs === undefined ? {} : { promptLogprobs }),
      ...(tellsProgress && stream ? { tellsProgress } : {}),
      ...(constraint === null ? {} : { constraint }),
      ...(calls === null ? {} : { calls }),
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

/** The name asked for; without one, the model's id. */
export function modelOf(fields: Fields, served: ServedModel): string {
  const name = fields.string("model") ?? served.names[0]!;
  if (served.programs?.includes(name) === true)
    throw badRequest(
      `the model ${JSON.stringify(name)} is a program: it answers chat completions alone`,
      "model",
    );
  if (!served.names.includes(name) && served.answersToAny !== true) throw modelNotFound(name, served.names);
  return name;
}
