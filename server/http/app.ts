/**
 * What all routes have in common. Each request passes `onRequest` (request id, size of the head, origin), then
 * the key, then its route; every refusal, wherever it is thrown, leaves through `onError` in
 * the form of its path.
 */
import { Elysia } from "elysia";
import type { ApiKeys } from "./auth.ts";
import type { BodyReader } from "./body.ts";
import { replyTo } from "./connection.ts";
import { asApiError, type Refuse } from "./errors.ts";
import { checkHead, pathOf, requestIdOf } from "./head.ts";
import type { Lifecycle } from "./lifecycle.ts";
import type { HttpLimits } from "./limits.ts";
import { checkOrigin, corsHeaders, type OriginRules, preflight } from "./origin.ts";
import { type Call, findRoute, noRoute, pattern, type Route } from "./route.ts";
import type { Telemetry } from "./telemetry.ts";

export interface AppDeps {
  readonly routes: readonly Route[];
  readonly telemetry: Telemetry;
  readonly lifecycle: Lifecycle;
  readonly keys: ApiKeys;
  readonly origins: OriginRules;
  readonly bodies: BodyReader;
  readonly limits: HttpLimits;
  readonly refuse: Refuse;
}

/** What is known of a request from its first moment. */
interface Entry {
  readonly requestId: string;
  readonly arrivedMs: number;
  /** Known once the key was checked. */
  tenant: string;
  isAdmin: boolean;
}

export function createApp(deps: AppDeps) {
  const { routes, telemetry, keys } = deps;
  const publicPatterns = new Set(routes.filter(({ isPublic }) => isPublic).map(pattern));
  const entries = new WeakMap<Request, Entry>();

  const enter = (request: Request): Entry => {
    const requestId = requestIdOf(request.headers);
    const entry = { requestId, arrivedMs: performance.now(), tenant: "", isAdmin: false };
    entries.set(request, entry);
    return entry;
  };

  // `standardHostname: false`: the router takes the path to begin where the host ends, not after four letters of it.
  const app = new Elysia({ normalize: false, handler: { standardHostname: false } })
    .onRequest(({ request, set }) => {
      set.headers["x-request-id"] = enter(request).requestId;
      Object.assign(set.headers, corsHeaders(request.headers, deps.origins));
      checkOrigin(request.headers, deps.origins, () => keys.isKnown(request.headers));
      checkHead(request, deps.limits);
      return preflight(request, deps.origins) ?? undefined;
    })
    .onBeforeHandle({ as: "global" }, ({ request, route }) => {
      // By the route that was matched, not by the path that was asked for: the two could be read differently.
      if (!publicPatterns.has(route)) Object.assign(entries.get(request)!, keys.authorize(request.headers));
    })
    .onError({ as: "global" }, ({ error, code, request, set }) => {
      const { requestId } = entries.get(request) ?? enter(request);
      const refusal = asApiError(code === "NOT_FOUND" ? missing(deps, request) : error, requestId);
      const response = deps.refuse(pathOf(request), refusal, requestId);
      set.status = response.status;
      return response;
    })
    .onAfterResponse({ as: "global" }, ({ request, set, responseValue }) => {
      const entry = entries.get(request);
      if (entry === undefined) return;
      const status = responseValue instanceof Response ? responseValue.status : Number(set.status ?? 200);
      const seconds = (performance.now() - entry.arrivedMs) / 1000;
      // Labels come from the table and not from the client, which could send any number of them.
      const path = findRoute(routes, pathOf(request))?.path ?? "unknown";
      telemetry.observeHttp(path, methodLabel(request.method), status, seconds);
      telemetry.log?.responded(entry.requestId, request.method, pathOf(request), status, seconds);
    });
  for (const route of routes) {
    app.route(
      route.method,
      pattern(route),
      async ({ request, params, set }) => {
        const told = new Map<string, string>();
        const call: Call = {
          request,
          ...entries.get(request)!,
          rest: (params as { readonly "*"?: string } | undefined)?.["*"] ?? "",
          readWork: () => readWork(deps, route, request),
          reply: replyTo(request),
          setHeader: (name, value) => {
            told.set(name, value);
            set.headers[name] = value;
          },
        };
        const answer = await route.handler(call);
        if (answer instanceof Response) joinHeaders(answer, told);
        if (answer === null) throw noRoute(routes, request.method, pathOf(request));
        return answer;
      },
      { parse: "none" },
    );
  }
  return app;
}

/** An answer's own headers would stand in place of those that were told before it. */
function joinHeaders({ headers }: Response, told: ReadonlyMap<string, string>): void {
  for (const [name, value] of told) {
    const own = headers.get(name);
    if (own !== null) headers.set(name, `${value}, ${own}`);
  }
}

export type App = ReturnType<typeof createApp>;

/** Without a key nothing is told about routes. */
function missing({ routes, keys }: AppDeps, request: Request): unknown {
  const path = pathOf(request);
  try {
    if (findRoute(routes, path)?.isPublic !== true) keys.authorize(request.headers);
    return noRoute(routes, request.method, path);
  } catch (error) {
    return error;
  }
}

/** Refuses early when no work is taken. */
async function readWork(
  { lifecycle, bodies }: AppDeps,
  { takesAnyType = false }: Route,
  request: Request,
): Promise<Readonly<Record<string, unknown>>> {
  lifecycle.expectReady();
  const body = await bodies.readJson(request, takesAnyType);
  lifecycle.expectReady();
  return body;
}

function methodLabel(method: string): string {
  return ["GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE"].includes(method) ? method : "other";
}
