/**
 * Tools of the Responses API: functions, custom tools, which accept text, and namespaces of both. The model
 * sees a custom tool as a function of one string, which constrains its calls. It sees a tool of a namespace
 * under both names.
 */
import type { OfferedCalls } from "../../answer/choice-text.ts";
import { badRequest } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import { type Fields, fieldsOf, objectKind, refusal } from "../fields.ts";
import {
  type CheckedTool,
  callsOf,
  checkToolDefinition,
  openaiNames,
  type ToolChoice,
  toolNameOf,
} from "../openai/tools.ts";
import { note } from "../past.ts";
import { CUSTOM_INPUT, modelNameOf } from "./conversation.ts";

export interface ToolUse {
  /**
   * Definitions in the shape that chat templates read; empty if there are no calls, and no text is parsed as
   * one.
   */
  readonly shown: readonly object[];
  /** Callable functions and the number of calls; null for no calls. */
  readonly calls: OfferedCalls | null;
  /** Call items by the tool name that the model sees. */
  readonly wireCalls: ReadonlyMap<string, WireCall>;
  /** Fields that a response repeats: `tools`, `tool_choice` and `parallel_tool_calls`. */
  readonly echo: object;
  /** Names of tools that are left out. */
  readonly ignored: ReadonlySet<string>;
}

/** Fields of a call item that identify its tool. */
export interface WireCall {
  readonly type: "function_call" | "custom_tool_call";
  readonly name: string;
  readonly namespace?: string;
}

interface Known {
  /** Definition for templates and constraints. */
  readonly tool: CheckedTool;
  readonly wireCall: WireCall;
  /** Definition that a response repeats. */
  readonly echo: object;
}

export function toolUseOf(fields: Fields): ToolUse {
  const choice = toolChoiceOf(fields);
  const parallel = fields.boolean("parallel_tool_calls") ?? true;
  const given = fields.list("tools", requestLimits.toolsMax, objectKind) ?? [];
  const offer: Offer = { choice, ignored: new Set() };
  const entries = given.flatMap((tool, index) => entryOf(fieldsOf(tool, `tools[${index}]`), offer) ?? []);
  const known = entries.flatMap(({ tools }) => tools);
  if (known.length > requestLimits.toolsMax)
    throw badRequest(
      `tools may hold ${requestLimits.toolsMax} tools at most, namespaces included, but has ${known.length}`,
      "tools",
    );
  const tools = choice.kind === "none" ? [] : known.map(({ tool }) => tool);
  const isOne = !parallel || choice.kind === "named";
  const shown = tools.map(({ function: { strict: _, ...definition } }) => ({
    type: "function",
    function: definition,
  }));
  return {
    shown,
    calls: callsOf(choice, tools, isOne),
    wireCalls: new Map(known.map(({ tool, wireCall }) => [tool.function.name, wireCall])),
    echo: {
      tools: entries.map(({ echo }) => echo),
      tool_choice: fields.taken("tool_choice") ?? "auto",
      parallel_tool_calls: parallel,
    },
    ignored: offer.ignored,
  };
}

/** Context for reading tools. */
interface Offer {
  readonly choice: ToolChoice;
  readonly ignored: Set<string>;
}

interface Entry {
  readonly tools: readonly Known[];
  readonly echo: object;
}

/**
 * An entry of `tools`: a tool or a namespace. Null for a tool that OpenAI runs, which is left out and named
 * in `ignored`.
 */
function entryOf(entry: Fields, offer: Offer): Entry | null {
  if (entry.raw("type", { type: "string" }) !== "namespace") {
    const known = toolOf(entry, null, offer);
    return known === null ? null : { tools: [known], echo: known.echo };
  }
  const name = toolNameOf(entry, openaiNames);
  const description = entry.string("description") ?? "";
  const tools = (entry.list("tools", requestLimits.toolsMax, objectKind) ?? []).flatMap(
    (tool, index) => toolOf(fieldsOf(tool, `${entry.pathOf("tools")}[${index}]`), name, offer) ?? [],
  );
  return { tools, echo: { type: "namespace", name, description, tools: tools.map(({ echo }) => echo) } };
}

