/** Functions that a model may call, as a request defines them. */

import type { OfferedCalls } from "../../answer/choice-text.ts";
import { badRequest, quote } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import { type Fields, fieldsOf, objectKind, refusal, reportable } from "../fields.ts";

/** Tools on offer and limits on their calls. */
export interface ToolUse {
  /**
   * The client's tool definitions for the chat template; empty if there are no calls, and no text is parsed
   * as one.
   */
  readonly tools: readonly object[];
  /** Callable functions and the number of calls; null for no calls. */
  readonly calls: OfferedCalls | null;
  /** Names of fields that the client sent and that have no effect. */
  readonly ignored: string[];
}

export function toolUseOf(fields: Fields, names: NameRule = openaiNames): ToolUse {
  const choice = toolChoiceOf(fields);
  const given = fields.taken("tools");
  const parallel = fields.boolean("parallel_tool_calls");
  const ignored: string[] = [];
  const tools = choice.kind === "none" ? [] : (toolsOf(fields, ignored, names) as readonly CheckedTool[]);
  if (choice.kind === "none" && given !== undefined) ignored.push("tools");
  if (tools.length === 0 && parallel !== undefined) ignored.push("parallel_tool_calls");
  const isOne = parallel === false || choice.kind === "named";
  return { tools, calls: callsOf(choice, tools, isOne), ignored };
}

/** A validated definition. */
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
  /** Only these functions; with `mustCall` at least one call. */
  | { readonly kind: "allowed"; readonly names: readonly string[]; readonly mustCall: boolean };

function toolChoiceOf(fields: Fields): ToolChoice {
  const choice = fields.raw("tool_choice", { type: ["string", "object"] });
  if (choice === undefined) return { kind: "auto" };
  if (choice === "none" || choice === "auto" || choice === "required") return { kind: choice };
  if (typeof choice !== "object" || choice === null || Array.isArray(choice))
    throw refusal("tool_choice", "none, auto, required or a function", choice);
  const chosen = fieldsOf(choice, "tool_choice");
  if (chosen.raw("type", { enum: ["function", "allowed_tools"] }) !== "allowed_tools")
    return { kind: "named", name: functionOf(chosen).requiredString("name") };
  const allowed = chosen.object("allowed_tools");
  if (allowed === undefined) throw refusal("tool_choice.allowed_tools", "an object", undefined);
  const mode = allowed.raw("mode", { enum: ["auto", "required"] });
  if (mode !== "auto" && mode !== "required") throw refusal(allowed.pathOf("mode"), "auto or required", mode);
  const names = (allowed.list("tools", requestLimits.toolsMax, objectKind) ?? []).map((tool, index) =>
    functionOf(fieldsOf(tool, `${allowed.pathOf("tools")}[${index}]`)).requiredString("name"),
  );
  return { kind: "allowed", names, mustCall: mode === "required" };
}

/**
 * Callable functions and call limits. The function's schema constrains its arguments in every mode. If it cannot
 * be enforced, it is ignored; but the request is refused if the function is `strict` or a call is required.
 */
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

/**
 * The functions, validated but unchanged. Other tools, such as a vendor's own web search, are left out and
 * named in `ignored`.
 */
export function toolsOf(
  fields: Fields,
  ignored: string[] = [],
  names: NameRule = openaiNames,
): readonly object[] {
  const tools = fields.list("tools", requestLimits.toolsMax, objectKind) ?? [];
  const isKept = tools.map((value, index) => {
    const tool = fieldsOf(value, `tools[${index}]`);
    const type = tool.raw("type", { type: "string" });
    if (isForeign(type)) {
      ignored.push(...reportable([`tools.${type}`]));
      return false;
    }
    const definition = fieldsOf(tool.raw("function", objectKind), tool.pathOf("function"));
    checkToolDefinition(definition, "parameters", names);
    return true;
  });
  // The client's own list if it is complete, because its text is known.
  return (isKept.includes(false) ? tools.filter((_, index) => isKept[index]) : tools) as readonly object[];
}

/** True for tool types that the vendor runs or that this server does not know. */
function isForeign(type: unknown): type is string {
  return typeof type === "string" && type !== "function";
}

/**
 * Validates name, description and schema of a definition. Throws 400. `schemaField`: the format's name for
 * the schema.
 */
export function checkToolDefinition(
  definition: Fields,
  schemaField: "parameters" | "input_schema",
  names: NameRule,
): void {
  toolNameOf(definition, names);
  const { toolDescriptionCharactersMax, toolParametersBytesMax } = requestLimits;
  const description = definition.string("description") ?? "";
  if (description.length > toolDescriptionCharactersMax) {
    throw tooLong(definition, "description", toolDescriptionCharactersMax, description.length, "characters");
  }
  definition.object(schemaField);
  const parametersBytes = Buffer.byteLength(JSON.stringify(definition.taken(schemaField) ?? {}));
  if (parametersBytes > toolParametersBytesMax) {
    throw tooLong(definition, schemaField, toolParametersBytesMax, parametersBytes, "bytes of JSON");
  }
  definition.boolean("strict");
}

function functionOf(fields: Fields): Fields {
  const type = fields.raw("type", { enum: ["function", "allowed_tools"] });
  if (type !== "function") throw refusal(fields.pathOf("type"), '"function"', type);
  return fieldsOf(fields.raw("function", objectKind), fields.pathOf("function"));
}

/** A vendor's rule for names of functions. */
export interface NameRule {
  readonly pattern: RegExp;
  readonly says: string;
}

export const openaiNames: NameRule = {
  pattern: /^[A-Za-z0-9_-]{1,64}$/,
  says: "1 to 64 letters, digits, underscores or hyphens",
};

export function toolNameOf(definition: Fields, { pattern, says }: NameRule): string {
  const name = definition.string("name");
  if (name === undefined || !pattern.test(name)) throw refusal(definition.pathOf("name"), says, name);
  return name;
}

function tooLong(fields: Fields, name: string, max: number, given: number, unit: string): Error {
  const path = fields.pathOf(name);
  return badRequest(`${path} may have ${max} ${unit} at most, but has ${given}`, path);
}
