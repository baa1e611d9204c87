/**
 * Handling common to all routes. Each request passes `onRequest` (request id, origin, size of the head), then
 * the key check, then its route. Every refusal, wherever it is thrown, leaves through `onError` in the wire
 * format of its path.
 */
import { Elysia } from "elysia";
import { RequestTrace } from "../trace/traces.ts";
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

/** Server's data about a request, from its arrival on. */
interface Entry {
  readonly requestId: string;
  readonly arrivedMs: number;
  /** Set by the key check. */
  tenant: string;
  isAdmin: boolean;
  /** Set before its handler runs; undefined: it has none. */
  trace?: RequestTrace | undefined;
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

  // `standardHostname: false` lets Elysia find the path behind a host of fewer than four characters too.
  const app = new Elysia({ normalize: false, handler: { standardHostname: false } })
    .onRequest(({ request, set }) => {
      set.headers["x-request-id"] = enter(request).requestId;
      Object.assign(set.headers, corsHeaders(request.headers, deps.origins));
      checkOrigin(request.headers, deps.origins, () => keys.isKnown(request.headers));
      checkHead(request, deps.limits);
      return preflight(request, deps.origins) ?? undefined;
    })
    .onBeforeHandle({ as: "global" }, ({ request, route }) => {
      // Checks the matched route, not the requested path: the two could be parsed differently.
      if (!publicPatterns.has(route)) Object.assign(entries.get(request)!, keys.authorize(request.headers));
    })
    .onError({ as: "global" }, ({ error, code, request, set }) => {
      const { requestId, trace } = entries.get(request) ?? enter(request);
      const refusal = asApiError(code === "NOT_FOUND" ? missing(deps, request) : error, requestId);
      trace?.failed(refusal);
      const response = deps.refuse(pathOf(request), refusal, requestId);
      set.status = response.status;
      return response;
    })
    .onAfterResponse({ as: "global" }, ({ request, set, responseValue }) => {
      const entry = entries.get(request);
      if (entry === undefined) return;
      const status = responseValue instanceof Response ? responseValue.status : Number(set.status ?? 200);
      const seconds = (performance.now() - entry.arrivedMs) / 1000;
      // Labels come from the route table, not from the client, which could send any number of paths.
      const path = findRoute(routes, pathOf(request))?.path ?? "unknown";
      telemetry.observeHttp(path, methodLabel(request.method), status, seconds);
      telemetry.log?.responded(entry.requestId, request.method, pathOf(request), status, seconds);
      entry.trace?.responded(status, path);
    });
  for (const route of routes) {
    app.route(
      route.method,
      pattern(route),
      async ({ request, params, set }) => {
        const added = new Map<string, string>();
        const entry = entries.get(request)!;
        if (telemetry.traces !== null && request.method === "POST")
          entry.trace = new RequestTrace(telemetry.traces, { ...entry, request });
        const expectWork = (): void => {
          telemetry.ledger.expectWithin(entry.tenant);
          deps.lifecycle.expectReady();
        };
        const call: Call = {
          request,
          ...entry,
          rest: (params as { readonly "*"?: string } | undefined)?.["*"] ?? "",
          expectWork,
          readWork: async () => {
            expectWork();
            const body = await deps.bodies.readJson(request, route.takesAnyType);
            deps.lifecycle.expectReady();
            return body;
          },
          reply: replyTo(request),
          setHeader: (name, value) => {
            added.set(name, value);
            set.headers[name] = value;
          },
        };
        const answer = await route.handler(call);
        if (answer instanceof Response) joinHeaders(answer, added);
        if (answer === null) throw noRoute(routes, request.method, pathOf(request));
        return answer;
      },
      { parse: "none" },
    );
  }
  return app;
}

/** Prepends header values that the handler set to the response's own values, which would replace them. */
function joinHeaders({ headers }: Response, added: ReadonlyMap<string, string>): void {
  for (const [name, value] of added) {
    const own = headers.get(name);
    if (own !== null) headers.set(name, `${value}, ${own}`);
  }
}

export type App = ReturnType<typeof createApp>;

/** Error for a path without a route: 404 or 405; 401 for a client without a key, to hide the routes from it. */
function missing({ routes, keys }: AppDeps, request: Request): unknown {
  const path = pathOf(request);
  try {
    if (findRoute(routes, path)?.isPublic !== true) keys.authorize(request.headers);
    return noRoute(routes, request.method, path);
  } catch (error) {
    return error;
  }
}

function methodLabel(method: string): string {
  return ["GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE"].includes(method) ? method : "other";
}
