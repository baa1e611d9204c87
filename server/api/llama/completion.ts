import type { TokenId } from "../../../base/token.ts";
import type { ChoiceFinish, TokenEntry, Usage } from "../../answer/events.ts";
import type { GenerationOptions } from "../../answer/generation.ts";
import { badRequest, errorBody } from "../../http/errors.ts";
import { LazyList } from "../../http/json/slices.ts";
import type { AnswerTimes } from "../../http/measure.ts";
import type { Call } from "../../http/route.ts";
import { sseEvent, sseFraming } from "../../http/stream.ts";
import type { Prompt } from "../../request/chat-message.ts";
import { requestLimits } from "../../request/limits.ts";
import { expectFits, type PromptServices } from "../../request/prompt.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { type Codec, type CodecAnswer, whyMember } from "../codec.ts";
import { reportIgnored } from "../exchange.ts";
import { Fields, fieldsOf, objectKind, refusal, reportable } from "../fields.ts";
import {
  completionTokens,
  endingFill,
  extraTokens,
  type Fill,
  type FillExtra,
  fillFormFor,
} from "../fill.ts";
import { generationOf } from "../openai/generation.ts";
import { promptsOf } from "../openai/inputs.ts";
import { chatEntry } from "../openai/logprobs.ts";
import { modelOf } from "../openai/schema.ts";
import { serviceOf } from "../openai/service.ts";
import { constraintOf } from "../openai/structure.ts";
import { isOneOf, notSupported, refuseMoreAnswers } from "../openai/support.ts";
import { type Exchange, respond } from "../respond.ts";
import type { Targets } from "../targets.ts";
import { progressOf, timingsOf } from "../timings.ts";
import { llamaPromptKind, plainPrompts, shortTextTokens } from "./prompts.ts";

/** A request to /completion, llama-server's own route. */
export interface LlamaRequest {
  readonly model: string;
  /** Several only without a stream. */
  readonly prompts: readonly Prompt[];
  readonly generation: GenerationOptions;
  readonly stream: boolean;
  readonly returnsTokens: boolean;
  /** Paths of the fields to return, such as `generation_settings/n_predict`; empty: all. */
  readonly responseFields: readonly string[];
  readonly fill: LlamaFill | null;
  readonly ignored: readonly string[];
}

/** Text around the gap in /infill, with other files. */
interface LlamaFill extends Fill {
  readonly extras: readonly FillExtra[];
}

/** Unsupported fields that would change the answer, with the values that ask for nothing. */
const unsupported: Readonly<Record<string, readonly unknown[]>> = {
  lora: [[]],
  n_indent: [0],
  t_max_predict_ms: [0, -1],
  post_sampling_probs: [false],
  suffix: [""],
};

type Body = Readonly<Record<string, unknown>>;
type Served = Pick<PromptServices, "model">;

export function parseLlamaCompletion(body: Body, { model: served }: Served, targets: Targets): LlamaRequest {
  return parse(new Fields({ ...body, ...drawingOf(body, served) }), served, targets, null);
}

/** POST /infill: `prompt` is the start of the line to complete, behind `input_prefix`. */
export function parseLlamaInfill(body: Body, { model: served }: Served, targets: Targets): LlamaRequest {
  const form = fillFormFor(served, "input_suffix");
  const fields = new Fields({ ...body, ...drawingOf(body, served) });
  const prefix = fields.string("input_prefix") ?? "";
  const suffix = fields.string("input_suffix") ?? "";
  const extras = (fields.list("input_extra", requestLimits.contentPartsMax, objectKind) ?? []).map(
    (value, index) => {
      const extra = fieldsOf(value, `input_extra[${index}]`);
      return { name: extra.string("filename") ?? "tmp", text: extra.string("text") ?? "" };
    },
  );
  const prompt = prefix + (fields.string("prompt") ?? "");
  const request = parse(fields, served, targets, prompt);
  const fill = { form, suffix, param: "input_suffix", extras };
  return { ...request, fill, generation: endingFill(request.generation, fill) };
}

