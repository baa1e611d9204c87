import type { TokenId } from "../../base/token.ts";
import { type ChatMessage as TemplateMessage, textOf } from "../../text/conversation/messages.ts";
import type { PromptPart } from "../../text/conversation/prompt-outline.ts";
import type { ChatOutcome } from "../../text/encode-job.ts";
import { type AnswerFormat, answerFormat } from "../../text/formats/answer-format.ts";
import type { ModelText } from "../../text/model-text.ts";
import type { ChatTemplate } from "../../text/template.ts";
import type { GenerationOptions } from "../answer/generation.ts";
import {
  badRequest,
  clientGone,
  contextExceeded,
  promptTooLong,
  unavailable,
  writesNoText,
} from "../http/errors.ts";
import { EncoderBusyError, EncoderStoppedError, type RequestEncoder } from "../text/encoder.ts";
import type { ChatMessage, Prompt } from "./chat-message.ts";
import { requestLimits } from "./limits.ts";
import type { ServedModel } from "./served-model.ts";

/** Services that turn a prompt into tokens. */
export interface PromptServices extends ModelText {
  /** Encoder with the same tokenizer and template; long texts and chats do not block this thread. */
  readonly encoder: RequestEncoder;
  readonly model: ServedModel;
}

export interface ChatPrompt {
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly object[];
  readonly addGenerationPrompt: boolean;
  /** True if the answer continues the last message, an assistant's. */
  readonly continuesLast?: boolean;
  readonly templateArguments: Readonly<Record<string, unknown>>;
  /** Reasoning tokens at most; null or absent: no limit. */
  readonly thoughtsMax?: number | null;
}

/** Tokens of messages written by the model's chat template. `param` is the field of the messages. */
export async function chatPromptTokens(
  prompt: ChatPrompt,
  services: PromptServices,
  param = "messages",
): Promise<TokenId[]> {
  return (await readyChat(prompt, services, param)).tokens;
}

/** A chat's prompt in tokens, and the delimiters in the answer that follows it. */
export interface ReadyChat {
  readonly tokens: TokenId[];
  readonly text: string;
  readonly format: AnswerFormat;
  /** Positions of the messages in the text. */
  readonly outline: readonly PromptPart[];
  /** Names of fields that the template does not read, or reads as another value than the client's. */
  readonly ignored: readonly string[];
}

/** Prepares a chat. Refuses text that cannot fit before tokenising it. */
export async function readyChat(
  prompt: ChatPrompt,
  services: PromptServices,
  param = "messages",
): Promise<ReadyChat> {
  const written = await writtenChat(prompt, services, param, true);
  const jinja = templateOf(services, param).sourceText(prompt.tools.length > 0);
  return { ...written, format: answerFormat(jinja, written.text, prompt.thoughtsMax ?? null) };
}

/** Text of messages written by the model's chat template. */
export async function chatPromptText(prompt: ChatPrompt, services: PromptServices): Promise<string> {
  return (await writtenChat(prompt, services, "messages", false)).text;
}

async function writtenChat(
  prompt: ChatPrompt,
  services: PromptServices,
  param: string,
  wantsTokens: boolean,
): Promise<Omit<ReadyChat, "format">> {
  const { encoder, model } = services;
  const template = templateOf(services, param);
  if (prompt.continuesLast === true && prompt.messages.at(-1)!.role !== "assistant")
    throw badRequest("only a message of the assistant can be continued, and the last one is not", param);
  const messages = prompt.messages as readonly (ChatMessage & TemplateMessage)[];
  refuseEnormous(messages.map(textOf), param, services);
  const dropsTools = prompt.tools.length > 0 && !template.mentions("tools", true);
  const options = {
    addGenerationPrompt: prompt.addGenerationPrompt,
    continuesLast: prompt.continuesLast ?? false,
    tools: dropsTools ? [] : prompt.tools,
    templateKwargs: prompt.templateArguments,
  };
  const job = { messages, options, tokensMax: model.contextMax, wantsTokens };
  const written = chatWritten(await encoder.writeChat(job).catch(refuseBusy), param, services);
  return dropsTools ? { ...written, ignored: ["tools", ...written.ignored] } : written;
}

/** Throws 400 for a chat that the template refuses, or that cannot fit. */
export function chatWritten(
  outcome: ChatOutcome,
  param: string,
  { model }: Pick<PromptServices, "model">,
): Omit<ReadyChat, "format"> {
  switch (outcome.kind) {
    case "written": {
      const { text, outline, ignored } = outcome;
      return { tokens: Array.from(outcome.tokens), text, outline, ignored };
    }
    case "tooLong":
      throw promptTooLong(model.contextMax, outcome.tokensAtLeast, param);
    case "refused":
      throw badRequest(`the chat template says: ${outcome.reason}`, param, "template_error");
  }
}

function templateOf({ template, model }: PromptServices, param: string): ChatTemplate {
  if (model.isHeadless) throw writesNoText(param);
  if (template !== null) return template;
  throw badRequest("this model has no chat template: use /v1/completions", param, "template_error");
}

const busyRetrySeconds = 2;

/** Turns the errors of a full encoder queue and of a stopped request into HTTP errors. */
export function refuseBusy(error: unknown): never {
  if (error instanceof EncoderStoppedError) throw clientGone();
  if (error instanceof EncoderBusyError)
    throw unavailable("server_overloaded", error.message, busyRetrySeconds);
  throw error;
}

/** Tokens of a raw prompt; control texts in it become control tokens. */
export async function promptTokens(
  prompt: Prompt,
  addSpecialTokens: boolean,
  services: PromptServices,
): Promise<readonly TokenId[]> {
  if (typeof prompt !== "string") return prompt;
  refuseEnormous([prompt], "prompt", services);
  return services.encoder.encode(prompt, { addSpecialTokens, parseControlText: true }).catch(refuseBusy);
}

/** Throws 400 unless the context has room for the prompt and the minimum of output tokens, at least one. */
export function expectFits(
  tokens: readonly TokenId[],
  { tokensMin }: Pick<GenerationOptions, "tokensMin">,
  param: string,
  { model }: Pick<PromptServices, "model">,
): void {
  if (tokens.length === 0) throw badRequest(`${param} must not be empty: it has no tokens`, param);
  const room = model.contextMax - tokens.length;
  if (room < 1) throw contextExceeded(model.contextMax, tokens.length, 1, param);
  if (room < tokensMin) throw contextExceeded(model.contextMax, tokens.length, tokensMin, "min_tokens");
}

/**
 * Throws 400 if the request asks for too many prompt log probabilities. `top`: alternatives of each token;
 * `times`: choices that repeat them.
 */
export function expectTellable(
  prompts: readonly (readonly TokenId[])[],
  top: number | undefined,
  times = 1,
): void {
  if (top === undefined) return;
  const { promptLogprobsMax: max } = requestLimits;
  const asked = prompts.reduce((sum, { length }) => sum + length, 0) * (1 + top) * times;
  if (asked <= max) return;
  const message = `prompts may have ${max} log probabilities at most, tokens times alternatives and themselves, with each choice, but have ${asked}`;
  throw badRequest(message, "prompt_logprobs");
}

/**
 * Throws 400 for texts that cannot fit the context under any tokenisation; tokenising them would take long.
 */
export function refuseEnormous(
  texts: readonly string[],
  param: string,
  { tokenizer, model }: PromptServices,
): void {
  const bytes = texts.reduce((sum, text) => sum + Buffer.byteLength(text), 0);
  const tokens = tokenizer.tokensAtLeast(bytes);
  if (tokens <= model.contextMax) return;
  throw promptTooLong(model.contextMax, tokens, param);
}
