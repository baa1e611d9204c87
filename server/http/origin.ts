/** Names under which clients may call the server, and origins whose pages may (CORS). */

import { ApiError, quote } from "./errors.ts";

export interface OriginRules {
  /**
   * True if only programs of this machine can reach the server. A browser is one of them, and must not call
   * for a foreign page.
   */
  readonly loopbackOnly: boolean;
  /** Names that Host may hold besides those of this machine. */
  readonly hosts: readonly string[];
  /**
   * Origins whose pages may call; "*" stands for all, `https://*.example.org` for all subdomains, and
   * `http://localhost:*` for all ports.
   */
  readonly origins: readonly string[];
}

/**
 * Schemes that a page from elsewhere can have. Programs built from pages, such as editors, have schemes of
 * their own.
 */
const WEB_SCHEMES = new Set(["http", "https", "ftp", "file", "ipfs", "ipns", "hyper", "dat"]);

/** Seconds for which a browser may remember the answer to a preflight request. */
const PREFLIGHT_SECONDS = 600;

/**
 * Throws 403 if a foreign page may have caused a browser of this machine to call. Such a page shows in Host
 * (its name was made to point here) or in Origin. A request that carries a key is its sender's own.
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

/** Headers that let a page read the answer; none for other clients and other pages. */
export function corsHeaders(headers: Headers, rules: OriginRules): Readonly<Record<string, string>> {
  const origin = headers.get("origin");
  if (origin === null || !isWelcome(origin, rules)) return {};
  return {
    "access-control-allow-origin": origin,
    "access-control-expose-headers":
      "x-request-id, request-id, x-bunting-ignored, x-bunting-cache, retry-after",
    vary: "origin",
  };
}

/** Answer to a browser's preflight request, which carries no key; null if the request is no preflight. */
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

/** Accepts pages and programs of this machine too, if only this machine can reach the server. */
function isWelcome(origin: string, { loopbackOnly, origins }: OriginRules): boolean {
  if (origins.some((pattern) => pattern === "*" || matchesOrigin(pattern, origin))) return true;
  const { scheme, name } = originParts(origin);
  if (!loopbackOnly || scheme === "") return false;
  return WEB_SCHEMES.has(scheme) ? /^https?$/.test(scheme) && isLoopbackName(name) : true;
}

/** True if the origin equals the pattern or matches its wildcard. */
export function matchesOrigin(pattern: string, origin: string): boolean {
  if (!pattern.includes("*")) return pattern === origin;
  const [allowed, given] = [originParts(pattern), originParts(origin)];
  if (given.scheme === "" || allowed.scheme !== given.scheme) return false;
  if (allowed.port !== ":*" && allowed.port !== given.port) return false;
  if (!allowed.name.startsWith("*.")) return allowed.name === given.name;
  return given.name.length > allowed.name.length - 1 && given.name.endsWith(allowed.name.slice(1));
}

/** Parts of an origin, all empty if it has no scheme, as `null`. */
function originParts(origin: string) {
  const [, scheme = "", name = "", port = ""] =
    /^([a-z][a-z0-9+.-]*):\/\/([^/?#@]*?)(:\d+|:\*)?$/i.exec(origin) ?? [];
  return { scheme: scheme.toLowerCase(), name: name.toLowerCase(), port };
}

function isLoopbackName(name: string): boolean {
  return /^(localhost|[a-z0-9-]+\.localhost|127\.\d{1,3}\.\d{1,3}\.\d{1,3}|\[::1\])$/i.test(name);
}

/** `value` is for the option; the message shows it only if it can be passed as it is. */
function foreign(header: string, given: string, option: string, value: string): ApiError {
  const shown = /^[\w.:/[\]+-]{1,200}$/.test(value) ? `${option} ${value}` : option;
  const message =
    `this server is for programs of its own machine, but the header ${header} is ${quote(given)}; ` +
    `its owner can let it in with ${shown}, or with an API key`;
  return new ApiError(403, "permission_error", message);
}
