import { type ApiError, errorResponse } from "../../http/errors.ts";

/** Errors in Ollama's format: a sentence. */
export function ollamaErrorResponse(error: ApiError): Response {
  return errorResponse(error, ollamaErrorBody(error));
}

export function ollamaErrorBody({ message }: ApiError): { readonly error: string } {
  return { error: message };
}
