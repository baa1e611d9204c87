import type { ChoiceFinish, Usage } from "../../answer/events.ts";
import type { ApiError } from "../../http/errors.ts";
import { sseEvent, sseFraming } from "../../http/stream.ts";
import { requestLimits } from "../../request/limits.ts";
import { type Codec, type CodecAnswer, type ShownEvent, whyMember } from "../codec.ts";
import { Output, partsOf } from "./output.ts";
import type { ResponsesRequest } from "./schema.ts";

export type ResponseStatus = "in_progress" | "completed" | "incomplete" | "failed" | "cancelled";

/**
 * Response object of the Responses API, in any state. Even before its answer it has every field that typed
 * clients require.
 */
export interface ResponseObject {
  readonly id: string;
  readonly object: "response";
  /** Unix time in seconds. */
  readonly created_at: number;
  readonly status: ResponseStatus;
  readonly model: string;
  readonly output: readonly object[];
  /** Fields of the request that a response repeats (`echo`). Others have no meaning here. */
  readonly background?: boolean;
  readonly store?: boolean;
}

export type AnswerFacts = Pick<ResponsesRequest, "key" | "model" | "echo" | "wireCalls" | "sealsReasoning">;

/** Fields of a response that depend on its answer. */
interface Told {
  readonly output: readonly object[];
  readonly usage?: object;
  readonly completed_at?: number;
  readonly incomplete_details?: { readonly reason: "max_output_tokens" };
  readonly error?: { readonly code: string; readonly message: string } | null;
}

/** Stores a response once, when it has ended, and returns it as clients see it. */
export type Keep = (response: ResponseObject) => ResponseObject;

/** Codec that writes one answer as a response of items. */
export class ResponseCodec implements Codec {
  readonly framing = sseFraming;
  readonly logprobsMax = requestLimits.responseLogprobsMax;
  readonly #facts: AnswerFacts;
  readonly #keep: Keep;
  readonly #createdAt = nowSeconds();
  readonly #output: Output;
  #events = "";
  #sequence = 0;
  #isOpen = false;
  #finish: ChoiceFinish = { reason: "stop", stopReason: null };

  constructor(facts: AnswerFacts, keep: Keep) {
    this.#facts = facts;
    this.#keep = keep;
    this.#output = new Output(facts, (type, fields) => this.#emit(type, fields));
  }

  body: Codec["body"] = ({ choices: [choice], usage }) => {
    const { parts, logprobs, finish } = choice!;
    const output = new Output(this.#facts, () => {});
    output.write(partsOf(parts), logprobs);
    output.end(finish.reason === "length" ? "incomplete" : "completed");
    return this.#keep(this.#ended(finish, usage, output));
  };

  chunk(event: ShownEvent, answer: CodecAnswer): string {
    this.#open();
    switch (event.kind) {
      case "started":
        break;
      case "delta":
        this.#output.write(event.parts, event.logprobs);
        break;
      case "finish":
        this.#finish = event;
        this.#output.end(event.reason === "length" ? "incomplete" : "completed");
        break;
      case "done": {
        const response = this.#keep(this.#ended(this.#finish, event.usage, this.#output));
        this.#emit(`response.${response.status}`, { response: { ...response, ...whyMember(answer) } });
      }
    }
    return this.#taken();
  }

  failure(error: ApiError): string {
    this.#open();
    this.#output.end("incomplete");
    const response = this.#keep(this.failed(error));
    this.#emit("response.failed", { response });
    return this.#taken();
  }

  /** The response before its answer. */
  begun(): ResponseObject {
    return this.#response("in_progress", { output: [] });
  }

  /** The response of an answer that failed or was cancelled. */
  failed({ message, detail }: ApiError, status: "failed" | "cancelled" = "failed"): ResponseObject {
    const error = status === "cancelled" ? null : { code: detail.apiCode ?? "server_error", message };
    return this.#response(status, { output: this.#output.items, error });
  }

  #ended({ reason }: ChoiceFinish, usage: Usage, { items }: Output): ResponseObject {
    const result = { output: items, usage: usageJson(usage) };
    if (reason !== "length") return this.#response("completed", { ...result, completed_at: nowSeconds() });
    return this.#response("incomplete", { ...result, incomplete_details: { reason: "max_output_tokens" } });
  }

  #response(status: ResponseStatus, more: Told): ResponseObject {
    const { key, model, echo } = this.#facts;
    return {
      id: `resp_${key}`,
      object: "response",
      created_at: this.#createdAt,
      status,
      completed_at: null,
      error: null,
      incomplete_details: null,
      model,
      usage: null,
      ...echo,
      ...more,
    };
  }

  #open(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    const response = this.begun();
    this.#emit("response.created", { response });
    this.#emit("response.in_progress", { response });
  }

  #emit(type: string, fields: object): void {
    this.#events += sseEvent(JSON.stringify({ type, sequence_number: this.#sequence++, ...fields }), type);
  }

  #taken(): string {
    const events = this.#events;
    this.#events = "";
    return events;
  }
}

export function nowSeconds(): number {
  return Math.floor(Date.now() / 1000);
}

export function usageJson({ promptTokens, cachedTokens, completionTokens, reasoningTokens }: Usage): object {
  return {
    input_tokens: promptTokens,
    input_tokens_details: { cached_tokens: cachedTokens },
    output_tokens: completionTokens,
    output_tokens_details: { reasoning_tokens: reasoningTokens },
    total_tokens: promptTokens + completionTokens,
  };
}
