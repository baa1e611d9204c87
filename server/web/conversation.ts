import { type ChatMessage, ServerError, streamChat, type Usage } from "../cli/client.ts";
import { AnswerView } from "./answer-view.ts";
import type { ApiKeyForm } from "./api-key.ts";
import { element, fromTemplate, within } from "./dom.ts";
import type { History, KeptConversation } from "./history.ts";
import { type ChatSettings, sampling, showSettings, typedSettings } from "./settings.ts";

/** Shortest answer from which a token rate is computed. */
const PACE_MS_MIN = 200;

export interface ConversationEvents {
  onBusy(isBusy: boolean): void;
  /** Receives the question of an answer that never began. The conversation does not contain that question. */
  onUnanswered(question: string): void;
}

/** State of an answer so far. Times are on the clock of `performance.now()`. */
interface Progress {
  readonly askedMs: number;
  /** Time of the first text, of a thought or the answer. */
  firstMs: number | null;
  lastMs: number;
  thoughts: string;
  text: string;
  usage: Usage | null;
  finish: string | null;
}

/** Messages of a conversation, and its name in the history. */
interface Thread {
  id: string;
  settings: ChatSettings;
  readonly messages: ChatMessage[];
}

/**
 * Chat with its messages, on screen and as sent to the server, and the answer that is being streamed. The
 * history keeps it with its settings, for a reload of the page or for opening it later.
 */
export class Conversation {
  readonly #apiKey: ApiKeyForm;
  readonly #events: ConversationEvents;
  readonly #log = element("log", HTMLDivElement);
  readonly #empty = element("empty", HTMLParagraphElement);
  readonly #history: History;
  #thread: Thread = newThread();
  #answering: AbortController | null = null;
  /** True while the reader is at the end and wants to see new text. */
  #isFollowing = true;
  #lastTop = 0;

  constructor(apiKey: ApiKeyForm, history: History, events: ConversationEvents) {
    this.#apiKey = apiKey;
    this.#history = history;
    this.#events = events;
    this.#log.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    new ResizeObserver(() => this.#follow()).observe(this.#log);
    const own = history.own;
    if (own !== null) this.#restore(own);
  }

  get isBusy(): boolean {
    return this.#answering !== null;
  }

  /** Ends the answer; text received so far stays. */
  stop(): void {
    this.#answering?.abort();
  }

  /** Begins a new conversation with the same settings. */
  clear(): void {
    this.stop();
    this.#thread = newThread();
    this.#log.replaceChildren(this.#empty);
    this.keep();
  }

  /** Continues a kept conversation. */
  open(conversation: KeptConversation): void {
    this.stop();
    this.#log.replaceChildren(this.#empty);
    this.#restore(conversation);
    this.keep();
  }

  /** Keeps the messages on screen and the settings. */
  keep(): void {
    this.#thread.settings = typedSettings();
    this.#history.take(this.#thread);
    this.#keep(this.#thread);
  }

  get id(): string {
    return this.#thread.id;
  }

  /** Gives this conversation a new id if another tab has continued the same one. */
  part(): void {
    const { id, messages } = this.#thread;
    const kept = this.#history.all.find((one) => one.id === id);
    if (kept === undefined || kept.messages.length === messages.length) return;
    this.#thread.id = newId();
    this.#history.take(this.#thread);
  }

