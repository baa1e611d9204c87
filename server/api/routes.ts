/** Table of all routes of the server. */

import { inSlices } from "../../base/time-slice.ts";
import { ApiError } from "../http/errors.ts";
import type { Lifecycle } from "../http/lifecycle.ts";
import { pageFile } from "../http/page.ts";
import { adminsAlone, type Call, type Route } from "../http/route.ts";
import { factsOf, snapshotOf } from "../http/state.ts";
import { type StateSources, StateStreams } from "../http/state-stream.ts";
import type { Telemetry } from "../http/telemetry.ts";
import type { JobService } from "../jobs/service.ts";
import type { Programs } from "../program/programs.ts";
import type { KeyUse } from "../usage/use.ts";
import {
  cancelMessageBatch,
  createMessageBatch,
  deleteMessageBatch,
  listMessageBatches,
  readMessageBatch,
} from "./anthropic/batches.ts";
import { answerMessages, countTokens } from "./anthropic/messages.ts";
import { parseCountRequest, parseMessagesRequest } from "./anthropic/schema.ts";
import { readCacheText } from "./cache-text.ts";
import { answerEstimate } from "./estimate.ts";
import { asking, during, exchangeOf, reportIgnored } from "./exchange.ts";
import { Fields } from "./fields.ts";
import { llamaRoutes } from "./llama/routes.ts";
import { ollamaRoutes } from "./ollama/routes.ts";
import { cancelBatch, createBatch, listBatches, readBatch } from "./openai/batches.ts";
import { prepareChat } from "./openai/chat.ts";
import { prepareCompletion } from "./openai/completions.ts";
import { answerEmbeddings, parseEmbeddingsRequest } from "./openai/embeddings.ts";
import { createFile, deleteFile, listFiles, readFile, storageError } from "./openai/files.ts";
import { modelById, modelList } from "./openai/models.ts";
import { parseChatRequest, parseCompletionRequest } from "./openai/schema.ts";
import { answerDetokenize, answerTokenize } from "./openai/tokenize.ts";
import { answerProgram } from "./programs/answer.ts";
import { answerProgramChat, parseProgramChat } from "./programs/chat.ts";
import { listPrograms, viewPrograms } from "./programs/list.ts";
import { parrotRoutes } from "./programs/parrot.ts";
import { ProgramReader } from "./programs/schema.ts";
import { answerSession, openSession } from "./programs/sessions.ts";
import { listRequests, readRequest } from "./requests.ts";
import { respond } from "./respond.ts";
import { conversationRoutes } from "./responses/conversations.ts";
import { responsesRoutes } from "./responses/routes.ts";
import type { RouteDeps } from "./route-deps.ts";
import { answerRerank, answerScore, parseRerank, parseScore } from "./score.ts";
import { targetsOf } from "./targets.ts";
import { readUsage } from "./usage.ts";

