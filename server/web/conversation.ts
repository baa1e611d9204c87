import { type ChatMessage, ServerError, streamChat, type Usage } from "../cli/client.ts";
import { AnswerView } from "./answer-view.ts";
import type { ApiKeyForm } from "./api-key.ts";
import { element, fromTemplate, within } from "./dom.ts";
import type { History, KeptConversation } from "./history.ts";
import { type ChatSettings, sampling, showSettings, typedSettings } from "./settings.ts";

/** Shorter answers than this say nothing about how fast tokens follow each other. */
const PACE_MS_MIN = 200;

export interface ConversationEvents {
  onBusy(isBusy: boolean): void;
  /** Nothing of an answer came: the question is no part of the conversation. */
  onUnanswered(question: string): void;
}

/** What is known of an answer so far. Times are on the clock of `performance.now()`. */
interface Progress {
  readonly askedMs: number;
  /** Of a thought or the answer. */
  firstMs: number | null;
  lastMs: number;
  thoughts: string;
  text: string;
  usage: Usage | null;
  finish: string | null;
}

/** A conversation's messages, and the name that it is kept by. */
interface Thread {
  id: string;
  settings: ChatSettings;
  readonly messages: ChatMessage[];
}

/** One chat: the messages, on screen and as the server is told them, and the answer that is being streamed. It is kept with its settings,
 *  for when the page is loaded again, or when it is wanted back. */
export class Conversation {
  readonly #apiKey: ApiKeyForm;
  readonly #events: ConversationEvents;
  readonly #log = element("log", HTMLDivElement);
  readonly #empty = element("empty", HTMLParagraphElement);
  readonly #history: History;
  #thread: Thread = newThread();
  #answering: AbortController | null = null;
  /** The reader is at the end, and wants to see what comes. */
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

  /** Ends the answer; what came of it stays. */
  stop(): void {
    this.#answering?.abort();
  }

  /** Begins a new one, with the same settings. */
  clear(): void {
    this.stop();
    this.#thread = newThread();
    this.#log.replaceChildren(this.#empty);
    this.keep();
  }

  /** Goes on with one that was kept. */
  open(conversation: KeptConversation): void {
    this.stop();
    this.#log.replaceChildren(this.#empty);
    this.#restore(conversation);
    this.keep();
  }

  /** Keeps what is on screen, and its settings. */
  keep(): void {
    this.#thread.settings = typedSettings();
    this.#history.take(this.#thread);
    this.#keep(this.#thread);
  }

  get id(): string {
    return this.#thread.id;
  }

  /** Another tab may have gone on with the same conversation: then this one is kept by a name of its own. */
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

  /** Only a reader scrolls up; text that arrives moves the end away, which is not the same. */
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
    // An answer that comes nearly at once has no pace of its own; then all of the time counts.
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

/** Of pages that come without TLS, too, where browsers make no UUID. */
function newId(): string {
  return crypto.getRandomValues(new BigUint64Array(1))[0]!.toString(36);
}
