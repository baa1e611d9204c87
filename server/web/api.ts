/** Calls this server with the tab's API key. */
import { signal } from "@preact/signals";
import { authorization, ServerError, serverError, type Target } from "../cli/client.ts";

const STORED = "bunting-api-key";

/** Server's sentence about a missing or invalid key; null: this tab's key is accepted. */
export const keyProblem = signal<string | null>(null);

/** Address of the server that sent this page, also behind a proxy that put it below a path. */
export function target(): Target {
  return { url: new URL("v1", document.baseURI).href, apiKey: sessionStorage.getItem(STORED) };
}

/** Keeps the key until the tab is closed. */
export function useKey(key: string): void {
  sessionStorage.setItem(STORED, key);
  keyProblem.value = null;
}

/**
 * Calls a route by its path relative to the page. Throws ServerError; after 401, the page also asks for a
 * key.
 */
export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  const to = target();
  const headers = { ...authorization(to), ...(init.headers as Record<string, string>) };
  const response = await fetch(new URL(path, document.baseURI), { ...init, headers, cache: "no-store" });
  if (response.ok) return response;
  throw noteKey(await serverError(response, to));
}

/** Makes the page ask for a key if the error is about one. Returns the error. */
export function noteKey<Thrown>(error: Thrown): Thrown {
  if (error instanceof ServerError && error.status === 401) keyProblem.value = error.message;
  return error;
}

/** Sentence for people. */
export function messageOf(error: unknown): string {
  return error instanceof ServerError ? error.message : "the server cannot be reached";
}
