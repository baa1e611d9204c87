/** Functions that a model may call: how a request defines them, and how a conversation tells of calls made before. */

import type { OfferedCalls } from "../../answer/choice-text.ts";
import { badRequest, quote } from "../../http/errors.ts";
import { toolNamePattern } from "../../text/formats/call-reader.ts";
import { type Fields, fieldsOf, jsonIn, refusal } from "../fields.ts";
import { requestLimits } from "../request-limits.ts";

/** What the model may call, and how often. */
export interface ToolUse {
  /** As the client wrote them, for the chat template; empty: nothing is called and nothing read as a call. */
  readonly tools: readonly object[];
  /** What may be called, and how often; null: nothing. */
  readonly calls: OfferedCalls | null;
  /** Fields that were given and have no effect. */
  readonly ignored: string[];
}

/** A call in an assistant's message, in the shape that chat templates read: arguments are values, not text. */
export interface PastToolCall {
  readonly id: string;
  readonly type: "function";
  readonly function: { readonly name: string; readonly arguments: Readonly<Record<string, unknown>> };
}

export function toolUseOf(fields: Fields): ToolUse {
  const choice = toolChoiceOf(fields);
  const given = fields.raw("tools");
  const parallel = fields.boolean("parallel_tool_calls");
  const tools = choice.kind === "none" ? [] : (toolsOf(fields) as readonly CheckedTool[]);
  const ignored: string[] = [];
  if (tools.length === 0) {
    if (choice.kind === "none" && given !== undefined) ignored.push("tools");
    if (parallel !== undefined) ignored.push("parallel_tool_calls");
  }
  const isOne = parallel === false || choice.kind === "named";
  return { tools, calls: callsOf(choice, tools, isOne), ignored };
}

/** A definition that has been checked. */
export interface CheckedTool {
  readonly function: {
    readonly name: string;
    readonly parameters?: unknown;
    readonly strict?: boolean | null;
  };
}

export type ToolChoice =
  | { readonly kind: "none" | "auto" | "required" }
  | { readonly kind: "named"; readonly name: string }
  /** Of these only; `mustCall`: and at least one. */
  | { readonly kind: "allowed"; readonly names: readonly string[]; readonly mustCall: boolean };

function toolChoiceOf(fields: Fields): ToolChoice {
  const choice = fields.raw("tool_choice");
  if (choice === undefined) return { kind: "auto" };
  if (choice === "none" || choice === "auto" || choice === "required") return { kind: choice };
  if (typeof choice !== "object" || choice === null || Array.isArray(choice))
    throw refusal("tool_choice", "none, auto, required or a function", choice);
  const chosen = fields.object("tool_choice")!;
  if (chosen.raw("type") !== "allowed_tools") return { kind: "named", name: toolNameOf(functionOf(chosen)) };
  const allowed = chosen.object("allowed_tools");
  if (allowed === undefined) throw refusal("tool_choice.allowed_tools", "an object", undefined);
  const mode = allowed.raw("mode");
  if (mode !== "auto" && mode !== "required") throw refusal(allowed.pathOf("mode"), "auto or required", mode);
  const names = (allowed.list("tools", requestLimits.toolsMax) ?? []).map((tool, index) =>
    toolNameOf(functionOf(fieldsOf(tool, `${allowed.pathOf("tools")}[${index}]`))),
  );
  return { kind: "allowed", names, mustCall: mode === "required" };
}

/** What may be called, and what must. Arguments obey their function's schema in every mode; of a function that is strict, a
 *  schema that cannot be held to is refused. */
export function callsOf(
  choice: ToolChoice,
  tools: readonly CheckedTool[],
  isOne: boolean,
): OfferedCalls | null {
  if (choice.kind === "none" || (choice.kind === "auto" && tools.length === 0)) return null;
  const wanted = choice.kind === "named" ? [choice.name] : choice.kind === "allowed" ? choice.names : null;
  const known = tools.map((tool) => tool.function.name);
  const missing = wanted?.find((name) => !known.includes(name));
  if (missing !== undefined) {
    throw badRequest(`tool_choice names ${quote(missing)}, which is none of tools`, "tool_choice");
  }
  const callable = tools.filter((tool) => wanted === null || wanted.includes(tool.function.name));
  if (callable.length === 0)
    throw badRequest("tool_choice wants a call, but there are no tools", "tool_choice");
  const mayTalk = choice.kind === "auto" || (choice.kind === "allowed" && !choice.mustCall);
  const functions = callable.map(({ function: { name, parameters, strict } }) => ({
    name,
    parameters: parameters ?? null,
    isStrict: strict === true || !mayTalk,
  }));
  return { functions, callsMax: isOne ? 1 : null, mayTalk, param: "tools" };
}

