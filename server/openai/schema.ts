/**
 * The door: JSON of unknown content in, a typed request with every default applied out. What could not be honoured is
 * refused by name; what changes nothing in the answer is accepted and listed in `ignored`.
 */
import type { GenerationDefaults } from "../../gpu/model/config.ts";
import type { Sampling, TokenId } from "../../scheduler/core.ts";
import { badRequest, modelNotFound, quote } from "../errors.ts";
import type { GenerationRequest } from "../generation.ts";
import { Fields, fieldsOf, integerIn, numberIn, refusal } from "./fields.ts";

/** What a request may ask for at most. */
export const requestLimits = {
  choicesMax: 128,
  topLogprobsMax: 20,
  stopStringsMax: 16,
  stopStringBytesMax: 256,
  stopTokensMax: 128,
  logitBiasMax: 1024,
  messagesMax: 10_000,
  contentPartsMax: 10_000,
  promptsMax: 128,
  cacheSaltCharactersMax: 1024,
  temperatureMax: 2,
  repetitionPenaltyMax: 100,
  templateArgumentsMax: 16,
  ignoredNamesMax: 32,
} as const;

/** What parsing needs to know of the served model. */
export interface ServedModel {
  /** Names it answers to; the first is its id. */
  readonly names: readonly string[];
  readonly contextMax: number;
  readonly vocabSize: number;
  readonly generationDefaults: GenerationDefaults;
}

/** What is asked of the generator for each prompt. */
export type GenerationOptions = Omit<GenerationRequest, "promptTokens">;

/** What chat and text completions have in common. */
export interface CommonRequest {
  /** As the client wrote it; one of the served names. */
  readonly model: string;
  readonly generation: GenerationOptions;
  readonly stream: boolean;
  readonly includeUsage: boolean;
  readonly continuousUsage: boolean;
  readonly returnTokenIds: boolean;
  /** Tokens in logprobs are written `token_id:N` instead of as text. */
  readonly tokensAsIds: boolean;
  /** Fields that were accepted and had no effect. */
  readonly ignored: readonly string[];
}

export interface ChatMessage {
  readonly role: "system" | "developer" | "user" | "assistant";
  readonly content: string;
  readonly name?: string;
  readonly reasoning_content?: string;
}

export interface ChatRequest extends CommonRequest {
  readonly messages: readonly ChatMessage[];
  readonly addGenerationPrompt: boolean;
  readonly templateArguments: Readonly<Record<string, unknown>>;
}

/** A prompt is text or tokens. */
export type Prompt = string | readonly TokenId[];

export interface CompletionRequest extends CommonRequest {
  readonly prompts: readonly Prompt[];
  readonly echo: boolean;
  readonly addSpecialTokens: boolean;
}

/** Accepted, without effect on what is answered. */
const harmless = [
  "user",
  "metadata",
  "store",
  "service_tier",
  "priority",
  "safety_identifier",
  "prompt_cache_key",
  "prompt_cache_retention",
  "parallel_tool_calls",
  "prediction",
  "reasoning_effort",
  "verbosity",
  "request_id",
  "session_id",
  "include_reasoning",
  "spaces_between_special_tokens",
  "length_penalty",
  "guided_decoding_backend",
  "stream_interval",
];

/** Fields that would change the answer and are not supported, with the values that ask for nothing. */
const unsupported: Readonly<Record<string, readonly unknown[]>> = {
  tools: [[]],
  functions: [[]],
  function_call: ["none"],
  modalities: [["text"], []],
  audio: [],
  web_search_options: [],
  prompt_logprobs: [],
  structured_outputs: [],
  guided_json: [],
  guided_regex: [],
  guided_choice: [],
  guided_grammar: [],
  json_schema: [],
  regex: [],
  ebnf: [],
  grammar: [],
  kv_transfer_params: [],
  prompt_embeds: [],
  documents: [[]],
  chat_template: [],
  truncate_prompt_tokens: [],
  bad_words: [[]],
  allowed_token_ids: [],
  use_beam_search: [false],
  logits_processors: [[]],
  mm_processor_kwargs: [{}],
  thinking_token_budget: [],
  repetition_detection: [],
  logprob_token_ids: [[]],
  stop_regex: [[]],
  lora_path: [],
};

const uint32 = 2 ** 32;
const greedyBelow = 1e-5;

