/**
 * The HTTP surface: routes, who may call them, and what every answer has in common. Each request passes `enter`
 * (request id, size of the head, loopback check, key), then its route; every refusal, wherever it is thrown, leaves
 * through `onError` as OpenAI's error body.
 */
import { Elysia } from "elysia";
import type { DeviceSpec } from "../../scheduler/device.ts";
import type { Fleet } from "../../scheduler/fleet.ts";
import type { Generator } from "../answer/generation.ts";
import { answerChat } from "../api/openai/chat.ts";
import { answerCompletion } from "../api/openai/completions.ts";
import { modelById, modelList } from "../api/openai/models.ts";
import type { PromptServices } from "../api/openai/prompt.ts";
import { parseChatRequest, parseCompletionRequest } from "../api/openai/schema.ts";
import type { ServedModel } from "../api/openai/served-model.ts";
import { answerDetokenize, answerTokenize } from "../api/openai/tokenize.ts";
import type { Exchange, RespondLimits } from "../api/respond.ts";
import type { Encoder } from "../text/encoder.ts";
import type { ChatTemplate } from "../text/template.ts";
import type { Tokenizer } from "../text/tokenizer.ts";
import type { ApiKeys } from "./auth.ts";
import { type BodyLimits, readJsonBody } from "./body.ts";
import { ApiError, asApiError, badRequest, errorResponse, quote } from "./errors.ts";
import type { Lifecycle } from "./lifecycle.ts";
import { pageFile } from "./page.ts";
import { engineSnapshots, type PlacementLog, type Snapshot } from "./state.ts";
import type { Telemetry } from "./telemetry.ts";

export interface HttpLimits extends BodyLimits, RespondLimits {
  /** Names and values of all headers. Bun itself ends a head of 16 KiB or 200 headers, without a body. */
  readonly headerBytesMax: number;
  readonly headersMax: number;
}

export const defaultHttpLimits: HttpLimits = Object.freeze({
  bodyBytesMax: 32 * 1024 * 1024,
  jsonDepthMax: 128,
  jsonKeysMax: 100_000,
  bodyTimeoutMs: 60_000,
  headerBytesMax: 12 * 1024,
  headersMax: 100,
  commitMs: 5_000,
  keepAliveMs: 10_000,
  pendingBytesMax: 1024 * 1024,
  stallMs: 60_000,
});

export interface AppDeps {
  readonly fleet: Pick<Fleet, "loads">;
  /** Of the fleet's devices, by engine. */
  readonly specs: readonly DeviceSpec[];
  readonly placements: PlacementLog;
  readonly generator: Generator;
  readonly tokenizer: Tokenizer;
  readonly encoder: Encoder;
  /** null when the model has none: it completes text and does not chat. */
  readonly template: ChatTemplate | null;
  readonly telemetry: Telemetry;
  readonly lifecycle: Lifecycle;
  readonly keys: ApiKeys;
  readonly model: ServedModel;
  readonly version: string;
  /** Only this machine can reach the server, so a browser must not be made to do it for a foreign page. */
  readonly loopbackOnly: boolean;
  readonly limits?: Partial<HttpLimits>;
}

/** What Bun must be told when the app listens; each default of Bun's or Elysia's would be wrong here. */
export const listenOptions = Object.freeze({
  /** Else a second server on the same port starts without an error. */
  reusePort: false,
  development: false,
  /** Seconds; the most there is. Requests that are computed have none. */
  idleTimeout: 255,
  /** Our own limit answers with a body; Bun's would not. */
  maxRequestBodySize: Number.MAX_SAFE_INTEGER,
});

/** Routes and their methods, for telling a wrong method from a wrong path. */
const methods: Readonly<Record<string, "GET" | "POST">> = {
  "/": "GET",
  "/state": "GET",
  "/health": "GET",
  "/health/ready": "GET",
  "/ping": "GET",
  "/version": "GET",
  "/metrics": "GET",
  "/v1/models": "GET",
  "/v1/chat/completions": "POST",
  "/v1/completions": "POST",
  "/tokenize": "POST",
  "/detokenize": "POST",
};

/** Routes with something behind them, by how they begin; all take GET. */
const families: readonly (readonly [prefix: string, name: string])[] = [
  ["/v1/models/", "/v1/models/{id}"],
  ["/page/", "/page/{file}"],
];

/** What is known of a request from its first moment. */
interface Entry {
  readonly requestId: string;
  readonly arrivedMs: number;
  /** Known once the key was checked. */
  tenant: string;
}

