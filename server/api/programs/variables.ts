import type { Variable } from "../../../scheduler/program/graph.ts";
import type { Value } from "../../../scheduler/program/spec.ts";
import { ApiError, unavailable } from "../../http/errors.ts";
import { whenAborted } from "../../http/route.ts";
import { ResponseStream, sseFraming } from "../../http/stream.ts";
import type { ProgramEvent } from "../../program/events.ts";
import type { HostedProgram } from "../../program/hosted.ts";
import type { Exchange } from "../respond.ts";
import { errorText, eventText, failedResponse, variableJson } from "./wire.ts";

export interface FetchOptions {
  /** Wait in milliseconds at most; 0 for none. */
  readonly waitMs: number;
  readonly isStream: boolean;
  /** Callback for a disconnected client. */
  readonly onGone: () => void;
}

/**
 * Answers 200 with the value, 424 as soon as it has failed, or 202 if it is not ready in time. With `isStream`,
 * answers with events instead.
 */
export function fetchVariable(
  hosted: HostedProgram,
  variable: Variable,
  exchange: Exchange,
  options: FetchOptions,
): Promise<Response> | Response {
  if (options.isStream) return streamed(hosted, variable, exchange, options);
  if (isSettled(variable) || options.waitMs === 0) return responseOf(hosted, variable);
  return waited(hosted, variable, exchange, options);
}

function isSettled({ state }: Variable): boolean {
  return state === "ready" || state === "failed";
}

function responseOf(hosted: HostedProgram, variable: Variable): Response {
  if (variable.state === "failed") return failedResponse(hosted, variable);
  return Response.json(variableJson(hosted, variable), { status: variable.state === "ready" ? 200 : 202 });
}

async function waited(
  hosted: HostedProgram,
  variable: Variable,
  exchange: Exchange,
  options: FetchOptions,
): Promise<Response> {
  await settled(hosted, variable, exchange, options);
  return responseOf(hosted, variable);
}

/** Waits for the value of a variable. Throws 424 if it failed, and 503 if it is not ready in time. */
export async function valueOfWhenSettled(
  hosted: HostedProgram,
  name: string,
  exchange: Exchange,
  waitMs: number,
): Promise<Value> {
  const variable = hosted.program.variables.get(name)!;
  if (!isSettled(variable)) await settled(hosted, variable, exchange, { waitMs, onGone: () => {} });
  const { value, failure } = variable;
  if (value !== null) return value;
  if (failure === null) throw unavailable("server_overloaded", `${name} is not there after ${waitMs} ms`, 1);
  const { origin, message } = hosted.failureOf(failure);
  throw new ApiError(424, "failed_dependency", `${origin}: ${message}`);
}

/**
 * Resolves when the variable has settled, the time is over or the client disconnects; rejects when the server
 * ends.
 */
async function settled(
  hosted: HostedProgram,
  variable: Variable,
  { signal, services }: Exchange,
  { waitMs, onGone }: Pick<FetchOptions, "waitMs" | "onGone">,
): Promise<void> {
  const over = Promise.withResolvers<void>();
  const unwatch = hosted.watch((event) => {
    if (tellsOf(event, variable) && event.kind !== "variable.delta") over.resolve();
  });
  const untrack = services.lifecycle.track({ cut: (error) => over.reject(error) });
  const unheed = whenAborted(signal, () => {
    over.resolve();
    onGone();
  });
  const timer = setTimeout(over.resolve, waitMs);
  try {
    await over.promise;
  } finally {
    clearTimeout(timer);
    unheed();
    unwatch();
    untrack();
  }
}

/**
 * Streams `variable.delta` with the text so far, further deltas, then `variable.ready` or `variable.failed`.
 */
function streamed(
  hosted: HostedProgram,
  variable: Variable,
  { reply, services, limits }: Exchange,
  { onGone }: FetchOptions,
): Response {
  let isOver = false;
  const over = (last: string): void => {
    if (isOver) return;
    isOver = true;
    unwatch();
    untrack();
    stream.write(last);
    stream.end();
  };
  const unwatch = hosted.watch((event) => {
    if (!tellsOf(event, variable)) return;
    if (event.kind === "variable.delta") stream.write(eventText(event));
    else over(eventText(event));
  });
  const untrack = services.lifecycle.track({
    cut: (error: ApiError) => over(errorText(error)),
  });
  const stream = new ResponseStream(reply, sseFraming, limits, {
    pause: () => {},
    resume: () => {},
    abort: () => {
      over("");
      onGone();
    },
  });
  const text = hosted.textSoFar(variable.name);
  if (text !== "") stream.write(eventText({ kind: "variable.delta", variable: variable.name, text }));
  const last = hosted.settledEvent(variable);
  if (last !== null) over(eventText(last));
  return stream.response();
}

function tellsOf(event: ProgramEvent, { name }: Variable): boolean {
  return "variable" in event && event.variable === name;
}
