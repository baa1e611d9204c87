/** Minimal streaming client of OpenAI-compatible servers, used by `chat`, `bench` and the web page. */

export interface Target {
  /** Server URL with or without a path; `/v1` is appended when there is none. */
  readonly url: string;
  readonly apiKey: string | null;
  /** Message for an unknown key; default: the server's own message, which names a header. */
  readonly unknownKey?: string;
}

export interface ChatMessage {
  readonly role: "system" | "user" | "assistant";
  readonly content: string;
}

export interface Usage {
  readonly promptTokens: number;
  readonly completionTokens: number;
  readonly cachedTokens: number;
}

export type StreamEvent =
  /** A piece of the response text, or of the reasoning before it. */
  | { readonly kind: "text" | "thought"; readonly text: string }
  /** Id of the request, sent before everything else. */
  | { readonly kind: "request"; readonly id: string }
  /** Event number in a resumable stream, which applies to the events that follow. */
  | { readonly kind: "number"; readonly number: number }
  /** Server's comment while the request is queued: when the response will begin. */
  | { readonly kind: "wait"; readonly text: string }
  /** A piece of a tool call: its id and name come once, its arguments in pieces. */
  | {
      readonly kind: "call";
      readonly index: number;
      readonly id?: string;
      readonly name?: string;
      readonly arguments: string;
    }
  | { readonly kind: "finish"; readonly reason: string }
  | { readonly kind: "usage"; readonly usage: Usage };

/** Error response of the server, or an error within a stream, which has `status` 0. */
export class ServerError extends Error {
  override readonly name = "ServerError";
  constructor(
    readonly status: number,
    message: string,
  ) {
    super(message);
  }
}

/** Error of a connection that closed before the response was complete. */
export class ConnectionLost extends ServerError {}

