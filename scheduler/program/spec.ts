import type { TokenId } from "../../base/token.ts";
import type { ConstraintSource } from "../../grammar/source.ts";
import type { Objective, Sampling } from "../core.ts";

/**
 * What a client says of a program: data alone, checked by graph.ts.
 *
 * A program is a graph of nodes that read and write *variables*. A variable is set once. A call's node runs a model; the
 * other nodes copy a body of nodes when a value is known: as often as a list has items, as a value chooses, or until a test
 * is passed.
 */
export interface ProgramPart {
  readonly variables: readonly VariableSpec[];
  readonly nodes: readonly NodeSpec[];
}

/** What a variable holds. A list comes of a transform or a map, and is read by a map, a reduce or a transform. */
export type Value = string | readonly string[];

/** A variable that is there before any node writes it: with its value, or (null) to be set or written later. */
export interface VariableSpec {
  readonly name: string;
  readonly value: Value | null;
}

/** One step of a chain of transforms. What kinds there are is the `Transform`'s business. */
export interface TransformStep {
  readonly kind: string;
}

/** Port: applies a chain to a value. The same value and chain give the same result, in bounded time and size. */
export type Transform = (value: Value, steps: readonly TransformStep[]) => Transformed;

/** What became of a value. */
export type Transformed =
  | { readonly kind: "value"; readonly value: Value }
  | { readonly kind: "failed"; readonly message: string };

/** A node of the graph. */
export type NodeSpec = CallSpec | MapSpec | ReduceSpec | ChooseSpec | RepeatSpec;

/** One sequence of a model: texts, values and answers in turn. It begins when all that it reads is known. */
export interface CallSpec {
  readonly kind: "call";
  readonly name: string;
  readonly prompt: Prompt<PromptPart>;
}

/** Text as it is, or messages for the model's chat template. An output in a chat is the only part of its message. */
export type Prompt<PartOf> =
  | { readonly kind: "text"; readonly parts: readonly PartOf[] }
  | { readonly kind: "chat"; readonly messages: readonly Message<PartOf>[] };

/** One message of a chat. */
export interface Message<PartOf> {
  readonly role: string;
  readonly parts: readonly PartOf[];
}

/** A piece of a prompt. After the last output there is nothing. */
export type PromptPart = TextPart | InputPart | OutputPart;

/** Text that every run of the call has. */
export interface TextPart {
  readonly kind: "text";
  readonly text: string;
}

/** A variable's value after `transforms`, which make it a text. */
export interface InputPart {
  readonly kind: "input";
  readonly variable: string;
  readonly transforms: readonly TransformStep[];
}

/** What the model draws here; after `transforms` it is the variable's value. What follows in the same call reads the drawn
 *  tokens themselves. */
export interface OutputPart {
  readonly kind: "output";
  readonly variable: string;
  readonly transforms: readonly TransformStep[];
  readonly sampling: Sampling;
  /** Tokens to draw at most; null: as many as there is room for. */
  readonly tokensMax: number | null;
  /** Texts that end it, and are not part of it. */
  readonly stop: readonly string[];
  /** What its text is held to, and the client's field that said so; left out: nothing. */
  readonly constraint?: { readonly source: ConstraintSource; readonly param: string };
  /** What else ends it; left out: the model's own end tokens, at any time. */
  readonly ends?: {
    /** Until so many tokens are drawn, nothing ends it. */
    readonly tokensMin: number;
    readonly stopTokens: readonly TokenId[];
    /** The model's own end tokens do not end it. */
    readonly ignoreEos: boolean;
  };
}

/** Nodes to be copied, with names of their own. They read what is around them, and write none of it. */
export interface Body {
  readonly nodes: readonly NodeSpec[];
  /** The variable whose value is the body's. */
  readonly result: string;
}

/** The body for each item of a list; `output` is the list of results, in order. */
export interface MapSpec {
  readonly kind: "map";
  readonly name: string;
  readonly over: string;
  /** The item's name in the body. */
  readonly item: string;
  readonly body: Body;
  readonly output: string;
  /** Bodies that run at once, ≥ 1. */
  readonly concurrencyMax: number;
}

/** The body for one item of a list after another; each result is the next one's accumulator, the last one is `output`. */
export interface ReduceSpec {
  readonly kind: "reduce";
  readonly name: string;
  readonly over: string;
  readonly item: string;
  /** The variable that the first accumulator is, and its name in the body. */
  readonly initial: string;
  readonly accumulator: string;
  readonly body: Body;
  readonly output: string;
}

/** The body of the first case whose test the value passes, else `otherwise`; null: `output` fails. */
export interface ChooseSpec {
  readonly kind: "choose";
  readonly name: string;
  readonly on: string;
  readonly cases: readonly { readonly test: Test; readonly body: Body }[];
  readonly otherwise: Body | null;
  readonly output: string;
}

/** The body again and again: its result is the next one's state, and in the end `output`. Ends when a result passes the test,
 *  or after `countMax` ≥ 1 bodies. */
export interface RepeatSpec {
  readonly kind: "repeat";
  readonly name: string;
  /** The variable that the first state is, and its name in the body. */
  readonly initial: string;
  readonly state: string;
  readonly body: Body;
  readonly until: Test;
  readonly countMax: number;
  readonly output: string;
}

/** A question about a text. `passes`: whether a chain of transforms succeeds on it, such as a pattern that is found. */
export type Test =
  | { readonly kind: "equals"; readonly text: string }
  | { readonly kind: "contains"; readonly text: string }
  | { readonly kind: "passes"; readonly transforms: readonly TransformStep[] };

/** How a value is awaited (Parrot's criteria). */
export interface Criteria {
  readonly objective: Extract<Objective, "latency" | "throughput">;
  /** Milliseconds wanted at most to its first token, and between two; null: no target. */
  readonly ttftMs: number | null;
  readonly tbtMs: number | null;
}

/** All parts of a prompt in order, whatever message they are in. */
export function partsOf<PartOf>(prompt: Prompt<PartOf>): readonly PartOf[] {
  return prompt.kind === "text" ? prompt.parts : prompt.messages.flatMap(({ parts }) => parts);
}

/** The bodies of a node. */
export function bodiesOf(spec: NodeSpec): readonly Body[] {
  switch (spec.kind) {
    case "call":
      return [];
    case "choose":
      return [...spec.cases.map(({ body }) => body), ...(spec.otherwise === null ? [] : [spec.otherwise])];
    default:
      return [spec.body];
  }
}

/** The variables without which a node cannot begin. A name may come several times. */
export function inputsOf(spec: NodeSpec): readonly string[] {
  switch (spec.kind) {
    case "call":
      return partsOf(spec.prompt).flatMap((part) => (part.kind === "input" ? [part.variable] : []));
    case "map":
      return [spec.over];
    case "reduce":
      return [spec.over, spec.initial];
    case "choose":
      return [spec.on];
    case "repeat":
      return [spec.initial];
  }
}

/** The variables that a node writes. */
export function outputsOf(spec: NodeSpec): readonly string[] {
  if (spec.kind !== "call") return [spec.output];
  return partsOf(spec.prompt).flatMap((part) => (part.kind === "output" ? [part.variable] : []));
}

/** The names that a node gives to what it hands to its bodies. */
export function boundBy(spec: NodeSpec): readonly string[] {
  switch (spec.kind) {
    case "map":
      return [spec.item];
    case "reduce":
      return [spec.accumulator, spec.item];
    case "repeat":
      return [spec.state];
    default:
      return [];
  }
}