export function routesOf(given: RouteDeps): readonly Route[] {
  const programs = [...given.programModels.keys()];
  const deps: RouteDeps = { ...given, model: { ...given.model, programs } };
  const { lifecycle, telemetry, model, version } = deps;
  const startedSeconds = Math.floor(Date.now() / 1000);
  const whenReady =
    (handler: Route["handler"]): Route["handler"] =>
    (call) => {
      lifecycle.expectReady();
      return handler(call);
    };
  const listed = { ...model, names: [...model.names, ...programs] };
  const models = whenReady(() => modelList(listed, startedSeconds));
  const oneModel = whenReady(({ rest }) => modelById(decodedPath(rest), listed, startedSeconds));
  const tokenize: Route["handler"] = async (call) =>
    answerTokenize(await call.readWork(), during(call, deps));
  const detokenize: Route["handler"] = async (call) => answerDetokenize(await call.readWork(), deps);
  const completions = asking(
    deps,
    (body, { model }, targets) => parseCompletionRequest(body, model, targets),
    async (exchange, services, request) => respond(exchange, await prepareCompletion(services, request)),
  );
  const embeddings = asking(deps, parseEmbeddingsRequest, answerEmbeddings);
  const rerank = asking(deps, parseRerank, answerRerank);
  const score = asking(deps, parseScore, answerScore);
  const streams = new StateStreams({
    ...deps,
    facts: () => factsOf(deps),
    snapshot: () => snapshotOf(deps),
    activities: () => [deps.activity],
    inspect: deps.inspect,
    queue: () => deps.fleet.queue(),
    keyUse: (tenant) => telemetry.ledger.rows(tenant, 1),
    latencies: () => [deps.telemetry.latencies],
    lists: stateLists(deps, () => [deps.programs]),
  });
  const keyed = false;
  const table: readonly Route[] = [
    ...pageRoutes(lifecycle),
    { method: "GET", path: "/version", isPublic: keyed, handler: () => ({ version }) },
    { method: "GET", path: "/metrics", isPublic: keyed, handler: adminsAlone(() => metrics(telemetry)) },
    {
      method: "GET",
      path: "/state",
      isPublic: keyed,
      handler: ({ isAdmin }) => (isAdmin ? snapshotOf(deps) : factsOf(deps)),
    },
    { method: "GET", path: "/state/stream", isPublic: keyed, handler: (call) => streams.open(call) },
    ...requestRoutes(deps),
    {
      method: "GET",
      path: "/v1/cache/text",
      isPublic: keyed,
      handler: adminsAlone((call) => readCacheText(call, deps.activity.caches, deps.tokenizer)),
    },
    usageRoute(telemetry.ledger),
    { method: "GET", path: "/v1/models", isPublic: keyed, handler: models },
    { method: "GET", path: "/v1/models/{id}", isPublic: keyed, handler: oneModel },
    { method: "POST", path: "/v1/chat/completions", isPublic: keyed, handler: (call) => chat(call, deps) },
    { method: "POST", path: "/v1/completions", isPublic: keyed, handler: completions },
    { method: "POST", path: "/v1/estimate", isPublic: keyed, handler: (call) => estimate(call, deps) },
    ...messagesRoutes(deps),
    ...responsesRoutes(deps),
    ...conversationRoutes(deps.responses),
    ...ollamaRoutes(deps, startedSeconds),
    { method: "POST", path: "/v1/embeddings", isPublic: keyed, handler: embeddings },
    { method: "POST", path: "/v1/rerank", isPublic: keyed, handler: rerank },
    { method: "POST", path: "/v1/score", isPublic: keyed, handler: score },
    ...jobRoutes(deps.jobs),
    {
      method: "GET",
      path: "/v1/programs",
      isPublic: keyed,
      handler: (call) => listPrograms(call, [deps.programs]),
    },
    { method: "POST", path: "/v1/programs", isPublic: keyed, handler: (call) => program(call, deps) },
    { method: "POST", path: "/v1/sessions", isPublic: keyed, handler: (call) => session(call, deps) },
    ...(["GET", "POST", "PUT", "DELETE"] as const).map((method) => ({
      method,
      path: "/v1/sessions/{id}/…",
      isPublic: keyed,
      handler: whenReady((call) => answerSession(call, exchangeOf(call, deps), deps)),
    })),
    ...(deps.speaksParrot ? parrotRoutes({ ...deps, exchangeOf: (call) => exchangeOf(call, deps) }) : []),
    { method: "POST", path: "/tokenize", isPublic: keyed, handler: tokenize },
    { method: "POST", path: "/detokenize", isPublic: keyed, handler: detokenize },
    ...llamaRoutes(deps),
  ];
  return table.flatMap((route) => [route, ...aliasesOf(route)]);
}

/** Lists that `GET /state/stream` sends. */
export function stateLists(
  { requestRecords, jobs }: Pick<RouteDeps, "requestRecords" | "jobs">,
  programs: () => readonly Programs[],
): StateSources["lists"] {
  return {
    requests: (call) => listRequests(call, requestRecords),
    programs: (call) => viewPrograms(call, programs()),
    jobs: (call) => {
      if (jobs === null) throw jobsAreOff();
      return listBatches(call, jobs);
    },
  };
}

/** Route of token use by API key. */
export function usageRoute(ledger: KeyUse): Route {
  return { method: "GET", path: "/v1/usage", isPublic: false, handler: (call) => readUsage(call, ledger) };
}

/** Routes of timing records and prefix-cache reports of requests. */
export function requestRoutes({
  requestRecords,
  cacheRecords,
}: Pick<RouteDeps, "requestRecords" | "cacheRecords">): readonly Route[] {
  const route = (path: string, handler: Route["handler"]): Route => ({
    method: "GET",
    path,
    isPublic: false,
    handler,
  });
  return [
    route("/v1/requests", (call) => listRequests(call, requestRecords)),
    route("/v1/requests/{id}/…", (call) => readRequest(call, requestRecords, cacheRecords)),
  ];
}

/** Routes without a key: the page, and the server's health. */
export function pageRoutes(lifecycle: Lifecycle): readonly Route[] {
  const route = (path: string, handler: Route["handler"]): Route => ({
    method: "GET",
    path,
    isPublic: true,
    handler,
  });
  const whenReady = (status: string) => (): object => {
    lifecycle.expectReady();
    return { status };
  };
  return [
    route("/", () => pageFile("index.html")),
    route("/page/{file}", ({ rest }) => pageFile(rest)),
    route("/health", () => alive(lifecycle)),
    route("/health/ready", whenReady("ready")),
    route("/ping", whenReady("ok")),
  ];
}

