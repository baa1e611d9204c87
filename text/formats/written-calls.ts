import { isTextArgument } from "../../grammar/tools/call-arguments.ts";
import {
  type ArgumentsForm,
  CALL_ID,
  CALL_NUMBER,
  type CallForm,
  ID_LENGTH,
} from "../../grammar/tools/call-form.ts";
import { isObject } from "../../grammar/tools/plain-arguments.ts";
import { jsonOfText, jsonText } from "../jinja/json.ts";
import { jsonTextOf } from "../json-text.ts";

/** A call to write. */
export interface WritableCall {
  /** Nine letters or digits, for models that make up ids; absent: an id made of the call's place. */
  readonly id?: string;
  readonly name: string;
  /** A text if they are no JSON object, such as a truncated call's. */
  readonly arguments: object | string;
  /** JSON Schema of the arguments; absent: strings are texts. */
  readonly parameters?: unknown;
}

/** Text of calls in a model's form, as the grammar of calls writes them. */
export function writtenCalls(form: CallForm, calls: readonly WritableCall[]): string {
  const { begin, beforeName, afterName, afterArguments, between, end } = form;
  const written = calls.map((call, index) => {
    const id = call.id ?? String(index).padStart(ID_LENGTH, "0");
    const [before, after] = [beforeName, afterName].map((text) =>
      text.replace(CALL_NUMBER, String(index)).replace(CALL_ID, id),
    );
    return before + call.name + after + argumentsOf(form.arguments, call) + afterArguments;
  });
  return begin + written.join(between) + end;
}

/**
 * JSON of a call's arguments as models write it: as it came, but for the compact JSON of clients that parse it and
 * write it again, which gets spaces.
 */
export function jsonOfArguments(given: object): string {
  const text = jsonTextOf(given);
  return text === undefined || text === JSON.stringify(given) ? jsonText(given) : text;
}

function argumentsOf(form: ArgumentsForm, { arguments: given, parameters }: WritableCall): string {
  if (typeof given === "string") return given;
  const entries = Object.entries(given);
  const isText = (name: string, value: unknown): value is string =>
    typeof value === "string" && (parameters === undefined || isTextArgument(parameters, name));
  switch (form.kind) {
    case "json":
      return jsonOfArguments(given);
    case "bare":
      return bareMembers(given, form.quote);
    case "python":
      return entries
        .map(
          ([name, value]) =>
            `${name}=${isText(name, value) ? quoted(value) : form.words === "json" ? jsonOf(value) : pythonOf(value)}`,
        )
        .join(", ");
    case "tagged":
      return entries
        .map(([name, value]) => {
          const isPlain = isText(name, value);
          const afterName = isPlain ? (form.afterTextName ?? form.afterName) : form.afterName;
          return form.beforeName + name + afterName + (isPlain ? value : jsonOf(value)) + form.afterValue;
        })
        .join("");
  }
}

/** Python's literal of a text: plain between single quotes if it can be, else JSON. */
function quoted(text: string): string {
  return /['\\]/.test(text) ? jsonOfText(text) : `'${text}'`;
}

function pythonOf(value: unknown): string {
  return value === true ? "True" : value === false ? "False" : jsonOf(value);
}

function bareMembers(given: object, quote: string): string {
  const sorted = Object.entries(given).map(([name, value]) => ({ key: name.toLowerCase(), name, value }));
  sorted.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
  return sorted.map(({ name, value }) => `${name}:${bareOf(value, quote)}`).join(",");
}

function bareOf(value: unknown, quote: string): string {
  if (typeof value === "string") return quote + value + quote;
  if (Array.isArray(value)) return `[${value.map((item) => bareOf(item, quote)).join(",")}]`;
  return isObject(value) ? `{${bareMembers(value, quote)}}` : JSON.stringify(value);
}

/** JSON of any value, as chat templates write it. */
function jsonOf(value: unknown): string {
  return typeof value === "object" && value !== null ? jsonText(value) : JSON.stringify(value);
}
