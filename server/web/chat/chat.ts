import { batch, computed, type Signal, signal } from "@preact/signals";
import { ServerError, type StreamEvent, streamChat } from "../../cli/client.ts";
import { messageOf, noteKey, target } from "../api.ts";
import { AnswerInProgress } from "./answer.ts";
import {
  type Conversation,
  messagesOf,
  newId,
  openCalls,
  pathTo,
  type Turn,
  tipOf,
  without,
} from "./conversation.ts";
import { estimateOf } from "./estimate.ts";
import { History } from "./history.ts";
import { endNamed, streamNamed } from "./named-stream.ts";
import { keepPending, type Pending, takePending } from "./pending.ts";
import { type ChatSettings, noSettings, requestFields } from "./settings.ts";

/** Wait after which the page asks when a response will begin. */
const ESTIMATE_AFTER_MS = 1000;

/** Conversation on screen, its response in progress, and the text that the user types. */
export class Chat {
  readonly history = new History();
  /** The inner signal is replaced as a whole, so that a response still reaches its own conversation. */
  readonly #shown: Signal<Signal<Conversation>>;
  readonly answering = signal<AnswerInProgress | null>(null);
  /** Sentence about the last failure; null: there is none. */
  readonly alert = signal<string | null>(null);
  /** Text of the composer. */
  readonly draft = signal("");
  /** Turns on screen, without the response in progress. */
  readonly path = computed(() => pathTo(this.conversation.turns, this.conversation.head));
  /** Tool calls without results. */
  readonly openCalls = computed(() => openCalls(this.path.value));

  constructor() {
    this.#shown = signal(signal(this.history.own ?? newConversation(noSettings)));
    this.history.onForeign = () => this.#part();
    const pending = takePending();
    if (pending !== null && isOpen(pending, this.conversation)) this.#resume(pending.turn);
    keepPending(() => {
      const answer = this.answering.value;
      return answer === null ? null : { conversation: this.conversation.id, turn: answer.turn.value };
    });
  }

  get conversation(): Conversation {
    return this.#shown.value.value;
  }

  get isBusy(): boolean {
    return this.answering.value !== null;
  }

  /** Stops the response; text received so far stays. */
  stop(): void {
    const answer = this.answering.value;
    if (answer === null) return;
    answer.stop();
    endNamed(answer.name);
  }

  /** Begins a new conversation with the same settings. */
  clear(): void {
    this.open(newConversation(this.conversation.settings));
  }

  open(conversation: Conversation): void {
    this.stop();
    batch(() => {
      this.alert.value = null;
      this.#shown.value = signal(conversation);
    });
    this.#own();
  }

  remove(id: string): void {
    this.history.remove(id);
    if (id === this.conversation.id) this.clear();
  }

  set(change: Partial<ChatSettings>): void {
    this.#change(this.#shown.value, (now) => ({ ...now, settings: { ...now.settings, ...change } }));
  }