function toolOf(tool: Fields, namespace: string | null, offer: Offer): Known | null {
  const type = tool.raw("type", { type: "string" });
  if (type === "function") return functionOf(tool, namespace);
  if (type === "custom") return customOf(tool, namespace, offer);
  if (typeof type !== "string") throw refusal(tool.pathOf("type"), "function, custom or namespace", type);
  note(offer.ignored, `tools.${type}`);
  return null;
}

function wireCallOf(type: WireCall["type"], name: string, namespace: string | null): WireCall {
  return namespace === null ? { type, name } : { type, name, namespace };
}

function functionOf(tool: Fields, namespace: string | null): Known {
  checkToolDefinition(tool, "parameters", openaiNames);
  const wireCall = wireCallOf("function_call", toolNameOf(tool, openaiNames), namespace);
  const { name } = wireCall;
  const description = tool.string("description");
  const parameters = tool.taken("parameters");
  const strict = tool.boolean("strict");
  return {
    wireCall,
    tool: {
      function: {
        name: modelNameOf(wireCall),
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

function customOf(tool: Fields, namespace: string | null, offer: Offer): Known {
  checkToolDefinition(tool, "parameters", openaiNames);
  const wireCall = wireCallOf("custom_tool_call", toolNameOf(tool, openaiNames), namespace);
  const description = tool.string("description");
  const isNamed = offer.choice.kind === "named" && offer.choice.name === modelNameOf(wireCall);
  const pattern = patternOf(tool, isNamed ? null : offer.ignored);
  const text = { type: "string", ...(pattern === null ? {} : { pattern }) };
  const parameters = {
    type: "object",
    properties: { [CUSTOM_INPUT]: text },
    required: [CUSTOM_INPUT],
    additionalProperties: false,
  };
  const described = description === undefined ? {} : { description };
  return {
    wireCall,
    tool: { function: { name: modelNameOf(wireCall), ...described, parameters, strict: true } },
    echo: {
      type: "custom",
      name: wireCall.name,
      ...described,
      format: tool.taken("format") ?? { type: "text" },
    },
  };
}

/**
 * Regular expression that the text of a custom tool must match; null: any text. For an unsupported grammar,
 * adds its name to `ignored`, or throws 400 if `ignored` is null.
 */
function patternOf(tool: Fields, ignored: Set<string> | null): string | null {
  const format = tool.object("format");
  if (format === undefined) return null;
  const type = format.raw("type", { enum: ["text", "grammar"] });
  if (type === "text") return null;
  if (type !== "grammar") throw refusal(format.pathOf("type"), "text or grammar", type);
  const syntax = format.raw("syntax", { enum: ["regex", "lark"] });
  if (syntax === "lark" && ignored !== null) {
    ignored.add("tools.format");
    return null;
  }
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
  const given = fields.raw("tool_choice", { type: ["string", "object"] });
  if (given === undefined) return { kind: "auto" };
  if (given === "none" || given === "auto" || given === "required") return { kind: given };
  if (typeof given !== "object" || given === null || Array.isArray(given))
    throw refusal("tool_choice", "none, auto, required, a function or a custom tool", given);
  const chosen = fieldsOf(given, "tool_choice");
  if (chosen.raw("type", { enum: ["function", "custom", "allowed_tools"] }) !== "allowed_tools")
    return { kind: "named", name: chosenName(chosen) };
  const mode = chosen.raw("mode", { enum: ["auto", "required"] });
  if (mode !== "auto" && mode !== "required") throw refusal(chosen.pathOf("mode"), "auto or required", mode);
  const names = (chosen.list("tools", requestLimits.toolsMax, objectKind) ?? []).map((tool, index) =>
    chosenName(fieldsOf(tool, `${chosen.pathOf("tools")}[${index}]`)),
  );
  return { kind: "allowed", names, mustCall: mode === "required" };
}

function chosenName(chosen: Fields): string {
  const type = chosen.raw("type", { enum: ["function", "custom", "allowed_tools"] });
  if (type !== "function" && type !== "custom")
    throw refusal(chosen.pathOf("type"), "function, custom or allowed_tools", type);
  const name = chosen.requiredString("name");
  const namespace = chosen.string("namespace");
  return modelNameOf(namespace === undefined ? { name } : { name, namespace });
}
