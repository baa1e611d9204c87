import { type ApiError, errorResponse } from "../http/errors.ts";
import { anthropicErrorResponse } from "./anthropic/errors.ts";
import { ollamaErrorResponse } from "./ollama/codec.ts";

/** Writes an error in the wire format that its path belongs to, by default OpenAI's. */
export function refusalOn(path: string, error: ApiError, requestId: string): Response {
  if (path.startsWith("/api/")) return ollamaErrorResponse(error);
  if (path === "/v1/messages" || path.startsWith("/v1/messages/"))
    return anthropicErrorResponse(error, requestId);
  return errorResponse(error);
}

/** Error event in the form of the path's wire format, with the JSON of an error. */
export function errorEvent(path: string, json: string): string {
  return path.startsWith("/v1/messages") ? `event: error\ndata: ${json}\n\n` : `data: ${json}\n\n`;
}
