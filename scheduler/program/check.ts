import { freeNamesOf, lookUp, type Node, type Scope } from "./graph.ts";
import {
  type Body,
  bodiesOf,
  boundBy,
  inputsOf,
  type Limits,
  MAP_ITEMS_MAX,
  type NodeSpec,
  outputsOf,
  type ProgramPart,
  partsOf,
  REPEAT_COUNT_MAX,
  type Value,
} from "./spec.ts";

/** Refusal of a part of a program; the program adds nothing of that part. */
export interface Refusal {
  readonly code:
    | "badName"
    | "badNode"
    | "cycle"
    | "duplicateName"
    | "ended"
    | "limit"
    | "notEmpty"
    | "twoProducers"
    | "unknownName";
  /** Message that names the node or variable, and the limit and the value. */
  readonly message: string;
}

/** Names that clients may use. Copies of bodies have other names. */
const NAME = /^[\w.-]{1,128}$/;
/** Nesting depth of bodies at most. */
const DEPTH_MAX = 8;

/** Existing program that the part is added to. */
interface Existing {
  readonly scope: Scope;
  readonly nodes: ReadonlyMap<string, Node>;
  readonly limits: Limits;
}

/**
 * Returns the first reason why `part` cannot be added; null: it can. O(nodes, reads and writes of the part,
 * and the nodes that they lead to).
 */
export function refusalOf(part: ProgramPart, existing: Existing): Refusal | null {
  const checking = refusalInSteps(part, existing);
  for (;;) {
    const { done, value } = checking.next();
    if (done === true) return value;
  }
}

/** Same check in steps, some nodes at a time. */
export function* refusalInSteps(part: ProgramPart, existing: Existing): Generator<void, Refusal | null> {
  try {
    checkSizes(part, existing);
    const known = new Set<string>();
    for (const { name, value } of part.variables) {
      checkName(name);
      if (known.has(name) || existing.scope.names.has(name))
        refuse("duplicateName", `The variable ${name} is there already.`);
      known.add(name);
      if (value !== null) checkValue(name, value, existing.limits);
    }
    const valued = new Set(part.variables.flatMap(({ name, value }) => (value === null ? [] : [name])));
    yield;
    const written = writersOf(part.nodes, existing.nodes);
    yield;
    for (const [name, writer] of written) {
      known.add(name);
      const variable = existing.scope.names.get(name);
      if (variable !== undefined && variable.producer !== null) {
        const other = variable.producer.name;
        refuse(
          "twoProducers",
          `The variable ${name} is written by ${other} and by ${writer}; it can be set once.`,
        );
      }
      if (valued.has(name) || (variable !== undefined && variable.state !== "empty"))
        refuse(
          "notEmpty",
          `The variable ${name} has its value already, and ${writer} writes it; it can be set once.`,
        );
    }
    const isKnown = (name: string): boolean => known.has(name) || lookUp(existing.scope, name) !== null;
    for (const node of part.nodes) {
      checkNode(node, isKnown, 0);
      yield;
    }
    yield* checkCycle(part.nodes, existing.scope);
    return null;
  } catch (error) {
    if (error instanceof RefusalError) return error.refusal;
    throw error;
  }
}

/** Reason why the client cannot set the variable to this value; null: it can. */
export function valueRefusal(name: string, value: Value, limits: Limits): Refusal | null {
  return caught(() => checkValue(name, value, limits));
}

/** Characters of a value, summed over the items of a list. */
export function charsOf(value: Value): number {
  return typeof value === "string" ? value.length : value.reduce((sum, item) => sum + item.length, 0);
}

class RefusalError extends Error {
  readonly refusal: Refusal;

  constructor(refusal: Refusal) {
    super(refusal.message);
    this.refusal = refusal;
  }
}

function refuse(code: Refusal["code"], message: string): never {
  throw new RefusalError({ code, message });
}

function caught(check: () => void): Refusal | null {
  try {
    check();
    return null;
  } catch (error) {
    if (error instanceof RefusalError) return error.refusal;
    throw error;
  }
}

function checkSizes({ nodes, variables }: ProgramPart, { scope, nodes: there, limits }: Existing): void {
  const nodesThen = there.size + nodes.length;
  if (nodesThen > limits.nodesMax)
    refuse("limit", `${nodesThen} calls; a program has at most ${limits.nodesMax}.`);
  const variablesThen = scope.names.size + variables.length;
  if (variablesThen > limits.variablesMax)
    refuse("limit", `${variablesThen} variables; a program has at most ${limits.variablesMax}.`);
}

function checkName(name: string): void {
  if (!NAME.test(name)) {
    const shown = name.length <= 128 ? name : `${name.slice(0, 127)}…`;
    refuse(
      "badName",
      `The name ${JSON.stringify(shown)} is not 1 to 128 letters, digits, dots, hyphens and underscores.`,
    );
  }
}

function checkValue(name: string, value: Value, { valueCharsMax }: Limits): void {
  const chars = charsOf(value);
  if (chars > valueCharsMax)
    refuse("limit", `The value of ${name} has ${chars} characters; at most ${valueCharsMax} are taken.`);
}

/** Maps each written variable to the node that writes it, and checks the names. */
function writersOf(nodes: readonly NodeSpec[], existing: ReadonlyMap<string, Node>): Map<string, string> {
  const names = new Set<string>();
  const writers = new Map<string, string>();
  for (const node of nodes) {
    checkName(node.name);
    if (names.has(node.name) || existing.has(node.name))
      refuse("duplicateName", `The call ${node.name} is there already.`);
    names.add(node.name);
    for (const output of outputsOf(node)) {
      checkName(output);
      const other = writers.get(output);
      if (other === node.name) refuse("twoProducers", `${node.name} writes the variable ${output} twice.`);
      if (other !== undefined)
        refuse(
          "twoProducers",
          `The variable ${output} is written by ${other} and by ${node.name}; it can be set once.`,
        );
      writers.set(output, node.name);
    }
  }
  return writers;
}

