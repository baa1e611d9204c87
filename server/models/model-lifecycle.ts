import type { ApiError } from "../http/errors.ts";
import { type Cuttable, Lifecycle, type ServerState } from "../http/lifecycle.ts";

/**
 * Lifecycle of one of several models: its requests also count as the server's, but losing its engines does
 * not end the server.
 */
export class ModelLifecycle extends Lifecycle {
  readonly #server: Lifecycle;

  constructor(server: Lifecycle) {
    super("ready");
    this.#server = server;
  }

  override get state(): ServerState {
    return super.state === "lost" ? "lost" : this.#server.state;
  }

  override refusal(): ApiError | null {
    return super.state === "lost" ? super.refusal() : this.#server.refusal();
  }

  override track(request: Cuttable): () => void {
    const ends = [super.track(request), this.#server.track(request)];
    return () => {
      for (const end of ends) end();
    };
  }
}
