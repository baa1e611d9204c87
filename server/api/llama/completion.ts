import type { TokenId } from "../../../scheduler/core.ts";
import type { ChoiceFinish, TokenEntry, Usage } from "../../answer/events.ts";
import type { GenerationOptions } from "../../answer/generation.ts";
import { errorBody } from "../../http/errors.ts";
import type { AnswerTimes } from "../../http/measure.ts";
import { sseEvent, sseFraming } from "../../http/stream.ts";
import type { Codec } from "../codec.ts";
import { Fields, refusal } from "../fields.ts";
import { type Prompt, promptsOf } from "../openai/inputs.ts";
import { chatLogprobs } from "../openai/logprobs.ts";
import { cacheSaltOf, samplingOf, stopStringsOf } from "../openai/sampling.ts";
import { modelOf } from "../openai/schema.ts";
import { serviceOf } from "../openai/service.ts";
import { constraintOf } from "../openai/structure.ts";
import { isOneOf, notSupported } from "../openai/support.ts";
import { expectFits, type PromptServices, promptTokens } from "../prompt.ts";
import { requestLimits } from "../request-limits.ts";
import { type Exchange, respond } from "../respond.ts";
import type { ServedModel } from "../served-model.ts";
import type { Targets } from "../targets.ts";
import { timingsOf } from "../timings.ts";

/** A request for /completion, llama-server's own route. */
export interface LlamaRequest {
  readonly model: string;
  readonly prompt: Prompt;
  readonly generation: GenerationOptions;
  readonly stream: boolean;
  readonly returnsTokens: boolean;
  readonly ignored: readonly string[];
}

/** Ways of drawing that are not here, with the values that turn them off. */
const unsupported: Readonly<Record<string, readonly unknown[]>> = {
  mirostat: [0],
  dynatemp_range: [0],
  typical_p: [1],
  xtc_probability: [0],
  dry_multiplier: [0],
  top_n_sigma: [-1, 0],
  lora: [[]],
  response_fields: [[]],
};

export function parseLlamaCompletion(
  body: Readonly<Record<string, unknown>>,
  served: ServedModel,
  targets: Targets,
): LlamaRequest {
  const fields = new Fields({ ...body, ...drawingOf(body) });
  for (const [name, neutral] of Object.entries(unsupported)) {
    const value = fields.raw(name);
    if (value !== undefined && !isOneOf(value, neutral)) throw notSupported(name, "this");
  }
  const prompts = promptsOf(fields.raw("prompt"), served);
  if (prompts.length > 1) throw notSupported("prompt", "a list of prompts, which /v1/completions takes,");
  const predicted = fields.integer("n_predict", { min: -1, max: Number.MAX_SAFE_INTEGER }) ?? -1;
  if (predicted === 0) throw refusal("n_predict", "at least 1, or -1 for as many as fit", 0);
  const probabilities = fields.integer("n_probs", { min: 0, max: requestLimits.topLogprobsMax }) ?? 0;
  for (const name of ["repeat_penalty", "max_tokens"]) fields.raw(name); // read under other names
  const constraint = constraintOf(fields);
  return {
    model: modelOf(fields, served),
    prompt: prompts[0]!,
    generation: {
      choices: 1,
      sampling: samplingOf(fields, served, probabilities > 0 ? probabilities : null),
      tokensMax: predicted < 0 ? null : predicted,
      tokensMin: 0,
      stopStrings: stopStringsOf(fields),
      stopTokens: [],
      ignoreEos: fields.boolean("ignore_eos") ?? false,
      includeStopString: false,
      skipSpecialTokens: true,
      cacheSalt: cacheSaltOf(fields),
      service: serviceOf(fields, targets).service,
      ...(constraint === null ? {} : { constraint }),
    },
    stream: fields.boolean("stream") ?? false,
    returnsTokens: fields.boolean("return_tokens") ?? false,
    ignored: fields.unread().filter((name) => /^[A-Za-z0-9_.-]{1,64}$/.test(name)),
  };
}

/** Fields of llama-server that have other names, or other values for nothing, on other routes. */
function drawingOf(body: Readonly<Record<string, unknown>>): object {
  return {
    ...(body.n_predict === undefined ? { n_predict: body.max_tokens } : {}),
    ...(body.seed === -1 ? { seed: null } : {}),
    ...(body.repeat_penalty === undefined ? {} : { repetition_penalty: body.repeat_penalty }),
    ...(Array.isArray(body.logit_bias) ? { logit_bias: biasesOf(body.logit_bias) } : {}),
  };
}

