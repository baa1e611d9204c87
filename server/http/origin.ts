/** Under which names the server may be called, and by pages of which origins (CORS). */

import { ApiError, quote } from "./errors.ts";

export interface OriginRules {
  /** Only programs of this machine can reach the server. A browser is one of them, and must not call for a foreign page. */
  readonly loopbackOnly: boolean;
  /** Names that Host may hold besides those of this machine. */
  readonly hosts: readonly string[];
  /** Origins whose pages may call; "*" stands for all. */
  readonly origins: readonly string[];
}

/** Seconds for which a browser may remember the answer to a preflight request. */
const PREFLIGHT_SECONDS = 600;

/**
 * Throws 403 where a page from elsewhere may have made a browser of this machine call: its name, which was made to point
 * here, stands in Host, or it stands in Origin itself. A request that carries a key is its sender's own.
 */
export function checkOrigin(headers: Headers, rules: OriginRules, carriesKey: () => boolean): void {
  if (!rules.loopbackOnly) return;
  const host = headers.get("host") ?? "";
  const name = host.replace(/:\d+$/, "").toLowerCase();
  if (!isLoopbackName(name) && !rules.hosts.includes(name) && !carriesKey()) {
    throw foreign("Host", host, "--allow-host");
  }
  const origin = headers.get("origin");
  if (origin !== null && !isWelcome(origin, rules) && !carriesKey())
    throw foreign("Origin", origin, "--cors-origin");
}

/** What a browser must be told so that a page may read the answer; nothing for other clients and other pages. */
export function corsHeaders(headers: Headers, rules: OriginRules): Readonly<Record<string, string>> {
  const origin = headers.get("origin");
  if (origin === null || !isWelcome(origin, rules)) return {};
  return {
    "access-control-allow-origin": origin,
    "access-control-expose-headers": "x-request-id, request-id, x-bunting-ignored, retry-after",
    vary: "origin",
  };
}

/** The answer to a browser that asks what a page may send, which it does without the page's key; null: something else is
 *  asked. */
export function preflight(request: Request, rules: OriginRules): Response | null {
  const { headers } = request;
  const method = headers.get("access-control-request-method");
  if (request.method !== "OPTIONS" || method === null) return null;
  const allowed = corsHeaders(headers, rules);
  if (Object.keys(allowed).length === 0)
    throw foreign("Origin", headers.get("origin") ?? "", "--cors-origin");
  return new Response(null, {
    status: 204,
    headers: {
      ...allowed,
      "access-control-allow-methods": "GET, POST, PUT, DELETE",
      "access-control-allow-headers": headers.get("access-control-request-headers") ?? "",
      "access-control-allow-private-network": "true",
      "access-control-max-age": String(PREFLIGHT_SECONDS),
    },
  });
}

/** On a server that only this machine can reach, its own pages may call too. */
function isWelcome(origin: string, { loopbackOnly, origins }: OriginRules): boolean {
  if (origins.includes("*") || origins.includes(origin)) return true;
  const name = /^https?:\/\/([^/]*?)(:\d+)?$/.exec(origin)?.[1];
  return loopbackOnly && name !== undefined && isLoopbackName(name);
}

function isLoopbackName(name: string): boolean {
  return /^(localhost|[a-z0-9-]+\.localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])$/i.test(name);
}

function foreign(header: string, given: string, option: string): ApiError {
  const message =
    `this server is for programs of its own machine, but the header ${header} is ${quote(given)}; ` +
    `its owner can let it in with ${option}, or with an API key`;
  return new ApiError(403, "permission_error", message);
}
