/** /v1/sessions: a program that grows call by call, whose values clients set and fetch one by one. */

import { inSlices } from "../../../base/time-slice.ts";
import { outputsOf, type ProgramPart, type Value } from "../../../scheduler/program/spec.ts";
import type { CacheSaltFor } from "../../http/auth.ts";
import { ApiError, badRequest, quote } from "../../http/errors.ts";
import type { Call } from "../../http/route.ts";
import { dotOf, mermaidOf } from "../../program/drawing.ts";
import type { HostedProgram } from "../../program/hosted.ts";
import type { Programs } from "../../program/programs.ts";
import type { ServedModel } from "../../request/served-model.ts";
import { Fields } from "../fields.ts";
import type { Exchange } from "../respond.ts";
import { criteriaOf } from "./reading.ts";
import { ProgramReader, valueFrom, valueKind } from "./schema.ts";
import { fetchVariable } from "./variables.ts";
import { graphJson, refusalError, variableJson } from "./wire.ts";

/** Services of the session routes. */
export interface SessionDeps {
  readonly cacheSaltFor: CacheSaltFor;
  readonly programs: Programs;
  readonly model: ServedModel;
}

type Body = Readonly<Record<string, unknown>>;

/** Reads the body of a new session: what its calls share, and its first calls and variables. */
export function* parseSession(body: Body, model: ServedModel) {
  const fields = new Fields(body);
  const reader = new ProgramReader(model);
  const shared = reader.session(fields);
  const part = yield* reader.partInSteps(fields);
  fields.expectAllRead();
  return { ...shared, part };
}

/** POST /v1/sessions: opens an empty program, or one with the calls and variables of the body. */
export async function openSession(
  body: Body,
  { tenant, trace }: Call,
  { programs, model, cacheSaltFor }: SessionDeps,
): Promise<Response> {
  const { cacheSalt, adapter, part } = await inSlices(parseSession(body, model));
  const owner = { tenant, cacheSalt: cacheSaltFor(tenant, cacheSalt), adapter };
  const hosted = programs.open(owner, trace?.headers);
  const refusal = await hosted.addInSlices(part);
  if (refusal !== null) {
    programs.close(hosted, refusal.message);
    throw refusalError(refusal);
  }
  return Response.json(
    { id: hosted.id, object: "session", calls: part.nodes.map(callJson) },
    { status: 201 },
  );
}

/** All routes below /v1/sessions/{id}; null if there is no such route. */
export async function answerSession(
  call: Call,
  exchange: Exchange,
  deps: SessionDeps,
): Promise<Response | object | null> {
  const { programs, model } = deps;
  const [id = "", thing, name, ...more] = call.rest.split("/");
  if (more.length > 0) return null;
  const hosted = programs.find(call.tenant, id);
  switch (`${call.request.method} ${thing ?? ""}`) {
    case "DELETE ":
      programs.close(hosted, "the session was deleted");
      return { id, object: "session", deleted: true };
    case "POST calls":
      return name === undefined ? await changed(hosted, call, (body) => addCalls(hosted, body, model)) : null;
    case "GET graph":
      return name === undefined ? graphOf(hosted, queryOf(call)) : null;
    case "PUT variables":
      return name === undefined
        ? null
        : await changed(hosted, call, (body) => setVariable(hosted, nameIn(name), body));
    case "DELETE variables":
      return name === undefined
        ? null
        : await hosted.change(async () => releaseVariable(hosted, nameIn(name)));
    case "GET variables":
      if (name === undefined) return null;
      await hosted.change(async () => {}); // waits for earlier changes
      return getVariable(hosted, nameIn(name), call, exchange, programs);
    default:
      return null;
  }
}

async function changed(hosted: HostedProgram, call: Call, change: (body: Body) => object): Promise<object> {
  const body = await call.readWork();
  return await hosted.change(async () => await change(body));
}

/** Decodes a variable's name in a path. Throws 404 for an invalid escape. */
function nameIn(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    throw unknownVariable(path);
  }
}

function queryOf({ request }: Call): URLSearchParams {
  return new URL(request.url).searchParams;
}

