/** Errors in Anthropic's format: its clients match the status, the type, and the words about length. */
import { type ApiError, errorResponse } from "../../http/errors.ts";

export interface ErrorBody {
  readonly type: "error";
  readonly error: { readonly type: string; readonly message: string; readonly details?: object };
  readonly request_id: string;
}

/** Anthropic's own status for an overloaded server. */
const OVERLOADED = 529;

/** Code by which Anthropic's clients know to send the whole conversation instead of continuing a thread. */
export const THREAD_UNSUPPORTED = "thread_unsupported_request";

const typeByStatus: Readonly<Record<number, string>> = {
  401: "authentication_error",
  403: "permission_error",
  404: "not_found_error",
  413: "request_too_large",
  429: "rate_limit_error",
  504: "timeout_error",
  [OVERLOADED]: "overloaded_error",
};

export function anthropicErrorResponse(error: ApiError, requestId: string): Response {
  const response = errorResponse(error, anthropicErrorBody(error, requestId), statusOf(error));
  response.headers.set("request-id", requestId);
  return response;
}

export function anthropicErrorBody(error: ApiError, requestId: string): ErrorBody {
  const status = statusOf(error);
  const type = typeByStatus[status] ?? (status < 500 ? "invalid_request_error" : "api_error");
  // Clients that shorten a conversation by themselves look for these words.
  const { apiCode, param } = error.detail;
  const message =
    apiCode === "context_length_exceeded" ? `prompt is too long: ${error.message}` : error.message;
  const details =
    apiCode === THREAD_UNSUPPORTED ? { details: { error_code: apiCode, unsupported: [param] } } : {};
  return { type: "error", error: { type, message, ...details }, request_id: requestId };
}

function statusOf(error: ApiError): number {
  return error.detail.apiCode === "server_overloaded" ? OVERLOADED : error.status;
}
