/** Calls of this server with the tab's API key. */
import { signal } from "@preact/signals";
import { authorization, ServerError, serverError, type Target } from "../cli/client.ts";

const STORED = "bunting-api-key";

/** The server's sentence about a missing or unknown key; null: it accepts this tab's key. */
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

/** Calls a route, by its path below the page. Throws ServerError, and has the page ask for a key after 401. */
export async function call(path: string, init: RequestInit = {}): Promise<Response> {
  const to = target();
  const headers = { ...authorization(to), ...(init.headers as Record<string, string>) };
  const response = await fetch(new URL(path, document.baseURI), { ...init, headers, cache: "no-store" });
  if (response.ok) return response;
  throw noteKey(await serverError(response, to));
}

/** Has the page ask for a key if that is the error. */
export function noteKey<Thrown>(error: Thrown): Thrown {
  if (error instanceof ServerError && error.status === 401) keyProblem.value = error.message;
  return error;
}

/** Sentence for people. */
export function messageOf(error: unknown): string {
  return error instanceof ServerError ? error.message : "the server cannot be reached";
}
