import { assert } from "../../base/assert.ts";
import type { Objective } from "../core.ts";
import { bodiesOf, boundBy, inputsOf, type NodeSpec, outputsOf, type Value } from "./spec.ts";

/**
 * State of a variable: empty (no node writes it yet), pending (a node will write it), ready (has its value),
 * failed (never gets one).
 */
export type VariableState = "empty" | "pending" | "ready" | "failed";

/** Failure of a value. */
export interface Failure {
  /**
   * Code of the failure. cancelled: no reader or client needs it any more. transform: a transform did not
   * accept the value. limit: a limit of programs. noCase: no case of a choice matched. Others come from the
   * engine that ran the call.
   */
  readonly code: string;
  readonly message: string;
  /** Name of the node where the failure began. */
  readonly origin: string;
}

/** Variable: a value that flows between nodes. Set once. */
export class Variable {
  readonly name: string;
  /** Node that writes it. Null: the client sets it, or a node binds it for its body. */
  producer: Node | null = null;
  /** Nodes that read it, forgotten ones excluded. */
  readonly readers = new Set<Node>();
  state: VariableState = "empty";
  value: Value | null = null;
  failure: Failure | null = null;
  /** True after the client's release: no client requests it, and no node added later reads it. */
  isReleased = false;
  /** Time at which it became ready or failed; and whether its readers know (`isKnown`). */
  settledMs = 0;
  isKnown = false;
  /** Variable that a bound one comes from; null for others. */
  origin: Variable | null = null;

  constructor(name: string) {
    this.name = name;
  }
}

/** Scope: the names that a node sees. */
export interface Scope {
  readonly names: Map<string, Variable>;
  /** Enclosing scope; null: this is the program's own. */
  readonly outer: Scope | null;
}

/** A node of the running graph. */
export class Node {
  /**
   * Name, unique in the program. A node copied from a body has its path as prefix, as in
   * `parts[3]/summarise`.
   */
  readonly name: string;
  readonly spec: NodeSpec;
  readonly scope: Scope;
  /** Node whose body this was copied from; and the nodes copied from this one's bodies (`copies`). */
  readonly block: Node | null;
  readonly copies: Node[] = [];
  /** Inputs needed to begin, each once; and the same plus the outer variables that its bodies read. */
  readonly inputs: readonly Variable[];
  readonly reads: readonly Variable[];
  /** Outputs, by index of `outputsOf`. */
  readonly outputs: readonly Variable[];
  /** Inputs that the node does not know to be ready. */
  missing = 0;
  state: "waiting" | "running" | "done" | "failed" = "waiting";
  /** Failure of the node, and the variable that caused it; null: the node itself failed. */
  failure: Failure | null = null;
  failedBy: Variable | null = null;

  /** SLO class deduced from the criteria of its outputs (objectives.ts). */
  objective: Objective = "throughput";
  taskGroup: TaskGroup | null = null;
  ttftMs: number | null = null;
  tbtMs: number | null = null;
  /** Expected milliseconds of the node, and from its beginning to the end of the longest path from it. */
  expectedMs = 0;
  remainingMs = 0;

  /** Variable that caused the copy; null for nodes that are not copies. */
  readonly cause: Variable | null;
  /** Last settled input, or the cause of the copy; null: neither. */
  lastInput: Variable | null = null;
  /** Last settled result of its bodies; null for nodes without bodies. */
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

/** Task group: nodes of which only the last to end counts. */
export interface TaskGroup {
  readonly number: number;
  /** Task group that this one was merged into; null: none. */
  mergedInto: TaskGroup | null;
}

/** Times of a node's transitions; null: not yet. */
export interface NodeTimes {
  readyMs: number | null;
  placedMs: number | null;
  startedMs: number | null;
  firstMs: number | null;
  endedMs: number | null;
}

/** Token counts of a call: prompt, cached part of it, part computed ahead, and answers. */
export interface NodeTokens {
  prompt: number;
  found: number;
  warmed: number;
  output: number;
}

/** Origin of a copied node: the node of the body, and the variable that caused the copy. */
export interface Copied {
  readonly block: Node;
  readonly cause: Variable;
}

/** Lookup of a node's variables. */
export interface Finder {
  read(name: string): Variable;
  write(name: string): Variable;
}

/** Returns the variable of that name as seen from a scope. */
export function lookUp(scope: Scope, name: string): Variable | null {
  for (let at: Scope | null = scope; at !== null; at = at.outer) {
    const variable = at.names.get(name);
    if (variable !== undefined) return variable;
  }
  return null;
}

/** Free variables of a node's bodies: read there, and neither bound nor written there. */
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

/**
 * Path of a failure to a variable: the node where it began, then every variable and node after it. O(its
 * length).
 */
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