/** Parses the shared fields. `whole`: a prompt composed of several fields; null for a single field. */
function parse(fields: Fields, served: ServedModel, targets: Targets, whole: string | null): LlamaRequest {
  for (const [name, neutral] of Object.entries(unsupported)) {
    const value = fields.raw(name, { enum: neutral });
    if (value !== undefined && !isOneOf(value, neutral)) throw notSupported(name, "this");
  }
  refuseMoreAnswers(fields);
  const prompts = promptsOf(
    whole ?? plainPrompts(fields.raw("prompt", llamaPromptKind), "prompt", served, requestLimits.promptsMax),
    served,
  );
  const stream = fields.boolean("stream") ?? false;
  if (stream && prompts.length > 1) throw notSupported("prompt", "a list of prompts together with stream");
  const responseFields = fields.texts("response_fields", requestLimits.ignoredNamesMax) ?? [];
  if (stream && responseFields.length > 0) throw notSupported("response_fields", "this together with stream");
  const probabilities = fields.integer("n_probs", { min: 0, max: requestLimits.topLogprobsMax }) ?? 0;
  const model = modelOf(fields, served);
  return {
    model,
    prompts,
    generation: {
      ...generationOf(fields, served, {
        model,
        bound: "n_predict",
        topLogprobs: probabilities > 0 ? probabilities : null,
        constraint: constraintOf(fields),
        calls: null,
        service: serviceOf(fields, targets).service,
      }),
      ...(fields.boolean("return_progress") === true && stream ? { tellsProgress: true } : {}),
    },
    stream,
    returnsTokens: fields.boolean("return_tokens") ?? false,
    responseFields,
    fill: null,
    ignored: reportable(fields.unread()),
  };
}

/** Sampling fields that llama-server's routes accept in other forms than OpenAI's, converted to OpenAI's. */
function drawingOf({ logit_bias: given }: Body, model: ServedModel): object {
  return typeof given === "object" && given !== null ? { logit_bias: biasesOf(given, model) } : {};
}

/**
 * Converts llama-server's logit biases to an object of token biases. They are pairs, or an object whose keys
 * may be texts; `false` forbids a token.
 */
function biasesOf(given: object, model: ServedModel): object {
  const pairs: readonly unknown[] = Array.isArray(given) ? given : Object.entries(given);
  const { logitBiasMax: max } = requestLimits;
  if (pairs.length > max)
    throw badRequest(`logit_bias may hold ${max} entries at most, but holds ${pairs.length}`, "logit_bias");
  const tokensOfText = shortTextTokens("logit_bias", model);
  const entries = pairs.flatMap((pair, index): [string, unknown][] => {
    const path = `logit_bias[${index}]`;
    if (!Array.isArray(pair) || pair.length !== 2) throw refusal(path, "a token or text and its bias", pair);
    const [token, bias] = pair;
    const value = bias === false ? -100 : bias;
    if (typeof token !== "string" || /^-?\d+$/.test(token)) return [[String(token), value]];
    return tokensOfText(token).map((one) => [String(one), value]);
  });
  return Object.fromEntries(entries);
}

/** POST /completion and /infill */
export async function answerLlamaCompletion(
  exchange: Exchange,
  services: PromptServices,
  request: LlamaRequest,
  call: Call,
): Promise<Response> {
  const { prompts, generation, stream, fill } = request;
  const bare = await Promise.all(prompts.map((prompt) => completionTokens(prompt, fill, true, services)));
  const tokens =
    fill === null
      ? bare
      : [
          await withExtras(bare[0]!, fill, generation, services, () => {
            reportIgnored(call, [...request.ignored, "input_extra"]);
          }),
        ];
  for (const one of tokens) expectFits(one, generation, "prompt", services);
  const counts = tokens.map(({ length }) => length);
  const codec = () => completionCodec(request, counts);
  return respond(exchange, { prompts: tokens, options: generation, isStream: stream, codec });
}

/** Fraction of the context reserved for an answer without a token limit, before other files get room. */
const ANSWER_PART = 1 / 4;

/** Inserts other files' texts before the prompt. Calls `onCut` if not all of them fit. */
async function withExtras(
  prompt: readonly TokenId[],
  { form, extras }: LlamaFill,
  { tokensMax, tokensMin }: GenerationOptions,
  services: PromptServices,
  onCut: () => void,
): Promise<readonly TokenId[]> {
  const { contextMax } = services.model;
  const answer = Math.max(tokensMin, Math.min(tokensMax ?? contextMax, Math.ceil(contextMax * ANSWER_PART)));
  const room = contextMax - prompt.length - answer;
  const { tokens, taken } = await extraTokens(extras, form, room, services);
  if (taken < extras.length) onCut();
  const start = services.tokenizer.encode("", { addSpecialTokens: true }).length;
  return [...prompt.slice(0, start), ...tokens, ...prompt.slice(start)];
}

