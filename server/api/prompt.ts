import type { TokenId } from "../../scheduler/core.ts";
import { badRequest, clientGone, contextExceeded, promptTooLong, unavailable } from "../http/errors.ts";
import type { ChatOutcome } from "../text/encode-job.ts";
import { EncoderBusyError, EncoderStoppedError, type RequestEncoder } from "../text/encoder.ts";
import { type AnswerFormat, answerFormat } from "../text/formats/answer-format.ts";
import type { ModelText } from "../text/model-text.ts";
import type { ChatTemplate, ChatMessage as TemplateMessage } from "../text/template.ts";
import type { ChatMessage, Prompt } from "./openai/inputs.ts";
import { requestLimits } from "./request-limits.ts";
import type { ServedModel } from "./served-model.ts";

/** What turns a prompt into tokens. */
export interface PromptServices extends ModelText {
  /** The same tokenizer and template; long texts and chats do not hold this thread up. */
  readonly encoder: RequestEncoder;
  readonly model: ServedModel;
}

export interface ChatPrompt {
  readonly messages: readonly ChatMessage[];
  readonly tools: readonly object[];
  readonly addGenerationPrompt: boolean;
  /** The prompt ends within the last message, an assistant's, which the answer goes on with. */
  readonly continuesLast?: boolean;
  readonly templateArguments: Readonly<Record<string, unknown>>;
  /** Tokens of thoughts at most; null or absent: any number. */
  readonly thoughtsMax?: number | null;
}

/** Messages as the model's chat template writes them, in tokens. `param` is the field that holds the messages. */
export async function chatPromptTokens(
  prompt: ChatPrompt,
  services: PromptServices,
  param = "messages",
): Promise<TokenId[]> {
  return (await readyChat(prompt, services, param)).tokens;
}

/** A chat's prompt in tokens, and how the answer that follows it marks what is not text. */
export interface ReadyChat {
  readonly tokens: TokenId[];
  readonly text: string;
  readonly format: AnswerFormat;
}

/** Text that cannot fit is not even tokenised. */
export async function readyChat(
  prompt: ChatPrompt,
  services: PromptServices,
  param = "messages",
): Promise<ReadyChat> {
  const { tokens, text } = await writtenChat(prompt, services, param, true);
  const jinja = templateOf(services, param).sourceText(prompt.tools.length > 0);
  return { tokens, text, format: answerFormat(jinja, text, prompt.thoughtsMax ?? null) };
}

/** Messages as the model's chat template writes them, as text. */
export async function chatPromptText(prompt: ChatPrompt, services: PromptServices): Promise<string> {
  return (await writtenChat(prompt, services, "messages", false)).text;
}

async function writtenChat(
  prompt: ChatPrompt,
  services: PromptServices,
  param: string,
  wantsTokens: boolean,
): Promise<Pick<ReadyChat, "tokens" | "text">> {
  const { encoder, model } = services;
  const template = templateOf(services, param);
  expectToolsKnown(template, prompt, param);
  if (prompt.continuesLast === true && prompt.messages.at(-1)!.role !== "assistant")
    throw badRequest("only a message of the assistant can be continued, and the last one is not", param);
  const contents = prompt.messages.map(({ content }) => content);
  refuseEnormous(contents, param, services);
  const messages = known(template, prompt) as readonly (ChatMessage & TemplateMessage)[];
  const options = {
    addGenerationPrompt: prompt.addGenerationPrompt,
    continuesLast: prompt.continuesLast ?? false,
    tools: prompt.tools,
    templateKwargs: prompt.templateArguments,
  };
  const job = { messages, options, tokensMax: model.contextMax, wantsTokens };
  return chatWritten(await encoder.writeChat(job).catch(refuseBusy), param, services);
}

/** Throws 400 for a chat that the template refuses, or that cannot fit. */
export function chatWritten(
  outcome: ChatOutcome,
  param: string,
  { model }: Pick<PromptServices, "model">,
): Pick<ReadyChat, "tokens" | "text"> {
  switch (outcome.kind) {
    case "written":
      return { tokens: Array.from(outcome.tokens), text: outcome.text };
    case "tooLong":
      throw promptTooLong(model.contextMax, outcome.tokensAtLeast, param);
    case "refused":
      throw badRequest(`the chat template says: ${outcome.reason}`, param, "template_error");
  }
}

function templateOf({ template }: PromptServices, param: string): ChatTemplate {
  if (template !== null) return template;
  throw badRequest("this model has no chat template: use /v1/completions", param, "template_error");
}

/** Throws 400 for what the template would drop, or take for something else, without a word. */
function expectToolsKnown(template: ChatTemplate, { messages, tools }: ChatPrompt, list: string): void {
  const refuse = (what: string, param: string): never => {
    throw badRequest(`this model's chat template does not know ${what}`, param, "template_error");
  };
  if (tools.length > 0 && !template.mentions("tools", true)) {
    refuse("tools: leave them out, or send tool_choice none", "tools");
  }
  // Other lists than `messages` hold other objects than messages.
  const placeOf = (index: number, field: string): string =>
    list === "messages" ? `messages[${index}].${field}` : list;
  const knows = (word: string): boolean => template.mentions(word, tools.length > 0);
  const called = messages.findIndex((message) => message.tool_calls !== undefined);
  if (called >= 0 && !knows("tool_calls")) refuse("tool_calls", placeOf(called, "tool_calls"));
  const result = messages.findIndex((message) => message.role === "tool");
  if (result >= 0 && !knows("tool")) refuse("the role tool", placeOf(result, "role"));
}

/** A template that was written before the role developer drops its messages, or writes a role that the model never saw. */
function known(template: ChatTemplate, { messages, tools }: ChatPrompt): readonly ChatMessage[] {
  if (template.mentions("developer", tools.length > 0)) return messages;
  return messages.map((message) =>
    message.role === "developer" ? { ...message, role: "system" as const } : message,
  );
}

const busyRetrySeconds = 2;

/** Turns a full queue of the encoder into a 503. */
export function refuseBusy(error: unknown): never {
  if (error instanceof EncoderStoppedError) throw clientGone();
  if (error instanceof EncoderBusyError)
    throw unavailable("server_overloaded", error.message, busyRetrySeconds);
  throw error;
}

/** A prompt of the caller's own making: control text in it becomes control tokens. */
export async function promptTokens(
  prompt: Prompt,
  addSpecialTokens: boolean,
  services: PromptServices,
): Promise<readonly TokenId[]> {
  if (typeof prompt !== "string") return prompt;
  refuseEnormous([prompt], "prompt", services);
  return services.encoder.encode(prompt, { addSpecialTokens, parseControlText: true }).catch(refuseBusy);
}

/** Throws 400 unless prompt and answer fit the context. Without `tokensMax` there must be room for one token. */
export function expectFits(
  tokens: readonly TokenId[],
  tokensMax: number | null,
  param: string,
  { model }: PromptServices,
): void {
  if (tokens.length === 0) throw badRequest(`${param} must not be empty: it has no tokens`, param);
  const wanted = tokensMax ?? 1;
  if (tokens.length + wanted > model.contextMax)
    throw contextExceeded(model.contextMax, tokens.length, wanted, param);
}

/** Throws 400 when more log probabilities of prompts are asked for than are told. `top`: alternatives of each token; `times`: choices that
 *  each tell them. */
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

/** Throws 400 for texts that cannot fit the context however they are cut into tokens; tokenising them would take long. */
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