/** The definitions, checked and otherwise as they came. */
export function toolsOf(fields: Fields): readonly object[] {
  const tools = fields.list("tools", requestLimits.toolsMax) ?? [];
  tools.forEach((tool, index) => {
    checkTool(fieldsOf(tool, `tools[${index}]`));
  });
  return tools as readonly object[];
}

function checkTool(tool: Fields): void {
  checkToolDefinition(functionOf(tool), "parameters");
}

/** Throws 400 unless name, description and schema are what a definition may have, however the format calls its schema. */
export function checkToolDefinition(definition: Fields, schemaField: "parameters" | "input_schema"): void {
  toolNameOf(definition);
  const { toolDescriptionCharactersMax, toolParametersBytesMax } = requestLimits;
  const description = definition.string("description") ?? "";
  if (description.length > toolDescriptionCharactersMax) {
    throw tooLong(definition, "description", toolDescriptionCharactersMax, description.length, "characters");
  }
  definition.object(schemaField);
  const parametersBytes = Buffer.byteLength(JSON.stringify(definition.raw(schemaField) ?? {}));
  if (parametersBytes > toolParametersBytesMax) {
    throw tooLong(definition, schemaField, toolParametersBytesMax, parametersBytes, "bytes of JSON");
  }
  definition.boolean("strict");
}

/** `tool_calls` of an assistant's message; undefined when it made none. */
export function pastToolCallsOf(message: Fields): PastToolCall[] | undefined {
  const calls = message.list("tool_calls", requestLimits.toolCallsMax);
  if (calls === undefined || calls.length === 0) return undefined;
  return calls.map((value, index) => {
    const call = fieldsOf(value, `${message.pathOf("tool_calls")}[${index}]`);
    const made = functionOf(call);
    return {
      id: toolCallIdOf(call, "id"),
      type: "function",
      function: { name: toolNameOf(made), arguments: argumentsOf(made) },
    };
  });
}

export function toolCallIdOf(
  fields: Fields,
  name: "id" | "call_id" | "tool_call_id" | "tool_use_id",
): string {
  const id = fields.string(name);
  if (id === undefined) throw refusal(fields.pathOf(name), "a string", undefined);
  const { toolCallIdCharactersMax } = requestLimits;
  if (id.length > toolCallIdCharactersMax)
    throw tooLong(fields, name, toolCallIdCharactersMax, id.length, "characters");
  return id;
}

function functionOf(fields: Fields): Fields {
  const type = fields.raw("type");
  if (type !== "function") throw refusal(fields.pathOf("type"), '"function"', type);
  return fieldsOf(fields.raw("function"), fields.pathOf("function"));
}

export function toolNameOf(definition: Fields): string {
  const name = definition.string("name");
  if (name === undefined || !toolNamePattern.test(name))
    throw refusal(definition.pathOf("name"), "1 to 64 letters, digits, underscores or hyphens", name);
  return name;
}

/** The JSON object that the client sends back as text. */
function argumentsOf(made: Fields): Record<string, unknown> {
  const path = made.pathOf("arguments");
  const text = made.string("arguments");
  if (text === undefined) throw refusal(path, "a string", undefined);
  return argumentsIn(text, path);
}

/** The object in a call's arguments; no text is no arguments. Throws 400. */
export function argumentsIn(text: string, path: string): Record<string, unknown> {
  if (text === "") return {};
  const value = jsonIn(text, path);
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw refusal(path, "the JSON of an object", value);
  return value as Record<string, unknown>;
}

function tooLong(fields: Fields, name: string, max: number, given: number, unit: string): Error {
  const path = fields.pathOf(name);
  return badRequest(`${path} may have ${max} ${unit} at most, but has ${given}`, path);
}
