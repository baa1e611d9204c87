import type {
  CallSpec,
  InputPart,
  Message,
  OutputPart,
  PromptPart,
} from "../../../scheduler/program/spec.ts";
import { badRequest } from "../../http/errors.ts";
import { requestLimits } from "../../request/limits.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { Fields, fieldsOf, objectKind, refusal, textKind } from "../fields.ts";
import { endOf } from "../openai/generation.ts";
import { samplingOf, stopStringsOf } from "../openai/sampling.ts";
import { constraintOf } from "../openai/structure.ts";
import { piecesOf, programRequestLimits, type Reading, transformsOf } from "./reading.ts";

/** Fields of sampling and constraints, as in OpenAI's bodies: for a call, or for one of its outputs. */
const samplingFields = [
  "temperature",
  "top_k",
  "top_p",
  "min_p",
  "repetition_penalty",
  "presence_penalty",
  "frequency_penalty",
  "logit_bias",
  "allowed_token_ids",
  "bad_words",
  "seed",
  "max_tokens",
  "min_tokens",
  "stop",
  "stop_token_ids",
  "ignore_eos",
  "response_format",
  "structured_outputs",
  "guided_json",
  "guided_regex",
  "guided_choice",
  "guided_grammar",
];

/** A call: a prompt or messages with placeholders, and the variable or text of each placeholder. */
export function callOf(fields: Fields, name: string, reading: Reading): CallSpec {
  const places = new Places(fields, reading);
  const prompt = fields.string("prompt");
  const messages = fields.list("messages", requestLimits.messagesMax, objectKind);
  if ((prompt === undefined) === (messages === undefined)) {
    throw badRequest(
      `${fields.pathOf("prompt")}: a call has either a prompt or messages`,
      fields.pathOf("prompt"),
    );
  }
  if (prompt !== undefined) {
    const parts = [...places.partsOf(prompt), ...places.unplaced()];
    // Files and multi-line texts end with a line break.
    if (parts.at(-2)?.kind === "output" && isBlank(parts.at(-1)!)) parts.pop();
    return { kind: "call", name, prompt: { kind: "text", parts } };
  }
  const chat = messages!.map((message, index) =>
    messageOf(fieldsOf(message, `${fields.pathOf("messages")}[${index}]`), places),
  );
  const answers = places
    .unplaced()
    .map((part): Message<PromptPart> => ({ role: "assistant", parts: [part] }));
  return { kind: "call", name, prompt: { kind: "chat", messages: [...chat, ...answers] } };
}

function isBlank(part: PromptPart): boolean {
  return part.kind === "text" && part.text.trim() === "";
}

const roles = ["system", "developer", "user", "assistant"];

function messageOf(fields: Fields, places: Places): Message<PromptPart> {
  const role = fields.requiredString("role");
  if (!roles.includes(role)) throw refusal(fields.pathOf("role"), roles.join(", "), role);
  const content = fields.requiredString("content");
  fields.expectAllRead();
  const parts = places.partsOf(content);
  if (role !== "assistant" && parts.some(({ kind }) => kind === "output")) {
    throw badRequest(`${fields.pathOf("content")}: an output stands in a message of the assistant's`);
  }
  return { role, parts };
}

/** Placeholders of one call with their inputs and outputs. */
class Places {
  readonly #inputs = new Map<string, InputPart | { readonly kind: "text"; readonly text: string }>();
  readonly #outputs = new Map<string, OutputPart>();
  readonly #placed = new Set<string>();
  readonly #path: string;
  #count = 0;

