/** Under which names the server may be called, and by pages of which origins (CORS). */

import { ApiError, quote } from "./errors.ts";

export interface OriginRules {
  /** Only programs of this machine can reach the server. A browser is one of them, and must not call for a foreign page. */
  readonly loopbackOnly: boolean;
  /** Names that Host may hold besides those of this machine. */
  readonly hosts: readonly string[];
  /** Origins whose pages may call; "*" stands for all, `https://*.example.org` for all names below one, and `http://localhost:*` for all ports. */
  readonly origins: readonly string[];
}

/** Schemes of which a page from elsewhere can be. Programs that are made of pages, such as editors, have schemes of their own. */
const WEB_SCHEMES = new Set(["http", "https", "ftp", "file", "ipfs", "ipns", "hyper", "dat"]);

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
    throw foreign("Host", host, "--allow-host", name);
  }
  const origin = headers.get("origin");
  if (origin !== null && !isWelcome(origin, rules) && !carriesKey())
    throw foreign("Origin", origin, "--cors-origin", origin);
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
  if (Object.keys(allowed).length === 0) {
    const origin = headers.get("origin") ?? "";
    throw foreign("Origin", origin, "--cors-origin", origin);
  }
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

/** On a server that only this machine can reach, its own pages may call too, and its programs. */
function isWelcome(origin: string, { loopbackOnly, origins }: OriginRules): boolean {
  if (origins.some((pattern) => pattern === "*" || matchesOrigin(pattern, origin))) return true;
  const { scheme, name } = originParts(origin);
  if (!loopbackOnly || scheme === "") return false;
  return WEB_SCHEMES.has(scheme) ? /^https?$/.test(scheme) && isLoopbackName(name) : true;
}

/** Whether an origin is the one that is named, or one of those that a pattern stands for. */
export function matchesOrigin(pattern: string, origin: string): boolean {
  if (!pattern.includes("*")) return pattern === origin;
  const [allowed, given] = [originParts(pattern), originParts(origin)];
  if (given.scheme === "" || allowed.scheme !== given.scheme) return false;
  if (allowed.port !== ":*" && allowed.port !== given.port) return false;
  if (!allowed.name.startsWith("*.")) return allowed.name === given.name;
  return given.name.length > allowed.name.length - 1 && given.name.endsWith(allowed.name.slice(1));
}

/** All empty for what has no scheme, as `null`. */
function originParts(origin: string) {
  const [, scheme = "", name = "", port = ""] =
    /^([a-z][a-z0-9+.-]*):\/\/([^/?#@]*?)(:\d+|:\*)?$/i.exec(origin) ?? [];
  return { scheme: scheme.toLowerCase(), name: name.toLowerCase(), port };
}

function isLoopbackName(name: string): boolean {
  return /^(localhost|[a-z0-9-]+\.localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])$/i.test(name);
}

/** `value` is for the option, and shown where it can be given as it is. */
function foreign(header: string, given: string, option: string, value: string): ApiError {
  const shown = /^[\w.:/[\]+-]{1,200}$/.test(value) ? `${option} ${value}` : option;
  const message =
    `this server is for programs of its own machine, but the header ${header} is ${quote(given)}; ` +
    `its owner can let it in with ${shown}, or with an API key`;
  return new ApiError(403, "permission_error", message);
}
