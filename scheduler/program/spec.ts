import type { TokenId } from "../../base/token.ts";
import type { ConstraintSource } from "../../grammar/source.ts";
import type { Objective, Sampling } from "../core.ts";

/**
 * Program as a client describes it: data alone, checked by check.ts.
 *
 * A program is a graph of nodes that read and write *variables*. A variable is set once. A call node runs a
 * model. The other nodes copy a body of nodes when a value is known: for each item of a list, for the chosen
 * case, or until a test passes.
 */
export interface ProgramPart {
  readonly variables: readonly VariableSpec[];
  readonly nodes: readonly NodeSpec[];
}

/** Value of a variable. Lists come from transforms and maps; maps, reduces and transforms read them. */
export type Value = string | readonly string[];

/** Variable declared before any node writes it: with its value, or null if set or written later. */
export interface VariableSpec {
  readonly name: string;
  readonly value: Value | null;
}

/** Step of a chain of transforms. `Transform` defines the kinds. */
export interface TransformStep {
  readonly kind: string;
}

/** Port: applies a chain of transforms to a value. Deterministic, and bounded in time and size. */
export type Transform = (value: Value, steps: readonly TransformStep[]) => Transformed;

/** Result of a transform. */
export type Transformed =
  | { readonly kind: "value"; readonly value: Value }
  | { readonly kind: "failed"; readonly message: string };

/** Node of the graph. */
export type NodeSpec = CallSpec | MapSpec | ReduceSpec | ChooseSpec | RepeatSpec;

/**
 * Call: one sequence of a model, with texts, values and answers in turn. It begins when all its inputs are
 * ready.
 */
export interface CallSpec {
  readonly kind: "call";
  readonly name: string;
  readonly prompt: Prompt<PromptPart>;
}

/**
 * Prompt as plain text, or as messages for the model's chat template. In a chat, an output is the only part
 * of its message.
 */
export type Prompt<PartOf> =
  | { readonly kind: "text"; readonly parts: readonly PartOf[] }
  | { readonly kind: "chat"; readonly messages: readonly Message<PartOf>[] };

/** Chat message. */
export interface Message<PartOf> {
  readonly role: string;
  readonly parts: readonly PartOf[];
}

/** Piece of a prompt. The prompt ends after the last output. */
export type PromptPart = TextPart | InputPart | OutputPart;

/** Constant text. */
export interface TextPart {
  readonly kind: "text";
  readonly text: string;
}

/** Input: a variable's value after `transforms`, which must yield a text. */
export interface InputPart {
  readonly kind: "input";
  readonly variable: string;
  readonly transforms: readonly TransformStep[];
}

/**
 * Output: the model draws text here; after `transforms` it becomes the variable's value. Later parts of the
 * same call read the drawn tokens themselves.
 */
export interface OutputPart {
  readonly kind: "output";
  readonly variable: string;
  readonly transforms: readonly TransformStep[];
  readonly sampling: Sampling;
  /** Tokens to draw at most; null: up to the context limit. */
  readonly tokensMax: number | null;
  /** Stop strings, not part of the output. */
  readonly stop: readonly string[];
  /** Constraint on the text, and the client's field that set it. Absent: none. */
  readonly constraint?: { readonly source: ConstraintSource; readonly param: string };
  /** Other end conditions. Absent: the model's own end tokens, at any time. */
  readonly ends?: {
    /** Minimum number of tokens before any end. */
    readonly tokensMin: number;
    readonly stopTokens: readonly TokenId[];
    /** True if the model's own end tokens do not end it. */
    readonly ignoreEos: boolean;
  };
}

/**
 * Body: nodes to copy, each copy with its own names. They read the variables around them, and write none of
 * those.
 */
export interface Body {
  readonly nodes: readonly NodeSpec[];
  /** Name of the variable that is the body's value. */
  readonly result: string;
}

/** Map: one body per list item; `output` is the list of results, in order. */
export interface MapSpec {
  readonly kind: "map";
  readonly name: string;
  readonly over: string;
  /** Name of the item in the body. */
  readonly item: string;
  readonly body: Body;
  readonly output: string;
  /** Bodies that run at once at most, ≥ 1. */
  readonly concurrencyMax: number;
}

/**
 * Reduce: one body after another, per list item. Each result is the next accumulator; the last one is
 * `output`.
 */
export interface ReduceSpec {
  readonly kind: "reduce";
  readonly name: string;
  readonly over: string;
  readonly item: string;
  /** Variable that is the first accumulator; and the accumulator's name in the body. */
  readonly initial: string;
  readonly accumulator: string;
  readonly body: Body;
  readonly output: string;
}

/** Choose: the body of the first case whose test the value passes, else `otherwise`. Null: `output` fails. */
export interface ChooseSpec {
  readonly kind: "choose";
  readonly name: string;
  readonly on: string;
  readonly cases: readonly { readonly test: Test; readonly body: Body }[];
  readonly otherwise: Body | null;
  readonly output: string;
}

/**
 * Repeat: each result is the next state, and the last one is `output`. Ends when a result passes the test, or
 * after `countMax` ≥ 1 bodies.
 */
export interface RepeatSpec {
  readonly kind: "repeat";
  readonly name: string;
  /** Variable that is the first state; and the state's name in the body. */
  readonly initial: string;
  readonly state: string;
  readonly body: Body;
  readonly until: Test;
  readonly countMax: number;
  readonly output: string;
}

/** Test of a text. `passes`: true if a chain of transforms succeeds on it, such as a pattern search. */
export type Test =
  | { readonly kind: "equals"; readonly text: string }
  | { readonly kind: "contains"; readonly text: string }
  | { readonly kind: "passes"; readonly transforms: readonly TransformStep[] };

/** Criteria of an awaited value (Parrot). */
export interface Criteria {
  readonly objective: Extract<Objective, "latency" | "throughput">;
  /** Targets in milliseconds: to the first token (TTFT), and between two (TBT); null: no target. */
  readonly ttftMs: number | null;
  readonly tbtMs: number | null;
}

/** Returns all parts of a prompt in order, across messages. */
export function partsOf<PartOf>(prompt: Prompt<PartOf>): readonly PartOf[] {
  return prompt.kind === "text" ? prompt.parts : prompt.messages.flatMap(({ parts }) => parts);
}

/** Returns the bodies of a node. */
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

/** Returns the variables that a node needs to begin. A name may occur several times. */
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

/** Returns the variables that a node writes. */
export function outputsOf(spec: NodeSpec): readonly string[] {
  if (spec.kind !== "call") return [spec.output];
  return partsOf(spec.prompt).flatMap((part) => (part.kind === "output" ? [part.variable] : []));
}

/** Returns the names that a node binds in its bodies. */
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

/** List items of a map or reduce at most, and bodies of a repeat. */
export const MAP_ITEMS_MAX = 1024;
export const REPEAT_COUNT_MAX = 1024;

/** Limits of one program. */
export interface Limits {
  /** Nodes at most, copies of bodies included. */
  readonly nodesMax: number;
  /** Variables at most that clients declare or nodes outside of bodies write. */
  readonly variablesMax: number;
  /** Characters of one value at most, summed over the items of a list. */
  readonly valueCharsMax: number;
}

/** Default limits. */
export const programLimits: Limits = {
  nodesMax: 16_384,
  variablesMax: 32_768,
  valueCharsMax: 1_048_576,
};
