/** Requests as Ollama's clients send them in, typed ones with every default applied out. */

import { type GenerationOptions, oneAnswer, type RequestedConstraint } from "../../answer/generation.ts";
import { badRequest } from "../../http/errors.ts";
import { Fields, refusal, tellable } from "../fields.ts";
import type { ChatMessage } from "../openai/inputs.ts";
import { samplingOf, stopStringsOf } from "../openai/sampling.ts";
import { modelOf } from "../openai/schema.ts";
import { serviceWith } from "../openai/service.ts";
import { isOneOf, notSupported } from "../openai/support.ts";
import { type NameRule, toolUseOf } from "../openai/tools.ts";
import type { ChatPrompt, PromptServices } from "../prompt.ts";
import { requestLimits } from "../request-limits.ts";
import type { ServedModel } from "../served-model.ts";
import type { Targets } from "../targets.ts";
import { effortOf, settleThinking, type ThinkingSettled } from "../thinking.ts";
import { messagesOf, refuseImages } from "./messages.ts";

/** What is asked for: a conversation's next message, a text's continuation, or that the model is there. */
export type OllamaPrompt =
  | ({ readonly kind: "chat" } & ChatPrompt)
  | { readonly kind: "text"; readonly text: string }
  | { readonly kind: "nothing" };

export interface OllamaRequest {
  /** As the client wrote it. */
  readonly model: string;
  readonly prompt: OllamaPrompt;
  readonly generation: GenerationOptions;
  readonly stream: boolean;
  /** `keep_alive: 0` without a prompt. */
  readonly unloads: boolean;
  /** Fields that were accepted and had no effect. */
  readonly ignored: readonly string[];
}

type Body = Readonly<Record<string, unknown>>;
/** What parsing needs to know of the model. */
type Served = Pick<PromptServices, "model" | "template">;

/** POST /api/chat */
export function parseOllamaChat(body: Body, served: Served, targets: Targets): OllamaRequest {
  const fields = new Fields(body);
  const replaced = new Set<string>();
  const messages = messagesOf(fields, replaced);
  const { tools, calls, ignored } = toolUseOf(fields, anyNames);
  const read = [...ignored, ...replaced];
  return parseCommon(fields, served, targets, { messages, tools, calls, raw: null, ignored: read });
}

/** POST /api/generate: one message, or with `raw` a text to go on with. */
export function parseOllamaGenerate(body: Body, served: Served, targets: Targets): OllamaRequest {
  const fields = new Fields(body);
  const prompt = fields.string("prompt") ?? "";
  const system = fields.string("system");
  refuseImages(fields);
  for (const [name, neutral] of Object.entries({ suffix: [""], template: [""], context: [[]] })) {
    const value = fields.raw(name);
    if (value !== undefined && !isOneOf(value, neutral)) throw notSupported(name, "this field");
  }
  const isRaw = fields.boolean("raw") === true || served.template === null;
  const said: ChatMessage[] = prompt === "" ? [] : [{ role: "user", content: prompt }];
  const messages: ChatMessage[] =
    system === undefined || prompt === "" ? said : [{ role: "system", content: system }, ...said];
  return parseCommon(fields, served, targets, {
    messages,
    tools: [],
    calls: null,
    raw: isRaw ? prompt : null,
    ignored: [],
  });
}

interface Asked extends Pick<ReturnType<typeof toolUseOf>, "tools" | "calls"> {
  readonly messages: readonly ChatMessage[];
  /** The text itself, in place of messages. */
  readonly raw: string | null;
  /** What of them is read otherwise than it was sent. */
  readonly ignored: readonly string[];
}

/** Ollama itself has no rule. */
const anyNames: NameRule = { pattern: /^[\s\S]{1,256}$/, says: "1 to 256 characters" };