export function parseChatRequest(body: Readonly<Record<string, unknown>>, served: ServedModel): ChatRequest {
  const fields = new Fields(body);
  const toolChoice = fields.raw("tool_choice");
  const toolsAreOff = toolChoice === "none";
  if (toolChoice !== undefined && toolChoice !== "none" && toolChoice !== "auto") {
    throw badRequest("tool_choice must be none or auto, as tools are not supported", "tool_choice");
  }
  if (fields.boolean("echo") === true) throw notSupported("echo", "true");
  const topLogprobs = chatLogprobs(fields);
  const messages = messagesOf(fields);
  const addGenerationPrompt = addGenerationPromptOf(fields);
  if (fields.boolean("add_special_tokens") === true) {
    throw notSupported("add_special_tokens", "adding to what the chat template writes");
  }
  const templateArguments = templateArgumentsOf(fields);
  const tokensMaxNew = fields.integer("max_completion_tokens", { min: 1, max: Number.MAX_SAFE_INTEGER });
  const common = parseCommon(fields, served, { topLogprobs, tokensMaxNew, toolsAreOff });
  return { ...common, messages, addGenerationPrompt, templateArguments };
}

export function parseCompletionRequest(
  body: Readonly<Record<string, unknown>>,
  served: ServedModel,
): CompletionRequest {
  const fields = new Fields(body);
  const prompts = promptsOf(fields.raw("prompt"), served.vocabSize);
  if (fields.raw("suffix") !== undefined) throw notSupported("suffix", "filling in the middle");
  const topLogprobs = fields.integer("logprobs", { min: 0, max: requestLimits.topLogprobsMax }) ?? null;
  const echo = fields.boolean("echo") ?? false;
  if (echo && topLogprobs !== null) {
    throw badRequest("echo together with logprobs is not supported: prompt tokens have no logprobs", "echo");
  }
  const addSpecialTokens = fields.boolean("add_special_tokens") ?? true;
  const n = fields.integer("n", { min: 1, max: requestLimits.choicesMax }) ?? 1;
  const bestOf = fields.integer("best_of", { min: 1, max: requestLimits.choicesMax });
  if (bestOf !== undefined && bestOf !== n) {
    throw badRequest(`best_of other than n (${n}) is not supported, but ${bestOf} was given`, "best_of");
  }
  const common = parseCommon(fields, served, { topLogprobs, tokensMaxNew: undefined, toolsAreOff: false });
  return { ...common, prompts, echo, addSpecialTokens };
}

interface Particulars {
  readonly topLogprobs: number | null;
  readonly tokensMaxNew: number | undefined;
  readonly toolsAreOff: boolean;
}

function parseCommon(fields: Fields, served: ServedModel, particulars: Particulars): CommonRequest {
  const model = modelOf(fields, served);
  const stream = fields.boolean("stream") ?? false;
  const streamOptions = fields.object("stream_options");
  if (streamOptions !== undefined && !stream) {
    throw badRequest("stream_options is only allowed together with stream: true", "stream_options");
  }
  const tokensMaxOld = fields.integer("max_tokens", { min: 1, max: Number.MAX_SAFE_INTEGER });
  const tokensMax = particulars.tokensMaxNew ?? tokensMaxOld ?? null;
  const tokensMin = fields.integer("min_tokens", { min: 0, max: tokensMax ?? served.contextMax }) ?? 0;
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
  };
  const includeUsage = streamOptions?.boolean("include_usage") ?? false;
  const continuousUsage = streamOptions?.boolean("continuous_usage_stats") ?? false;
  const returnTokenIds = fields.boolean("return_token_ids") ?? false;
  const tokensAsIds = fields.boolean("return_tokens_as_token_ids") ?? false;
  const ignored = settleTheRest(fields, particulars.toolsAreOff);
  return { model, generation, stream, includeUsage, continuousUsage, returnTokenIds, tokensAsIds, ignored };
}

/** The name asked for; without one, the model's id. */
export function modelOf(fields: Fields, served: ServedModel): string {
  const name = fields.string("model") ?? served.names[0]!;
  if (!served.names.includes(name)) throw modelNotFound(name, served.names);
  return name;
}

