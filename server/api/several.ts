/** Routes of a server with several models: each request goes to the routes of the model that it names. */

import { parseDurationMs } from "../config.ts";
import type { RequestRecords } from "../explain/request-records.ts";
import { ApiError, asApiError, badRequest, ModelNotFound, writesNoText } from "../http/errors.ts";
import type { Lifecycle } from "../http/lifecycle.ts";
import type { Call, Route } from "../http/route.ts";
import { adminsAlone } from "../http/route.ts";
import { WaitingStream } from "../http/waiting-stream.ts";
import type { JobService } from "../jobs/service.ts";
import type { LoadedModel, ModelSet, OnLoading } from "../models/model-set.ts";
import type { Programs } from "../program/programs.ts";
import { namesWithAdapters } from "../request/served-model.ts";
import type { KeyUse } from "../usage/use.ts";
import type { CacheRecords } from "./cache-records.ts";
import { chatShape, readyBody, textShape } from "./ollama/codec.ts";
import { described } from "./openapi/document.ts";
import { listPrograms } from "./programs/list.ts";
import { errorEvent, refusalOn } from "./refusals.ts";
import type { RespondLimits } from "./respond.ts";
import { conversationRoutes } from "./responses/conversations.ts";
import { cancelResponse, deleteResponse, readResponse, type StreamDeps } from "./responses/responses.ts";
import { streamRoutes, withResumableStreams } from "./resumable.ts";
import { aliasesOf, jobRoutes, pageRoutes, requestRoutes, usageRoute } from "./routes.ts";
import { type ListedModel, severalModelRoutes } from "./several-models.ts";
import { WhatIf } from "./what-if.ts";

/** A loaded model with its own table of routes. */
export interface ModelHost extends LoadedModel {
  readonly routes: readonly Route[];
  readonly programs: Programs;
}

export interface SeveralDeps {
  readonly set: Pick<ModelSet<ModelHost>, "states" | "loaded" | "present" | "keep" | "use" | "hold">;
  /** All models in their order; the first one answers requests without a name. */
  readonly models: readonly ListedModel[];
  readonly answersToAny: boolean;
  readonly lifecycle: Lifecycle;
  readonly version: string;
  readonly responses: StreamDeps["responses"];
  readonly streams: StreamDeps["streams"];
  readonly cacheRecords: CacheRecords;
  readonly requestRecords: RequestRecords;
  readonly ledger: KeyUse;
  readonly jobs: JobService | null;
  readonly metrics: () => Promise<Response>;
  readonly state: (isAdmin: boolean) => object;
  readonly stateStream: Route["handler"];
  /** Loading time after which a streaming request gets its headers and progress. Errors before it have a status. */
  readonly beginsMs: number;
  readonly limits: RespondLimits;
}

/** Routes that a model answers, in the table of each model. */
const ofModels: readonly (readonly [Route["method"], string])[] = [
  ["POST", "/v1/chat/completions"],
  ["POST", "/v1/completions"],
  ["POST", "/v1/estimate"],
  ["POST", "/v1/messages"],
  ["POST", "/v1/messages/count_tokens"],
  ["POST", "/v1/responses"],
  ["POST", "/api/chat"],
  ["POST", "/api/generate"],
  ["POST", "/api/embed"],
  ["POST", "/api/embeddings"],
  ["POST", "/v1/embeddings"],
  ["POST", "/v1/rerank"],
  ["POST", "/v1/score"],
  ["POST", "/v1/programs"],
  ["POST", "/v1/sessions"],
  ["POST", "/tokenize"],
  ["POST", "/detokenize"],
  ["POST", "/v1/chat/completions/input_tokens"],
  ["POST", "/chat/completions/input_tokens"],
  ["GET", "/props"],
  ["POST", "/apply-template"],
  ["POST", "/embedding"],
  ["POST", "/completion"],
  ["POST", "/infill"],
];

/** Routes that generate text. They refuse an embedding model before it is loaded and other models are unloaded. */
const writers = new Set([
  "/v1/chat/completions",
  "/v1/completions",
  "/v1/estimate",
  "/v1/messages",
  "/v1/responses",
  "/api/chat",
  "/api/generate",
  "/completion",
  "/infill",
]);

function isHeadless(name: string, { models }: Pick<SeveralDeps, "models">): boolean {
  return models.find((model) => model.name === name)!.about.isHeadless;
}

