/** Parsers of Ollama's requests: typed requests with every default applied out. */

import type { GenerationOptions, RequestedConstraint } from "../../answer/generation.ts";
import { badRequest } from "../../http/errors.ts";
import type { ChatMessage } from "../../request/chat-message.ts";
import { requestLimits } from "../../request/limits.ts";
import type { ChatPrompt, PromptServices } from "../../request/prompt.ts";
import { namesWithAdapters, type ServedModel } from "../../request/served-model.ts";
import { Fields, refusal, reportable } from "../fields.ts";
import { endingFill, type Fill, fillOf } from "../fill.ts";
import { generationOf } from "../openai/generation.ts";
import { modelOf } from "../openai/schema.ts";
import { serviceWith } from "../openai/service.ts";
import { constraintBeside } from "../openai/structure.ts";
import { isOneOf, notSupported, refuseMoreAnswers } from "../openai/support.ts";
import { type NameRule, toolUseOf } from "../openai/tools.ts";
import { namesIn } from "../session-names.ts";
import type { Targets } from "../targets.ts";
import { type Thinking, thinkingOf } from "../thinking.ts";
import { messagesOf, refuseImages } from "./messages.ts";

/** Prompt of a request: a conversation to answer, a text to continue, or none, which only loads the model. */
export type OllamaPrompt =
  | ({ readonly kind: "chat" } & ChatPrompt)
  | { readonly kind: "text"; readonly text: string; readonly fill: Fill | null }
  | { readonly kind: "nothing" };

export interface OllamaRequest {
  /** Model name from the request. */
  readonly model: string;
  readonly prompt: OllamaPrompt;
  readonly generation: GenerationOptions;
  readonly stream: boolean;
  /** True for a `keep_alive` of 0, "0" or "0s". */
  readonly unloads: boolean;
  /** Names of accepted fields without effect. */
  readonly ignored: readonly string[];
}

type Body = Readonly<Record<string, unknown>>;
/** Facts about the model that parsing needs. */
type Served = Pick<PromptServices, "model" | "template">;

/** POST /api/chat */
export function parseOllamaChat(body: Body, served: Served, targets: Targets): OllamaRequest {
  const fields = new Fields(body);
  const replaced = new Set<string>();
  const messages = messagesOf(fields, replaced);
  const { tools, calls, ignored } = toolUseOf(fields, anyNames);
  if (!isOneOf(fields.raw("suffix", { enum: [""] }) ?? "", [""]))
    throw notSupported("suffix", "filling in a chat");
  const read = [...ignored, ...replaced];
  return parseCommon(fields, served, targets, {
    messages,
    tools,
    calls,
    raw: null,
    fill: null,
    ignored: read,
  });
}

/** POST /api/generate: one message or, with `raw`, a text to continue. */
export function parseOllamaGenerate(body: Body, served: Served, targets: Targets): OllamaRequest {
  const fields = new Fields(body);
  const prompt = fields.string("prompt") ?? "";
  const system = fields.string("system");
  refuseImages(fields);
  for (const [name, neutral] of Object.entries({ template: [""], context: [[]] })) {
    const value = fields.raw(name, { enum: neutral });
    if (value !== undefined && !isOneOf(value, neutral)) throw notSupported(name, "this field");
  }
  const fill = fillOf(fields.string("suffix"), "suffix", served.model);
  const isRaw = fields.boolean("raw") === true || served.template === null || fill !== null;
  const said: ChatMessage[] = prompt === "" ? [] : [{ role: "user", content: prompt }];
  const messages: ChatMessage[] =
    system === undefined || prompt === "" ? said : [{ role: "system", content: system }, ...said];
  return parseCommon(fields, served, targets, {
    messages,
    tools: [],
    calls: null,
    raw: isRaw ? prompt : null,
    fill,
    ignored: isRaw && system !== undefined ? ["system"] : [],
  });
}