  async ask(question: string): Promise<void> {
    const shown = this.#shown.value;
    const { head } = shown.value;
    const asked: Turn = { id: newId(), parent: head, role: "user", content: question };
    this.#add(shown, asked);
    if (await this.#answer(shown)) return;
    this.#change(shown, (now) => ({ ...without(now, asked.id), head }));
    if (shown === this.#shown.value && this.draft.value === "") this.draft.value = question;
  }

  /** Sends an edited message in place of a turn, which stays as a branch. */
  edit({ parent }: Turn, question: string): Promise<void> {
    this.#show(parent);
    return this.ask(question);
  }

  /** Generates another response; the turn stays as a branch. */
  async regenerate(turn: Turn): Promise<void> {
    this.#show(turn.parent);
    if (!(await this.#answer(this.#shown.value))) this.#show(turn.id);
  }

  /** Adds the results of tool calls, by their ids, and continues. */
  async giveResults(results: ReadonlyMap<string, string>): Promise<void> {
    const shown = this.#shown.value;
    for (const [callId, content] of results) {
      this.#add(shown, { id: newId(), parent: shown.value.head, role: "tool", callId, content });
    }
    await this.#answer(shown);
  }

  /** Shows the newest branch through a turn. */
  showBranch({ id }: Turn): void {
    this.#show(tipOf(this.conversation.turns, id));
  }

  removeTurn({ id }: Turn): void {
    this.#change(this.#shown.value, (now) => without(now, id));
  }

  /** Streams a response to the head of the conversation. Resolves to false if no part of it arrived. */
  async #answer(shown: Signal<Conversation>): Promise<boolean> {
    const { head, turns, settings } = shown.value;
    this.alert.value = null;
    let fields: ReturnType<typeof requestFields>;
    try {
      fields = requestFields(settings);
    } catch (error) {
      this.alert.value = (error as Error).message;
      return false;
    }
    const messages = messagesOf(pathTo(turns, head), settings.system);
    // Usage comes with every chunk, so that a stopped response has its figures too.
    const stream_options = { include_usage: true, continuous_usage_stats: true };
    const answer = new AnswerInProgress(head);
    const body = { messages, ...fields, stream_options };
    const events = streamChat(target(), body, answer.signal, answer.name);
    tellEstimate(answer, body);
    return await this.#take(shown, answer, streamNamed(answer.name, answer.signal, events));
  }

  /** Resumes a response that was in progress when the page was left. */
  #resume(turn: Turn): void {
    const answer = new AnswerInProgress(turn.parent, turn);
    void this.#take(this.#shown.value, answer, streamNamed(answer.name, answer.signal));
  }

  /** Resolves to false if no part of the response arrived. */
  async #take(
    shown: Signal<Conversation>,
    answer: AnswerInProgress,
    events: AsyncIterable<StreamEvent>,
  ): Promise<boolean> {
    this.answering.value = answer;
    try {
      for await (const event of events) answer.take(event);
    } catch (error) {
      if (!answer.signal.aborted) this.#failed(error, answer);
    }
    const turn = answer.end();
    batch(() => {
      if (turn !== null) this.#add(shown, turn);
      if (this.answering.value === answer) this.answering.value = null;
    });
    return turn !== null;
  }

  #failed(error: unknown, answer: AnswerInProgress): void {
    const message = messageOf(noteKey(error));
    answer.fail(message);
    if (!(error instanceof ServerError && error.status === 401)) this.alert.value = message;
  }

  #show(head: string | null): void {
    this.#change(this.#shown.value, (now) => ({ ...now, head }));
  }

  #add(shown: Signal<Conversation>, turn: Turn): void {
    this.#change(shown, (now) => ({ ...now, turns: [...now.turns, turn], head: turn.id }));
  }

  #change(shown: Signal<Conversation>, change: (now: Conversation) => Conversation): void {
    shown.value = { ...change(shown.value), changedMs: Date.now() };
    if (shown === this.#shown.value) this.#own();
    else this.history.keep(shown.value);
  }

  #own(): void {
    this.history.take(this.conversation);
    this.history.keep(this.conversation);
  }

  /** Gives this conversation a new id if another tab has continued the same one. */
  #part(): void {
    const shown = this.#shown.value;
    const kept = this.history.all.value.find(({ id }) => id === shown.value.id);
    if (kept === undefined || kept.turns.length === shown.value.turns.length) return;
    shown.value = { ...shown.value, id: newId() };
    this.history.take(shown.value);
  }
}

function newConversation(settings: ChatSettings): Conversation {
  return { id: newId(), changedMs: Date.now(), settings, turns: [], head: null };
}

/** True for a response that its conversation lacks: the page may be lost after the response ended. */
function isOpen({ conversation, turn }: Pending, { id, turns }: Conversation): boolean {
  return conversation === id && turns.every((other) => other.id !== turn.id);
}

/** Shows when the response will begin, if it does not begin at once. */
function tellEstimate(answer: AnswerInProgress, body: object): void {
  setTimeout(async () => {
    if (answer.hasBegun || answer.signal.aborted) return;
    const sentence = await estimateOf(body);
    if (!answer.hasBegun) answer.wait.value ??= sentence;
  }, ESTIMATE_AFTER_MS);
}
