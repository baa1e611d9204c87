import type { RequestTrace } from "../trace/traces.ts";
import { ApiError, quote } from "./errors.ts";
import type { ReplyTarget } from "./reply.ts";

/** Row of the server's table of routes. */
export interface Route {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** The first `{` begins a wildcard, which matches the rest of a path, slashes included. */
  readonly path: string;
  /** True if the route answers without a key. */
  readonly isPublic: boolean;
  /** Returns a `Response`, an object to send as JSON, or null for 404. */
  readonly handler: (call: Call) => unknown;
  /** True to parse bodies as JSON under any content type: `curl -d` without a header sends another. */
  readonly takesAnyType?: boolean;
}

/** Arguments of a handler. */
export interface Call {
  readonly request: Request;
  /** Destination of an answer that is a stream. */
  readonly reply: ReplyTarget;
  readonly requestId: string;
  /** Arrival of the request's head, on the clock of `performance.now()`. */
  readonly arrivedMs: number;
  /** Wait for the model to be loaded; absent: the model was there. */
  readonly loadMs?: number;
  /** Name for the key, and owner of the objects stored for this request; "" if the server needs no keys. */
  readonly tenant: string;
  /** True if the sender may see all keys' requests. */
  readonly isAdmin: boolean;
  /** Part of the path that matches the wildcard; "" for a route without one. */
  readonly rest: string;
  /** Trace of the request; absent: it has none. */
  readonly trace?: RequestTrace | undefined;
  /** Throws if the server accepts no work, or the key has used up its tokens. */
  expectWork(): void;
  /** Reads the JSON object in the body of a request for work. Refuses early if the server accepts none. */
  readWork(): Promise<Readonly<Record<string, unknown>>>;
  setHeader(name: string, value: string): void;
}

/** Wraps a handler that shows all keys' requests. Throws 403 for a key that may not see them. */
export function adminsAlone(handler: Route["handler"]): Route["handler"] {
  return (call) => {
    if (call.isAdmin) return handler(call);
    const message = `${new URL(call.request.url).pathname} shows all keys' requests, which needs a key of --admin-key or --admin-key-file`;
    throw new ApiError(403, "permission_error", message, { apiCode: "admin_key_needed" });
  };
}

/** Finds the first route that matches the path, of any method. */
export function findRoute(routes: readonly Route[], path: string): Route | undefined {
  return routes.find((route) => matches(route, path));
}

function matches(route: Route, path: string): boolean {
  const prefix = prefixOf(route);
  return prefix === null ? route.path === path : path.startsWith(prefix);
}

/** Path in the syntax of Elysia's router. */
export function pattern(route: Route): string {
  const prefix = prefixOf(route);
  return prefix === null ? route.path : `${prefix}*`;
}

/** 404, or 405 if the path accepts other methods. */
export function noRoute(routes: readonly Route[], method: string, path: string): ApiError {
  const taken = routes.filter((route) => findRoute([route], path) !== undefined).map((route) => route.method);
  if (taken.length === 0 || taken.some((one) => one === method)) {
    return new ApiError(
      404,
      "not_found_error",
      `there is no route ${quote(path)}; GET /openapi.json lists the routes`,
    );
  }
  const methods = [...new Set(taken)];
  const message = `${path} takes ${methods.join(" and ")}, but ${method} was sent`;
  const allow = methods.map((one) => (one === "GET" ? "GET, HEAD" : one)).join(", ");
  return new ApiError(405, "invalid_request_error", message, { headers: { allow } });
}

function prefixOf({ path }: Route): string | null {
  const end = path.indexOf("{");
  return end === -1 ? null : path.slice(0, end);
}

/** Calls `tell` once the signal is aborted, at once if it already is. The returned function cancels that. */
export function whenAborted(signal: AbortSignal, tell: () => void): () => void {
  if (signal.aborted) tell();
  else signal.addEventListener("abort", tell, { once: true });
  return () => signal.removeEventListener("abort", tell);
}