export function severalRoutes(deps: SeveralDeps): readonly Route[] {
  const { lifecycle, version, jobs, state, stateStream, metrics } = deps;
  const startedSeconds = Math.floor(Date.now() / 1000);
  const route = (method: Route["method"], path: string, handler: Route["handler"]): Route => ({
    method,
    path,
    isPublic: false,
    handler,
    takesAnyType: path.startsWith("/api/"),
  });
  const whenReady =
    (handler: Route["handler"]): Route["handler"] =>
    (call) => {
      lifecycle.expectReady();
      return handler(call);
    };
  const oneResponse = "/v1/responses/{id}";
  const table: readonly Route[] = [
    ...pageRoutes(lifecycle),
    route("GET", "/version", () => ({ version })),
    route("GET", "/metrics", adminsAlone(metrics)),
    route("GET", "/state", ({ isAdmin }) => state(isAdmin)),
    route("GET", "/state/stream", stateStream),
    ...severalModelRoutes(deps, startedSeconds).map((row) => ({ ...row, handler: whenReady(row.handler) })),
    ...ofModels.map(([method, path]) => route(method, path, (call) => toModel(call, { method, path }, deps))),
    route(
      "GET",
      "/slots",
      adminsAlone((call) => toModel(call, { method: "GET", path: "/slots" }, deps)),
    ),
    route("POST", oneResponse, (call) =>
      call.rest === "input_tokens" || call.rest === "compact"
        ? toModel(call, { method: "POST", path: oneResponse }, deps)
        : cancelResponse(call, deps),
    ),
    ...requestRoutes(deps),
    usageRoute(deps.ledger),
    route("GET", oneResponse, (call) => readResponse(call, deps)),
    route("DELETE", oneResponse, (call) => deleteResponse(call, deps)),
    ...(["GET", "POST", "PUT", "DELETE"] as const).map((method) =>
      route(
        method,
        SESSION,
        whenReady((call) => toSession(call, method, deps)),
      ),
    ),
    route("GET", "/v1/programs", (call) =>
      listPrograms(
        call,
        deps.set.loaded().map(({ programs }) => programs),
      ),
    ),
    ...conversationRoutes(deps.responses),
    ...jobRoutes(jobs),
    ...streamRoutes(deps.streams),
    new WhatIf(null).route(), // several models are not recorded
  ];
  const routes = withResumableStreams(
    table.flatMap((row) => [row, ...aliasesOf(row)]),
    deps.streams,
  );
  return described(routes);
}

const SESSION = "/v1/sessions/{id}/…";

type Row = Pick<Route, "method" | "path">;
type Body = Readonly<Record<string, unknown>>;

/** Passes a request to the routes of the model that it names. Loads that model first if necessary. */
async function toModel(call: Call, row: Row, deps: SeveralDeps): Promise<unknown> {
  deps.lifecycle.expectReady();
  const body: Body = row.method === "POST" ? await call.readWork() : {};
  const name = resolvedName(givenName(call, row, body), deps);
  if (writers.has(row.path) && !isLoadAlone(row, body) && isHeadless(name, deps)) throw writesNoText("model");
  const keepAliveMs = keepAliveOf(row, body);
  if (keepAliveMs === 0 && isLoadAlone(row, body) && deps.set.present(name) === null)
    return readyBody(name, row.path === "/api/chat" ? chatShape : textShape, true);
  const read: Call = { ...call, readWork: () => Promise.resolve(body) };
  const answer = async (asked: Call, onLoading: OnLoading): Promise<unknown> => {
    const askedMs = performance.now();
    const isPresent = deps.set.present(name) !== null;
    const lease = await deps.set.use(name, call.reply.signal, onLoading);
    const loadMs = isPresent ? 0 : performance.now() - askedMs;
    try {
      if (keepAliveMs !== null) deps.set.keep(name, keepAliveMs);
      return await handlerIn(lease.loaded, row)({ ...asked, loadMs });
    } finally {
      lease.end();
    }
  };
  const isEvents = body.stream === true && !row.path.startsWith("/api/");
  if (!isEvents || deps.set.present(name) !== null) return await answer(read, () => {});
  return await answerWaiting(read, name, answer, deps);
}

