/** Head of a request: turns a parsed head into the `Request` for routes, and checks it first. */

import { ApiError, badRequest, quote } from "./errors.ts";
import type { HttpLimits } from "./limits.ts";
import type { RequestBody } from "./request-body.ts";
import { HEAD_BYTES_MAX, type ParseFailure, type RequestHead } from "./request-parser.ts";

/** Host in the URL of a request whose Host header is missing or invalid. */
const NO_HOST = "host.invalid";

/** Failure code that is not llhttp's: the client took too long. */
export const HEAD_TOO_SLOW = "HEAD_TOO_SLOW";

/** Makes the `Request` for routes; `signal` is aborted when its client disconnects. Throws an ApiError. */
export function requestOf(head: RequestHead, body: RequestBody, signal: AbortSignal): Request {
  const { major, minor, method, target } = head;
  if (major !== 1) {
    throw new ApiError(
      505,
      "invalid_request_error",
      `HTTP/1.1 is spoken here, but ${major}.${minor} was sent`,
    );
  }
  const headers = new Headers();
  for (let at = 0; at < head.headers.length; at += 2)
    headers.append(head.headers[at]!, head.headers[at + 1]!);
  const coding = headers.get("transfer-encoding");
  if (coding !== null && coding.toLowerCase() !== "chunked") {
    // A proxy in front of the server may find another end of such a body (request smuggling).
    const message = `the transfer coding of a request can only be chunked, but is ${quote(coding)}`;
    throw new ApiError(501, "invalid_request_error", message, { headers: { connection: "close" } });
  }
  const path = target.startsWith("/") ? target : (URL.parse(target)?.pathname ?? `/${target}`);
  const url = `http://${hostOf(headers) ?? NO_HOST}${path}`;
  const takesBody = method !== "GET" && method !== "HEAD";
  if (!takesBody) body.drop();
  try {
    return new Request(url, { method, headers, signal, body: takesBody ? body.take() : null });
  } catch {
    throw new ApiError(405, "invalid_request_error", `the method ${method} is not taken here`);
  }
}

/** Refusal of bytes that are no request. */
export function refusalOf({ code, reason }: ParseFailure): ApiError {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return new ApiError(
        431,
        "invalid_request_error",
        `the head of a request may have ${HEAD_BYTES_MAX} bytes at most`,
      );
    case HEAD_TOO_SLOW:
      return new ApiError(408, "timeout_error", `the head of the request came too slowly: ${reason}`);
    case "HPE_INVALID_METHOD":
      return badRequest("the method is not one of HTTP's");
    case "HPE_PAUSED_H2_UPGRADE":
      return new ApiError(505, "invalid_request_error", "HTTP/1.1 is spoken here, but HTTP/2 was sent");
    default:
      return badRequest(`what was sent is not HTTP/1.1: ${reason}`);
  }
}

export function headerOf({ headers }: RequestHead, name: string): string | undefined {
  const at = headers.findIndex((one, at) => at % 2 === 0 && one.toLowerCase() === name);
  return at < 0 ? undefined : headers[at + 1];
}

/** Requested host, perhaps with a port; null if the header is missing or invalid. */
function hostOf(headers: Headers): string | null {
  const host = headers.get("host");
  const isHost =
    host !== null &&
    /^(\[[0-9a-f:.]+\]|[^\s/?#@\\:,]+)(:\d*)?$/i.test(host) &&
    URL.canParse(`http://${host}`);
  return isHost ? host : null;
}

/** Throws an ApiError unless the head is small and names a host. */
export function checkHead(request: Request, limits: HttpLimits): void {
  expectSmallHead(request.headers, limits);
  if (hostOf(request.headers) === null) throw badRequest("the header Host is missing or names no host");
}

export function pathOf(request: Request): string {
  return new URL(request.url).pathname;
}

/** The client's own id if it is harmless, else a new one. The server only echoes and logs it. */
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
