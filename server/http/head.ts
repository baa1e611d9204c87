/** What is checked of every request's head, before its route. */

import { ApiError, badRequest } from "./errors.ts";
import type { HttpLimits } from "./limits.ts";

/** Throws an ApiError unless the head is small and names a host. */
export function checkHead(request: Request, limits: HttpLimits): void {
  expectSmallHead(request.headers, limits);
  if (pathOf(request) === null) throw badRequest("the header Host is missing or names no host");
}

/** The path of a request; null when its Host is missing or malformed, and so its URL. */
export function pathOf(request: Request): string | null {
  return URL.parse(request.url)?.pathname ?? null;
}

/** The client's own id when it is harmless, else a new one. It is echoed and logged, and used for nothing else. */
export function requestIdOf(headers: Headers): string {
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
