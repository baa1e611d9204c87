/** The few calls of OpenAI's Files and Batches that the command line makes, of any server that has them. */

import { apiBase, authorization, ServerError, serverError, type Target } from "./client.ts";

/** A batch, as far as it is shown. */
export interface BatchObject {
  readonly id: string;
  readonly status: string;
  readonly model?: string | null;
  readonly endpoint: string;
  readonly created_at: number;
  readonly errors?: {
    readonly data?: readonly {
      readonly code: string;
      readonly line: number | null;
      readonly message: string;
    }[];
  } | null;
  readonly output_file_id?: string | null;
  readonly error_file_id?: string | null;
  readonly request_counts?: { readonly total: number; readonly completed: number; readonly failed: number };
  readonly usage?: {
    readonly input_tokens: number;
    readonly input_tokens_details: { readonly cached_tokens: number };
    readonly output_tokens: number;
  };
  readonly paused_by?: string | null;
}

/** Whether nothing will change of it any more. */
export function hasEnded({ status }: BatchObject): boolean {
  return ["completed", "failed", "expired", "cancelled"].includes(status);
}

export class JobsClient {
  readonly #target: Target;

  constructor(target: Target) {
    this.#target = target;
  }

  /** Uploads lines, and returns the file's id. */
  async upload(text: string, name: string): Promise<string> {
    const form = new FormData();
    form.set("purpose", "batch");
    form.set("file", new File([text], name));
    const { id } = (await this.#ask("POST", "/files", form)) as { readonly id: string };
    return id;
  }

  async create(inputFile: string, endpoint: string, window: string): Promise<BatchObject> {
    const body = { input_file_id: inputFile, endpoint, completion_window: window };
    return (await this.#ask("POST", "/batches", JSON.stringify(body))) as BatchObject;
  }

  async batch(id: string): Promise<BatchObject> {
    return (await this.#ask("GET", `/batches/${encodeURIComponent(id)}`)) as BatchObject;
  }

  async batches(): Promise<readonly BatchObject[]> {
    return ((await this.#ask("GET", "/batches?limit=100")) as { readonly data: readonly BatchObject[] }).data;
  }

  async cancel(id: string): Promise<BatchObject> {
    return (await this.#ask("POST", `/batches/${encodeURIComponent(id)}/cancel`)) as BatchObject;
  }

  /** A file's text. */
  async content(file: string): Promise<string> {
    const response = await this.#fetch("GET", `/files/${encodeURIComponent(file)}/content`);
    return await response.text();
  }

  async #ask(method: string, route: string, body?: string | FormData): Promise<unknown> {
    const response = await this.#fetch(method, route, body);
    return await response.json();
  }

  async #fetch(method: string, route: string, body?: string | FormData): Promise<Response> {
    const base = apiBase(this.#target.url);
    const headers = {
      ...authorization(this.#target),
      ...(typeof body === "string" ? { "content-type": "application/json" } : {}),
    };
    const response = await fetch(`${base}${route}`, {
      method,
      headers,
      keepalive: false,
      ...(body === undefined ? {} : { body }),
    }).catch(() => {
      throw new ServerError(0, `No server answers at ${base}.`);
    });
    if (!response.ok) throw await serverError(response);
    return response;
  }
}
