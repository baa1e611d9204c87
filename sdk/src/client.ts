import { ServerError } from "./errors.ts";
import { eventsOf, type ProgramEvent } from "./events.ts";

export interface BuntingOptions {
  /** Server URL without a path. Default: the variable BUNTING_URL, else http://127.0.0.1:8000. */
  readonly url?: string;
  /** API key. Default: the variable BUNTING_API_KEY, else none. */
  readonly apiKey?: string;
  /** Model name. Default: the server's first. */
  readonly model?: string;
  readonly fetch?: typeof fetch;
}

/** Connection to a server. */
export class Bunting {
  readonly model: string | undefined;
  readonly #url: string;
  readonly #apiKey: string | undefined;
  readonly #fetch: typeof fetch;

  constructor(options: BuntingOptions = {}) {
    this.model = options.model;
    this.#url = (options.url ?? environment("BUNTING_URL") ?? "http://127.0.0.1:8000").replace(/\/+$/, "");
    this.#apiKey = options.apiKey ?? environment("BUNTING_API_KEY");
    this.#fetch = options.fetch ?? fetch;
  }

  /**
   * Sends a request. Rejects with ServerError if no server responds, or if the status is neither 2xx nor one
   * of `taken`. Rejects with the signal's reason on abort.
   */
  async request(
    method: "GET" | "POST" | "PUT" | "DELETE",
    path: string,
    {
      body,
      signal,
      taken = [],
    }: { readonly body?: object; readonly signal?: AbortSignal; readonly taken?: readonly number[] } = {},
  ): Promise<Response> {
    const response = await this.#fetch
      .call(globalThis, this.#url + path, {
        method,
        headers: {
          ...(body === undefined ? {} : { "content-type": "application/json" }),
          ...(this.#apiKey === undefined ? {} : { authorization: `Bearer ${this.#apiKey}` }),
        },
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
        ...(signal === undefined ? {} : { signal }),
      })
      .catch((error: unknown) => {
        if (signal?.aborted) throw error;
        throw new ServerError(0, "unreachable", `no server answers at ${this.#url}`, null, error);
      });
    if (!response.ok && !taken.includes(response.status)) throw await refusalOf(response);
    return response;
  }

  /** Runs a program and yields its events until all awaited values exist. */
  async *run(body: object, signal?: AbortSignal): AsyncGenerator<ProgramEvent, void, void> {
    const model = this.model === undefined ? {} : { model: this.model };
    const options = signal === undefined ? {} : { signal };
    const response = await this.request("POST", "/v1/programs", {
      body: { ...model, ...body, stream: true },
      ...options,
    });
    yield* eventsOf(response);
  }
}

async function refusalOf(response: Response): Promise<ServerError> {
  const body = (await response.json().catch(() => null)) as {
    readonly error?: {
      readonly message?: string;
      readonly code?: string | null;
      readonly param?: string | null;
    };
  } | null;
  const { message = `status ${response.status}`, code = null, param = null } = body?.error ?? {};
  return new ServerError(response.status, code, message, param);
}

/** Environment variable in Node, Bun and Deno; undefined in browsers. */
function environment(name: string): string | undefined {
  const { process } = globalThis as {
    readonly process?: { readonly env?: Record<string, string | undefined> };
  };
  return process?.env?.[name];
}

let shared: Bunting | null = null;

/** Sets the default server. */
export function configure(options: BuntingOptions): void {
  shared = new Bunting(options);
}

/** Default server, for values that name none. */
export function defaultClient(): Bunting {
  shared ??= new Bunting();
  return shared;
}