interface Asked extends Pick<ReturnType<typeof toolUseOf>, "tools" | "calls"> {
  readonly messages: readonly ChatMessage[];
  /** Raw text in place of messages; null for messages. */
  readonly raw: string | null;
  /** Text behind the answer in a raw prompt; null: none. */
  readonly fill: Fill | null;
  /** Names of fields without effect, or read differently from what the client sent. */
  readonly ignored: readonly string[];
}

/** Rule for function names. Ollama itself has none. */
const anyNames: NameRule = { pattern: /^[\s\S]{1,256}$/, says: "1 to 256 characters" };

function parseCommon(
  fields: Fields,
  { model, template }: Served,
  targets: Targets,
  { messages, tools, calls, raw, fill, ignored: known }: Asked,
): OllamaRequest {
  const name = nameOf(fields, model);
  const thinking = thinkingOf(fields, raw === null ? template : null, tools.length > 0);
  if (raw === null) expectThinks(fields, thinking);
  refuseMoreAnswers(fields);
  const options = optionsOf(fields);
  const own = {
    model: name,
    bound: "num_predict",
    topLogprobs: topLogprobsOf(fields),
    constraint: constraintBeside(formatOf(fields), fields),
    calls,
    service: serviceWith(targets),
  };
  const generation = { ...generationOf(options, model, own), ...namesIn(fields) };
  const stream = fields.boolean("stream") ?? true;
  const keepAlive = fields.raw("keep_alive", { type: ["string", "number"] });
  const chat = { messages, tools, addGenerationPrompt: true, templateArguments: thinking.templateArguments };
  const isNothing = raw === null ? messages.length === 0 : raw === "" && fill === null;
  const prompt: OllamaPrompt = isNothing
    ? { kind: "nothing" }
    : raw === null
      ? { kind: "chat", ...chat, thoughtsMax: thinking.tokensMax }
      : { kind: "text", text: raw, fill };
  const ignored = [
    ...(keepAlive === undefined || model.keepsAlive === true ? [] : ["keep_alive"]),
    ...known,
    ...thinking.ignored,
    ...options.unread().map((option) => options.pathOf(option)),
    ...fields.unread(),
  ];
  return {
    model: name,
    prompt,
    generation: endingFill(generation, fill),
    stream,
    unloads: keepAlive === 0 || keepAlive === "0" || keepAlive === "0s",
    ignored: reportable([...new Set(ignored)]),
  };
}

/**
 * Model name from the request. Accepts a served name with Ollama's suffix `:latest`. Throws 404 for an
 * unknown name.
 */
export function nameOf(fields: Fields, served: ServedModel): string {
  const given = fields.string("model") ?? fields.string("name");
  if (given === undefined) throw refusal("model", "a string", undefined);
  const plain = given.replace(/:latest$/, "");
  modelOf(new Fields({ model: namesWithAdapters(served).includes(given) ? given : plain }), served);
  return given;
}

/** Throws 400 if `think` asks for reasoning and the chat template cannot turn it on. */
function expectThinks(fields: Fields, { ignored }: Thinking): void {
  const given = fields.taken("think");
  if (given === undefined || given === false || given === "none" || !ignored.includes("think")) return;
  throw badRequest("think: this model's chat template has no thinking to turn on", "think");
}

/** Reads `format`: "json" or a schema. */
function formatOf(fields: Fields): RequestedConstraint | null {
  const format = fields.raw("format", { type: ["string", "object"] });
  if (format === undefined || format === "") return null;
  const isSchema = typeof format === "object" && !Array.isArray(format);
  if (format !== "json" && !isSchema) throw refusal("format", '"json" or a JSON Schema', format);
  const schema = format === "json" ? { type: "object" } : format;
  return { source: { kind: "schema", schema, layout: "compact" }, param: "format" };
}

function topLogprobsOf(fields: Fields): number | null {
  const wants = fields.boolean("logprobs") ?? false;
  const top = fields.integer("top_logprobs", { min: 0, max: requestLimits.topLogprobsMax }) ?? 0;
  return wants || top > 0 ? top : null;
}

/** Sampling options. Names without effect, such as the context size, stay unread. */
function optionsOf(fields: Fields): Fields {
  return fields.object("options") ?? new Fields({}, "options");
}