/** Pairs of a token and its bias, as an object has them; `false` forbids a token. */
function biasesOf(pairs: readonly unknown[]): object {
  const entries = pairs.map((pair, index): [string, unknown] => {
    if (!Array.isArray(pair) || pair.length !== 2)
      throw refusal(`logit_bias[${index}]`, "a token and its bias", pair);
    const [token, bias] = pair;
    return [String(token), bias === false ? -100 : bias];
  });
  return Object.fromEntries(entries);
}

/** POST /completion */
export async function answerLlamaCompletion(
  exchange: Exchange,
  services: PromptServices,
  request: LlamaRequest,
): Promise<Response> {
  const tokens = await promptTokens(request.prompt, true, services);
  expectFits(tokens, request.generation.tokensMax, "prompt", services);
  return respond(exchange, request.generation, [tokens], completionCodec(request), request.stream);
}

function completionCodec({ model, prompt, generation, stream, returnsTokens }: LlamaRequest): Codec {
  let finish: ChoiceFinish = { reason: "stop", stopReason: null };
  let hasNewLine = false;
  const said = (
    text: string,
    tokens: readonly TokenId[],
    logprobs: readonly TokenEntry[] | null,
  ): object => ({
    index: 0,
    content: text,
    tokens: returnsTokens || stream ? tokens : [],
    id_slot: 0,
    ...(logprobs === null || logprobs.length === 0
      ? {}
      : { completion_probabilities: probabilitiesOf(logprobs) }),
  });
  const ending = (end: ChoiceFinish, usage: Usage, times: AnswerTimes | undefined): object => ({
    stop: true,
    model,
    tokens_predicted: usage.completionTokens,
    tokens_evaluated: usage.promptTokens,
    tokens_cached: usage.promptTokens + usage.completionTokens,
    generation_settings: settingsOf(generation, stream),
    prompt,
    has_new_line: hasNewLine,
    truncated: false,
    stop_type: end.reason === "length" ? "limit" : typeof end.stopReason === "string" ? "word" : "eos",
    stopping_word: typeof end.stopReason === "string" ? end.stopReason : "",
    ...(times === undefined ? {} : { timings: timingsOf(usage, times) }),
  });
  return {
    framing: sseFraming,
    body: ({ choices: [choice], usage }, times) => {
      const { text, tokens, logprobs, finish: end } = choice!;
      hasNewLine = text.includes("\n");
      return { ...said(text, tokens, logprobs), ...ending(end, usage, times) };
    },
    chunk: (event, { usage, times }) => {
      switch (event.kind) {
        case "started":
          return "";
        case "delta": {
          const text = event.parts.map((part) => (part.kind === "text" ? part.text : "")).join("");
          hasNewLine ||= text.includes("\n");
          const counts = { tokens_predicted: usage.completionTokens, tokens_evaluated: usage.promptTokens };
          const told = { ...said(text, event.tokens, event.logprobs), stop: false, ...counts };
          return sseEvent(JSON.stringify(told));
        }
        case "finish":
          finish = event;
          return "";
        case "done":
          return sseEvent(JSON.stringify({ ...said("", [], null), ...ending(finish, event.usage, times) }));
      }
    },
    failure: (error) => sseEvent(JSON.stringify(errorBody(error))),
  };
}

function probabilitiesOf(logprobs: readonly TokenEntry[]): object[] {
  return chatLogprobs(logprobs, false).content.map((entry, index) => {
    const { token, top } = logprobs[index]!;
    const top_logprobs = entry.top_logprobs.map((other, place) => ({ id: top[place]!.token, ...other }));
    return { id: token, ...entry, top_logprobs };
  });
}

function settingsOf({ sampling, tokensMax, stopStrings }: GenerationOptions, stream: boolean): object {
  return {
    n_predict: tokensMax ?? -1,
    temperature: sampling.temperature,
    top_k: sampling.topK,
    top_p: sampling.topP,
    min_p: sampling.minP,
    repeat_penalty: sampling.repetitionPenalty,
    presence_penalty: sampling.presencePenalty,
    frequency_penalty: sampling.frequencyPenalty,
    stop: stopStrings,
    n_probs: sampling.topLogprobs ?? 0,
    stream,
  };
}