/** Answers as `answer` does within `beginsMs`, else with a stream whose comments report loading progress. */
async function answerWaiting(
  call: Call,
  name: string,
  answer: (call: Call, onLoading: OnLoading) => Promise<unknown>,
  { beginsMs, limits: { keepAliveMs } }: SeveralDeps,
): Promise<unknown> {
  const stream = new WaitingStream(call.reply);
  let told = "";
  let hasBegun = false;
  const tell = (share: number | null): void => {
    const text = share === null ? `waiting for ${name}` : `loading ${name}: ${Math.floor(share * 100)} %`;
    if (hasBegun && text !== told) stream.comment(text);
    told = text;
  };
  tell(null);
  const work = answer({ ...call, reply: stream.reply }, tell);
  const isSoon = await settlesWithin(work, beginsMs);
  if (isSoon) {
    const response = await work;
    stream.passOn();
    return response;
  }
  hasBegun = true;
  stream.comment(told);
  const ticks = setInterval(() => stream.comment(told), keepAliveMs);
  const path = new URL(call.request.url).pathname;
  work
    .then(async (response) => {
      if (!stream.continue()) stream.end(errorEvent(path, await (response as Response).text()));
    })
    .catch(async (error) => {
      const refusal = asApiError(error, call.requestId);
      stream.end(errorEvent(path, await refusalOn(path, refusal, call.requestId).text()));
    })
    .finally(() => clearInterval(ticks));
  return stream.response();
}

/** True if the promise settles, either way, within the time. */
async function settlesWithin(work: Promise<unknown>, ms: number): Promise<boolean> {
  const late = Promise.withResolvers<boolean>();
  const timer = setTimeout(() => late.resolve(false), ms);
  const settled = (): boolean => true;
  const isSoon = await Promise.race([work.then(settled, settled), late.promise]);
  clearTimeout(timer);
  return isSoon;
}

function handlerIn({ routes }: ModelHost, { method, path }: Row): Route["handler"] {
  return routes.find((row) => row.method === method && row.path === path)!.handler;
}

/** Passes a call of a session to the model that has it. */
async function toSession(call: Call, method: Route["method"], { set }: SeveralDeps): Promise<unknown> {
  const id = call.rest.split("/")[0]!;
  const host = set.loaded().find(({ programs }) => programs.has(call.tenant, id));
  if (host === undefined)
    throw new ApiError(404, "not_found_error", `there is no open program ${JSON.stringify(id.slice(0, 64))}`);
  const lease = set.hold(host);
  try {
    return await handlerIn(host, { method, path: SESSION })(call);
  } finally {
    lease.end();
  }
}

function givenName(call: Call, { method, path }: Row, { model, name }: Body): unknown {
  if (method === "GET") return new URL(call.request.url).searchParams.get("model") ?? undefined;
  return path.startsWith("/api/") ? (model ?? name) : model;
}

/** Name of the requested model, or of that of a requested adapter; by default the first one. Throws 404, or 400 for a name that is not a string. */
export function resolvedName(
  given: unknown,
  { models, answersToAny }: Pick<SeveralDeps, "models" | "answersToAny">,
): string {
  const first = models[0]!.name;
  if (given === undefined || given === null) return first;
  if (typeof given !== "string") throw badRequest("model must be a string", "model");
  for (const name of [given, given.replace(/:latest$/, "")]) {
    const found = models.find(({ model }) => namesWithAdapters(model).includes(name));
    if (found !== undefined) return found.name;
  }
  if (answersToAny) return first;
  throw new ModelNotFound(
    given,
    models.flatMap(({ model }) => namesWithAdapters(model)),
  );
}

/** Ollama's `keep_alive` in milliseconds; null if there is none. Throws 400. */
function keepAliveOf({ path }: Row, { keep_alive: given }: Body): number | null {
  if (!path.startsWith("/api/") || given === undefined || given === null) return null;
  try {
    if (typeof given === "number" || typeof given === "string") return parseDurationMs(String(given));
  } catch {}
  throw badRequest(
    `keep_alive must be seconds or a duration such as "5m", but ${JSON.stringify(given).slice(0, 60)} was given`,
    "keep_alive",
  );
}

/** True for an Ollama request without a prompt, which only loads or unloads the model. */
function isLoadAlone({ path }: Row, { prompt = "", messages = [] }: Body): boolean {
  if (path === "/api/chat") return Array.isArray(messages) && messages.length === 0;
  return path === "/api/generate" && prompt === "";
}
