import type { Objective } from "../core.ts";
import type { Node, NodeTimes, NodeTokens, Variable } from "./graph.ts";
import type { Program } from "./program.ts";

/** Timeline of one call. */
export interface CallStory {
  readonly name: string;
  readonly state: Node["state"];
  readonly objective: Objective;
  readonly taskGroup: number | null;
  readonly times: Readonly<NodeTimes>;
  /** Input variable that became ready last; null: the call waited for none. */
  readonly waitedFor: string | null;
  readonly tokens: Readonly<NodeTokens>;
}

/**
 * Part of the time from a program's arrival to a value.
 *
 * client:    the call or a value of the client had not arrived yet.
 * queue:     the call was ready and had not begun.
 * prompt:    from its beginning to its first token.
 * answer:    from there to the value.
 */
export interface PathPart {
  readonly kind: "client" | "queue" | "prompt" | "answer";
  /** Name of the call, or of the variable that the client set. */
  readonly name: string;
  readonly fromMs: number;
  readonly toMs: number;
}

/**
 * Returns the timelines of the program's calls, ended ones included and forgotten ones excluded, in order of
 * creation.
 */
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

/**
 * Critical path of a settled variable: parts without gaps from the program's arrival to the value. Follows
 * the last input of each call backward. Leaves out parts of no length.
 */
export function criticalPath(program: Program, variable: Variable): readonly PathPart[] {
  const parts: PathPart[] = [];
  let at: Variable | null = variable;
  let toMs = variable.settledMs;
  /** Prepends a part. */
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
