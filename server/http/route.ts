import { ApiError, quote } from "./errors.ts";
import type { Reply } from "./reply.ts";

/** One row of the server's table of routes. */
export interface Route {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  /** `{…}` at its end stands for everything behind. */
  readonly path: string;
  /** Answers without a key. */
  readonly isPublic: boolean;
  /** null: there is nothing of that name. */
  readonly handler: (call: Call) => unknown;
  /** Its bodies are JSON whatever content type they come with: `curl -d` alone names another. */
  readonly takesAnyType?: boolean;
}

/** What a handler is given. */
export interface Call {
  readonly request: Request;
  /** Where the answer goes that is a stream. */
  readonly reply: Reply;
  readonly requestId: string;
  /** When the request's head arrived, on the clock of `performance.now()`. */
  readonly arrivedMs: number;
  /** A name for the key, and the owner of what is kept of this request; "" where no keys are needed. */
  readonly tenant: string;
  /** May see what all keys' requests do. */
  readonly isAdmin: boolean;
  /** What stands for `{…}` in the route's path. */
  readonly rest: string;
  /** The JSON object in the body of a request for work, which is refused early when none is taken. */
  readWork(): Promise<Readonly<Record<string, unknown>>>;
  setHeader(name: string, value: string): void;
}

/** A handler of what tells of all keys' requests. Throws 403 for a key that may not see them. */
export function adminsAlone(handler: Route["handler"]): Route["handler"] {
  return (call) => {
    if (call.isAdmin) return handler(call);
    const message = `${new URL(call.request.url).pathname} tells of all keys' requests: it takes a key that the server was given with --admin-key or --admin-key-file`;
    throw new ApiError(403, "permission_error", message, { apiCode: "admin_key_needed" });
  };
}

/** The route of a path; its method may be another one. */
export function findRoute(routes: readonly Route[], path: string): Route | undefined {
  return routes.find((route) => matches(route, path));
}

function matches(route: Route, path: string): boolean {
  const prefix = prefixOf(route);
  return prefix === null ? route.path === path : path.startsWith(prefix);
}

/** The path as Elysia's router takes it. */
export function pattern(route: Route): string {
  const prefix = prefixOf(route);
  return prefix === null ? route.path : `${prefix}*`;
}

/** 404, or 405 when the path takes other methods. */
export function noRoute(routes: readonly Route[], method: string, path: string): ApiError {
  const taken = routes.filter((route) => findRoute([route], path) !== undefined).map((route) => route.method);
  if (taken.length === 0 || taken.some((one) => one === method)) {
    return new ApiError(404, "not_found_error", `there is no route ${quote(path)}`);
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
