/** Parser of Anthropic's requests: a typed request with every default applied out. */

import type { GenerationOptions, RequestedConstraint } from "../../answer/generation.ts";
import { badRequest } from "../../http/errors.ts";
import type { ChatPrompt, PromptServices } from "../../request/prompt.ts";
import { Fields, fieldsOf, refusal } from "../fields.ts";
import { generationOf } from "../openai/generation.ts";
import { modelOf } from "../openai/schema.ts";
import { serviceWith } from "../openai/service.ts";
import { constraintBeside } from "../openai/structure.ts";
import { isOneOf, notSupported, refuseMoreAnswers, settleTheRest } from "../openai/support.ts";
import { noTargets, type Targets } from "../targets.ts";
import { thinkingOf } from "../thinking.ts";
import { THREAD_UNSUPPORTED } from "./errors.ts";
import { type CacheMark, conversationOf } from "./inputs.ts";
import { Ignored, noteTheRest } from "./support.ts";
import { toolUseOf } from "./tools.ts";

/** Fields shared by counting and answering. */
export interface CountRequest {
  /** Model name from the request; one of the served names. */
  readonly model: string;
  readonly prompt: ChatPrompt;
  /** Names of accepted fields without effect. */
  readonly ignored: readonly string[];
}

export interface MessagesRequest extends CountRequest {
  readonly generation: GenerationOptions;
  readonly stream: boolean;
  /** True if the answer has its thoughts in their signature alone. */
  readonly omitsThoughts: boolean;
  /** Last mark of each lifetime, in ascending order of position. */
  readonly marks: readonly CacheMark[];
}

/** Facts about the model that parsing needs. */
type Served = Pick<PromptServices, "model" | "template">;
type Body = Readonly<Record<string, unknown>>;

export function parseMessagesRequest(
  body: Body,
  served: Served,
  targets: Targets = noTargets,
): MessagesRequest {
  const fields = new Fields(body);
  const { model, prompt, omitsThoughts, marks, calls, format, ignored } = parseCommon(fields, served);
  if (!fields.has("max_tokens")) throw refusal("max_tokens", "an integer of at least 1", undefined);
  refuseMoreAnswers(fields);
  if (fields.raw("compaction", { enum: [] }) !== undefined) throw notSupported("compaction", "this field");
  const tier = fields.raw("service_tier", { enum: ["auto", "standard_only"] });
  if (tier !== undefined && tier !== "auto" && tier !== "standard_only")
    throw refusal("service_tier", "auto or standard_only", tier);
  const generation = generationOf(fields, served.model, {
    model,
    bound: "max_tokens",
    stop: "stop_sequences",
    topLogprobs: null,
    constraint: constraintBeside(format, fields),
    calls,
    service: serviceWith(targets),
  });
  const stream = fields.boolean("stream") ?? false;
  const last = marks.filter(({ ttlMs }, at) => marks.slice(at + 1).every((other) => other.ttlMs !== ttlMs));
  const names = namesOf(ignored, settleTheRest(fields));
  return { model, prompt, generation, stream, omitsThoughts, marks: last, ignored: names };
}

/** Parses a request to count tokens. It ignores the fields of generation. */
export function parseCountRequest(body: Body, served: Served): CountRequest {
  const { model, prompt, ignored } = parseCommon(new Fields(body), served);
  return { model, prompt, ignored: namesOf(ignored, []) };
}

function parseCommon(fields: Fields, served: Served) {
  const ignored = new Ignored();
  const model = modelOf(fields, served.model);
  const { tools, calls } = toolUseOf(fields, ignored);
  const { messages, marks } = conversationOf(fields, ignored);
  for (const name of ["container", "output_format", "suffix"]) {
    const value = fields.raw(name, { enum: [[], ""] });
    if (value !== undefined && !isOneOf(value, [[], ""])) throw notSupported(name, "this field");
  }
  if (fields.raw("thread", { enum: [] }) !== undefined)
    throw badRequest("thread: this field is not supported by this server", "thread", THREAD_UNSUPPORTED);
  if (!isOneOf(fields.raw("mcp_servers", { type: "array" }), [undefined, []])) ignored.add("mcp_servers");
  const thinking = thinkingOf(fields, served.template, tools.length > 0);
  const omitsThoughts = omitsThoughtsIn(fields.peek("thinking"));
  for (const name of thinking.ignored) if (!omitsThoughts || name !== "thinking.display") ignored.add(name);
  const format = outputFormatOf(fields, ignored);
  const { templateArguments, tokensMax: thoughtsMax } = thinking;
  // The answer continues a conversation that ends with the assistant's own words.
  const continuesLast = messages.at(-1)!.role === "assistant";
  const prompt: ChatPrompt = {
    messages,
    tools,
    addGenerationPrompt: !continuesLast,
    continuesLast,
    templateArguments,
    thoughtsMax,
  };
  return { model, prompt, omitsThoughts, marks, calls, format, ignored };
}

/** True if `thinking` asks for an answer without the text of its thoughts. */
function omitsThoughtsIn(thinking: unknown): boolean {
  return typeof thinking === "object" && fieldsOf(thinking, "thinking").string("display") === "omitted";
}

/** The schema that constrains the answer; null for none. */
function outputFormatOf(fields: Fields, ignored: Ignored): RequestedConstraint | null {
  const output = fields.object("output_config");
  const format = output?.object("format");
  output?.taken("effort"); // a field of reasoning
  if (output !== undefined) noteTheRest(output, "output_config", ignored);
  if (format === undefined) return null;
  const type = format.raw("type", { enum: ["json_schema"] });
  if (type !== "json_schema") throw refusal(format.pathOf("type"), '"json_schema"', type);
  const schema = format.raw("schema", { type: ["object", "boolean"] });
  if (schema === undefined) throw refusal(format.pathOf("schema"), "a JSON Schema", undefined);
  return { source: { kind: "schema", schema, layout: "compact" }, param: format.pathOf("schema") };
}

function namesOf(ignored: Ignored, others: readonly string[]): readonly string[] {
  return [...new Set([...ignored, ...others])];
}
