import { signal } from "@preact/signals";
import { eventData, listModels, ServerError } from "../cli/client.ts";
import type { LoadingFacts } from "../http/lifecycle.ts";
import type { StateEvent } from "../http/state-events.ts";
import { call, messageOf, noteKey, target } from "./api.ts";

const RETRY_MS = 1000;
/** Longest pause between two connection attempts. */
const RETRY_MS_MAX = 8000;

/**
 * Stream of the server's state while the page is visible. Requests only the state of the view on screen, and
 * reconnects after a failure.
 */
export class ServerLink {
  /** Sentence that says why the user cannot send a message now; null: the user can. */
  readonly problem = signal<string | null>("Connecting to the server …");
  /** Progress while the model loads; null: none is known. */
  readonly loading = signal<LoadingFacts | null>(null);
  /** Names of models, the server's own first. */
  readonly models = signal<readonly string[]>([]);
  readonly version = signal("");
  /** True if this tab's key may see all keys' requests; null: not known yet. */
  readonly isAdmin = signal<boolean | null>(null);
  readonly #onEvent: (event: StateEvent) => void;
  #query = "view=facts";
  #stopping: AbortController | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #waitMs = RETRY_MS;
  /** Last status sentence from the server. */
  #said: string | null = null;

  /** `onEvent` receives the events for the view on screen. */
  constructor(onEvent: (event: StateEvent) => void) {
    this.#onEvent = onEvent;
    document.addEventListener("visibilitychange", () => {
      if (document.visibilityState === "visible") this.connect();
      else this.#disconnect();
    });
  }

  /** Streams the state of a view. `query`: parameters of the stream. */
  show(query: string): void {
    if (query === this.#query && this.#stopping !== null) return;
    this.#query = query;
    this.connect();
  }

  /** Begins the stream anew. */
  connect(): void {
    this.#disconnect();
    if (document.visibilityState !== "visible") return;
    const stopping = new AbortController();
    this.#stopping = stopping;
    this.#stream(stopping.signal).catch((error: unknown) => {
      if (!stopping.signal.aborted) this.#failed(error);
    });
  }

  #disconnect(): void {
    clearTimeout(this.#timer);
    this.#stopping?.abort();
    this.#stopping = null;
  }

  async #stream(signal: AbortSignal): Promise<void> {
    const response = await call(`state/stream?${this.#query}`, { signal });
    const models = await listModels(target()).catch(() => []);
    this.#waitMs = RETRY_MS;
    this.loading.value = null;
    if (models.length > 0) this.models.value = models;
    for await (const data of eventData(response.body!, signal)) this.#take(JSON.parse(data) as StateEvent);
    throw new Error("the stream ended");
  }

  #take(event: StateEvent): void {
    if (event.kind === "facts") {
      const { version, model, refusal, isAdmin } = event.facts;
      this.isAdmin.value = isAdmin;
      this.version.value = version;
      if (this.models.value.length === 0) this.models.value = [model];
      document.title = `${model} – Bunting`;
      this.#tell(refusal);
    }
    this.#onEvent(event);
  }

  #failed(error: unknown): void {
    this.#stopping = null;
    if (noteKey(error) instanceof ServerError) {
      const { status } = error as ServerError;
      this.#waitMs = RETRY_MS;
      this.#tell(status === 401 ? null : messageOf(error));
      if (status === 401) return; // the key form reconnects
      void this.#readProgress();
    } else {
      const before = this.#said === null ? "" : ` It said last: ${this.#said}.`;
      this.problem.value = `The server cannot be reached.${before} If it has ended, the terminal that it ran in says why; this page goes on when it is back.`;
      this.#waitMs = Math.min(2 * this.#waitMs, RETRY_MS_MAX);
    }
    this.#timer = setTimeout(() => this.connect(), this.#waitMs);
  }

  async #readProgress(): Promise<void> {
    try {
      const health = (await (await call("health")).json()) as { readonly loading?: LoadingFacts };
      this.loading.value = health.loading ?? null;
    } catch {
      this.loading.value = null; // the next attempt reports the reason
    }
  }

  #tell(reason: string | null): void {
    this.#said = reason;
    const goesOn = "This page goes on by itself when the server is ready.";
    this.problem.value = reason === null ? null : `${reason[0]!.toUpperCase()}${reason.slice(1)}. ${goesOn}`;
  }
}
