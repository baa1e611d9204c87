import type { TokenId } from "../../base/token.ts";
import type { RenderedPart, ValuePart } from "../../scheduler/program/rendering.ts";
import type { Message, OutputPart, Prompt, TextPart } from "../../scheduler/program/spec.ts";
import { oneAnswer } from "../answer/generation.ts";
import { badRequest } from "../http/errors.ts";
import type { ChatMessage } from "../request/chat-message.ts";
import {
  chatPromptTokens,
  expectFits,
  type PromptServices,
  refuseBusy,
  refuseEnormous,
} from "../request/prompt.ts";

/** Generated output. */
export interface Drawn {
  readonly text: string;
  /** Tokens without end tokens. */
  readonly tokens: readonly TokenId[];
}

/**
 * Tokens that each output of a call continues: the same tokens that `/v1/completions` or
 * `/v1/chat/completions` make of the text with values in place. In a text, the part after an output continues
 * from its generated tokens. A chat is rendered again with the answers in it, as a client would send it.
 */
export class CallPrompt {
  readonly outputs: readonly OutputPart[];
  /** Operation of its outputs, as OpenTelemetry names it. */
  readonly operation: "chat" | "text_completion";
  readonly #prompt: Prompt<RenderedPart>;
  readonly #services: PromptServices;
  /** Tokens of a text so far: prompt parts and generated outputs. */
  #tokens: readonly TokenId[] = [];

  constructor(prompt: Prompt<RenderedPart>, services: PromptServices) {
    this.operation = prompt.kind === "text" ? "text_completion" : "chat";
    this.#prompt = prompt;
    this.#services = services;
    const parts = prompt.kind === "text" ? prompt.parts : prompt.messages.flatMap((message) => message.parts);
    this.outputs = parts.filter((part) => part.kind === "output");
  }

  /**
   * Prompt tokens of output `drawn.length`. Called once per output, in order. Throws ApiError if they do not
   * fit.
   */
  async tokensAfter(drawn: readonly Drawn[]): Promise<readonly TokenId[]> {
    const prompt = this.#prompt;
    const tokens =
      prompt.kind === "text"
        ? await this.#ofText(prompt.parts, drawn)
        : await this.#ofChat(prompt.messages, drawn);
    const { tokensMin } = this.outputs[drawn.length]!.ends ?? oneAnswer;
    expectFits(tokens, { tokensMin }, "the prompt", this.#services);
    return tokens;
  }

  async #ofText(parts: readonly RenderedPart[], drawn: readonly Drawn[]): Promise<readonly TokenId[]> {
    const last = drawn.at(-1);
    const before = last === undefined ? [] : [...this.#tokens, ...(await this.#tokensOf(last))];
    const text = await encodeParts(partsBefore(parts, drawn.length), last !== undefined, this.#services);
    this.#tokens = before.length === 0 ? text : [...before, ...text];
    return this.#tokens;
  }

  /** Generated tokens, or new tokens of the text if it ends within a token. */
  #tokensOf({ text, tokens }: Drawn): readonly TokenId[] | Promise<readonly TokenId[]> {
    if (this.#services.tokenizer.decode(tokens, { skipSpecialTokens: true }) === text) return tokens;
    return encodeParts([{ kind: "value", text }], true, this.#services);
  }

  #ofChat(messages: readonly Message<RenderedPart>[], drawn: readonly Drawn[]): Promise<readonly TokenId[]> {
    const rendered: ChatMessage[] = [];
    let outputs = 0;
    for (const { role, parts } of messages) {
      const isOutput = parts.some(({ kind }) => kind === "output");
      if (isOutput && outputs === drawn.length) break;
      const content = isOutput ? drawn[outputs++]!.text : textOf(parts);
      rendered.push({ role: role as ChatMessage["role"], content });
    }
    const plain = { tools: [], addGenerationPrompt: true, templateArguments: {} };
    return chatPromptTokens({ messages: rendered, ...plain }, this.#services);
  }
}

/** Parts between output `index` - 1 and output `index`. */
function partsBefore(parts: readonly RenderedPart[], index: number): readonly RenderedPart[] {
  const places = parts.flatMap((part, at) => (part.kind === "output" ? [at] : []));
  return parts.slice(index === 0 ? 0 : places[index - 1]! + 1, places[index]);
}

function textOf(parts: readonly RenderedPart[]): string {
  return parts.map((part) => (part.kind === "output" ? "" : part.text)).join("");
}

/**
 * Tokenises a text. Control text counts only in the caller's own text, never in values. `continues`: other
 * tokens precede it.
 */
async function encodeParts(
  parts: readonly RenderedPart[],
  continues: boolean,
  services: PromptServices,
): Promise<readonly TokenId[]> {
  const { tokenizer, encoder } = services;
  const whole = textOf(parts);
  refuseEnormous([whole], "the prompt", services);
  const values = parts.map((part) => (part.kind === "value" ? part.text : ""));
  const disguised = tokenizer.controlTexts.disguise(values, whole);
  if (disguised === null) throw badRequest("the values use every private-use character there is");
  const safe = disguised.value as readonly string[];
  const text = parts.map((part, index) => (part.kind === "value" ? safe[index]! : textOf([part]))).join("");
  const { standIns } = disguised;
  const options = { addSpecialTokens: !continues, parseControlText: true, standIns, continues };
  return await encoder.encode(text, options).catch(refuseBusy);
}

/** Number of final tokens that later text may merge with. */
const uncertainTokens = 2;

/** Tokens that a prompt is certain to begin with, whatever follows its head. */
export async function headTokens(
  head: Prompt<TextPart | ValuePart>,
  services: PromptServices,
): Promise<readonly TokenId[]> {
  const tokens =
    head.kind === "text"
      ? await encodeParts(head.parts, false, services)
      : await chatHeadTokens(head.messages, services);
  return tokens.length > services.model.contextMax ? [] : tokens.slice(0, -uncertainTokens);
}

async function chatHeadTokens(
  messages: readonly Message<TextPart | ValuePart>[],
  { template, encoder, model }: PromptServices,
): Promise<readonly TokenId[]> {
  if (template === null) return [];
  const outcome = await encoder.writeChat({
    messages: messages.map(({ role, parts }) => ({ role, content: textOf(parts) })),
    options: { addGenerationPrompt: false, continuesLast: true },
    tokensMax: model.contextMax,
    wantsTokens: true,
  });
  return outcome.kind === "written" ? Array.from(outcome.tokens) : [];
}
