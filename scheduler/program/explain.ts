import type { Objective } from "../core.ts";
import type { Node, NodeTimes, NodeTokens, Variable } from "./graph.ts";
import type { Program } from "./program.ts";

/** What became of one call, and when. */
export interface CallStory {
  readonly name: string;
  readonly state: Node["state"];
  readonly objective: Objective;
  readonly taskGroup: number | null;
  readonly times: Readonly<NodeTimes>;
  /** The variable that came last of those that it waited for; null: it waited for none. */
  readonly waitedFor: string | null;
  readonly tokens: Readonly<NodeTokens>;
}

/**
 * A part of the time from a program's arrival to a value.
 *
 *   client    the call was not there yet, or a value of the client's
 *   queue     the call was ready and not begun
 *   prompt    from its beginning to its first token
 *   answer    from there to the value
 */
export interface PathPart {
  readonly kind: "client" | "queue" | "prompt" | "answer";
  /** The call, or the variable that the client set. */
  readonly name: string;
  readonly fromMs: number;
  readonly toMs: number;
}

/** Every call of a program that is or was, in the order in which they came to be. */
export function storiesOf(program: Program): readonly CallStory[] {
  const stories = [];
  for (const node of program.nodes.values()) {
    if (node.spec.kind !== "call") continue;
    const { name, state, objective, times, tokens, lastInput } = node;
    const taskGroup = program.serviceOf(name).taskGroup;
    stories.push({ name, state, objective, taskGroup, times, waitedFor: lastInput?.name ?? null, tokens });
  }
  return stories;
}

/** Why a settled variable came when it did: parts without gaps from the program's arrival to then, back along what each call
 *  waited for last. Parts that took no time are left out. */
export function criticalPath(program: Program, variable: Variable): readonly PathPart[] {
  const parts: PathPart[] = [];
  let at: Variable | null = variable;
  let toMs = variable.settledMs;
  /** Puts what was before the parts so far. */
  const before = (kind: PathPart["kind"], name: string, fromMs: number): void => {
    if (fromMs < toMs) parts.push({ kind, name, fromMs, toMs });
    toMs = Math.min(toMs, fromMs);
  };
  while (at !== null) {
    const node: Node | null = at.producer;
    if (node === null) {
      if (at.origin === null) before("client", at.name, program.arrivedMs);
      at = at.origin;
    } else if (node.spec.kind !== "call" && node.lastResult !== null) {
      at = node.lastResult;
    } else {
      const { readyMs, startedMs, firstMs } = node.times;
      before("answer", node.name, firstMs ?? toMs);
      before("prompt", node.name, startedMs ?? toMs);
      before("queue", node.name, readyMs ?? toMs);
      at = node.lastInput ?? node.failedBy;
      before("client", node.name, at?.settledMs ?? program.arrivedMs);
    }
  }
  return parts.reverse();
}
