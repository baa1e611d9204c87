import { assert } from "../../base/assert.ts";
import { type Copied, type Failure, lookUp, type Node, type Scope, Variable } from "./graph.ts";
import {
  type Body,
  type CallSpec,
  type ChooseSpec,
  type Limits,
  MAP_ITEMS_MAX,
  type NodeSpec,
  outputsOf,
  type Test,
  type Transform,
  type Value,
} from "./spec.ts";

/** Host of nodes with bodies: the program they are in. */
export interface BlockHost {
  readonly limits: Limits;
  readonly transform: Transform;
  nowMs(): number;
  /** Number of nodes in the program, ended ones included. */
  nodeCount(): number;
  open(spec: NodeSpec, scope: Scope, prefix: string, copied: Copied): void;
  /**
   * Called when a body of `block` was copied, whose value is `result`. `width`: bodies that run or will run beside
   * it, itself included.
   */
  copied(block: Node, result: Variable, width: number): void;
  end(block: Node, value: Value): void;
  fail(node: Node, failure: Failure, by: Variable | null): void;
}

/** Run of a node whose bodies are being copied. */
interface Run {
  readonly node: Node;
  /** List items of a map or reduce; empty for others. */
  readonly items: readonly string[];
  /** Results of the copied bodies, in order. */
  readonly results: Variable[];
  /** Results that are not known yet, each with the number of bodies that it is the value of. */
  readonly awaited: Map<Variable, number>;
  /** Number of bodies whose value is not known yet. */
  live: number;
}

/** Binding of a name in a copied body: the name, the value, and the variable it comes from. */
interface Binding {
  readonly name: string;
  readonly value: Value;
}

/**
 * Nodes with bodies: copies the bodies as values become known, and ends each node when all its results are
 * known.
 */
export class Blocks {
  readonly #host: BlockHost;
  readonly #runs = new Map<Node, Run>();

  constructor(host: BlockHost) {
    this.#host = host;
  }