/** Codec of /completion. `promptCounts`: tokens of each prompt. */
function completionCodec(
  { model, prompts, generation, stream, returnsTokens, responseFields }: LlamaRequest,
  promptCounts: readonly number[],
): Codec {
  let finish: ChoiceFinish = { reason: "stop", stopReason: null };
  let hasNewLine = false;
  const said = (
    index: number,
    text: string,
    tokens: readonly TokenId[],
    logprobs: readonly TokenEntry[] | null,
  ): object => ({
    index,
    content: text,
    tokens: returnsTokens || stream ? tokens : [],
    id_slot: 0,
    ...(logprobs === null ? {} : { completion_probabilities: probabilitiesOf(logprobs) }),
  });
  const ending = (index: number, end: ChoiceFinish, predicted: number): object => ({
    stop: true,
    model,
    tokens_predicted: predicted,
    tokens_evaluated: promptCounts[index]!,
    tokens_cached: promptCounts[index]! + predicted,
    generation_settings: settingsOf(generation, stream),
    prompt: prompts[index]!,
    has_new_line: hasNewLine,
    truncated: false,
    stop_type: end.reason === "length" ? "limit" : typeof end.stopReason === "string" ? "word" : "eos",
    stopping_word: typeof end.stopReason === "string" ? end.stopReason : "",
  });
  const timed = (usage: Usage, times: AnswerTimes | undefined): object =>
    times === undefined ? {} : { timings: timingsOf(usage, times) };
  const tellsProgress = generation.tellsProgress ?? false;
  const progressText = (tokens: number, { usage, times }: CodecAnswer): string =>
    sseEvent(JSON.stringify({ ...said(0, "", [], null), stop: false, ...progressOf(tokens, usage, times) }));
  return {
    framing: sseFraming,
    body: ({ choices, usage }, times) => {
      const bodies = choices.map(({ text, tokens, logprobs, finish: end }, index) => {
        hasNewLine = text.includes("\n");
        const whole = {
          ...said(index, text, tokens, logprobs),
          ...ending(index, end, tokens.length),
          // The timings cover all prompts together.
          ...(choices.length === 1 ? timed(usage, times) : {}),
        };
        return responseFields.length === 0 ? whole : partsOf(whole, responseFields);
      });
      return bodies.length === 1 ? bodies[0]! : bodies;
    },
    chunk: (event, answer) => {
      const { usage, times } = answer;
      switch (event.kind) {
        case "started":
          return tellsProgress ? progressText(usage.cachedTokens, answer) : "";
        case "delta": {
          const text = event.parts.map((part) => (part.kind === "text" ? part.text : "")).join("");
          hasNewLine ||= text.includes("\n");
          const counts = { tokens_predicted: usage.completionTokens, tokens_evaluated: usage.promptTokens };
          const chunk = { ...said(0, text, event.tokens, event.logprobs), stop: false, ...counts };
          return sseEvent(JSON.stringify(chunk));
        }
        case "finish":
          finish = event;
          return "";
        case "done":
          return sseEvent(
            JSON.stringify({
              ...said(0, "", [], null),
              ...ending(0, finish, event.usage.completionTokens),
              ...timed(event.usage, times),
              ...whyMember(answer),
            }),
          );
      }
    },
    ...(tellsProgress ? { progress: progressText } : {}),
    failure: (error) => sseEvent(JSON.stringify(errorBody(error))),
  };
}

/** Values at these paths, keyed by path. Leaves out paths that do not exist. */
function partsOf(body: object, paths: readonly string[]): object {
  const at = (path: string): unknown =>
    path
      .split("/")
      .reduce((value: unknown, key) => (value as Record<string, unknown> | undefined)?.[key], body);
  return Object.fromEntries(paths.map((path) => [path, at(path)]).filter(([, value]) => value !== undefined));
}

function probabilitiesOf(logprobs: readonly TokenEntry[]): LazyList<TokenEntry> {
  return new LazyList(logprobs, (token) => {
    const entry = chatEntry(token, false);
    const top_logprobs = entry.top_logprobs.map((other, place) => ({
      id: token.top[place]!.token,
      ...other,
    }));
    return { id: token.token, ...entry, top_logprobs };
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
