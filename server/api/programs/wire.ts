/** JSON formats of programs. */

import type { Refusal } from "../../../scheduler/program/check.ts";
import { criticalPath, type PathPart, storiesOf } from "../../../scheduler/program/explain.ts";
import { type Failure, pathOf, type Variable } from "../../../scheduler/program/graph.ts";
import type { Program } from "../../../scheduler/program/program.ts";
import type { Usage } from "../../answer/events.ts";
import { ApiError, errorBody } from "../../http/errors.ts";
import { sseEvent } from "../../http/stream.ts";
import type { ProgramEvent } from "../../program/events.ts";
import type { HostedProgram } from "../../program/hosted.ts";

/** A variable: its state, and its value or failure. */
export function variableJson(hosted: HostedProgram, { name, state, value, failure }: Variable): object {
  if (failure === null) return { name, state, ...(value === null ? {} : { value }) };
  const variable = hosted.program.variables.get(name)!;
  return { name, state, error: failureJson(hosted.failureOf(failure), pathOf(variable)) };
}

function failureJson({ code, message, origin }: Failure, path: readonly string[]): object {
  return { code: snakeCase(code), message, origin, path };
}

/** A 424 response: the value will never come. */
export function failedResponse(hosted: HostedProgram, variable: Variable): Response {
  const { code, message, origin } = hosted.failureOf(variable.failure!);
  const error = { message, type: "failed_dependency", param: variable.name, code: snakeCase(code) };
  return Response.json({ error: { ...error, origin, path: pathOf(variable) } }, { status: 424 });
}

/** An SSE event with its name, and JSON that repeats the name as `type`. */
export function eventText(event: ProgramEvent | { readonly kind: string }, more: object = {}): string {
  const { kind, ...rest } = event;
  const data = { type: kind, ...wireOf(rest), ...more };
  return sseEvent(JSON.stringify(data), kind);
}

/** Last event of a failed stream. */
export function errorText(error: ApiError): string {
  return sseEvent(JSON.stringify(errorBody(error)), "error");
}

function wireOf(rest: object): object {
  const { failure, path, usage, ...others } = rest as {
    readonly failure?: Failure;
    readonly path?: readonly string[];
    readonly usage?: Usage;
  };
  return {
    ...others,
    ...(failure === undefined ? {} : { error: failureJson(failure, path ?? [failure.origin]) }),
    ...(usage === undefined ? {} : { usage: usageJson(usage) }),
  };
}

export function usageJson({ promptTokens, completionTokens, cachedTokens }: Usage): object {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
  };
}

/**
 * Explains a program's duration: the timeline of every call, and the critical path to the last value. Times
 * are milliseconds since the program arrived.
 */
export function explainJson({ program }: HostedProgram, awaited: Iterable<string>): object {
  const settled = [...awaited].flatMap((name) => {
    const variable = program.variables.get(name);
    return variable !== undefined && (variable.state === "ready" || variable.state === "failed")
      ? [variable]
      : [];
  });
  const last = settled.reduce<Variable | null>(
    (latest, variable) => (latest === null || variable.settledMs > latest.settledMs ? variable : latest),
    null,
  );
  return {
    calls: callsJson(program),
    critical_path: last === null ? [] : criticalPath(program, last).map((part) => pathJson(part, program)),
    waited_ms: last === null ? null : last.settledMs - program.arrivedMs,
  };
}

function pathJson({ kind, name, fromMs, toMs }: PathPart, { arrivedMs }: Program): object {
  return { kind, name, from_ms: fromMs - arrivedMs, to_ms: toMs - arrivedMs };
}

function callsJson(program: Program): object[] {
  const since = (ms: number | null): number | null => (ms === null ? null : ms - program.arrivedMs);
  // Numbers per program: process-wide ones would reveal how many task groups other tenants have.
  const taskGroups = new Map<number, number>();
  const numberOf = (taskGroup: number): number => {
    if (!taskGroups.has(taskGroup)) taskGroups.set(taskGroup, taskGroups.size);
    return taskGroups.get(taskGroup)!;
  };
  return storiesOf(program).map(({ name, state, objective, taskGroup, waitedFor, times, tokens }) => ({
    name,
    state,
    objective,
    gang: taskGroup === null ? null : numberOf(taskGroup),
    waited_for: waitedFor,
    ready_ms: since(times.readyMs),
    placed_ms: since(times.placedMs),
    started_ms: since(times.startedMs),
    first_token_ms: since(times.firstMs),
    ended_ms: since(times.endedMs),
    tokens,
  }));
}

/** Calls and variables with their readers and writers. */
export function graphJson(hosted: HostedProgram): object {
  const { program } = hosted;
  return {
    id: hosted.id,
    object: "graph",
    variables: [...program.variables.values()].map((variable) => ({
      ...variableJson(hosted, variable),
      written_by: variable.producer?.name ?? null,
      read_by: Array.from(variable.readers, ({ name }) => name),
    })),
    nodes: [...program.nodes.values()].map(({ name, spec, state, reads, outputs }) => ({
      name,
      kind: spec.kind,
      state,
      reads: reads.map((variable) => variable.name),
      writes: outputs.map((variable) => variable.name),
    })),
    usage: usageJson(hosted.usage),
    explain: explainJson(hosted, program.variables.keys()),
  };
}

/** HTTP error for a change that the graph refuses: 409 if a variable is set already or the program ended, else 422. */
export function refusalError({ code, message }: Refusal): ApiError {
  const status = code === "notEmpty" || code === "ended" ? 409 : 422;
  return new ApiError(status, "invalid_request_error", message, { apiCode: snakeCase(code) });
}

function snakeCase(name: string): string {
  return name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
}
