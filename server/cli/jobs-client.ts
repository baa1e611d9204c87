/** Client of the OpenAI Files and Batches calls that the command line uses. */

import { ConfigError } from "../config.ts";
import {
  apiBase,
  authorization,
  brokenOff,
  noServerAt,
  ServerError,
  serverError,
  type Target,
} from "./client.ts";

/** Batch fields that the command line shows. */
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
  readonly metadata?: { readonly [name: string]: string } | null;
}

type Body = string | ReadableStream<Uint8Array>;

interface Page {
  readonly data: readonly BatchObject[];
  readonly has_more: boolean;
}

/** Metadata key by which the creator of a batch finds it again. */
const KEY = "bunting_key";

/** True if the batch has reached a final state. */
export function hasEnded({ status }: BatchObject): boolean {
  return ["completed", "failed", "expired", "cancelled"].includes(status);
}

export class JobsClient {
  readonly #target: Target;

  constructor(target: Target) {
    this.#target = target;
  }

  /** Uploads a text, whole or in parts while it is sent, and returns the file's id. */
  async upload(text: string | Generator<string>, name: string): Promise<string> {
    const { type, body } = fileForm(typeof text === "string" ? [text] : text, name);
    const { id } = (await this.#ask("POST", "/files", body, type)) as { readonly id: string };
    return id;
  }

  /** Creates a batch. `findBatch` finds it by `key`. */
  async create(inputFile: string, endpoint: string, window: string, key?: string): Promise<BatchObject> {
    const metadata = key === undefined ? null : { [KEY]: key };
    const body = { input_file_id: inputFile, endpoint, completion_window: window, metadata };
    return (await this.#ask("POST", "/batches", JSON.stringify(body))) as BatchObject;
  }

  async batch(id: string): Promise<BatchObject> {
    return (await this.#ask("GET", `/batches/${encodeURIComponent(id)}`)) as BatchObject;
  }

  /** All batches, newest first. */
  async *batches(): AsyncGenerator<BatchObject> {
    for (let after = ""; ; ) {
      const { data, has_more: hasMore } = (await this.#ask("GET", `/batches?limit=100${after}`)) as Page;
      yield* data;
      if (!hasMore) return;
      after = `&after=${data.at(-1)!.id}`;
    }
  }

  /** Batch that was created with this key; null if there is none. */
  async findBatch(key: string): Promise<BatchObject | null> {
    for await (const batch of this.batches()) if (batch.metadata?.[KEY] === key) return batch;
    return null;
  }

  async cancel(id: string): Promise<BatchObject> {
    return (await this.#ask("POST", `/batches/${encodeURIComponent(id)}/cancel`)) as BatchObject;
  }

  /** Bytes of a file in pieces. */
  async *content(file: string): AsyncGenerator<Uint8Array> {
    const response = await this.#fetch("GET", `/files/${encodeURIComponent(file)}/content`);
    try {
      if (response.body !== null) yield* response.body;
    } catch {
      throw brokenOff();
    }
  }

  async #ask(method: string, route: string, body?: Body, type?: string): Promise<unknown> {
    const response = await this.#fetch(method, route, body, type);
    return await response.json().catch(() => {
      throw brokenOff();
    });
  }

  async #fetch(method: string, route: string, body?: Body, type = "application/json"): Promise<Response> {
    const base = apiBase(this.#target.url);
    const headers = {
      ...authorization(this.#target),
      ...(body === undefined ? {} : { "content-type": type }),
    };
    const response = await fetch(`${base}${route}`, {
      method,
      headers,
      keepalive: false,
      ...(body === undefined ? {} : { body }),
    }).catch((error: unknown) => {
      if (error instanceof ConfigError) throw error;
      throw new ServerError(0, noServerAt(base));
    });
    if (!response.ok) throw await serverError(response, this.#target);
    return response;
  }
}

/** Target size of a sent piece in characters; a longer part is sent whole. */
const PIECE_CHARACTERS = 256 * 1024;

/** Multipart form (RFC 7578) with a file for batches, produced while it is sent. */
function fileForm(
  parts: Iterable<string>,
  name: string,
): { readonly type: string; readonly body: ReadableStream<Uint8Array> } {
  const boundary = crypto.randomUUID();
  const quoted = name.replace(/["\r\n]/g, (character) => encodeURIComponent(character));
  const text = function* (): Generator<string> {
    yield `--${boundary}\r\ncontent-disposition: form-data; name="purpose"\r\n\r\nbatch\r\n`;
    yield `--${boundary}\r\ncontent-disposition: form-data; name="file"; filename="${quoted}"\r\n`;
    yield "content-type: application/jsonl\r\n\r\n";
    yield* parts;
    yield `\r\n--${boundary}--\r\n`;
  };
  const rest = text();
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      let piece = "";
      let isDone = false;
      while (!isDone && piece.length < PIECE_CHARACTERS) {
        const { value, done } = rest.next();
        if (done === true) isDone = true;
        else piece += value;
      }
      if (piece !== "") controller.enqueue(Buffer.from(piece));
      if (isDone) controller.close();
    },
  });
  return { type: `multipart/form-data; boundary=${boundary}`, body };
}
