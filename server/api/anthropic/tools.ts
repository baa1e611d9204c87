/** Functions that a model may call, as Anthropic's API defines them. */
import type { OfferedCalls } from "../../answer/choice-text.ts";
import { badRequest, quote } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import { type Fields, fieldsOf, objectKind, refusal } from "../fields.ts";
import {
  type CheckedTool,
  callsOf,
  checkToolDefinition,
  type NameRule,
  type ToolChoice,
  toolNameOf,
} from "../openai/tools.ts";
import { note } from "../past.ts";
import { type Ignored, noteTheRest } from "./support.ts";
import { changedTools } from "./tool-changes.ts";

export interface ToolUse {
  /**
   * Definitions in the shape that chat templates read; empty if there are no calls, and no text is parsed as
   * one.
   */
  readonly tools: readonly object[];
  /** Callable functions and the number of calls; null for no calls. */
  readonly calls: OfferedCalls | null;
}

export function toolUseOf(fields: Fields, ignored: Ignored): ToolUse {
  const { choice, isOne } = toolChoiceOf(fields, ignored);
  const given = fields.list("tools", requestLimits.toolsMax, objectKind) ?? [];
  const entries = given.map((tool, index) => fieldsOf(tool, `tools[${index}]`));
  const tools = changedTools(entries, fields.peek("messages"), ignored)
    .filter((tool) => isReadable(tool, choice, ignored))
    .map((tool) => checkedTool(tool, ignored));
  if (choice.kind === "none" && tools.length > 0) {
    ignored.add("tools");
    return { tools: [], calls: null };
  }
  const shown = tools.map(({ function: { strict: _, ...definition } }) => ({
    type: "function",
    function: definition,
  }));
  return { tools: shown, calls: callsOf(choice, tools, isOne) };
}

function toolChoiceOf(
  fields: Fields,
  ignored: Ignored,
): { readonly choice: ToolChoice; readonly isOne: boolean } {
  const given = fields.object("tool_choice");
  if (given === undefined) return { choice: { kind: "auto" }, isOne: false };
  const choice = choiceOf(given);
  const isOne = given.boolean("disable_parallel_tool_use") === true || choice.kind === "named";
  noteTheRest(given, "tool_choice", ignored);
  return { choice, isOne };
}

function choiceOf(given: Fields): ToolChoice {
  const type = given.raw("type", { enum: ["auto", "any", "tool", "none"] });
  switch (type) {
    case "auto":
    case "none":
      return { kind: type };
    case "any":
      return { kind: "required" };
    case "tool":
      return { kind: "named", name: given.requiredString("name") };
    default:
      throw refusal(given.pathOf("type"), "auto, any, tool or none", type);
  }
}

/**
 * False for tools that Anthropic runs, which are left out and named in `ignored`. Throws 400 if `tool_choice`
 * names one.
 */
function isReadable(tool: Fields, choice: ToolChoice, ignored: Ignored): boolean {
  const type = tool.raw("type", { type: "string" });
  if (type === undefined || type === "custom") return true;
  const path = tool.pathOf("type");
  if (typeof type !== "string") throw refusal(path, "custom", type);
  if (choice.kind === "named" && choice.name === tool.peek("name"))
    throw badRequest(
      `${path}: this server has no tools of its own, but tool_choice names one of the type ${quote(type)}`,
      path,
    );
  note(ignored, `tools.${type}`);
  return false;
}

/** Anthropic's rule for names. */
const names: NameRule = {
  pattern: /^[A-Za-z0-9_-]{1,128}$/,
  says: "1 to 128 letters, digits, underscores or hyphens",
};

function checkedTool(tool: Fields, ignored: Ignored): CheckedTool {
  checkToolDefinition(tool, "input_schema", names);
  const description = tool.string("description");
  const parameters = tool.taken("input_schema");
  if (parameters === undefined) throw refusal(tool.pathOf("input_schema"), "an object", undefined);
  const strict = tool.boolean("strict") ?? false;
  noteTheRest(tool, "tools", ignored);
  const named = { name: toolNameOf(tool, names), ...(description === undefined ? {} : { description }) };
  return { function: { ...named, parameters, strict } };
}
