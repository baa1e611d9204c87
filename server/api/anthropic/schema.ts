/** Anthropic's request in, a typed one with every default applied out. */

import { type GenerationOptions, oneAnswer, type RequestedConstraint } from "../../answer/generation.ts";
import { Fields, refusal } from "../fields.ts";
import { templateArgumentsOf } from "../openai/inputs.ts";
import { cacheSaltOf, samplingOf, stopStringsOf } from "../openai/sampling.ts";
import { modelOf } from "../openai/schema.ts";
import { serviceWith } from "../openai/service.ts";
import { constraintBeside } from "../openai/structure.ts";
import { isOneOf, notSupported, settleTheRest } from "../openai/support.ts";
import type { ChatPrompt, PromptServices } from "../prompt.ts";
import { noTargets, type Targets } from "../targets.ts";
import { effortOf, settleThinking, type ThinkingSettled, withGiven } from "../thinking.ts";
import { type CacheMark, conversationOf } from "./inputs.ts";
import { Ignored, noteTheRest } from "./support.ts";
import { toolUseOf } from "./tools.ts";

/** What counting and answering have in common. */
export interface CountRequest {
  /** As the client wrote it; one of the served names. */
  readonly model: string;
  readonly prompt: ChatPrompt;
  /** Fields that were accepted and had no effect. */
  readonly ignored: readonly string[];
}

export interface MessagesRequest extends CountRequest {
  readonly generation: GenerationOptions & { readonly tokensMax: number };
  readonly stream: boolean;
  /** Of each time that was asked for the last, by rising places. */
  readonly marks: readonly CacheMark[];
}

/** What parsing needs to know of the model. */
type Served = Pick<PromptServices, "model" | "template">;
type Body = Readonly<Record<string, unknown>>;

export function parseMessagesRequest(
  body: Body,
  served: Served,
  targets: Targets = noTargets,
): MessagesRequest {
  const fields = new Fields(body);
  const { model, prompt, marks, calls, format, ignored } = parseCommon(fields, served);
  const tokensMax = fields.integer("max_tokens", { min: 1, max: Number.MAX_SAFE_INTEGER });
  if (tokensMax === undefined) throw refusal("max_tokens", "an integer of at least 1", undefined);
  const tier = fields.raw("service_tier");
  if (tier !== undefined && tier !== "auto" && tier !== "standard_only")
    throw refusal("service_tier", "auto or standard_only", tier);
  const constraint = constraintBeside(format, fields);
  const generation = {
    ...oneAnswer,
    sampling: samplingOf(fields, served.model, null),
    tokensMax,
    stopStrings: stopStringsOf(fields, "stop_sequences"),
    cacheSalt: cacheSaltOf(fields),
    service: serviceWith(targets),
    ...(constraint === null ? {} : { constraint }),
    ...(calls === null ? {} : { calls }),
  };
  const stream = fields.boolean("stream") ?? false;
  const last = marks.filter(({ ttlMs }, at) => marks.slice(at + 1).every((other) => other.ttlMs !== ttlMs));
  return { model, prompt, generation, stream, marks: last, ignored: namesOf(ignored, settleTheRest(fields)) };
}

/** The same prompt, of which nothing is generated: fields that say how are not looked at. */
export function parseCountRequest(body: Body, served: Served): CountRequest {
  const { model, prompt, ignored } = parseCommon(new Fields(body), served);
  return { model, prompt, ignored: namesOf(ignored, []) };
}

function parseCommon(fields: Fields, served: Served) {
  const ignored = new Ignored();
  const model = modelOf(fields, served.model);
  const { tools, calls } = toolUseOf(fields, ignored);
  const { messages, marks } = conversationOf(fields, ignored);
  for (const name of ["container", "output_format"]) {
    const value = fields.raw(name);
    if (value !== undefined && !isOneOf(value, [[]])) throw notSupported(name, "this field");
  }
  if (!isOneOf(fields.raw("mcp_servers"), [undefined, []])) ignored.add("mcp_servers");
  const thinking = thinkingOf(fields, served, tools.length > 0, ignored);
  const format = outputFormatOf(fields, ignored);
  const templateArguments = withGiven(thinking.templateArguments, templateArgumentsOf(fields));
  const thoughtsMax = thinking.tokensMax;
  // A conversation that ends with the assistant's own words goes on with them.
  const continuesLast = messages.at(-1)!.role === "assistant";
  const prompt: ChatPrompt = {
    messages,
    tools,
    addGenerationPrompt: !continuesLast,
    continuesLast,
    templateArguments,
    thoughtsMax,
  };
  return { model, prompt, marks, calls, format, ignored };
}

/** The schema that the answer is held to, if there is one. */
function outputFormatOf(fields: Fields, ignored: Ignored): RequestedConstraint | null {
  const output = fields.object("output_config");
  const format = output?.object("format");
  if (output !== undefined) noteTheRest(output, "output_config", ignored);
  if (format === undefined) return null;
  const type = format.raw("type");
  if (type !== "json_schema") throw refusal(format.pathOf("type"), '"json_schema"', type);
  const schema = format.raw("schema");
  if (schema === undefined) throw refusal(format.pathOf("schema"), "a JSON Schema", undefined);
  return { source: { kind: "schema", schema, layout: "compact" }, param: format.pathOf("schema") };
}

/** Whether to think, and how much. */
function thinkingOf(
  fields: Fields,
  { template }: Served,
  hasTools: boolean,
  ignored: Ignored,
): ThinkingSettled {
  const thinking = fields.object("thinking");
  const output = fields.object("output_config");
  const effort = output === undefined ? null : effortOf(output, "effort");
  const type = thinking?.raw("type");
  if (thinking !== undefined && type !== "enabled" && type !== "adaptive" && type !== "disabled")
    throw refusal("thinking.type", "enabled, adaptive or disabled", type);
  const range = { min: 0, max: Number.MAX_SAFE_INTEGER };
  const tokensMax = thinking?.integer("budget_tokens", range) ?? null;
  if (thinking !== undefined) noteTheRest(thinking, "thinking", ignored);
  const isWanted = thinking === undefined ? null : type !== "disabled";
  const settled = settleThinking({ isWanted, effort, tokensMax }, template, hasTools);
  if (settled.hasEffect) return settled;
  if (thinking !== undefined) ignored.add("thinking");
  if (effort !== null) ignored.add("output_config.effort");
  return settled;
}

function namesOf(ignored: Ignored, others: readonly string[]): readonly string[] {
  return [...new Set([...ignored, ...others])];
}