/** Reads one call, or `{ calls, variables }`. `callsBefore`: calls that the session has. */
export function* parseCalls(
  body: Body,
  model: ServedModel,
  callsBefore: number,
): Generator<void, ProgramPart> {
  const fields = new Fields(body);
  const reader = new ProgramReader(model, callsBefore);
  const isList = fields.has("calls") && !fields.has("output");
  const part = isList
    ? yield* reader.partInSteps(fields)
    : { variables: [], nodes: [yield* reader.node(fields)] };
  fields.expectAllRead();
  return part;
}

async function addCalls(hosted: HostedProgram, body: Body, model: ServedModel): Promise<object> {
  const part = await inSlices(parseCalls(body, model, hosted.program.added));
  const refusal = await hosted.addInSlices(part);
  if (refusal !== null) throw refusalError(refusal);
  return { id: hosted.id, object: "session", calls: part.nodes.map(callJson) };
}

function callJson(node: Parameters<typeof outputsOf>[0]): object {
  return { name: node.name, kind: node.kind, outputs: outputsOf(node) };
}

/** Reads the value of a variable. */
export function parseValue(body: Body): Value {
  const fields = new Fields(body);
  const value = valueFrom(fields.raw("value", valueKind), "value");
  fields.expectAllRead();
  return value;
}

/** Sets a variable's value, once. Declares a new name. */
function setVariable(hosted: HostedProgram, name: string, body: Body): object {
  const value = parseValue(body);
  const refusal = hosted.program.variables.has(name)
    ? hosted.set(name, value)
    : hosted.add({ variables: [{ name, value }], nodes: [] });
  if (refusal !== null) throw refusalError(refusal);
  return variableJson(hosted, hosted.program.variables.get(name)!);
}

/** Releases a variable: the client will not read it again. */
function releaseVariable(hosted: HostedProgram, name: string): object {
  const refusal = hosted.release(name);
  if (refusal !== null) throw unknownVariable(name);
  return { name, object: "variable", released: true };
}

/**
 * Waits for a value. Parameters: `criteria`, `timeout` in seconds (0: no wait), `stream`,
 * `cancel_on_disconnect`.
 */
function getVariable(
  hosted: HostedProgram,
  name: string,
  call: Call,
  exchange: Exchange,
  programs: Programs,
): Promise<Response> | Response {
  const query = queryOf(call);
  const { waitMsMax, waitMsDefault } = programs.limits;
  const seconds = query.get("timeout");
  const waitMs = seconds === null ? waitMsDefault : Number(seconds) * 1000;
  if (!(waitMs >= 0 && waitMs <= waitMsMax)) {
    throw badRequest(
      `timeout must be seconds from 0 to ${waitMsMax / 1000}, but ${quote(seconds)} was given`,
      "timeout",
    );
  }
  const criteria = query.get("criteria");
  if (criteria !== null || waitMs > 0) {
    const refusal = hosted.want(name, criteriaOf(criteria ?? "latency", "criteria"));
    if (refusal !== null) throw unknownVariable(name);
  }
  const variable = hosted.program.variables.get(name);
  if (variable === undefined) throw unknownVariable(name);
  const accepts = call.request.headers.get("accept") ?? "";
  const isCancelled = switchOf(query, "cancel_on_disconnect") === true;
  return fetchVariable(hosted, variable, exchange, {
    waitMs,
    isStream: switchOf(query, "stream") ?? accepts.includes("text/event-stream"),
    onGone: () => {
      if (isCancelled) programs.close(hosted, "the client went away");
    },
  });
}

function switchOf(query: URLSearchParams, name: string): boolean | null {
  const given = query.get(name);
  if (given === null) return null;
  if (given !== "true" && given !== "false")
    throw badRequest(`${name} must be true or false, but ${quote(given)} was given`, name);
  return given === "true";
}

function unknownVariable(name: string): ApiError {
  return new ApiError(404, "not_found_error", `there is no variable ${quote(name)} in this session`);
}

function graphOf(hosted: HostedProgram, query: URLSearchParams): Response | object {
  const format = query.get("format") ?? "json";
  const text = (body: string, type: string): Response =>
    new Response(body, { headers: { "content-type": `${type}; charset=utf-8` } });
  switch (format) {
    case "json":
      return graphJson(hosted);
    case "mermaid":
      return text(mermaidOf(hosted.program), "text/vnd.mermaid");
    case "dot":
      return text(dotOf(hosted.program), "text/vnd.graphviz");
    default:
      throw badRequest(`format must be json, mermaid or dot, but ${quote(format)} was given`, "format");
  }
}
