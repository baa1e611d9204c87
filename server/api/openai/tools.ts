/** Functions that a model may call: how a request defines them, and how a conversation tells of calls made before. */

import { parseJson } from "../../http/body.ts";
import { ApiError, badRequest, quote } from "../../http/errors.ts";
import { toolNamePattern } from "../../text/tool-calls.ts";
import { type Fields, fieldsOf, refusal } from "../fields.ts";
import { requestLimits } from "../request-limits.ts";

/** What the model may call, and how often. */
export interface ToolUse {
  /** As the client wrote them, for the chat template; empty: nothing is called and nothing read as a call. */
  readonly tools: readonly object[];
  /** Calls per choice at most. */
  readonly callsMax: number;
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
  const choice = fields.raw("tool_choice");
  if (choice !== undefined && choice !== "none" && choice !== "auto") {
    throw badRequest(
      `tool_choice must be auto or none, as a call cannot be forced yet, but ${quote(choice)} was given`,
      "tool_choice",
    );
  }
  const given = fields.raw("tools");
  const parallel = fields.boolean("parallel_tool_calls");
  const tools = choice === "none" ? [] : toolsOf(fields);
  // Clients set it by default, and check what they are asked to call; holding the model to a schema comes with grammars.
  const ignored = tools.some((tool) => isStrict(tool)) ? ["tools.function.strict"] : [];
  if (tools.length === 0) {
    if (choice === "none" && given !== undefined) ignored.push("tools");
    if (parallel !== undefined) ignored.push("parallel_tool_calls");
  }
  const callsOfEach = parallel === false ? 1 : Number.POSITIVE_INFINITY;
  return { tools, callsMax: tools.length > 0 ? callsOfEach : 0, ignored };
}

function isStrict(tool: object): boolean {
  return (tool as { function: { strict?: boolean } }).function.strict === true;
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
  const definition = functionOf(tool);
  nameOf(definition);
  const { toolDescriptionCharactersMax, toolParametersBytesMax } = requestLimits;
  const description = definition.string("description") ?? "";
  if (description.length > toolDescriptionCharactersMax) {
    throw tooLong(definition, "description", toolDescriptionCharactersMax, description.length, "characters");
  }
  definition.object("parameters");
  const parametersBytes = Buffer.byteLength(JSON.stringify(definition.raw("parameters") ?? {}));
  if (parametersBytes > toolParametersBytesMax) {
    throw tooLong(definition, "parameters", toolParametersBytesMax, parametersBytes, "bytes of JSON");
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
      function: { name: nameOf(made), arguments: argumentsOf(made) },
    };
  });
}

export function toolCallIdOf(fields: Fields, name: "id" | "tool_call_id"): string {
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

function nameOf(definition: Fields): string {
  const name = definition.string("name");
  if (name === undefined || !toolNamePattern.test(name))
    throw refusal(definition.pathOf("name"), "1 to 64 letters, digits, underscores or hyphens", name);
  return name;
}

/** The JSON object that the client sends back as text; no text is no arguments. */
function argumentsOf(made: Fields): Record<string, unknown> {
  const path = made.pathOf("arguments");
  const text = made.string("arguments");
  if (text === undefined) throw refusal(path, "a string", undefined);
  if (text === "") return {};
  const value = jsonOf(text, path);
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw refusal(path, "the JSON of an object", value);
  return value as Record<string, unknown>;
}

function jsonOf(text: string, path: string): unknown {
  try {
    return parseJson(text, requestLimits.toolArguments, path);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    throw badRequest(error.message, path); // which names keys of the inner text, or nothing
  }
}

function tooLong(fields: Fields, name: string, max: number, given: number, unit: string): Error {
  const path = fields.pathOf(name);
  return badRequest(`${path} may have ${max} ${unit} at most, but has ${given}`, path);
}
