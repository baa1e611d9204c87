/** Past calls in OpenAI's formats. The reading is lenient, since another server may have made them. */

import type { PastCall } from "../../../text/conversation/messages.ts";
import { ApiError } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import { type Fields, fieldsOf, jsonIn, objectKind } from "../fields.ts";

/** `tool_calls` of an assistant's message, and `function_call`, its predecessor. */
export function pastCallsOf(message: Fields): PastCall[] {
  const calls = message.list("tool_calls", requestLimits.contentPartsMax, objectKind) ?? [];
  const first = message.object("function_call");
  const made = calls.map((value, index) =>
    pastCallOf(fieldsOf(value, `${message.pathOf("tool_calls")}[${index}]`)),
  );
  return first === undefined ? made : [calledOf(first, undefined), ...made];
}

/** A call of a function, or of a custom tool, whose text becomes its one argument. */
function pastCallOf(call: Fields): PastCall {
  const id = call.string("id");
  const custom = call.object("custom");
  if (custom === undefined) return calledOf(call.object("function") ?? call, id);
  return pastCall(id, custom.requiredString("name"), { input: custom.string("input") ?? "" });
}

function calledOf(made: Fields, id: string | undefined): PastCall {
  return pastCall(id, made.requiredString("name"), readArguments(made.raw("arguments")));
}

export function pastCall(
  id: string | undefined,
  name: string,
  values: PastCall["function"]["arguments"],
): PastCall {
  return { ...(id === undefined ? {} : { id }), type: "function", function: { name, arguments: values } };
}

/**
 * Arguments as an object, given as such or as its JSON. Anything else, such as a truncated call's arguments,
 * stays text.
 */
export function readArguments(given: unknown): PastCall["function"]["arguments"] {
  if (given === undefined || given === "") return {};
  if (isObject(given)) return given;
  const text = typeof given === "string" ? given : JSON.stringify(given);
  try {
    const value = jsonIn(text, "arguments");
    return isObject(value) ? value : text;
  } catch (error) {
    if (error instanceof ApiError) return text;
    throw error;
  }
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
