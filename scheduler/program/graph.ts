import { assert } from "../../base/assert.ts";
import type { Objective } from "../core.ts";
import { bodiesOf, boundBy, inputsOf, type NodeSpec, outputsOf, type Value } from "./spec.ts";

/** What a variable is: nobody writes it yet; a node will; it has its value; it never will. */
export type VariableState = "empty" | "pending" | "ready" | "failed";

/** Why a value never comes. */
export interface Failure {
  /** cancelled: nobody wants it any more. transform: a value was not what a transform takes. limit: a limit of programs.
   *  noCase: no case of a choice. Others come from the engine that ran the call. */
  readonly code: string;
  readonly message: string;
  /** The node where it began. */
  readonly origin: string;
}

/** A value that flows between nodes. Set once. */
export class Variable {
  readonly name: string;
  /** Null: the client's, or bound by a node to what it hands to a body. */
  producer: Node | null = null;
  /** Everything that reads it, but for what is forgotten. */
  readonly readers = new Set<Node>();
  state: VariableState = "empty";
  value: Value | null = null;
  failure: Failure | null = null;
  /** Nobody will ask for it from outside, nor read it in what is added later. */
  isReleased = false;
  /** When it was ready or failed, and whether its readers know. */
  settledMs = 0;
  isKnown = false;
  /** Of a bound one: the variable that it comes of. */
  origin: Variable | null = null;

  constructor(name: string) {
    this.name = name;
  }
}

/** Names as a node sees them. */
export interface Scope {
  readonly names: Map<string, Variable>;
  /** Null: the program's own. */
  readonly outer: Scope | null;
}

/** A node of the running graph. */
export class Node {
  /** Unique in the program: what was copied from a body has its place before it, as in `parts[3]/summarise`. */
  readonly name: string;
  readonly spec: NodeSpec;
  readonly scope: Scope;
  /** The node whose body this was copied from; and what was copied from this one's. */
  readonly block: Node | null;
  readonly copies: Node[] = [];
  /** What it needs to begin, each once; and with these what its bodies read around them. */
  readonly inputs: readonly Variable[];
  readonly reads: readonly Variable[];
  /** By index of `outputsOf`. */
  readonly outputs: readonly Variable[];
  /** Inputs that it does not know to be ready. */
  missing = 0;
  state: "waiting" | "running" | "done" | "failed" = "waiting";
  /** Why it failed, and the variable that it failed by; null: by itself. */
  failure: Failure | null = null;
  failedBy: Variable | null = null;

  /** How what it makes is awaited (objectives.ts). */
  objective: Objective = "throughput";
  taskGroup: TaskGroup | null = null;
  ttftMs: number | null = null;
  tbtMs: number | null = null;
  /** Milliseconds that it is expected to take, and from its beginning to the end of the longest path from here. */
  expectedMs = 0;
  remainingMs = 0;

  /** Of a copy: the variable by which it was made. */
  readonly cause: Variable | null;
  /** What it waited for last: an input, or its cause; null: nothing. */
  lastInput: Variable | null = null;
  /** Of a node with bodies: the last of their values. */
  lastResult: Variable | null = null;
  readonly times: NodeTimes = {
    readyMs: null,
    placedMs: null,
    startedMs: null,
    firstMs: null,
    endedMs: null,
  };
  readonly tokens: NodeTokens = { prompt: 0, found: 0, warmed: 0, output: 0 };

  constructor(name: string, spec: NodeSpec, scope: Scope, copied: Copied | null, find: Finder) {
    this.name = name;
    this.spec = spec;
    this.scope = scope;
    this.block = copied?.block ?? null;
    this.cause = copied?.cause ?? null;
    this.inputs = distinct(inputsOf(spec).map(find.read));
    this.reads = distinct([...this.inputs, ...freeNamesOf(spec).map(find.read)]);
    this.outputs = outputsOf(spec).map(find.write);
    this.block?.copies.push(this);
    for (const variable of this.reads) variable.readers.add(this);
    for (const variable of this.outputs) {
      assert(variable.producer === null && variable.state === "empty", "a variable is written by one node");
      variable.producer = this;
      variable.state = "pending";
    }
    for (const { state, isKnown } of this.inputs) if (state !== "ready" || !isKnown) this.missing += 1;
  }

  get isEnded(): boolean {
    return this.state === "done" || this.state === "failed";
  }
}

/** Nodes of which only the last one counts. */
export interface TaskGroup {
  readonly number: number;
  /** The task group that it turned out to be one with. */
  mergedInto: TaskGroup | null;
}

/** When a node's life went on; null: not yet. */
export interface NodeTimes {
  readyMs: number | null;
  placedMs: number | null;
  startedMs: number | null;
  firstMs: number | null;
  endedMs: number | null;
}

/** Of a call: tokens of its prompt, those of them that were cached, those of them that were computed ahead for it, and tokens
 *  of its answers. */
export interface NodeTokens {
  prompt: number;
  found: number;
  warmed: number;
  output: number;
}

/** Whose body a node was copied from, and by which variable that came to be known. */
export interface Copied {
  readonly block: Node;
  readonly cause: Variable;
}

/** How a node comes to its variables. */
export interface Finder {
  read(name: string): Variable;
  write(name: string): Variable;
}

/** The variable of that name as seen from a scope. */
export function lookUp(scope: Scope, name: string): Variable | null {
  for (let at: Scope | null = scope; at !== null; at = at.outer) {
    const variable = at.names.get(name);
    if (variable !== undefined) return variable;
  }
  return null;
}

/** What a node's bodies read that is neither bound nor written in them. */
export function freeNamesOf(spec: NodeSpec): readonly string[] {
  const bodies = bodiesOf(spec);
  if (bodies.length === 0) return [];
  const bound = new Set<string>(boundBy(spec));
  const free = new Set<string>();
  for (const { nodes, result } of bodies) {
    const written = new Set(nodes.flatMap(outputsOf));
    const read = [...nodes.flatMap(inputsOf), ...nodes.flatMap(freeNamesOf), result];
    for (const name of read) if (!written.has(name) && !bound.has(name)) free.add(name);
  }
  return [...free];
}

/** The way of a failure to a variable: the node where it began, and every variable and node after it. O(its length). */
export function pathOf(variable: Variable): readonly string[] {
  const path: string[] = [];
  for (let at: Variable | null = variable; at !== null; at = at.producer?.failedBy ?? null) {
    path.push(at.name);
    if (at.producer !== null) path.push(at.producer.name);
  }
  return path.reverse();
}

function distinct<Item>(items: readonly Item[]): readonly Item[] {
  return items.length < 2 ? items : [...new Set(items)];
}
