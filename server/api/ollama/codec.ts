import type { ChoiceFinish, Part, TokenEntry, Usage } from "../../answer/events.ts";
import { type ApiError, errorResponse, ModelNotFound, quote } from "../../http/errors.ts";
import { LazyList } from "../../http/json/slices.ts";
import type { AnswerTimes } from "../../http/measure.ts";
import type { Framing } from "../../http/stream.ts";
import { type Codec, whyMember } from "../codec.ts";
import { chatEntry } from "../openai/logprobs.ts";

/** NDJSON: one JSON value per line and no keep-alive text between them, because clients parse each line. */
export const ndjson: Framing = Object.freeze({
  contentType: "application/x-ndjson",
  opening: "",
  keepAlive: "",
});

/** Content of a whole answer or of one piece of a stream. */
interface Said {
  readonly text: string;
  readonly thinking: string;
  readonly calls: readonly { readonly name: string; readonly arguments: string }[];
  readonly logprobs: readonly TokenEntry[] | null;
}

/** Builds a route's fields for some content. */
type Shape = (said: Said) => object;

/** `message`, with the arguments of calls as JSON values. */
export const chatShape: Shape = ({ text, thinking, calls }) => {
  const toolCalls = calls.map((call, index) => ({
    function: { index, name: call.name, arguments: JSON.parse(call.arguments || "{}") as object },
  }));
  return {
    message: {
      role: "assistant",
      content: text,
      ...(thinking === "" ? {} : { thinking }),
      ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls }),
    },
  };
};

/** `response`, which is text alone. */
export const textShape: Shape = ({ text, thinking }) => ({
  response: text,
  ...(thinking === "" ? {} : { thinking }),
});

export function ollamaCodec(model: string, shape: Shape): Codec {
  const line = (fields: object): object => ({ model, created_at: new Date().toISOString(), ...fields });
  const sayOf = (said: Said): object => ({
    ...shape(said),
    ...(said.logprobs === null
      ? {}
      : { logprobs: new LazyList(said.logprobs, (entry) => chatEntry(entry, false)) }),
  });
  const calls = new OpenCalls();
  let finish: ChoiceFinish = { reason: "stop", stopReason: null };
  return {
    framing: ndjson,
    body: ({ choices: [choice], usage }, times) => {
      const { text, reasoning: thinking, calls: made, logprobs, finish: end } = choice!;
      const whole = made.filter(isWhole);
      return line({ ...sayOf({ text, thinking, calls: whole, logprobs }), ...endingOf(end, usage, times) });
    },
    chunk: (event, answer) => {
      switch (event.kind) {
        case "started":
          return "";
        case "delta": {
          const said = saidIn(event.parts, event.logprobs, calls);
          if (said.text === "" && said.thinking === "" && said.calls.length === 0 && said.logprobs === null)
            return "";
          return jsonLine(line({ ...sayOf(said), done: false }));
        }
        case "finish":
          finish = event;
          return "";
        case "done": {
          const last = { text: "", thinking: "", calls: calls.end(), logprobs: null };
          const ending = endingOf(finish, event.usage, answer.times);
          return jsonLine(line({ ...sayOf(last), ...ending, ...whyMember(answer) }));
        }
      }
    },
    failure: (error) => jsonLine(ollamaErrorBody(error)),
  };
}

/** Response to a request without a prompt, which only loads the model, or drops it. */
export function readyBody(model: string, shape: Shape, unloads: boolean): object {
  const said = shape({ text: "", thinking: "", calls: [], logprobs: null });
  const reason = unloads ? "unload" : "load";
  return { model, created_at: new Date().toISOString(), ...said, done: true, done_reason: reason };
}

function jsonLine(value: object): string {
  return `${JSON.stringify(value)}\n`;
}

function saidIn(parts: readonly Part[], logprobs: readonly TokenEntry[] | null, calls: OpenCalls): Said {
  let text = "";
  let thinking = "";
  const ended = parts.flatMap((part) => {
    if (part.kind === "text") text += part.text;
    else if (part.kind === "reasoning") thinking += part.text;
    return calls.take(part);
  });
  return { text, thinking, calls: ended, logprobs };
}

/** Collects the parts of a call, which is sent once it is complete. */
class OpenCalls {
  #open: { readonly name: string; arguments: string } | null = null;

  /** Takes a part. Returns the call that it completes, if any. */
  take(part: Part): Said["calls"] {
    if (part.kind === "arguments") {
      this.#open!.arguments += part.text;
      return [];
    }
    const ended = this.end();
    if (part.kind === "call") this.#open = { name: part.name, arguments: "" };
    return ended;
  }

  end(): Said["calls"] {
    const open = this.#open;
    this.#open = null;
    return open !== null && isWhole(open) ? [open] : [];
  }
}

/** False for a truncated call, which is left out because its arguments are invalid JSON. */
function isWhole(call: { readonly arguments: string }): boolean {
  try {
    JSON.parse(call.arguments || "{}");
    return true;
  } catch {
    return false;
  }
}

/** A duration in Ollama's unit. */
export function nanos(ms: number): number {
  return Math.round(ms * 1e6);
}

function endingOf({ reason }: ChoiceFinish, usage: Usage, times: AnswerTimes | undefined): object {
  return {
    done: true,
    done_reason: reason === "length" ? "length" : "stop",
    total_duration: nanos(times?.totalMs ?? 0),
    load_duration: nanos(times?.loadMs ?? 0),
    prompt_eval_count: usage.promptTokens,
    prompt_eval_duration: nanos(times?.promptMs ?? 0),
    eval_count: usage.completionTokens,
    eval_duration: nanos(times?.answerMs ?? 0),
  };
}

/** Errors in Ollama's format: a sentence. */
export function ollamaErrorResponse(error: ApiError): Response {
  return errorResponse(error, ollamaErrorBody(error));
}

export function ollamaErrorBody(error: ApiError): { readonly error: string } {
  if (!(error instanceof ModelNotFound)) return { error: error.message };
  // Clients look for Ollama's words, and then offer to pull the model.
  return { error: `model ${quote(error.given)} not found; served here: ${error.served.join(", ")}` };
}
