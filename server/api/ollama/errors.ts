import { type ApiError, errorResponse } from "../../http/errors.ts";

/** Saying no as Ollama does: a sentence. */
export function ollamaErrorResponse(error: ApiError): Response {
  return errorResponse(error, ollamaErrorBody(error));
}

export function ollamaErrorBody({ message }: ApiError): { readonly error: string } {
  return { error: message };
}