export function createApp(deps: AppDeps) {
  const { lifecycle, telemetry, model } = deps;
  const limits: HttpLimits = { ...defaultHttpLimits, ...deps.limits };
  const { tokenizer, encoder, template } = deps;
  const prompts: PromptServices = { tokenizer, encoder, template, model };
  const startedSeconds = Math.floor(Date.now() / 1000);
  const entries = new WeakMap<Request, Entry>();

  const enter = (request: Request): Entry => {
    const entry = { requestId: requestIdOf(request.headers), arrivedMs: performance.now(), tenant: "" };
    entries.set(request, entry);
    return entry;
  };

  const check = (request: Request): void => {
    expectSmallHead(request.headers, limits);
    if (deps.loopbackOnly) expectLoopback(request.headers);
    if (pathOf(request) === null) throw badRequest("the header Host is missing or names no host");
  };

  /** Who has no key learns nothing about routes. */
  const noRoute = (request: Request, requestId: string): ApiError => {
    try {
      const path = pathOf(request) ?? "";
      if (!publicRoutes.has(path) && !path.startsWith("/page/")) deps.keys.authorize(request.headers);
      return unknownRoute(request);
    } catch (error) {
      return asApiError(error, requestId);
    }
  };

  const exchangeOf = (request: Request): Exchange => {
    const { arrivedMs, tenant } = entries.get(request)!;
    return { signal: request.signal, arrivedMs, tenant, services: deps, limits };
  };

  /** A body of work: refused early when none is taken, read, and then never timed out by the socket's idleness. */
  const readWork = async (request: Request, server: Bun.Server<unknown> | null) => {
    lifecycle.expectReady();
    const body = await readJsonBody(request, limits);
    lifecycle.expectReady();
    server?.timeout(request, 0);
    return body;
  };

  // `standardHostname: false`: the router takes the path to begin where the host ends, not after four letters of it.
  return new Elysia({ normalize: false, handler: { standardHostname: false } })
    .onRequest(({ request, set }) => {
      set.headers["x-request-id"] = enter(request).requestId;
      check(request);
    })
    .onBeforeHandle({ as: "global" }, ({ request, route }) => {
      // By the route that was matched, not by the path that was asked for: the two could be read differently.
      if (!publicRoutes.has(route)) entries.get(request)!.tenant = deps.keys.authorize(request.headers);
    })
    .onError({ as: "global" }, ({ error, code, request, set }) => {
      const { requestId } = entries.get(request) ?? enter(request);
      const refusal = code === "NOT_FOUND" ? noRoute(request, requestId) : asApiError(error, requestId);
      set.status = refusal.status;
      return errorResponse(refusal);
    })
    .onAfterResponse({ as: "global" }, ({ request, set, responseValue }) => {
      const entry = entries.get(request);
      if (entry === undefined) return;
      const status = responseValue instanceof Response ? responseValue.status : Number(set.status ?? 200);
      const seconds = (performance.now() - entry.arrivedMs) / 1000;
      telemetry.observeHttp(handlerOf(request), methodLabel(request.method), status, seconds);
    })
    .get("/health", () => {
      if (lifecycle.state === "lost") lifecycle.expectReady();
      return { status: "ok" };
    })
    .get("/health/ready", () => {
      lifecycle.expectReady();
      return { status: "ready" };
    })
    .get("/ping", () => {
      lifecycle.expectReady();
      return { status: "ok" };
    })
    .get("/version", () => ({ version: deps.version }))
    .get("/metrics", async () => {
      return new Response(await telemetry.text(), { headers: { "content-type": telemetry.contentType } });
    })
    .get("/", () => pageFile("index.html"))
    .get("/page/*", async ({ params, request }) => {
      const file = await pageFile(params["*"]);
      if (file === null) throw unknownRoute(request);
      return file;
    })
    .get("/state", (): Snapshot => {
      const { fleet, specs, version } = deps;
      const engines = engineSnapshots(specs, fleet.loads());
      const { names, contextMax } = model;
      const timeMs = performance.now();
      const placements = deps.placements.last();
      return {
        version,
        model: names[0]!,
        contextMax,
        status: lifecycle.state,
        timeMs,
        engines,
        placements,
      };
    })
    .get("/v1/models", () => {
      lifecycle.expectReady();
      return modelList(model, startedSeconds);
    })
    .get("/v1/models/*", ({ params }) => {
      lifecycle.expectReady();
      return modelById(decodedPath(params["*"]), model, startedSeconds);
    })
    .post(
      "/v1/chat/completions",
      async ({ request, server, set }) => {
        const parsed = parseChatRequest(await readWork(request, server), model);
        tellIgnored(set.headers, parsed.ignored);
        return answerChat(exchangeOf(request), prompts, parsed);
      },
      { parse: "none" },
    )
    .post(
      "/v1/completions",
      async ({ request, server, set }) => {
        const parsed = parseCompletionRequest(await readWork(request, server), model);
        tellIgnored(set.headers, parsed.ignored);
        return answerCompletion(exchangeOf(request), prompts, parsed);
      },
      { parse: "none" },
    )
    .post(
      "/tokenize",
      async ({ request, server }) => answerTokenize(await readWork(request, server), prompts),
      {
        parse: "none",
      },
    )
    .post(
      "/detokenize",
      async ({ request, server }) => answerDetokenize(await readWork(request, server), prompts),
      {
        parse: "none",
      },
    );
}