function checkNode(node: NodeSpec, isKnown: (name: string) => boolean, depth: number): void {
  for (const name of inputsOf(node)) if (!isKnown(name)) refuseUnknown(node.name, name);
  if (node.kind === "call") checkPrompt(node);
  else {
    const problem = shapeProblem(node);
    if (problem !== null) refuse("badNode", `${node.name}: ${problem}`);
    if (depth === DEPTH_MAX) refuse("limit", `${node.name} is more than ${DEPTH_MAX} bodies deep.`);
    for (const body of bodiesOf(node)) checkBody(node, body, isKnown, depth);
  }
}

function checkBody(
  node: NodeSpec,
  { nodes, result }: Body,
  isKnown: (name: string) => boolean,
  depth: number,
): void {
  const local = new Set<string>();
  for (const name of [...boundBy(node), ...writersOf(nodes, new Map()).keys()]) {
    checkName(name);
    if (local.has(name) || isKnown(name))
      refuse("duplicateName", `${node.name}: the name ${name} of its body is taken already.`);
    local.add(name);
  }
  const isKnownHere = (name: string): boolean => local.has(name) || isKnown(name);
  for (const inner of nodes) checkNode(inner, isKnownHere, depth + 1);
  if (!isKnownHere(result)) refuseUnknown(node.name, result);
  for (const _ of checkCycle(nodes, null)); // a body is small, or there are few
}

function checkPrompt(node: Extract<NodeSpec, { kind: "call" }>): void {
  const { name, prompt } = node;
  const parts = partsOf(prompt);
  if (!parts.some(({ kind }) => kind === "output")) refuse("badNode", `${name} has no output.`);
  if (parts.at(-1)!.kind !== "output")
    refuse("badNode", `${name} has text after its last output, which nothing would read.`);
  for (const part of parts) {
    if (part.kind === "output" && part.tokensMax !== null && !isCount(part.tokensMax))
      refuse("badNode", `${name}: tokensMax is ${part.tokensMax}, not a whole number of at least 1.`);
  }
  if (prompt.kind === "text") return;
  for (const { parts: own } of prompt.messages) {
    if (own.length > 1 && own.some(({ kind }) => kind === "output"))
      refuse("badNode", `${name}: an output in a chat is a message of its own.`);
  }
}

function shapeProblem(node: Exclude<NodeSpec, { kind: "call" }>): string | null {
  if (node.kind === "map" && !(isCount(node.concurrencyMax) && node.concurrencyMax <= MAP_ITEMS_MAX))
    return `concurrencyMax is ${node.concurrencyMax}, not a whole number from 1 to ${MAP_ITEMS_MAX}.`;
  if (node.kind === "repeat" && !(isCount(node.countMax) && node.countMax <= REPEAT_COUNT_MAX))
    return `countMax is ${node.countMax}, not a whole number from 1 to ${REPEAT_COUNT_MAX}.`;
  return null;
}

function isCount(value: number): boolean {
  return Number.isInteger(value) && value >= 1;
}

function refuseUnknown(node: string, name: string): never {
  refuse("unknownName", `${node} reads ${name}, which nothing declares or writes.`);
}

/** Checks that new nodes close no cycle: among themselves, or (with a scope) through existing nodes. */
function* checkCycle(nodes: readonly NodeSpec[], scope: Scope | null): Generator<void, void> {
  const readers = new Map<string, NodeSpec[]>();
  for (const node of nodes) {
    yield;
    for (const name of new Set([...inputsOf(node), ...freeNamesOf(node)])) {
      const there = readers.get(name);
      if (there === undefined) readers.set(name, [node]);
      else there.push(node);
    }
  }
  const next = (vertex: NodeSpec | Node): (NodeSpec | Node)[] => {
    const written = "spec" in vertex ? vertex.outputs.map(({ name }) => name) : outputsOf(vertex);
    return written.flatMap((name) => [
      ...(readers.get(name) ?? []),
      ...(scope?.names.get(name)?.readers ?? []),
    ]);
  };
  const cycle = yield* findCycle<NodeSpec | Node>(nodes, next);
  if (cycle === null) return;
  const names = [...cycle, cycle[0]!].map(({ name }) => name);
  refuse("cycle", `Calls wait for each other: ${names.join(" → ")}.`);
}

/**
 * Finds a cycle reachable from `starts`: its vertices in order, each once; null if there is none. Iterative
 * depth-first search; visits each vertex and edge once. Yields at each start and each finished vertex.
 */
function* findCycle<Vertex>(
  starts: Iterable<Vertex>,
  next: (vertex: Vertex) => Iterable<Vertex>,
): Generator<void, readonly Vertex[] | null> {
  const done = new Set<Vertex>();
  for (const start of starts) {
    if (done.has(start)) continue;
    const path = [start];
    const onPath = new Set(path);
    const ways = [next(start)[Symbol.iterator]()];
    while (path.length > 0) {
      const step = ways.at(-1)!.next();
      if (step.done === true) {
        const left = path.pop()!;
        ways.pop();
        onPath.delete(left);
        done.add(left);
        yield;
      } else if (onPath.has(step.value)) return path.slice(path.indexOf(step.value));
      else if (!done.has(step.value)) {
        path.push(step.value);
        onPath.add(step.value);
        ways.push(next(step.value)[Symbol.iterator]());
      }
    }
  }
  return null;
}
