/** Common interface to one question on every wire format, and to the answer. */
import { post, type TestServer } from "./server.ts";

export interface Question {
  readonly content: string;
  /** Tokens of the answer at most; null: leaves the field out. */
  readonly max?: number | null;
  readonly stop?: unknown;
  /** Sampling fields; in `options` on Ollama's routes. */
  readonly drawing?: Readonly<Record<string, unknown>>;
  readonly more?: Readonly<Record<string, unknown>>;
}

export interface Said {
  readonly text: string;
  readonly finish: string;
  readonly promptTokens: number;
  readonly tokens: number;
}

export interface Asked {
  readonly status: number;
  /** Answer; null: the server refused. */
  readonly said: Said | null;
  /** Message of the refusal; "" without one. */
  readonly message: string;
  readonly ignored: readonly string[];
}

export interface Wire {
  readonly path: string;
  /** Value of the finish reason for an answer cut at its length. */
  readonly length: string;
  readonly isChat: boolean;
  /** Name of the token limit field. */
  readonly bound: string;
  readonly body: (question: Question) => object;
  // biome-ignore lint/suspicious/noExplicitAny: bodies of six formats
  readonly said: (body: any) => Said;
}

const plain =
  (bound: string, prompt: (content: string) => object, stopName = "stop") =>
  ({ content, max = null, stop, drawing, more }: Question): object => ({
    model: "demo",
    seed: 0,
    ...prompt(content),
    ...(max === null ? {} : { [bound]: max }),
    ...(stop === undefined ? {} : { [stopName]: stop }),
    ...drawing,
    ...more,
  });
const inOptions =
  (prompt: (content: string) => object) =>
  ({ content, max = null, stop, drawing, more }: Question): object => ({
    model: "demo",
    stream: false,
    ...prompt(content),
    options: {
      seed: 0,
      ...(max === null ? {} : { num_predict: max }),
      ...(stop === undefined ? {} : { stop }),
      ...drawing,
    },
    ...more,
  });
const messages = (content: string): object => ({ messages: [{ role: "user", content }] });

/** Makes the wire formats of OpenAI's two routes. */
const openai = (path: string, isChat: boolean): Wire => ({
  path,
  length: "length",
  isChat,
  bound: "max_tokens",
  body: plain("max_tokens", isChat ? messages : (prompt) => ({ prompt })),
  said: ({ choices: [choice], usage }) => ({
    text: (isChat ? choice.message.content : choice.text) ?? "",
    finish: choice.finish_reason,
    promptTokens: usage.prompt_tokens,
    tokens: usage.completion_tokens,
  }),
});

const ollama = (path: string, isChat: boolean): Wire => ({
  path,
  length: "length",
  isChat,
  bound: "num_predict",
  body: inOptions(isChat ? messages : (prompt) => ({ prompt, raw: true })),
  said: ({ message, response, done_reason, prompt_eval_count, eval_count }) => ({
    text: isChat ? message.content : response,
    finish: done_reason,
    promptTokens: prompt_eval_count,
    tokens: eval_count,
  }),
});

export const wires: readonly Wire[] = [
  openai("/v1/chat/completions", true),
  openai("/v1/completions", false),
  {
    path: "/v1/responses",
    length: "max_output_tokens",
    isChat: true,
    bound: "max_output_tokens",
    body: plain("max_output_tokens", (input) => ({ input })),
    said: ({ output, status, incomplete_details, usage }) => ({
      text: output
        .flatMap(({ content = [] }: { content?: object[] }) => content)
        .map(({ text }: { text: string }) => text)
        .join(""),
      finish: incomplete_details?.reason ?? status,
      promptTokens: usage.input_tokens,
      tokens: usage.output_tokens,
    }),
  },
  {
    path: "/v1/messages",
    length: "max_tokens",
    isChat: true,
    bound: "max_tokens",
    body: ({ max = null, ...question }) =>
      plain("max_tokens", messages, "stop_sequences")({ ...question, max: max ?? 32_000 }),
    said: ({ content, stop_reason, usage }) => ({
      text: content.map(({ text = "" }: { text?: string }) => text).join(""),
      finish: stop_reason,
      promptTokens: usage.input_tokens + usage.cache_creation_input_tokens + usage.cache_read_input_tokens,
      tokens: usage.output_tokens,
    }),
  },
  ollama("/api/chat", true),
  ollama("/api/generate", false),
  {
    path: "/completion",
    length: "limit",
    isChat: false,
    bound: "n_predict",
    body: plain("n_predict", (prompt) => ({ prompt })),
    said: ({ content, stop_type, tokens_evaluated, tokens_predicted }) => ({
      text: content,
      finish: stop_type,
      promptTokens: tokens_evaluated,
      tokens: tokens_predicted,
    }),
  },
];

/** Rows for `test.each`. */
export const byPath = wires.map((wire) => [wire.path, wire] as const);

export async function ask(server: TestServer, wire: Wire, question: Question): Promise<Asked> {
  const response = await post(server, wire.path, wire.body(question));
  // biome-ignore lint/suspicious/noExplicitAny: errors of three shapes
  const body: any = await response.json();
  const names = response.headers.get("x-bunting-ignored");
  return {
    status: response.status,
    said: response.status === 200 ? wire.said(body) : null,
    message: response.status === 200 ? "" : (body.error.message ?? body.error),
    ignored: names === null ? [] : names.split(", "),
  };
}