export type App = ReturnType<typeof createApp>;

/** What anybody may ask for: whether the process lives, and the page, which holds nothing but its own code. */
const publicRoutes: ReadonlySet<string> = new Set(["/health", "/", "/page/*"]);

/** The path of a request; null when its Host is missing or malformed, and so its URL. */
function pathOf(request: Request): string | null {
  return URL.parse(request.url)?.pathname ?? null;
}

/** The client's own id when it is harmless, else a new one. It is echoed and logged, and used for nothing else. */
function requestIdOf(headers: Headers): string {
  const given = headers.get("x-request-id");
  return given !== null && /^[A-Za-z0-9._:-]{1,128}$/.test(given) ? given : `req_${crypto.randomUUID()}`;
}

function expectSmallHead(headers: Headers, limits: HttpLimits): void {
  let bytes = 0;
  let count = 0;
  headers.forEach((value, name) => {
    bytes += name.length + value.length;
    count++;
  });
  if (bytes <= limits.headerBytesMax && count <= limits.headersMax) return;
  throw new ApiError(
    431,
    "invalid_request_error",
    `at most ${limits.headersMax} headers with ${limits.headerBytesMax} bytes are taken, ` +
      `but ${count} with ${bytes} bytes were sent`,
  );
}

/** A page from elsewhere whose name was made to point to this machine carries that name in Host, or itself in Origin. */
function expectLoopback(headers: Headers): void {
  const host = headers.get("host") ?? "";
  if (!isLoopbackName(host.replace(/:\d+$/, ""))) throw foreign("Host", host);
  const origin = headers.get("origin");
  if (origin === null) return;
  const name = /^https?:\/\/([^/]*?)(:\d+)?$/.exec(origin)?.[1];
  if (name === undefined || !isLoopbackName(name)) throw foreign("Origin", origin);
}

function isLoopbackName(name: string): boolean {
  return /^(localhost|[a-z0-9-]+\.localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])$/i.test(name);
}

function foreign(header: string, given: string): ApiError {
  const message = `this server is for programs of its own machine, but the header ${header} is ${quote(given)}`;
  return new ApiError(403, "permission_error", message);
}

function unknownRoute(request: Request): ApiError {
  const path = pathOf(request) ?? "";
  const method = familyOf(path) === undefined ? methods[path] : "GET";
  if (method === undefined || method === request.method) {
    return new ApiError(404, "not_found_error", `there is no route ${quote(path)}`);
  }
  return new ApiError(
    405,
    "invalid_request_error",
    `${path} takes ${method}, but ${request.method} was sent`,
    {
      headers: { allow: method === "GET" ? "GET, HEAD" : method },
    },
  );
}

/** Label values come from here and not from the client, who could make them without end. */
function handlerOf(request: Request): string {
  const path = pathOf(request) ?? "";
  return familyOf(path) ?? (Object.hasOwn(methods, path) ? path : "unknown");
}

function familyOf(path: string): string | undefined {
  return families.find(([prefix]) => path.startsWith(prefix))?.[1];
}

function methodLabel(method: string): string {
  return ["GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE"].includes(method) ? method : "other";
}

function tellIgnored(headers: Record<string, string | number>, ignored: readonly string[]): void {
  if (ignored.length > 0) headers["x-bunting-ignored"] = ignored.join(", ");
}

/** A model's name may hold slashes, escaped or not; what is escaped wrongly is no model's name. */
function decodedPath(path: string): string {
  try {
    return decodeURIComponent(path);
  } catch {
    return path;
  }
}
