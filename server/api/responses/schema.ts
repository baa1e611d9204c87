/** Parser of requests to the Responses API: a typed request with every default applied out. */
import type { GenerationOptions, RequestedConstraint } from "../../answer/generation.ts";
import { badRequest } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import type { PromptServices } from "../../request/prompt.ts";
import { Fields, fieldsOf, refusal } from "../fields.ts";
import { metadataOf } from "../metadata.ts";
import { generationOf } from "../openai/generation.ts";
import { modelOf } from "../openai/schema.ts";
import { serviceOf } from "../openai/service.ts";
import { constraintBeside } from "../openai/structure.ts";
import { isOneOf, notSupported, refuseMoreAnswers, settleTheRest } from "../openai/support.ts";
import { noTargets, type Targets } from "../targets.ts";
import { thinkingOf } from "../thinking.ts";
import { inputItemsOf } from "./items.ts";
import { type ToolUse, toolUseOf } from "./tools.ts";

export interface ResponsesRequest {
  /** Random part of the ids of the response and its items. */
  readonly key: string;
  /** Model name from the request; one of the served names. */
  readonly model: string;
  readonly instructions: string | null;
  readonly input: ReturnType<typeof inputItemsOf>;
  /** Id of the response that this one continues; null: none. */
  readonly previousId: string | null;
  /** Id of the conversation that the response belongs to; null: none. */
  readonly conversationId: string | null;
  readonly tools: readonly object[];
  readonly wireCalls: ToolUse["wireCalls"];
  readonly templateArguments: Readonly<Record<string, unknown>>;
  /** Reasoning tokens at most; null: no limit. */
  readonly thoughtsMax: number | null;
  readonly generation: GenerationOptions;
  /** True if reasoning items hold an opaque string too. */
  readonly sealsReasoning: boolean;
  readonly store: boolean;
  readonly background: boolean;
  readonly stream: boolean;
  /** Fields of the request that the response repeats. */
  readonly echo: object;
  /** Names of accepted fields without effect. */
  readonly ignored: readonly string[];
}

/** Facts about the model that parsing needs. */
type Served = Pick<PromptServices, "model" | "template">;

/** Accepted fields without effect on the answer. */
const harmless = [
  "prompt_cache_retention",
  "prompt_cache_options",
  "max_tool_calls",
  "client_metadata",
  "stream_options",
  "moderation",
];

/** Unsupported fields, with the values that ask for nothing. */
const unsupported: Readonly<Record<string, readonly unknown[]>> = {
  prompt: [],
  context_management: [[]],
  truncation: ["disabled"],
  suffix: [""],
};

export function parseResponsesRequest(
  body: Readonly<Record<string, unknown>>,
  served: Served,
  targets: Targets = noTargets,
): ResponsesRequest {
  const fields = new Fields(body);
  for (const [name, neutral] of Object.entries(unsupported)) {
    const value = fields.raw(name, { enum: neutral });
    if (value !== undefined && !isOneOf(value, neutral)) throw notSupported(name, "this");
  }
  refuseMoreAnswers(fields);
  const key = crypto.randomUUID().replaceAll("-", "");
  const model = modelOf(fields, served.model);
  const { shown: tools, calls, wireCalls, echo: toolEcho, ignored: leftOut } = toolUseOf(fields);
  const include = includeOf(fields);
  const thinking = thinkingOf(fields, served.template, tools.length > 0);
  const topLogprobs = topLogprobsOf(fields, include.has("message.output_text.logprobs"), tools);
  const text = textOf(fields);
  const constraint = constraintBeside(text.constraint, fields);
  const { service, tier } = serviceOf(fields, targets);
  const instructions = fields.string("instructions") ?? null;
  const replaced = new Set<string>();
  const input = inputItemsOf(fields, idsOf(key), replaced);
  const previousId = fields.string("previous_response_id") ?? null;
  const conversationId = conversationIdOf(fields, previousId);
  if (input.length === 0 && previousId === null && conversationId === null)
    throw refusal("input", "a string or at least one item", fields.peek("input"));
  const kept = keepingOf(fields);
  const bound = "max_output_tokens";
  const own = { model, bound, topLogprobs, constraint, calls, service };
  const generation = generationOf(fields, served.model, own);
  const { sampling, tokensMax } = generation;
  const echo = {
    instructions,
    max_output_tokens: tokensMax,
    max_tool_calls: fields.integer("max_tool_calls", { min: 1, max: Number.MAX_SAFE_INTEGER }) ?? null,
    metadata: metadataOf(fields) ?? {},
    ...toolEcho,
    previous_response_id: previousId,
    conversation: conversationId === null ? null : { id: conversationId },
    reasoning: { effort: fields.object("reasoning")?.taken("effort") ?? null, summary: null },
    text: text.echo,
    temperature: sampling.temperature,
    top_p: sampling.topP,
    presence_penalty: sampling.presencePenalty,
    frequency_penalty: sampling.frequencyPenalty,
    top_logprobs: topLogprobs ?? 0,
    truncation: "disabled",
    service_tier: tier ?? "default",
    prompt_cache_key: fields.string("prompt_cache_key") ?? null,
    safety_identifier: fields.string("safety_identifier") ?? null,
    user: fields.string("user") ?? null,
  };
  const ignored = [
    ...leftOut,
    ...replaced,
    ...thinking.ignored,
    ...text.ignored,
    ...include.ignored,
    ...settleTheRest(fields, harmless),
  ];
  return {
    key,
    model,
    instructions,
    input,
    previousId,
    conversationId,
    tools,
    wireCalls,
    templateArguments: thinking.templateArguments,
    thoughtsMax: thinking.tokensMax,
    generation,
    sealsReasoning: include.has("reasoning.encrypted_content"),
    ...kept,
    echo: { ...echo, store: kept.store, background: kept.background },
    ignored: [...new Set(ignored)],
  };
}

