import type { Joined } from "./flow.ts";
import { bodiesOpen, type CallNode, type Cell, type Piece } from "./graph.ts";
import type { Parser } from "./parsers.ts";
import { Value } from "./value.ts";

/** Sampling options, as in OpenAI's requests. */
export interface Sampling {
  readonly maxTokens?: number;
  readonly temperature?: number;
  readonly topP?: number;
  readonly topK?: number;
  readonly minP?: number;
  readonly seed?: number;
  readonly stop?: string | readonly string[];
  readonly presencePenalty?: number;
  readonly frequencyPenalty?: number;
  readonly repetitionPenalty?: number;
}

export interface OutputOptions<T> extends Sampling {
  /** Parser of the text; default: the unchanged text. */
  readonly as?: Parser<T>;
  /** JSON Schema that constrains the answer. Read it with `as: json<…>()`. */
  readonly schema?: object;
}

interface Input<Name extends string> {
  readonly kind: "input";
  readonly name: Name;
}

interface Output<Name extends string, T> {
  readonly kind: "output";
  readonly name: Name;
  readonly options: OutputOptions<T>;
}

type Placeholder = Input<string> | Output<string, unknown>;

/** Argument of an input: text, a value of another call, or several joined. */
export type Given = string | Value<unknown> | Joined;

type InputsOf<Parts> = { readonly [Part in Extract<Parts, Input<string>> as Part["name"]]: Given };
type OutputsOf<Parts> = {
  readonly [Part in Extract<Parts, Output<string, unknown>> as Part["name"]]: Part extends Output<
    string,
    infer T
  >
    ? Value<T>
    : never;
};

/** Prompt as a function: its inputs make a call, whose outputs are future values. */
export type SemanticFunction<Parts> = (inputs: InputsOf<Parts>) => OutputsOf<Parts>;

/** Placeholder for an input. */
export function input<const Name extends string>(name: Name): Input<Name> {
  return { kind: "input", name };
}

/** Placeholder where the model generates. */
export function output<const Name extends string, T = string>(
  name: Name,
  options: OutputOptions<T> = {},
): Output<Name, T> {
  return { kind: "output", name, options };
}

/** Makes a function of a text with placeholders, which a model completes. */
export function semantic<Parts extends readonly Placeholder[]>(
  texts: TemplateStringsArray,
  ...parts: Parts
): SemanticFunction<Parts[number]> {
  const pieces = interleaved(texts, parts);
  return functionOf([{ role: null, pieces }]) as never;
}

/** Message of a chat. */
interface Message<Part> {
  readonly role: "system" | "user" | "assistant" | null;
  readonly pieces: readonly (string | Part)[];
}

type MessageTag = <Parts extends readonly Placeholder[]>(
  texts: TemplateStringsArray,
  ...parts: Parts
) => Message<Parts[number]>;

const tagOf =
  (role: "system" | "user" | "assistant"): MessageTag =>
  (texts, ...parts) => ({ role, pieces: interleaved(texts, parts) });

export const system: MessageTag = tagOf("system");
export const user: MessageTag = tagOf("user");
/** Assistant message: earlier text, or a single output. */
export const assistant: MessageTag = tagOf("assistant");

/** Makes a function of a conversation; `answer` is the assistant's last message. */
export function chat<
  Messages extends readonly Message<Placeholder>[],
  Answer extends Output<string, unknown>,
>(
  messages: Messages,
  answer: Answer,
): SemanticFunction<(Messages[number] extends Message<infer Part> ? Part : never) | Answer> {
  const all: readonly Message<Placeholder>[] = [...messages, { role: "assistant", pieces: [answer] }];
  return functionOf(all) as never;
}

function interleaved<Part>(texts: readonly string[], parts: readonly Part[]): (string | Part)[] {
  return texts
    .flatMap((text, index): (string | Part)[] => (index < parts.length ? [text, parts[index]!] : [text]))
    .filter((piece) => piece !== "");
}

function functionOf(
  messages: readonly Message<Placeholder>[],
): (inputs: Readonly<Record<string, Given>>) => Record<string, Value<unknown>> {
  return (inputs) => {
    const call: CallNode = { kind: "call", inside: bodiesOpen(), messages: [], outputs: [] };
    const values: Record<string, Value<unknown>> = {};
    const place = (piece: string | Placeholder): readonly Piece[] => {
      if (typeof piece === "string") return [piece];
      if (piece.kind === "input") return givenPieces(piece.name, inputs[piece.name]);
      if (piece.name in values) throw new TypeError(`the output ${piece.name} stands in two places`);
      const cell: Cell = { label: piece.name, producer: call, settled: null, running: null };
      const { as, schema, ...sampling } = piece.options;
      values[piece.name] = new Value<unknown>(cell, as?.read ?? ((wire) => wire));
      call.outputs.push({
        cell,
        transforms: as?.transforms ?? [],
        sampling: { ...wireOf(sampling), ...formatOf(schema) },
      });
      return [{ output: cell }];
    };
    for (const { role, pieces } of messages) call.messages.push({ role, pieces: pieces.flatMap(place) });
    return values;
  };
}

function givenPieces(name: string, given: Given | undefined): readonly Piece[] {
  if (given === undefined) throw new TypeError(`the input ${name} is missing`);
  if (typeof given === "string") return [{ constant: given }];
  if (given instanceof Value) return [{ input: given.cell, transforms: [] }];
  if (given?.pieces !== undefined) return given.pieces;
  const shown = Array.isArray(given) ? "a list, which join makes a text of" : String(given);
  throw new TypeError(`the input ${name} takes a text, a value or several joined, but was given ${shown}`);
}

function formatOf(schema: object | undefined): object {
  if (schema === undefined) return {};
  return { response_format: { type: "json_schema", json_schema: { name: "output", schema } } };
}

/** Converts names: maxTokens → max_tokens. */
function wireOf(sampling: Sampling): Record<string, unknown> {
  const entries = Object.entries(sampling).filter(([, one]) => one !== undefined);
  return Object.fromEntries(
    entries.map(([name, one]) => [name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`), one]),
  );
}
