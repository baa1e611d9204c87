/** GET /v1/programs: the key's open programs, sessions included. */

import { viewOf } from "../../../scheduler/program/graph-view.ts";
import type { Call } from "../../http/route.ts";
import type { HostedProgram } from "../../program/hosted.ts";
import type { Programs } from "../../program/programs.ts";
import { usageJson } from "./wire.ts";

/** Programs that are listed, newest first. */
const LISTED_MAX = 50;
/** Maximum nodes in the views of one program, and of all programs together. */
const NODES_MAX = 200;
const NODES_MAX_OF_ALL = 1000;

export function listPrograms({ tenant }: Pick<Call, "tenant">, all: readonly Programs[]): object {
  const open = all.flatMap((programs) => programs.openOf(tenant));
  return {
    object: "list",
    data: open.slice(0, LISTED_MAX).map(programJson),
    has_more: open.length > LISTED_MAX,
  };
}

/** The same list, each program with its graph. */
export function viewPrograms(call: Pick<Call, "tenant">, all: readonly Programs[]) {
  const open = all.flatMap((programs) => programs.openOf(call.tenant)).slice(0, LISTED_MAX);
  let left = NODES_MAX_OF_ALL;
  const data = open.map((hosted) => {
    const graph = viewOf(hosted.program.nodes, Math.min(left, NODES_MAX));
    left -= graph.nodes.length;
    return { ...programJson(hosted), graph };
  });
  return { data };
}

function programJson({ id, openedMs, program, usage }: HostedProgram) {
  const calls = { waiting: 0, running: 0, done: 0, failed: 0 };
  for (const { state } of program.nodes.values()) calls[state] += 1;
  const created = (performance.timeOrigin + openedMs) / 1000;
  return { id, object: "program", created, calls, usage: usageJson(usage) };
}
