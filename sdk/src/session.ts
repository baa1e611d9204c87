import { type Bunting, defaultClient } from "./client.ts";
import { type FailedValue, ValueError } from "./errors.ts";

/** Options of `get`. */
interface FetchOptions {
  readonly criteria?: string;
  readonly timeoutSeconds?: number;
  readonly signal?: AbortSignal;
}

/**
 * Program that grows call by call, in the format of the API. For values that arrive from outside while it
 * runs, such as a tool's result or a user's message. Ended by `close`, or by `await using`.
 */
export class Session {
  readonly id: string;
  readonly #client: Bunting;

  private constructor(id: string, client: Bunting) {
    this.id = id;
    this.#client = client;
  }

  /** Opens a session. `program`: initial variables and calls. */
  static async open(program: object = {}, client: Bunting = defaultClient()): Promise<Session> {
    const response = await client.request("POST", "/v1/sessions", { body: program });
    const { id } = (await response.json()) as { readonly id: string };
    return new Session(id, client);
  }

  /** Adds a call, or `{ calls, variables }`. */
  async add(calls: object): Promise<void> {
    await this.#client.request("POST", `${this.#path}/calls`, { body: calls });
  }

  async set(variable: string, value: string | readonly string[]): Promise<void> {
    await this.#client.request("PUT", this.#pathOf(variable), { body: { value } });
  }

  /**
   * Returns the value; null if it does not exist before the timeout. Rejects with ValueError if it failed.
   */
  async get(variable: string, options: FetchOptions = {}): Promise<string | readonly string[] | null> {
    const { criteria = "latency", timeoutSeconds = 60, signal } = options;
    const query = new URLSearchParams({ criteria, timeout: String(timeoutSeconds) });
    const response = await this.#client.request("GET", `${this.#pathOf(variable)}?${query}`, {
      taken: [424],
      ...(signal === undefined ? {} : { signal }),
    });
    const body = (await response.json()) as {
      readonly value: string | readonly string[];
      readonly error: FailedValue;
    };
    if (response.status === 424) throw new ValueError(body.error);
    return response.status === 200 ? body.value : null;
  }

  /**
   * Declares that the client will neither request the variable nor add calls that read it. The server frees
   * its value once no call reads it.
   */
  async release(variable: string): Promise<void> {
    await this.#client.request("DELETE", this.#pathOf(variable));
  }

  /** Calls and variables with times, as JSON or as a diagram's source. */
  async graph(format: "json" | "mermaid" | "dot" = "json"): Promise<string> {
    return await (await this.#client.request("GET", `${this.#path}/graph?format=${format}`)).text();
  }

  /** Aborts running calls and deletes the session. Idempotent. */
  async close(): Promise<void> {
    await this.#client.request("DELETE", this.#path, { taken: [404] });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  get #path(): string {
    return `/v1/sessions/${this.id}`;
  }

  #pathOf(variable: string): string {
    return `${this.#path}/variables/${encodeURIComponent(variable)}`;
  }
}