/** Base of the API's routes: "http://host:8000" → "http://host:8000/v1". Throws ServerError. */
export function apiBase(url: string): string {
  const parsed = URL.parse(/^https?:\/\//.test(url) ? url : `http://${url}`);
  if (parsed === null) throw new ServerError(0, `"${url}" is not the address of a server.`);
  const path = parsed.pathname.replace(/\/+$/, "");
  return `${parsed.origin}${path === "" ? "/v1" : path}`;
}

/** Names of the server's models. */
export async function listModels(target: Target, signal?: AbortSignal): Promise<string[]> {
  const response = await ask(target, "/models", signal === undefined ? {} : { signal });
  if (!response.ok) throw await serverError(response, target);
  const body = (await response.json().catch(() => null)) as { data?: { id?: unknown }[] } | null;
  if (!Array.isArray(body?.data))
    throw new ServerError(0, `What answers at ${apiBase(target.url)} is no OpenAI-compatible server.`);
  return body.data.map(({ id }) => String(id));
}

/**
 * Streams one chat completion. `body` is OpenAI's, without `stream`. Usage arrives at the end unless `body`
 * has `stream_options`. `name`: names a stream that can be resumed. Throws the signal's reason on abort.
 */
export async function* streamChat(
  target: Target,
  body: Readonly<Record<string, unknown>>,
  signal: AbortSignal,
  name?: string,
): AsyncGenerator<StreamEvent> {
  const response = await ask(target, "/chat/completions", {
    method: "POST",
    headers: {
      "content-type": "application/json",
      ...(name === undefined ? {} : { "x-conversation-id": name }),
    },
    body: JSON.stringify({ stream_options: { include_usage: true }, ...body, stream: true }),
    signal,
  });
  if (!response.ok) throw await serverError(response, target);
  const requestId = response.headers.get("x-request-id");
  if (requestId !== null) yield { kind: "request", id: requestId };
  yield* answerEvents(response, signal);
}

/** Resumes a chat completion's stream after the event `after`; null: from its beginning. */
export async function* resumeChat(
  target: Target,
  name: string,
  after: number | null,
  signal: AbortSignal,
): AsyncGenerator<StreamEvent> {
  const route = `/stream?conv_id=${encodeURIComponent(name)}${after === null ? "" : `&starting_after=${after}`}`;
  const response = await ask(target, route, { signal });
  if (!response.ok) throw await serverError(response, target);
  yield* answerEvents(response, signal);
}

async function* answerEvents(response: Response, signal: AbortSignal): AsyncGenerator<StreamEvent> {
  if (response.body === null) throw new ServerError(0, "the server sent no body");
  for await (const { name, value } of eventLines(response.body, signal)) {
    if (name === "id") yield { kind: "number", number: Number(value) };
    else if (name === "") yield { kind: "wait", text: value };
    else if (name === "data" && value === "[DONE]") return;
    else if (name === "data") yield* chunkEvents(value);
  }
  throw brokenOff();
}

/**
 * Yields the `data` of each server-sent event; skips comments and other fields. Throws the signal's reason on
 * abort.
 */
export async function* eventData(
  body: ReadableStream<Uint8Array>,
  signal?: AbortSignal,
): AsyncGenerator<string> {
  for await (const { name, value } of eventLines(body, signal)) if (name === "data") yield value;
}

/** Line of an event stream: a field, or a comment, whose name is empty. */
interface EventLine {
  readonly name: string;
  readonly value: string;
}

async function* eventLines(
  body: ReadableStream<Uint8Array>,
  signal?: AbortSignal,
): AsyncGenerator<EventLine> {
  const decoder = new TextDecoder();
  const reader = body.getReader(); // some browsers cannot iterate over a stream
  const read = () =>
    reader.read().catch((error: unknown) => {
      throw signal?.aborted ? error : brokenOff();
    });
  let rest = "";
  try {
    for (let piece = await read(); !piece.done; piece = await read()) {
      rest += decoder.decode(piece.value, { stream: true });
      let start = 0;
      for (let end = rest.indexOf("\n"); end >= 0; end = rest.indexOf("\n", start)) {
        const line = rest.slice(start, rest[end - 1] === "\r" ? end - 1 : end);
        start = end + 1;
        const colon = line.indexOf(":");
        if (colon < 0) continue;
        const value = line.slice(line[colon + 1] === " " ? colon + 2 : colon + 1);
        yield { name: line.slice(0, colon), value };
      }
      rest = rest.slice(start);
    }
  } finally {
    // Not awaited: the reader may have failed already, and that error is already being thrown.
    reader.cancel().catch(() => {});
  }
}

interface Chunk {
  readonly error?: { readonly message?: string } | string;
  readonly choices?: readonly {
    readonly delta?: {
      readonly content?: string | null;
      readonly reasoning_content?: string | null;
      readonly reasoning?: string | null;
      readonly tool_calls?: readonly {
        readonly index: number;
        readonly id?: string;
        readonly function?: { readonly name?: string; readonly arguments?: string };
      }[];
    };
    readonly finish_reason?: string | null;
  }[];
  readonly usage?: {
    readonly prompt_tokens?: number;
    readonly completion_tokens?: number;
    readonly prompt_tokens_details?: { readonly cached_tokens?: number } | null;
  } | null;
}

function* chunkEvents(data: string): Generator<StreamEvent> {
  const chunk = JSON.parse(data) as Chunk;
  if (chunk.error !== undefined) {
    const message = typeof chunk.error === "string" ? chunk.error : chunk.error.message;
    throw new ServerError(0, message ?? "the server reported an error without a message");
  }
  const choice = chunk.choices?.[0];
  const thought = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning; // servers use either name; ours sends both
  if (thought) yield { kind: "thought", text: thought };
  if (choice?.delta?.content) yield { kind: "text", text: choice.delta.content };
  for (const { index, id, function: called } of choice?.delta?.tool_calls ?? []) {
    yield {
      kind: "call",
      index,
      ...(id === undefined ? {} : { id }),
      ...(called?.name === undefined ? {} : { name: called.name }),
      arguments: called?.arguments ?? "",
    };
  }
  if (choice?.finish_reason) yield { kind: "finish", reason: choice.finish_reason };
  if (chunk.usage) {
    yield {
      kind: "usage",
      usage: {
        promptTokens: chunk.usage.prompt_tokens ?? 0,
        completionTokens: chunk.usage.completion_tokens ?? 0,
        cachedTokens: chunk.usage.prompt_tokens_details?.cached_tokens ?? 0,
      },
    };
  }
}

export function brokenOff(): ServerError {
  return new ConnectionLost(0, "The server broke off its answer.");
}

/** Sentence about an address at which no server listens. */
export function noServerAt(base: string): string {
  return `No server answers at ${base}; \`bunting serve\` starts one.`;
}

/** Calls a route of the API with fetch. Throws ServerError if no server responds. */
export async function ask(target: Target, route: string, init: RequestInit): Promise<Response> {
  const base = apiBase(target.url);
  const headers = { ...authorization(target), ...(init.headers as Record<string, string>) };
  try {
    // Uses a new connection, because a server may close an idle one just as it is reused.
    return await fetch(`${base}${route}`, { ...init, headers, keepalive: false });
  } catch (error) {
    if (init.signal?.aborted) throw error;
    throw new ConnectionLost(0, noServerAt(base));
  }
}

/** Authorization header with the key, if there is one. */
export function authorization(target: Target): Record<string, string> {
  return target.apiKey === null ? {} : { authorization: `Bearer ${target.apiKey}` };
}

/** Converts a response that is not 2xx to a ServerError with its message. */
export async function serverError(response: Response, { unknownKey }: Target): Promise<ServerError> {
  const text = await response.text();
  if (response.status === 401 && unknownKey !== undefined) return new ServerError(401, unknownKey);
  try {
    const body = JSON.parse(text) as { error?: { message?: string }; message?: string };
    const message = body.error?.message ?? body.message;
    if (message) return new ServerError(response.status, message);
  } catch {
    // Not JSON: the message is the text itself.
  }
  return new ServerError(
    response.status,
    `status ${response.status}${text ? `: ${text.slice(0, 200)}` : ""}`,
  );
}
