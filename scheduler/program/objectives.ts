import type { Objective } from "../core.ts";
import type { Node, TaskGroup, Variable } from "./graph.ts";
import type { Criteria } from "./spec.ts";

const RANKS: Readonly<Record<Objective, number>> = { throughput: 0, gang: 1, latency: 2 };

/**
 * Deduction of each node's SLO class, backward from the awaited values (Parrot, arXiv:2405.19888 §5.2).
 *
 * The stage of a node is the longest path, in nodes, from it to a value awaited with latency. A node alone in
 * its stage gets the latency class, since everything before the value depends on it. Several nodes of one
 * stage form a task group: only the last of them counts. Nodes of values awaited with throughput, or not
 * awaited, get the throughput class.
 *
 * Criteria accumulate: latency over gang over throughput, and never down again. Task groups that share a node
 * are merged.
 */
export class Objectives {
  /** Returns numbers for task groups, unique for the life of the process. */
  readonly #nextTaskGroup: () => number;
  /** Task groups by the awaited value or node, then by stage. */
  readonly #taskGroups = new Map<Variable | Node, Map<number, TaskGroup>>();

  constructor(nextTaskGroup: () => number) {
    this.#nextTaskGroup = nextTaskGroup;
  }

  /** Adds a criterion for the variable to everything it depends on. O(nodes and edges before it). */
  want(variable: Variable, { objective, ttftMs, tbtMs }: Criteria): void {
    const { producer } = variable;
    if (producer === null || objective === "throughput") return;
    producer.ttftMs = least(producer.ttftMs, ttftMs);
    producer.tbtMs = least(producer.tbtMs, tbtMs);
    this.#mark(variable, variable, 1);
  }

  /** Forgets the task groups of a value or node. */
  forget(of: Variable | Node): void {
    this.#taskGroups.delete(of);
  }

  /**
   * Handles a copied body: `result` is its value, `width` the bodies that run or will run beside it, itself
   * included.
   */
  copied(block: Node, result: Variable, width: number): void {
    if (block.objective === "throughput") return;
    if (result.producer?.block === block) this.#mark(block, result, block.objective === "gang" ? 2 : width);
  }

  /** Returns the number of the task group that a node is in; null: none. */
  taskGroupOf({ objective, taskGroup }: Node): number | null {
    return objective === "gang" && taskGroup !== null ? rootOf(taskGroup).number : null;
  }

  #mark(of: Variable | Node, result: Variable, width: number): void {
    const stages = stagesBefore(result);
    for (const [stage, nodes] of stages.entries()) {
      const isAlone = nodes.length === 1 && width === 1;
      for (const node of nodes) {
        if (isAlone) raise(node, "latency", null);
        else this.#join(node, this.#taskGroup(of, stage));
      }
    }
  }

  #join(node: Node, taskGroup: TaskGroup): void {
    if (node.taskGroup !== null) {
      const [a, b] = [rootOf(node.taskGroup), rootOf(taskGroup)];
      if (a !== b) b.mergedInto = a;
    }
    raise(node, "gang", node.taskGroup ?? taskGroup);
  }

  #taskGroup(of: Variable | Node, stage: number): TaskGroup {
    let taskGroups = this.#taskGroups.get(of);
    if (taskGroups === undefined) {
      taskGroups = new Map();
      this.#taskGroups.set(of, taskGroups);
    }
    let taskGroup = taskGroups.get(stage);
    if (taskGroup === undefined) {
      taskGroup = { number: this.#nextTaskGroup(), mergedInto: null };
      taskGroups.set(stage, taskGroup);
    }
    return taskGroup;
  }
}

/** Finds the root of a merged task group, halving the path on the way. */
function rootOf(taskGroup: TaskGroup): TaskGroup {
  let root = taskGroup;
  while (root.mergedInto !== null) {
    root.mergedInto = root.mergedInto.mergedInto ?? root.mergedInto;
    root = root.mergedInto;
  }
  return root;
}

function raise(node: Node, objective: Objective, taskGroup: TaskGroup | null): void {
  if (RANKS[objective] < RANKS[node.objective]) return;
  node.objective = objective;
  node.taskGroup = taskGroup;
}

/**
 * Nodes that a variable depends on, by stage; stage 0 writes it. Leaves out nodes of other bodies and
 * everything before an ended node, which no longer affects it.
 */
function stagesBefore({ producer }: Variable): readonly (readonly Node[])[] {
  if (producer === null) return [];
  const order = consumersFirst(producer);
  const stageOf = new Map<Node, number>([[producer, 0]]);
  const stages: Node[][] = [];
  for (const node of order) {
    const stage = stageOf.get(node)!;
    stages[stage] ??= [];
    stages[stage].push(node);
    for (const before of producersOf(node)) {
      stageOf.set(before, Math.max(stageOf.get(before) ?? 0, stage + 1));
    }
  }
  return stages;
}

/** Returns a node and all its predecessors in reverse topological order: each after all its readers. */
function consumersFirst(last: Node): readonly Node[] {
  const seen = new Set<Node>([last]);
  const producersFirst: Node[] = [];
  const path = [{ node: last, ways: producersOf(last), at: 0 }];
  while (path.length > 0) {
    const top = path.at(-1)!;
    const next = top.ways[top.at];
    top.at += 1;
    if (next === undefined) {
      producersFirst.push(top.node);
      path.pop();
    } else if (!seen.has(next)) {
      seen.add(next);
      path.push({ node: next, ways: producersOf(next), at: 0 });
    }
  }
  return producersFirst.reverse();
}

function producersOf(node: Node): readonly Node[] {
  if (node.isEnded) return [];
  return node.reads.flatMap(({ producer }) =>
    producer !== null && producer.block === node.block ? [producer] : [],
  );
}

function least(a: number | null, b: number | null): number | null {
  return a === null || b === null ? (a ?? b) : Math.min(a, b);
}
