import type { Objective } from "../core.ts";
import type { Node, TaskGroup, Variable } from "./graph.ts";
import type { Criteria } from "./spec.ts";

const RANKS: Readonly<Record<Objective, number>> = { throughput: 0, gang: 1, latency: 2 };

/**
 * What each node is for, deduced backward from what is awaited (Parrot, §5.2).
 *
 * From a value that is awaited with latency the stage of a node is the longest way to it, in nodes. Alone in its stage, a node
 * is on the way of everything before it, and wants its own latency. Several of one stage are a task group: only the last of them
 * counts. What is awaited with throughput, or not at all, wants throughput.
 *
 * Wishes add up: latency over gang over throughput, and never down again. Two task groups that share a node are one.
 */
export class Objectives {
  /** Gives numbers to task groups; unique for the life of the process. */
  readonly #nextTaskGroup: () => number;
  /** By the value or node that they are awaited for, and by stage. */
  readonly #taskGroups = new Map<Variable | Node, Map<number, TaskGroup>>();

  constructor(nextTaskGroup: () => number) {
    this.#nextTaskGroup = nextTaskGroup;
  }

  /** The variable is awaited: takes note of it in everything that it comes of. O(nodes and edges before it). */
  want(variable: Variable, { objective, ttftMs, tbtMs }: Criteria): void {
    const { producer } = variable;
    if (producer === null || objective === "throughput") return;
    producer.ttftMs = least(producer.ttftMs, ttftMs);
    producer.tbtMs = least(producer.tbtMs, tbtMs);
    this.#mark(variable, variable, 1);
  }

  /** Nothing more is awaited for the sake of that. */
  forget(of: Variable | Node): void {
    this.#taskGroups.delete(of);
  }

  /** A body was copied; `result` is its value, `width` bodies are or will be beside it, itself included. */
  copied(block: Node, result: Variable, width: number): void {
    if (block.objective === "throughput") return;
    if (result.producer?.block === block) this.#mark(block, result, block.objective === "gang" ? 2 : width);
  }

  /** The number of the task group that a node is in. */
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

/** The task group that stands for all that turned out to be one with it. The way there is halved each time. */
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

/** The nodes that a variable comes of, by stage: those of stage 0 write it. Nodes of other bodies than its own are left out, and
 *  so is what comes before a node that has ended: it has no more to do with it. */
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

/** Everything before a node and itself, each after all that reads it. */
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
