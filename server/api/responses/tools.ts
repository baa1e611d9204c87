/**
 * Tools as the Responses API defines them: functions, and custom tools, which take text. To the model a custom tool is a
 * function of one string, to which its calls are held.
 */
import type { OfferedCalls } from "../../answer/choice-text.ts";
import { badRequest, quote } from "../../http/errors.ts";
import { type Fields, fieldsOf, refusal } from "../fields.ts";
import {
  type CheckedTool,
  callsOf,
  checkToolDefinition,
  type ToolChoice,
  toolNameOf,
} from "../openai/tools.ts";
import { requestLimits } from "../request-limits.ts";
import { CUSTOM_INPUT } from "./conversation.ts";

export interface ToolUse {
  /** In the shape that chat templates read; empty: nothing is called and nothing read as a call. */
  readonly shown: readonly object[];
  /** What may be called, and how often; null: nothing. */
  readonly calls: OfferedCalls | null;
  /** Names whose calls are told as text. */
  readonly customNames: ReadonlySet<string>;
  /** What a response says of it: `tools`, `tool_choice` and `parallel_tool_calls`. */
  readonly echo: object;
}

/** A definition as templates and constraints read it. */
interface Known {
  readonly isCustom: boolean;
  readonly tool: CheckedTool;
  /** As a response says it. */
  readonly echo: object;
}

export function toolUseOf(fields: Fields): ToolUse {
  const choice = toolChoiceOf(fields);
  const parallel = fields.boolean("parallel_tool_calls") ?? true;
  const given = fields.list("tools", requestLimits.toolsMax) ?? [];
  const known = given.map((tool, index) => toolOf(fieldsOf(tool, `tools[${index}]`)));
  const tools = choice.kind === "none" ? [] : known.map(({ tool }) => tool);
  const isOne = !parallel || choice.kind === "named";
  const shown = tools.map(({ function: { strict: _, ...definition } }) => ({
    type: "function",
    function: definition,
  }));
  return {
    shown,
    calls: callsOf(choice, tools, isOne),
    customNames: new Set(known.filter(({ isCustom }) => isCustom).map(({ tool }) => tool.function.name)),
    echo: {
      tools: known.map(({ echo }) => echo),
      tool_choice: fields.raw("tool_choice") ?? "auto",
      parallel_tool_calls: parallel,
    },
  };
}

function toolOf(tool: Fields): Known {
  const type = tool.raw("type");
  if (type === "function") return functionOf(tool);
  if (type === "custom") return customOf(tool);
  const path = tool.pathOf("type");
  if (typeof type !== "string") throw refusal(path, "function or custom", type);
  throw badRequest(
    `${path}: this server has no tools of its own, so ${quote(type)} is not supported; it knows function and custom`,
    path,
  );
}

function functionOf(tool: Fields): Known {
  checkToolDefinition(tool, "parameters");
  const name = toolNameOf(tool);
  const description = tool.string("description");
  const parameters = tool.raw("parameters");
  const strict = tool.boolean("strict");
  return {
    isCustom: false,
    tool: {
      function: {
        name,
        ...(description === undefined ? {} : { description }),
        ...(parameters === undefined ? {} : { parameters }),
        strict: strict ?? false,
      },
    },
    echo: {
      type: "function",
      name,
      description: description ?? null,
      parameters: parameters ?? null,
      strict: strict ?? null,
    },
  };
}

function customOf(tool: Fields): Known {
  checkToolDefinition(tool, "parameters");
  const name = toolNameOf(tool);
  const description = tool.string("description");
  const pattern = patternOf(tool);
  const text = { type: "string", ...(pattern === null ? {} : { pattern }) };
  const parameters = {
    type: "object",
    properties: { [CUSTOM_INPUT]: text },
    required: [CUSTOM_INPUT],
    additionalProperties: false,
  };
  const named = { name, ...(description === undefined ? {} : { description }) };
  return {
    isCustom: true,
    tool: { function: { ...named, parameters, strict: true } },
    echo: { type: "custom", ...named, format: tool.raw("format") ?? { type: "text" } },
  };
}

/** What the text of a custom tool must match; null: any text. */
function patternOf(tool: Fields): string | null {
  const format = tool.object("format");
  if (format === undefined) return null;
  const type = format.raw("type");
  if (type === "text") return null;
  if (type !== "grammar") throw refusal(format.pathOf("type"), "text or grammar", type);
  const syntax = format.raw("syntax");
  if (syntax === "lark") {
    const path = format.pathOf("syntax");
    throw badRequest(
      `${path}: lark is not supported by this server; regex is, and so is the format text`,
      path,
    );
  }
  if (syntax !== "regex") throw refusal(format.pathOf("syntax"), "regex", syntax);
  return `^(?:${format.requiredString("definition")})$`;
}

function toolChoiceOf(fields: Fields): ToolChoice {
  const given = fields.raw("tool_choice");
  if (given === undefined) return { kind: "auto" };
  if (given === "none" || given === "auto" || given === "required") return { kind: given };
  if (typeof given !== "object" || given === null || Array.isArray(given))
    throw refusal("tool_choice", "none, auto, required, a function or a custom tool", given);
  const chosen = fields.object("tool_choice")!;
  if (chosen.raw("type") !== "allowed_tools") return { kind: "named", name: chosenName(chosen) };
  const mode = chosen.raw("mode");
  if (mode !== "auto" && mode !== "required") throw refusal(chosen.pathOf("mode"), "auto or required", mode);
  const names = (chosen.list("tools", requestLimits.toolsMax) ?? []).map((tool, index) =>
    chosenName(fieldsOf(tool, `${chosen.pathOf("tools")}[${index}]`)),
  );
  return { kind: "allowed", names, mustCall: mode === "required" };
}

function chosenName(chosen: Fields): string {
  const type = chosen.raw("type");
  if (type !== "function" && type !== "custom")
    throw refusal(chosen.pathOf("type"), "function, custom or allowed_tools", type);
  return toolNameOf(chosen);
}