  /** Starts a node whose inputs are ready. */
  begin(node: Node): void {
    const { spec } = node;
    assert(spec.kind !== "call", "calls have no bodies");
    let items: readonly string[] = [];
    if (spec.kind === "map" || spec.kind === "reduce") {
      const { value } = lookUp(node.scope, spec.over)!;
      if (typeof value === "string") {
        this.#fail(node, "transform", `${spec.over} is a text where a list is read; split it first.`);
        return;
      }
      items = value!;
      if (items.length > MAP_ITEMS_MAX) {
        this.#fail(
          node,
          "limit",
          `${spec.over} has ${items.length} items; a ${spec.kind} takes at most ${MAP_ITEMS_MAX}.`,
        );
        return;
      }
    }
    const run: Run = { node, items, results: [], awaited: new Map(), live: 0 };
    this.#runs.set(node, run);
    if (spec.kind === "choose") this.#choose(run, spec);
    else this.#advance(run);
  }

  /** Handles a variable, read by the running node, that became ready or failed. */
  settled(node: Node, variable: Variable): void {
    const run = this.#runs.get(node);
    if (run === undefined) return;
    const bodies = run.awaited.get(variable);
    if (bodies === undefined) return; // only its bodies read it
    run.awaited.delete(variable);
    run.live -= bodies;
    if (variable.state === "failed") this.#host.fail(node, variable.failure!, variable);
    else this.#advance(run);
  }

  /** Drops the bodies of a failed node: no other node reads their results. */
  drop(node: Node): void {
    if (!this.#runs.delete(node)) return;
    const message = `${node.name} has failed, which alone would read it.`;
    for (const inner of node.copies) {
      this.#host.fail(inner, { code: "cancelled", message, origin: inner.name }, null);
    }
  }

  /** Propagates a changed objective to the running bodies, outer ones first. */
  deduceAgain(): void {
    for (const run of this.#runs.values()) {
      for (const result of run.results) this.#host.copied(run.node, result, widthOf(run));
    }
  }

  /** Copies the bodies that can be copied now, and ends the node if none is left. */
  #advance(run: Run): void {
    const { node, items, results } = run;
    const { spec } = node;
    switch (spec.kind) {
      case "map":
        while (results.length < items.length && run.live < spec.concurrencyMax && !node.isEnded) {
          const cause = results.length < spec.concurrencyMax ? node.inputs[0]! : latestOf(results);
          this.#copy(run, spec.body, cause, [{ name: spec.item, value: items[results.length]! }]);
        }
        if (run.live === 0 && results.length === items.length) this.#endMap(run);
        return;
      case "reduce":
        while (run.live === 0 && !node.isEnded) {
          const result = results.at(-1);
          const last = result ?? lookUp(node.scope, spec.initial)!;
          if (results.length === items.length) {
            this.#end(run, last);
            return;
          }
          const bindings = [
            { name: spec.accumulator, value: last.value! },
            { name: spec.item, value: items[results.length]! },
          ];
          this.#copy(run, spec.body, result ?? node.lastInput!, bindings);
        }
        return;
      case "repeat":
        while (run.live === 0 && !node.isEnded) {
          const result = results.at(-1);
          const last = result ?? lookUp(node.scope, spec.initial)!;
          if (
            result !== undefined &&
            (results.length === spec.countMax || this.#passes(spec.until, result.value!))
          ) {
            this.#end(run, last);
            return;
          }
          this.#copy(run, spec.body, last, [{ name: spec.state, value: last.value! }]);
        }
        return;
      case "choose":
        if (run.live === 0) this.#end(run, results[0]!);
    }
  }

  #choose(run: Run, { on, cases, otherwise }: ChooseSpec): void {
    const value = lookUp(run.node.scope, on)!.value!;
    const body = cases.find(({ test }) => this.#passes(test, value))?.body ?? otherwise;
    if (body === null) {
      this.#fail(run.node, "noCase", `${on} passes the test of no case, and there is no other.`);
      return;
    }
    this.#copy(run, body, run.node.inputs[0]!, []);
    if (!run.node.isEnded) this.#advance(run);
  }

  /**
   * Copies a body and adds its result. The node fails if that result has failed, or if there are too many
   * nodes.
   */
  #copy(run: Run, body: Body, cause: Variable, bindings: readonly Binding[]): void {
    const { node, results } = run;
    const { nodesMax } = this.#host.limits;
    const nodesThen = this.#host.nodeCount() + body.nodes.length;
    if (nodesThen > nodesMax) {
      this.#fail(
        node,
        "limit",
        `${nodesThen} calls with those of ${node.name}; a program has at most ${nodesMax}.`,
      );
      return;
    }
    const prefix = `${node.name}[${results.length}]/`;
    const scope: Scope = { names: new Map(), outer: node.scope };
    for (const { name, value } of bindings) {
      const variable = new Variable(prefix + name);
      variable.state = "ready";
      variable.value = value;
      variable.isKnown = true;
      variable.origin = cause;
      variable.settledMs = this.#host.nowMs();
      scope.names.set(name, variable);
    }
    for (const name of body.nodes.flatMap(outputsOf)) scope.names.set(name, new Variable(prefix + name));
    const result = lookUp(scope, body.result)!;
    results.push(result);
    if (!result.isKnown) {
      const others = run.awaited.get(result);
      result.readers.add(node);
      run.awaited.set(result, (others ?? 0) + 1);
      run.live += 1;
    }
    for (const inner of body.nodes) this.#host.open(inner, scope, prefix, { block: node, cause });
    this.#host.copied(node, result, widthOf(run));
    if (result.isKnown && result.state === "failed") this.#host.fail(node, result.failure!, result);
  }

  #endMap(run: Run): void {
    const values = run.results.map(({ value }) => value!);
    const list = values.findIndex((value) => typeof value !== "string");
    if (list >= 0) {
      const name = run.results[list]!.name;
      this.#fail(run.node, "transform", `${name} is a list, and an item of a list is a text; join it first.`);
      return;
    }
    this.#runs.delete(run.node);
    if (run.results.length > 0) run.node.lastResult = latestOf(run.results);
    this.#host.end(run.node, values as readonly string[]);
  }

  #end({ node }: Run, result: Variable): void {
    this.#runs.delete(node);
    node.lastResult = result;
    this.#host.end(node, result.value!);
  }

  #passes(test: Test, value: Value): boolean {
    if (test.kind === "passes") return this.#host.transform(value, test.transforms).kind === "value";
    if (typeof value !== "string") return false;
    return test.kind === "equals" ? value === test.text : value.includes(test.text);
  }

  #fail(node: Node, code: string, message: string): void {
    this.#host.fail(node, { code, message, origin: node.name }, null);
  }
}

/** Number of bodies of a node that may run in parallel. */
function widthOf({ node, items }: Run): number {
  const spec: Exclude<NodeSpec, CallSpec> = node.spec as Exclude<NodeSpec, CallSpec>;
  return spec.kind === "map" ? Math.min(items.length, spec.concurrencyMax) : 1;
}

function latestOf(variables: readonly Variable[]): Variable {
  return variables.reduce((latest, variable) => (variable.settledMs >= latest.settledMs ? variable : latest));
}
