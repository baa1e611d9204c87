/**
 * Refusals. Code that refuses throws an `ApiError`, and `errorResponse` turns it into an HTTP response.
 * `errorBody` makes OpenAI's JSON of it; other wire formats make their own. An event stream that has begun
 * carries the same body.
 */

/** Makes the response that refuses a request on this path: each wire format has a form of its own. */
export type Refuse = (path: string, error: ApiError, requestId: string) => Response;

/** Body of a refused request on JSON routes, in OpenAI's shape; other wire formats override it. */
export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    /** Path of the field at fault: `messages[0].role`. */
    readonly param: string | null;
    readonly code: string | null;
  };
}

export interface ErrorDetail {
  readonly param?: string | undefined;
  /** OpenAI's string where clients match one, else ours; never `code`, which Elysia reads as its own. */
  readonly apiCode?: string | undefined;
  /** Seconds after which trying again makes sense: sent as `retry-after`. */
  readonly retryAfterSeconds?: number | undefined;
  /**
   * Header for official clients that says whether to try again, where the status alone would mislead them.
   */
  readonly shouldRetry?: boolean | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
}

/** Refusal meant for the client, who sees its message: it holds no path, address or stack. */
export class ApiError extends Error {
  override readonly name = "ApiError";

  constructor(
    readonly status: number,
    readonly type: string,
    message: string,
    readonly detail: ErrorDetail = {},
  ) {
    super(message);
  }
}

/**
 * 400: the request itself is wrong. `param` names the field; the message names the limit and the given value.
 */
export function badRequest(message: string, param?: string, apiCode?: string): ApiError {
  return new ApiError(400, "invalid_request_error", message, { param, apiCode });
}

/** 400 for text from a model without a vocabulary projection. */
export function writesNoText(param: string): ApiError {
  const message =
    "this model writes no text: it gives embeddings or scores alone (/v1/embeddings, /v1/rerank)";
  return badRequest(message, param);
}

/** 404 for a model this server does not have. Wire formats whose clients match other words write their own. */
export class ModelNotFound extends ApiError {
  constructor(
    readonly given: string,
    readonly served: readonly string[],
  ) {
    const message = `the model ${quote(given)} does not exist; served here: ${served.join(", ")}`;
    super(404, "not_found_error", message, { param: "model", apiCode: "model_not_found" });
  }
}

/** 400 with both numbers: the server never truncates a request to make it fit. */
export function contextExceeded(
  contextMax: number,
  promptTokens: number,
  tokensMax: number,
  param: string,
): ApiError {
  return badRequest(
    `This model's maximum context length is ${contextMax} tokens, but ${promptTokens + tokensMax} were requested ` +
      `(${promptTokens} in the prompt, ${tokensMax} to generate).`,
    param,
    "context_length_exceeded",
  );
}

/** 400 for a prompt that is too long, whatever else the request holds. */
export function promptTooLong(contextMax: number, tokensAtLeast: number, param: string): ApiError {
  return badRequest(
    `This model's maximum context length is ${contextMax} tokens, but at least ${tokensAtLeast} are in ${param} alone.`,
    param,
    "context_length_exceeded",
  );
}

/** 503: the request is valid, but the server cannot accept it now. */
export function unavailable(
  apiCode: "server_overloaded" | "draining" | "loading" | "engine_lost",
  message: string,
  retryAfterSeconds: number,
): ApiError {
  return new ApiError(503, "overloaded_error", message, { apiCode, retryAfterSeconds });
}

/** 500: computing this request failed, and would fail again. The response asks clients not to repeat it. */
export function engineError(message: string): ApiError {
  return new ApiError(500, "server_error", message, { apiCode: "engine_error", shouldRetry: false });
}

/**
 * Turns any error into one for the client. An error that is no `ApiError` is a bug here: its details go to
 * the log, not to the client.
 */
export function asApiError(error: unknown, requestId: string): ApiError {
  if (error instanceof ApiError) return error;
  console.error(`request ${requestId} failed:`, error);
  return new ApiError(
    500,
    "server_error",
    `the server made a mistake; its log tells more about request ${requestId}`,
    {
      apiCode: "internal_error",
      shouldRetry: false,
    },
  );
}

export function errorBody(error: ApiError): ErrorBody {
  const { param, apiCode } = error.detail;
  return { error: { message: error.message, type: error.type, param: param ?? null, code: apiCode ?? null } };
}

/** `body` and `status` differ on routes of other formats than OpenAI's. */
export function errorResponse(
  error: ApiError,
  body: object = errorBody(error),
  status: number = error.status,
): Response {
  const { retryAfterSeconds, shouldRetry, headers } = error.detail;
  const response = Response.json(body, { status, headers: headers ?? {} });
  if (retryAfterSeconds !== undefined) response.headers.set("retry-after", String(retryAfterSeconds));
  if (shouldRetry !== undefined) response.headers.set("x-should-retry", String(shouldRetry));
  return response;
}

/** Short, one-line form of a client's value for an error message. */
export function quote(value: unknown): string {
  if (Array.isArray(value)) return `an array of ${value.length}`;
  if (typeof value === "object" && value !== null) return "an object";
  const text = typeof value === "number" ? String(value) : (JSON.stringify(value) ?? "nothing");
  return text.length <= 60 ? text : `${text.slice(0, 57)}…${typeof value === "string" ? '"' : ""}`;
}

/** The client disconnected; the status is the one that proxies log for it. */
export function clientGone(): ApiError {
  return new ApiError(499, "client_error", "the client went away");
}
