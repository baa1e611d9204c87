import { type ApiError, unavailable } from "./errors.ts";

export type ServerState = "loading" | "ready" | "draining" | "lost";

/** Something in flight that can be ended from here: its client is told why. */
export interface Cuttable {
  cut(error: ApiError): void;
}

const retrySeconds = { loading: 5, draining: 5, lost: 30 } as const;

/** Whether the server takes work, and what work it has taken. */
export class Lifecycle {
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

  /** The model is loaded. Draining and lost are final. */
  becomeReady(): void {
    if (this.#state === "loading") this.#state = "ready";
  }

  /** An engine is gone, and with it the ability to answer. */
  becomeLost(reason: string): void {
    this.#state = "lost";
    this.#reason = reason;
  }

  /** Throws 503 unless new work is welcome. */
  expectReady(): void {
    const refusal = this.refusal();
    if (refusal !== null) throw refusal;
  }

  /** Why no work is taken; null when it is. */
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

  /** Counts a request as in flight; the returned function, called once, ends that. */
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

  /** Takes no new work and resolves when all work is done; what is left after `timeoutMs` is cut with an error.
   *  Resolves to the number of requests that were cut. */
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
