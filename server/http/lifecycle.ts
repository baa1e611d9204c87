import { type ApiError, unavailable } from "./errors.ts";

export type ServerState = "loading" | "ready" | "draining" | "lost";

/** Progress of a model that is being loaded, as `GET /health` reports it. */
export interface LoadingFacts {
  readonly stage: "reading" | "loading" | "keeping" | "copying";
  readonly doneBytes: number;
  readonly totalBytes: number;
}

/** Work in flight that the server can end; `error` is the reason for its client. */
export interface Cuttable {
  cut(error: ApiError): void;
}

const retrySeconds = { loading: 5, draining: 5, lost: 30 } as const;

/** State of the server (whether it accepts work), and its work in flight. */
export class Lifecycle {
  /** Progress of loading the model; null: none is known. */
  loading: LoadingFacts | null = null;
  #state: ServerState;
  #reason = "";
  readonly #active = new Set<Cuttable>();
  readonly #onIdle: (() => void)[] = [];

  constructor(state: ServerState = "ready") {
    this.#state = state;
  }

  get state(): ServerState {
    return this.#state;
  }

  /** Requests in flight. */
  get active(): number {
    return this.#active.size;
  }

  /** Marks the model as loaded. Has no effect if the server drains or has lost its engines. */
  becomeReady(): void {
    if (this.#state === "loading") this.#state = "ready";
  }

  /** Marks the last engine as lost for good: the server refuses all further work. */
  becomeLost(reason: string): void {
    this.#state = "lost";
    this.#reason = reason;
  }

  /** Throws 503 unless the server accepts new work. */
  expectReady(): void {
    const refusal = this.refusal();
    if (refusal !== null) throw refusal;
  }

  /** Reason why the server accepts no work; null if it does. */
  refusal(): ApiError | null {
    switch (this.#state) {
      case "ready":
        return null;
      case "loading":
        return unavailable("loading", "the model is still being loaded", retrySeconds.loading);
      case "draining":
        return unavailable(
          "draining",
          "the server is shutting down and takes no new requests",
          retrySeconds.draining,
        );
      case "lost":
        return unavailable("engine_lost", `the engine is lost: ${this.#reason}`, retrySeconds.lost);
    }
  }

  /** Counts a request as in flight. The caller calls the returned function when the request has ended. */
  track(request: Cuttable): () => void {
    this.#active.add(request);
    return () => {
      this.#active.delete(request);
      if (this.#active.size === 0) for (const tell of this.#onIdle.splice(0)) tell();
    };
  }

  /** Resolves when no request is in flight. */
  whenIdle(): Promise<void> {
    if (this.#active.size === 0) return Promise.resolve();
    return new Promise((resolve) => this.#onIdle.push(resolve));
  }

  /**
   * Accepts no new work and resolves when all work is done. Cuts the rest with an error after `timeoutMs`.
   * Resolves to the number of requests that were cut.
   */
  async drain(timeoutMs: number): Promise<number> {
    this.#state = "draining";
    let cut = 0;
    const deadline = setTimeout(() => {
      cut = this.#active.size;
      const error = unavailable(
        "draining",
        "the server shut down before the answer was complete",
        retrySeconds.draining,
      );
      for (const request of [...this.#active]) request.cut(error);
    }, timeoutMs);
    await this.whenIdle();
    clearTimeout(deadline);
    return cut;
  }
}
