import { wholeValueIn } from "../../../text/cut-json.ts";
import type { ChoiceFinish, Part, Usage } from "../../answer/events.ts";
import type { ToolCall, WholePart } from "../../answer/whole.ts";
import { sseEvent, sseFraming } from "../../http/stream.ts";
import { type Codec, type CodecAnswer, type ShownEvent, whyMember } from "../codec.ts";
import { sealedText } from "../sealed.ts";
import { anthropicErrorBody } from "./errors.ts";
import type { MessagesRequest } from "./schema.ts";

interface Answer extends Pick<MessagesRequest, "model" | "omitsThoughts"> {
  /** Prompt tokens that the client marks for the cache. */
  readonly markedTokens: number;
}

/**
 * Codec that writes one answer as a message of content blocks. In a stream the blocks follow one another:
 * each starts, grows and stops.
 */
export function messagesCodec({ model, omitsThoughts, markedTokens }: Answer, requestId: string): Codec {
  const random = crypto.randomUUID().replaceAll("-", "");
  const head = { id: `msg_${random}`, type: "message", role: "assistant", model };
  const callId = (index: number): string => `toolu_${random.slice(-24)}_${index}`;
  const messageOf = (content: readonly object[], ending: object, usage: Usage): object => ({
    ...head,
    content,
    ...ending,
    usage: usageJson(usage, markedTokens),
  });
  const stream = new BlockStream(callId, omitsThoughts);
  let finish: ChoiceFinish = { reason: "stop", stopReason: null };

  const chunk = (event: ShownEvent, answer: CodecAnswer): string => {
    const { usage } = answer;
    switch (event.kind) {
      case "started": {
        const message = messageOf([], { stop_reason: null, stop_sequence: null }, usage);
        return typed("message_start", { message });
      }
      case "delta":
        return event.parts.map((part) => stream.write(part)).join("");
      case "finish":
        finish = event;
        return stream.end();
      case "done": {
        const ending = { delta: endingOf(finish), usage: usageJson(event.usage, markedTokens) };
        const last = { ...ending, ...whyMember(answer) };
        return typed("message_delta", last) + typed("message_stop");
      }
    }
  };
  return {
    framing: sseFraming,
    body: ({ choices: [choice], usage }) => {
      const content = choice!.parts.map((part) => blockOf(part, callId, omitsThoughts));
      return messageOf(content, endingOf(choice!.finish), usage);
    },
    chunk,
    failure: (error) => typed("error", anthropicErrorBody(error, requestId)),
  };
}

/** Blocks of a stream; at most one is open. */
class BlockStream {
  readonly #callId: (index: number) => string;
  readonly #omitsThoughts: boolean;
  /** Thoughts of the open block that only its signature holds. */
  #omitted = "";
  #index = -1;
  /** Kind of the open block. */
  #open: "text" | "reasoning" | "call" | null = null;

  constructor(callId: (index: number) => string, omitsThoughts: boolean) {
    this.#callId = callId;
    this.#omitsThoughts = omitsThoughts;
  }

  write(part: Part): string {
    switch (part.kind) {
      case "text": {
        const start = this.#open === "text" ? "" : this.#start("text", { type: "text", text: "" });
        return start + this.#delta({ type: "text_delta", text: part.text });
      }
      case "reasoning": {
        const block = { type: "thinking", thinking: "", signature: "" };
        const start = this.#open === "reasoning" ? "" : this.#start("reasoning", block);
        if (!this.#omitsThoughts) return start + this.#delta({ type: "thinking_delta", thinking: part.text });
        this.#omitted += part.text;
        return start;
      }
      case "call":
        return this.#start("call", {
          type: "tool_use",
          id: part.id ?? this.#callId(part.index),
          name: part.name,
          input: {},
        });
      case "arguments":
        return this.#delta({ type: "input_json_delta", partial_json: part.text });
    }
  }

  /** Ends the open block, if any. */
  end(): string {
    if (this.#open === null) return "";
    const signature = signatureOf(this.#omitted);
    const signed = this.#open === "reasoning" ? this.#delta({ type: "signature_delta", signature }) : "";
    this.#open = null;
    this.#omitted = "";
    return signed + typed("content_block_stop", { index: this.#index });
  }

  #start(kind: "text" | "reasoning" | "call", block: object): string {
    const before = this.end();
    this.#index++;
    this.#open = kind;
    const start = typed("content_block_start", { index: this.#index, content_block: block });
    return before + start + (this.#index === 0 ? typed("ping") : "");
  }

  #delta(delta: object): string {
    return typed("content_block_delta", { index: this.#index, delta });
  }
}

const SIGNATURE = Buffer.from("bunting").toString("base64");

/**
 * Signature of reasoning: it holds the text that the block leaves out, else it is constant. Clients send it back with
 * the block, and the server does not check it.
 */
function signatureOf(omitted: string): string {
  return omitted === "" ? SIGNATURE : sealedText(omitted);
}

function typed(type: string, event: object = {}): string {
  return sseEvent(JSON.stringify({ type, ...event }), type);
}

function blockOf(part: WholePart, callId: (index: number) => string, omitsThoughts: boolean): object {
  switch (part.kind) {
    case "text":
      return { type: "text", text: part.text };
    case "reasoning":
      return omitsThoughts
        ? { type: "thinking", thinking: "", signature: signatureOf(part.text) }
        : { type: "thinking", thinking: part.text, signature: SIGNATURE };
    case "call":
      return {
        type: "tool_use",
        id: part.call.id ?? callId(part.index),
        name: part.call.name,
        input: inputOf(part.call),
      };
  }
}

/** Input of a call; of a truncated call, its complete values. */
function inputOf(call: ToolCall): unknown {
  return wholeValueIn(call.arguments) ?? {};
}

function endingOf({ reason, stopReason }: ChoiceFinish): object {
  if (reason === "calls") return { stop_reason: "tool_use", stop_sequence: null };
  if (reason === "length") return { stop_reason: "max_tokens", stop_sequence: null };
  if (typeof stopReason === "string") return { stop_reason: "stop_sequence", stop_sequence: stopReason };
  return { stop_reason: "end_turn", stop_sequence: null };
}

/**
 * Usage of an answer. Each prompt token is in one of the three input counts: cached tokens, uncached tokens
 * marked for the cache, and the rest.
 */
function usageJson(usage: Usage, markedTokens: number): object {
  const { promptTokens, cachedTokens, completionTokens, reasoningTokens } = usage;
  const written = Math.max(0, markedTokens - cachedTokens);
  return {
    input_tokens: promptTokens - cachedTokens - written,
    cache_creation_input_tokens: written,
    cache_read_input_tokens: cachedTokens,
    output_tokens: completionTokens,
    output_tokens_details: { thinking_tokens: reasoningTokens },
  };
}