/** OpenAI's routes without `/v1`, for clients whose base URL lacks it. */
export function aliasesOf(route: Route): Route[] {
  const aliased =
    /^\/v1\/(chat\/completions|completions|responses(\/\{id\})?|models(\/\{id\})?|embeddings|rerank|score)$/;
  return aliased.test(route.path) ? [{ ...route, path: route.path.slice("/v1".length) }] : [];
}

/** Anthropic's routes, whose errors have a format of their own. */
function messagesRoutes(deps: RouteDeps): readonly Route[] {
  const route = (path: string, handler: Route["handler"]): Route => ({
    method: "POST",
    path,
    isPublic: false,
    handler: withRequestId(handler),
  });
  const messages = asking(deps, parseMessagesRequest, answerMessages);
  const tokens = asking(deps, parseCountRequest, (_, services, request) => countTokens(services, request));
  return [route("/v1/messages", messages), route("/v1/messages/count_tokens", tokens)];
}

/** Adds the header that Anthropic's clients read. */
function withRequestId<Others extends unknown[]>(
  handler: (call: Call, ...others: Others) => unknown,
): typeof handler {
  return (call, ...others) => {
    call.setHeader("request-id", call.requestId);
    return handler(call, ...others);
  };
}

export function jobRoutes(jobs: JobService | null): readonly Route[] {
  const route = (
    method: Route["method"],
    path: string,
    handler: (call: Call, jobs: JobService) => unknown,
  ): Route => ({
    method,
    path,
    isPublic: false,
    handler: async (call) => {
      if (jobs === null) throw jobsAreOff();
      try {
        return await handler(call, jobs);
      } catch (error) {
        throw storageError(error);
      }
    },
  });
  return [
    route("POST", "/v1/files", createFile),
    route("GET", "/v1/files", listFiles),
    route("GET", "/v1/files/{id}", readFile),
    route("DELETE", "/v1/files/{id}", deleteFile),
    route("POST", "/v1/batches", createBatch),
    route("GET", "/v1/batches", listBatches),
    route("GET", "/v1/batches/{id}", readBatch),
    route("POST", "/v1/batches/{id}", cancelBatch),
    route("POST", "/v1/messages/batches", withRequestId(createMessageBatch)),
    route("GET", "/v1/messages/batches", withRequestId(listMessageBatches)),
    route("GET", "/v1/messages/batches/{id}", withRequestId(readMessageBatch)),
    route("POST", "/v1/messages/batches/{id}", withRequestId(cancelMessageBatch)),
    route("DELETE", "/v1/messages/batches/{id}", withRequestId(deleteMessageBatch)),
  ];
}

function jobsAreOff(): ApiError {
  const message =
    "this server keeps no files and runs no batches, because it has no folder for them; --data <folder> names one";
  return new ApiError(501, "invalid_request_error", message, { apiCode: "jobs_off", shouldRetry: false });
}

async function chat(call: Call, deps: RouteDeps): Promise<Response> {
  const body = await call.readWork();
  const program = typeof body.model === "string" ? deps.programModels.get(body.model) : undefined;
  if (program !== undefined) {
    const asked = parseProgramChat(body, program, deps.model);
    reportIgnored(call, asked.ignored);
    return answerProgramChat(exchangeOf(call, deps), deps.programs, asked);
  }
  const request = parseChatRequest(body, deps.model, targetsOf(call.request.headers), deps.template);
  reportIgnored(call, request.ignored);
  return respond(exchangeOf(call, deps), await prepareChat(during(call, deps), request));
}

async function estimate(call: Call, deps: RouteDeps): Promise<object> {
  const body = await call.readWork();
  const request = parseChatRequest(body, deps.model, targetsOf(call.request.headers), deps.template);
  reportIgnored(call, request.ignored);
  return answerEstimate(during(call, deps), request);
}

async function program(call: Call, deps: RouteDeps): Promise<Response> {
  const fields = new Fields(await call.readWork());
  const request = await inSlices(new ProgramReader(deps.model).request(fields));
  return answerProgram(exchangeOf(call, deps), deps.programs, request);
}

async function session(call: Call, deps: RouteDeps): Promise<Response> {
  return openSession(await call.readWork(), call, deps);
}

/** Answers 200 while the process lives, also while it loads or drains. Throws 503 once every engine is lost. */
function alive(lifecycle: Lifecycle): object {
  if (lifecycle.state === "lost") lifecycle.expectReady();
  return { status: "ok" };
}

async function metrics(telemetry: Telemetry): Promise<Response> {
  return new Response(await telemetry.text(), { headers: { "content-type": telemetry.contentType } });
}

/** Decodes a model's name, which may hold slashes, escaped or not. Returns an invalid escape unchanged. */
export function decodedPath(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