/** Reads `conversation`: an id, or an object with one. */
function conversationIdOf(fields: Fields, previousId: string | null): string | null {
  const given = fields.raw("conversation", { type: ["string", "object"] });
  if (given === undefined) return null;
  if (previousId !== null) {
    const message = "conversation and previous_response_id exclude each other: both say what comes before";
    throw badRequest(message, "conversation");
  }
  return typeof given === "string" ? given : fieldsOf(given, "conversation").requiredString("id");
}

/**
 * Ids for items of an input. They contain the response's id, so that an item can be found by its id alone.
 */
export function idsOf(key: string): (prefix: string) => string {
  let made = 0;
  return (prefix) => `${prefix}_${key}_in${made++}`;
}

function keepingOf(fields: Fields): Pick<ResponsesRequest, "store" | "background" | "stream"> {
  const store = fields.boolean("store") ?? true;
  const background = fields.boolean("background") ?? false;
  const stream = fields.boolean("stream") ?? false;
  if (background && !store)
    throw badRequest("background needs store: true, since its answer is asked for later", "store");
  if (fields.object("stream_options") !== undefined && !stream)
    throw badRequest("stream_options is only allowed together with stream: true", "stream_options");
  return { store, background, stream };
}

const included = ["message.output_text.logprobs", "reasoning.encrypted_content"];

/** Extra output that the client asks for. Names that this server does not know have no effect. */
function includeOf(fields: Fields): { has(name: string): boolean; readonly ignored: readonly string[] } {
  const given = fields.texts("include", requestLimits.ignoredNamesMax) ?? [];
  const isKnown = given.every((name) => included.includes(name));
  return { has: (name) => given.includes(name), ignored: isKnown ? [] : ["include"] };
}

/** Alternatives per token; null: no log probabilities. */
function topLogprobsOf(fields: Fields, isIncluded: boolean, tools: readonly object[]): number | null {
  const top = fields.integer("top_logprobs", { min: 0, max: requestLimits.topLogprobsMax }) ?? 0;
  if (top === 0 && !isIncluded) return null;
  if (tools.length > 0) {
    const param = isIncluded ? "include" : "top_logprobs";
    throw badRequest(
      `${param}: log probabilities together with tools are not supported by this server`,
      param,
    );
  }
  return top;
}

interface Text {
  readonly constraint: RequestedConstraint | null;
  readonly echo: object;
  readonly ignored: readonly string[];
}

/** Reads `text`: the constraint on the answer's text. */
function textOf(fields: Fields): Text {
  const text = fields.object("text");
  const format = text?.object("format");
  const verbosity = text?.string("verbosity");
  const ignored = verbosity === undefined ? [] : ["text.verbosity"];
  const textEcho = { format: format === undefined ? { type: "text" } : text!.taken("format") };
  const echo = verbosity === undefined ? textEcho : { ...textEcho, verbosity };
  return { constraint: format === undefined ? null : formatConstraintOf(format), echo, ignored };
}

function formatConstraintOf(format: Fields): RequestedConstraint | null {
  const type = format.raw("type", { enum: ["text", "json_object", "json_schema"] });
  const held = (schema: unknown, param: string): RequestedConstraint => ({
    source: { kind: "schema", schema, layout: "compact" },
    param,
  });
  switch (type) {
    case "text":
      return null;
    case "json_object":
      return held({ type: "object" }, format.pathOf("type"));
    case "json_schema": {
      const schema = format.raw("schema", { type: ["object", "boolean"] });
      if (schema === undefined) throw refusal(format.pathOf("schema"), "a JSON Schema", undefined);
      return held(schema, format.pathOf("schema"));
    }
    default:
      throw refusal(format.pathOf("type"), "text, json_object or json_schema", type);
  }
}