function samplingOf(fields: Fields, served: ServedModel, topLogprobs: number | null): Sampling {
  const defaults = served.generationDefaults;
  const penalty = { min: -2, max: 2 };
  const temperature =
    fields.number("temperature", { min: 0, max: requestLimits.temperatureMax }) ?? defaults.temperature ?? 1;
  const topK = fields.integer("top_k", { min: -1, max: uint32 / 2 - 1 }) ?? defaults.topK ?? 0;
  return {
    // Dividing by less than this leaves nothing but the likeliest token, in f32 by way of infinities.
    temperature: temperature < greedyBelow ? 0 : temperature,
    topK: topK < 0 ? 0 : Math.min(topK, served.vocabSize),
    topP: fields.number("top_p", { min: 0, aboveMin: true, max: 1 }) ?? defaults.topP ?? 1,
    minP: fields.number("min_p", { min: 0, max: 1 }) ?? defaults.minP ?? 0,
    repetitionPenalty:
      fields.number("repetition_penalty", {
        min: 0,
        aboveMin: true,
        max: requestLimits.repetitionPenaltyMax,
      }) ??
      defaults.repetitionPenalty ??
      1,
    presencePenalty: fields.number("presence_penalty", penalty) ?? 0,
    frequencyPenalty: fields.number("frequency_penalty", penalty) ?? 0,
    logitBias: logitBiasOf(fields, served),
    seed: seedOf(fields),
    topLogprobs,
  };
}

/** Any integer of 64 bits; beyond 2^53 neighbours are the same number in JSON and the same seed here. */
function seedOf(fields: Fields): readonly [number, number] {
  const seed = fields.integer("seed", { min: -(2 ** 63), max: 2 ** 63 });
  if (seed === undefined) {
    const [low, high] = crypto.getRandomValues(new Uint32Array(2));
    return [low!, high!];
  }
  const bits = BigInt.asUintN(64, BigInt(seed));
  return [Number(bits % BigInt(uint32)), Number(bits / BigInt(uint32))];
}

function logitBiasOf(fields: Fields, served: ServedModel): [TokenId, number][] {
  const entries = fields.entries("logit_bias", requestLimits.logitBiasMax) ?? [];
  return entries.map(([key, bias]) => {
    const path = `logit_bias.${key.slice(0, 32)}`;
    const token = /^\d{1,10}$/.test(key) ? Number(key) : key;
    return [
      integerIn(token, tokenRange(served), path),
      numberIn(bias, { min: -100, max: 100 }, "a number", path),
    ];
  });
}

function stopStringsOf(fields: Fields): readonly string[] {
  const given = fields.raw("stop");
  if (given === undefined) return [];
  const list = typeof given === "string" ? [given] : fields.list("stop", requestLimits.stopStringsMax)!;
  return list.map((item, index) => {
    const path = typeof given === "string" ? "stop" : `stop[${index}]`;
    if (typeof item !== "string" || item === "") throw refusal(path, "a string that is not empty", item);
    const bytes = Buffer.byteLength(item);
    if (bytes > requestLimits.stopStringBytesMax) {
      throw badRequest(
        `${path} may have ${requestLimits.stopStringBytesMax} bytes at most, but has ${bytes}`,
        path,
      );
    }
    return item;
  });
}

function cacheSaltOf(fields: Fields): string {
  const salt = fields.string("cache_salt");
  const max = requestLimits.cacheSaltCharactersMax;
  if (salt !== undefined && (salt === "" || salt.length > max)) {
    throw badRequest(`cache_salt must have 1 to ${max} characters, but has ${salt.length}`, "cache_salt");
  }
  return salt ?? "";
}

function chatLogprobs(fields: Fields): number | null {
  const logprobs = fields.boolean("logprobs") ?? false;
  const top = fields.integer("top_logprobs", { min: 0, max: requestLimits.topLogprobsMax });
  if (top !== undefined && top > 0 && !logprobs) {
    throw badRequest(
      `top_logprobs is only allowed together with logprobs: true, but ${top} was given`,
      "top_logprobs",
    );
  }
  return logprobs ? (top ?? 0) : null;
}

export function messagesOf(fields: Fields): ChatMessage[] {
  const messages = fields.list("messages", requestLimits.messagesMax);
  if (messages === undefined || messages.length === 0) {
    throw refusal("messages", "an array of at least one message", fields.raw("messages"));
  }
  return messages.map((message, index) => parseMessage(fieldsOf(message, `messages[${index}]`)));
}

function parseMessage(fields: Fields): ChatMessage {
  const role = fields.string("role");
  if (role === "tool" || role === "function")
    throw notSupported(fields.pathOf("role"), `messages of the role ${role}`);
  if (role !== "system" && role !== "developer" && role !== "user" && role !== "assistant") {
    throw refusal(fields.pathOf("role"), "system, developer, user or assistant", fields.raw("role"));
  }
  for (const name of ["tool_calls", "function_call", "audio"]) {
    const value = fields.raw(name);
    if (value !== undefined && !isOneOf(value, [[]])) throw notSupported(fields.pathOf(name), "this");
  }
  const name = fields.string("name");
  const reasoning = fields.string("reasoning_content") ?? fields.string("reasoning");
  return {
    role,
    content: contentOf(fields, role === "assistant"),
    ...(name === undefined ? {} : { name }),
    ...(reasoning === undefined ? {} : { reasoning_content: reasoning }),
  };
}