  #keep({ id, settings, messages }: Thread): void {
    this.#history.keep({ id, changedMs: Date.now(), settings, messages });
  }

  #restore({ id, settings, messages }: KeptConversation): void {
    this.#thread = { id, settings, messages: [...messages] };
    showSettings(settings);
    this.#isFollowing = true;
    for (const { role, content } of messages) {
      if (role === "user") this.#show("user", "You", content);
      else new AnswerView(this.#show("assistant", "Answer", ""), () => this.#follow()).whole(content);
    }
  }

  /** Resolves when the answer has ended, in whatever way. */
  async ask(question: string): Promise<void> {
    const thread = this.#thread; // clear() begins another one
    thread.settings = typedSettings();
    this.#history.take(thread);
    const answering = new AbortController();
    this.#setAnswering(answering);
    this.#isFollowing = true;
    const asked = this.#show("user", "You", question);
    const shown = this.#show("assistant", "Answer", "");
    const view = new AnswerView(shown, () => this.#follow());
    const progress: Progress = {
      askedMs: performance.now(),
      firstMs: null,
      lastMs: 0,
      thoughts: "",
      text: "",
      usage: null,
      finish: null,
    };
    const asking: ChatMessage = { role: "user", content: question };
    try {
      await this.#stream([...thread.messages, asking], progress, view, answering.signal);
    } catch (error) {
      if (!answering.signal.aborted) this.#fail(error);
    }
    view.end();
    this.#showFacts(shown, progress, answering.signal.aborted);
    if (progress.text !== "") {
      thread.messages.push(asking, { role: "assistant", content: progress.text });
      this.#keep(thread);
    } else if (progress.finish === null && progress.thoughts === "") {
      asked.remove();
      shown.remove();
      if (thread === this.#thread) this.#events.onUnanswered(question);
    }
    if (this.#answering === answering) this.#setAnswering(null);
  }

  async #stream(
    messages: readonly ChatMessage[],
    progress: Progress,
    view: AnswerView,
    signal: AbortSignal,
  ): Promise<void> {
    // Usage with every chunk, so that a stopped answer has its numbers too.
    const stream_options = { include_usage: true, continuous_usage_stats: true };
    const body = { messages: [...systemPrompt(), ...messages], ...sampling(), stream_options };
    for await (const event of streamChat(this.#apiKey.target, body, signal)) {
      switch (event.kind) {
        case "thought":
        case "text":
          progress.lastMs = performance.now();
          progress.firstMs ??= progress.lastMs;
          if (event.kind === "thought") {
            progress.thoughts += event.text;
            view.appendThought(event.text);
          } else {
            progress.text += event.text;
            view.appendText(event.text);
          }
          break;
        case "finish":
          progress.finish = event.reason;
          break;
        case "usage":
          progress.usage = event.usage;
          break;
      }
    }
  }

  #setAnswering(answering: AbortController | null): void {
    this.#answering = answering;
    // Screen readers wait for the whole answer instead of reading every piece.
    this.#log.setAttribute("aria-busy", String(answering !== null));
    this.#events.onBusy(answering !== null);
  }

  #show(kind: string, speaker: string, content: string): HTMLElement {
    this.#empty.remove();
    for (const alert of this.#log.querySelectorAll(".error")) alert.remove();
    const message = fromTemplate("message");
    message.classList.add(kind);
    message.classList.toggle("pending", content === "");
    within(message, "h2").textContent = speaker;
    within(message, ".body").textContent = content;
    this.#log.append(message);
    this.#follow();
    return message;
  }

  #fail(error: unknown): void {
    const message = error instanceof ServerError ? error.message : "the server cannot be reached";
    if (error instanceof ServerError && error.status === 401) {
      this.#apiKey.ask(message);
      return;
    }
    const alert = document.createElement("p");
    alert.className = "error";
    alert.setAttribute("role", "alert");
    alert.textContent = message;
    this.#log.append(alert);
    this.#follow();
  }

  #showFacts(shown: HTMLElement, progress: Progress, isStopped: boolean): void {
    const facts = factsOf(progress, isStopped);
    const line = within(shown, ".facts");
    line.textContent = facts.join(" · ");
    line.hidden = facts.length === 0;
    this.#follow();
  }

  #follow(): void {
    if (this.#isFollowing) this.#log.scrollTop = this.#log.scrollHeight;
  }

  /**
   * Stops following only if the position moved up, which only a reader does: arriving text just moves the end
   * away.
   */
  #scrolled(): void {
    const { scrollTop, scrollHeight, clientHeight } = this.#log;
    if (scrollTop < this.#lastTop) this.#isFollowing = false;
    if (scrollHeight - scrollTop - clientHeight < 8) this.#isFollowing = true;
    this.#lastTop = scrollTop;
  }
}

function factsOf({ askedMs, firstMs, lastMs, usage, finish }: Progress, isStopped: boolean): string[] {
  const facts: string[] = [];
  if (usage !== null && firstMs !== null) {
    // An answer that arrives nearly at once has no token rate of its own; then the whole time counts.
    const hasPace = lastMs - firstMs >= PACE_MS_MIN;
    const tokens = hasPace ? usage.completionTokens - 1 : usage.completionTokens;
    const seconds = (lastMs - (hasPace ? firstMs : askedMs)) / 1000;
    facts.push(`${usage.completionTokens} tokens`, `${(tokens / seconds).toFixed(1)} tokens/s`);
  }
  if (firstMs !== null) facts.push(`first token after ${((firstMs - askedMs) / 1000).toFixed(2)} s`);
  if (usage !== null && usage.promptTokens > 0) {
    facts.push(`${Math.round((100 * usage.cachedTokens) / usage.promptTokens)} % of the prompt cached`);
  }
  if (isStopped) facts.push("stopped");
  else if (finish === "length") facts.push("ended at the token limit");
  return facts;
}

function systemPrompt(): ChatMessage[] {
  const content = typedSettings().system.trim();
  return content === "" ? [] : [{ role: "system", content }];
}

function newThread(): Thread {
  return { id: newId(), settings: typedSettings(), messages: [] };
}

/** Random id without `crypto.randomUUID`, which browsers offer only to pages over TLS. */
function newId(): string {
  return crypto.getRandomValues(new BigUint64Array(1))[0]!.toString(36);
}
