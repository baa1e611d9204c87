import { type Bunting, defaultClient } from "./client.ts";
import { type FailedValue, ValueError } from "./errors.ts";

/** What is asked of a session's variable. */
interface FetchOptions {
  readonly criteria?: string;
  readonly timeoutSeconds?: number;
  readonly signal?: AbortSignal;
}

/**
 * A program that grows call by call, in the words of the API: for values that come from outside while it runs, such as a tool's
 * result or a person's word. Ended by `close`, or by `await using`.
 */
export class Session {
  readonly id: string;
  readonly #client: Bunting;

  private constructor(id: string, client: Bunting) {
    this.id = id;
    this.#client = client;
  }

  /** `program`: variables and calls to begin with. */
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

  /** The value; null when it is not there in time. Rejects with ValueError when it failed. */
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

  /** The variable is not asked for any more, nor read by what is added later: the server gives its value up as soon as nothing reads it. */
  async release(variable: string): Promise<void> {
    await this.#client.request("DELETE", this.#pathOf(variable));
  }

  /** Calls and variables, with times: as JSON, or to be drawn. */
  async graph(format: "json" | "mermaid" | "dot" = "json"): Promise<string> {
    return await (await this.#client.request("GET", `${this.#path}/graph?format=${format}`)).text();
  }

  /** Ends what still runs, and forgets everything. May be called again. */
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