/** Text, or parts that are all text: joined by line breaks, as other servers do for templates that take one string. */
function contentOf(fields: Fields, mayBeMissing: boolean): string {
  const content = fields.raw("content");
  if (typeof content === "string") return content;
  if (content === undefined && mayBeMissing) return fields.string("refusal") ?? "";
  const path = fields.pathOf("content");
  if (!Array.isArray(content)) throw refusal(path, "a string or an array of text parts", content);
  const parts = fields.list("content", requestLimits.contentPartsMax)!.map((value, index) => {
    const part = fieldsOf(value, `${path}[${index}]`);
    const type = part.string("type");
    if (type !== "text" && type !== "refusal") {
      throw badRequest(
        `only text is supported in messages, but ${part.pathOf("type")} is ${quote(type)}`,
        part.pathOf("type"),
      );
    }
    const text = part.string(type);
    if (text === undefined) throw refusal(part.pathOf(type), "a string", undefined);
    return text;
  });
  return parts.join("\n");
}

export function addGenerationPromptOf(fields: Fields): boolean {
  if (fields.boolean("continue_final_message") === true)
    throw notSupported("continue_final_message", "continuing a message");
  return fields.boolean("add_generation_prompt") ?? true;
}

/** Options for the chat template. Which names it may take is the template's to say. */
export function templateArgumentsOf(fields: Fields): Record<string, unknown> {
  return Object.fromEntries(fields.entries("chat_template_kwargs", requestLimits.templateArgumentsMax) ?? []);
}

/** One prompt or a list of them, each text or tokens. */
function promptsOf(given: unknown, vocabSize: number): readonly Prompt[] {
  if (typeof given === "string") return [given];
  const expected = "a string, an array of strings, an array of token ids or an array of such arrays";
  if (!Array.isArray(given) || given.length === 0) throw refusal("prompt", expected, given);
  if (typeof given[0] === "number") return [tokensOf(given, "prompt", vocabSize)];
  if (given.length > requestLimits.promptsMax) {
    throw badRequest(
      `prompt may hold ${requestLimits.promptsMax} prompts at most, but holds ${given.length}`,
      "prompt",
    );
  }
  return given.map((item: unknown, index) => {
    if (typeof item === "string") return item;
    if (!Array.isArray(item)) throw refusal(`prompt[${index}]`, "a string or an array of token ids", item);
    return tokensOf(item, `prompt[${index}]`, vocabSize);
  });
}

export function tokensOf(list: readonly unknown[], path: string, vocabSize: number): TokenId[] {
  return list.map((item, index) => integerIn(item, { min: 0, max: vocabSize - 1 }, `${path}[${index}]`));
}

function tokenRange(served: ServedModel) {
  return { min: 0, max: served.vocabSize - 1 };
}

/** Refuses what is asked for and not supported; returns the names of what is left, which has no effect. */
function settleTheRest(fields: Fields, toolsAreOff: boolean): string[] {
  const ignored: string[] = [];
  const format = fields.object("response_format");
  if (format !== undefined && format.raw("type") !== "text") {
    throw badRequest(
      `response_format must have the type text, but ${quote(format.raw("type"))} was given`,
      "response_format",
    );
  }
  if (fields.raw("tools") !== undefined && toolsAreOff) ignored.push("tools");
  for (const [name, neutral] of Object.entries(unsupported)) {
    const value = fields.raw(name);
    if (value === undefined || isOneOf(value, neutral) || ignored.includes(name)) continue;
    throw notSupported(name, "this field");
  }
  for (const name of harmless) if (fields.raw(name) !== undefined) ignored.push(name);
  const unknown = fields.unread().filter((name) => /^[A-Za-z0-9_.-]{1,64}$/.test(name));
  return [...ignored, ...unknown].slice(0, requestLimits.ignoredNamesMax);
}

function isOneOf(value: unknown, candidates: readonly unknown[]): boolean {
  return candidates.some((candidate) => JSON.stringify(candidate) === JSON.stringify(value));
}

function notSupported(path: string, what: string): Error {
  return badRequest(`${path}: ${what} is not supported by this server`, path);
}
