import { signal } from "@preact/signals";
import type { StreamEvent, Usage } from "../../cli/client.ts";
import { type Figures, newId, type ToolCall, type Turn } from "./conversation.ts";

/** Minimum duration of streaming from which a token rate is computed. */
const PACE_MS_MIN = 200;

/** Stream comments that carry no message. */
const TECHNICAL = new Set(["", "open", "ping"]);

/**
 * Response that is being streamed. Its turn is updated once per frame, however many chunks arrive in between.
 */
export class AnswerInProgress {
  readonly turn;
  readonly #stopping = new AbortController();
  readonly #askedMs = performance.now();
  /** Times of the first and last text, reasoning included. */
  #firstMs: number | null = null;
  #lastMs = 0;
  #thoughtMs: number | null = null;
  #thoughts = "";
  #text = "";
  readonly #calls: { id: string; name: string; arguments: string }[] = [];
  #usage: Usage | null = null;
  #finish: string | null = null;
  #requestId: string | null = null;
  #error: string | null = null;
  #frame: number | null = null;
  /** Sentence while the request is queued; null: the response has begun, or nothing is known. */
  readonly wait = signal<string | null>(null);
  readonly #isResumed: boolean;

  /** `resumed`: response that an earlier page began, whose text is streamed again. */
  constructor(parent: string | null, resumed?: Turn) {
    this.#isResumed = resumed !== undefined;
    this.turn = signal<Turn>(resumed ?? { id: newId(), parent, role: "assistant", content: "" });
  }

  /** Name of its resumable stream. */
  get name(): string {
    return this.turn.value.id;
  }

  get hasBegun(): boolean {
    return this.#firstMs !== null;
  }

  get signal(): AbortSignal {
    return this.#stopping.signal;
  }

  stop(): void {
    this.#stopping.abort();
  }

  fail(message: string): void {
    this.#error = message;
  }

  take(event: StreamEvent): void {
    switch (event.kind) {
      case "number":
        return;
      case "wait":
        if (!TECHNICAL.has(event.text))
          this.wait.value = `${event.text[0]!.toUpperCase()}${event.text.slice(1)}.`;
        return;
      case "thought":
        this.#arrived();
        this.#thoughts += event.text;
        break;
      case "text":
        this.#arrived();
        this.#endThoughts();
        this.#text += event.text;
        break;
      case "call": {
        this.#arrived();
        this.#endThoughts();
        this.#calls[event.index] ??= { id: "", name: "", arguments: "" };
        const call = this.#calls[event.index]!;
        call.id += event.id ?? "";
        call.name += event.name ?? "";
        call.arguments += event.arguments;
        break;
      }
      case "finish":
        this.#finish = event.reason;
        break;
      case "usage":
        this.#usage = event.usage;
        break;
      case "request":
        this.#requestId = event.id;
        break;
    }
    this.#frame ??= requestAnimationFrame(() => this.#show());
  }

  /** Ends the response and returns its turn; null if no part of it arrived. */
  end(): Turn | null {
    if (this.#frame !== null) cancelAnimationFrame(this.#frame);
    this.#endThoughts();
    if (!this.#isResumed || this.hasBegun) this.#show();
    const { content, thoughts, calls } = this.turn.value;
    const isEmpty = content === "" && thoughts === undefined && calls === undefined;
    if (isEmpty && (this.#finish === null || this.#error !== null)) return null;
    return {
      ...this.turn.value,
      figures: this.#figures(),
      ...(this.#requestId === null ? {} : { requestId: this.#requestId }),
      ...(this.#error === null ? {} : { error: this.#error }),
    };
  }

  #arrived(): void {
    this.wait.value = null;
    this.#lastMs = performance.now();
    this.#firstMs ??= this.#lastMs;
  }

  #endThoughts(): void {
    if (this.#thoughts !== "") this.#thoughtMs ??= performance.now() - this.#firstMs!;
  }

  #show(): void {
    this.#frame = null;
    const { id, parent, role } = this.turn.value;
    const calls: ToolCall[] = this.#calls.map((call) => ({ ...call }));
    this.turn.value = {
      id,
      parent,
      role,
      content: this.#text,
      ...(this.#thoughts === "" ? {} : { thoughts: this.#thoughts }),
      ...(this.#thoughtMs === null ? {} : { thoughtMs: this.#thoughtMs }),
      ...(calls.length === 0 ? {} : { calls }),
    };
  }

  #figures(): Figures {
    const usage = this.#usage;
    return {
      completionTokens: usage?.completionTokens ?? null,
      tokensPerSecond: this.#tokensPerSecond(),
      firstTokenMs: this.#firstMs === null || this.#isResumed ? null : this.#firstMs - this.#askedMs,
      promptTokens: usage?.promptTokens ?? 0,
      cachedTokens: usage?.cachedTokens ?? 0,
      finish: this.signal.aborted ? "stopped" : this.#finish,
    };
  }

  #tokensPerSecond(): number | null {
    if (this.#usage === null || this.#firstMs === null || this.#isResumed) return null;
    const { completionTokens } = this.#usage;
    // A response that arrived almost at once has no streaming time; the rate is then of the whole time.
    const hasPace = this.#lastMs - this.#firstMs >= PACE_MS_MIN;
    const tokens = hasPace ? completionTokens - 1 : completionTokens;
    return (1000 * tokens) / (this.#lastMs - (hasPace ? this.#firstMs : this.#askedMs));
  }
}