  constructor(fields: Fields, reading: Reading) {
    this.#path = fields.pathOf("prompt");
    const { placesMax } = programRequestLimits;
    for (const [name, given] of fields.entries("inputs", placesMax, { type: ["string", "object"] }) ?? []) {
      this.#inputs.set(name, inputOf(name, given, `${fields.pathOf("inputs")}.${name.slice(0, 64)}`));
    }
    const shared: Shared = {
      fields: Object.fromEntries(samplingFields.map((field) => [field, fields.taken(field)])),
      path: fields.path,
    };
    const path = fields.pathOf("outputs");
    const outputs = fields.raw("outputs", { type: ["array", "object"], items: textKind, values: objectKind });
    const single = fields.string("output");
    if ((outputs === undefined) === (single === undefined)) {
      throw badRequest(`${path}: a call has either outputs or one output`, path);
    }
    const entries: readonly (readonly [string, unknown])[] =
      single !== undefined
        ? [[single, {}]]
        : Array.isArray(outputs)
          ? fields.texts("outputs", placesMax)!.map((name) => [name, {}])
          : fields.entries("outputs", placesMax, objectKind)!;
    for (const [name, given] of entries) {
      reading.countOutput();
      this.#outputs.set(name, outputOf(name, given, shared, `${path}.${name.slice(0, 64)}`, reading.served));
    }
  }

  /** Splits a template into parts. An unlisted placeholder is an input of the same name. */
  partsOf(template: string): PromptPart[] {
    return piecesOf(template).map((piece): PromptPart => {
      if (piece.kind === "text") return piece;
      const { name } = piece;
      if (++this.#count > programRequestLimits.placesMax) {
        throw badRequest(
          `${this.#path} may hold ${programRequestLimits.placesMax} placeholders at most`,
          this.#path,
        );
      }
      const output = this.#outputs.get(name);
      if (output === undefined) {
        return this.#inputs.get(name) ?? { kind: "input", variable: name, transforms: [] };
      }
      if (this.#placed.has(name)) {
        throw badRequest(`${this.#path}: the output ${name} stands in two places`, this.#path);
      }
      this.#placed.add(name);
      return output;
    });
  }

  /** The one output without a placeholder, which goes to the end of the prompt. Throws 400 for several. */
  unplaced(): OutputPart[] {
    const left = [...this.#outputs].filter(([name]) => !this.#placed.has(name));
    if (left.length > 1) {
      throw badRequest(
        `${this.#path}: the outputs ${left.map(([name]) => name).join(", ")} stand nowhere, and only one of them can be at the end`,
        this.#path,
      );
    }
    return left.map(([, part]) => part);
  }
}

/** Parses an input: the name of a variable, `{ variable, transforms }`, or `{ value }`. */
function inputOf(
  name: string,
  given: unknown,
  path: string,
): InputPart | { readonly kind: "text"; readonly text: string } {
  if (typeof given === "string") return { kind: "input", variable: given, transforms: [] };
  const fields = fieldsOf(given, path);
  const value = fields.string("value");
  if (value !== undefined) {
    fields.expectAllRead();
    return { kind: "text", text: value };
  }
  const input: InputPart = {
    kind: "input",
    variable: fields.string("variable") ?? name,
    transforms: transformsOf(fields, "transforms"),
  };
  fields.expectAllRead();
  return input;
}

/** Default sampling of a call's outputs, and its path in the body. */
interface Shared {
  readonly fields: Readonly<Record<string, unknown>>;
  readonly path: string;
}

/** Parses an output: `{ variable, transforms }` and sampling, with the call's own fields as defaults. */
function outputOf(
  name: string,
  given: unknown,
  shared: Shared,
  path: string,
  served: ServedModel,
): OutputPart {
  const own = fieldsOf(given, path);
  const variable = own.string("variable") ?? name;
  const transforms = transformsOf(own, "transforms");
  const mine = samplingFields.flatMap((field) => {
    const value = own.taken(field);
    return value === undefined ? [] : [[field, value]];
  });
  own.expectAllRead();
  const sampling = new Fields(
    { ...shared.fields, ...Object.fromEntries(mine) },
    mine.length === 0 ? shared.path : path,
  );
  return { kind: "output", variable, transforms, ...drawnAs(sampling, served) };
}

/** Sampling and end conditions of an output, from fields as in OpenAI's bodies. */
export function drawnAs(
  fields: Fields,
  served: ServedModel,
): Omit<OutputPart, "kind" | "variable" | "transforms"> {
  const constraint = constraintOf(fields);
  const { tokensMax, ...ends } = endOf(fields, served, "max_tokens", 1, constraint);
  return {
    sampling: samplingOf(fields, served, null),
    tokensMax,
    stop: stopStringsOf(fields),
    ends,
    ...(constraint === null ? {} : { constraint }),
  };
}
