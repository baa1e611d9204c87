/** GET /v1/programs: the key's open programs, sessions included. */
import type { Call } from "../../http/route.ts";
import type { HostedProgram } from "../../program/hosted.ts";
import type { Programs } from "../../program/programs.ts";
import { usageJson } from "./wire.ts";

/** Programs that are listed, newest first. */
const LISTED_MAX = 50;

export function listPrograms({ tenant }: Pick<Call, "tenant">, all: readonly Programs[]): object {
  const open = all.flatMap((programs) => programs.openOf(tenant));
  return {
    object: "list",
    data: open.slice(0, LISTED_MAX).map(programJson),
    has_more: open.length > LISTED_MAX,
  };
}

function programJson({ id, openedMs, program, usage }: HostedProgram): object {
  const calls = { waiting: 0, running: 0, done: 0, failed: 0 };
  for (const { state } of program.nodes.values()) calls[state] += 1;
  const created = (performance.timeOrigin + openedMs) / 1000;
  return { id, object: "program", created, calls, usage: usageJson(usage) };
}