function parseCommon(
  fields: Fields,
  { model, template }: Served,
  targets: Targets,
  { messages, tools, calls, raw, ignored: read }: Asked,
): OllamaRequest {
  const name = nameOf(fields, model);
  const thinking = thinkingOf(fields, template, tools.length > 0);
  const constraint = formatOf(fields);
  const options = optionsOf(fields, model, topLogprobsOf(fields));
  const generation: GenerationOptions = {
    ...oneAnswer,
    ...options.generation,
    cacheSalt: "",
    service: serviceWith(targets),
    ...(constraint === null ? {} : { constraint }),
    ...(calls === null ? {} : { calls }),
  };
  const stream = fields.boolean("stream") ?? true;
  const keepAlive = fields.raw("keep_alive");
  const chat = { messages, tools, addGenerationPrompt: true, templateArguments: thinking.templateArguments };
  const isNothing = raw === null ? messages.length === 0 : raw === "";
  const prompt: OllamaPrompt = isNothing
    ? { kind: "nothing" }
    : raw === null
      ? { kind: "chat", ...chat, thoughtsMax: thinking.tokensMax }
      : { kind: "text", text: raw };
  const ignored = [
    ...read,
    ...(keepAlive === undefined ? [] : ["keep_alive"]),
    ...options.ignored,
    ...fields.unread(),
  ];
  return {
    model: name,
    prompt,
    generation,
    stream,
    unloads: keepAlive === 0 || keepAlive === "0" || keepAlive === "0s",
    ignored: tellable([...new Set(ignored)]),
  };
}

/** A served name; Ollama's clients put `:latest` behind it. Throws 404. */
export function nameOf(fields: Fields, served: ServedModel): string {
  const given = fields.string("model") ?? fields.string("name");
  if (given === undefined) throw refusal("model", "a string", undefined);
  const plain = given.replace(/:latest$/, "");
  modelOf(new Fields({ model: served.names.includes(given) ? given : plain }), served);
  return given;
}

/** `think`: a template that has no word for it cannot be made to think. */
function thinkingOf(fields: Fields, template: Served["template"], hasTools: boolean): ThinkingSettled {
  const given = fields.raw("think");
  const isWanted = typeof given === "boolean" ? given : null;
  const effort = isWanted === null ? effortOf(fields, "think") : null;
  const settled = settleThinking({ isWanted, effort, tokensMax: null }, template, hasTools);
  if (!settled.hasEffect && (isWanted === true || (effort !== null && effort !== "none")))
    throw badRequest("think: this model's chat template has no thinking to turn on", "think");
  return settled;
}

/** `format`: "json" or a schema. */
function formatOf(fields: Fields): RequestedConstraint | null {
  const format = fields.raw("format");
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

/** Ways of drawing that are not here, with the values that turn them off. */
const unsupported: Readonly<Record<string, readonly unknown[]>> = {
  mirostat: [0],
  typical_p: [1],
  tfs_z: [1],
};

interface Options {
  readonly generation: Pick<GenerationOptions, "sampling" | "stopStrings" | "tokensMax">;
  /** Those that have no effect, such as how large the context is to be. */
  readonly ignored: readonly string[];
}

function optionsOf(fields: Fields, served: ServedModel, topLogprobs: number | null): Options {
  fields.object("options");
  const given = (fields.raw("options") ?? {}) as Body;
  const options = new Fields({ ...given, repetition_penalty: given.repeat_penalty }, "options");
  options.raw("repeat_penalty");
  for (const [name, neutral] of Object.entries(unsupported)) {
    const value = options.raw(name);
    if (value !== undefined && !isOneOf(value, neutral)) throw notSupported(options.pathOf(name), "this");
  }
  const predicted = options.integer("num_predict", { min: -2, max: Number.MAX_SAFE_INTEGER }) ?? -1;
  if (predicted === 0) throw refusal("options.num_predict", "at least 1, or -1 for as many as fit", 0);
  const generation = {
    sampling: samplingOf(options, served, topLogprobs),
    stopStrings: stopStringsOf(options),
    tokensMax: predicted < 0 ? null : predicted,
  };
  return { generation, ignored: options.unread().map((name) => `options.${name}`) };
}
