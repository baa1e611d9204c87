import { element } from "./dom.ts";
import type { History, KeptConversation } from "./history.ts";

const TITLE_CHARACTERS_MAX = 48;

/** List of earlier conversations, from which the user can continue one. */
export class PastList {
  readonly #history: History;
  readonly #list = element("past", HTMLSelectElement);

  constructor(history: History, onChosen: (conversation: KeptConversation) => void) {
    this.#history = history;
    this.#list.addEventListener("change", () => {
      const chosen = history.all.find(({ id }) => id === this.#list.value);
      if (chosen !== undefined) onChosen(chosen);
    });
  }

  /** Shows all but the conversation that is on screen. */
  show(ownId: string): void {
    const past = this.#history.all.filter(({ id, messages }) => id !== ownId && messages.length > 0);
    const title = this.#list.options[0]!;
    this.#list.replaceChildren(title, ...past.map(optionOf));
    this.#list.selectedIndex = 0;
    this.#list.hidden = past.length === 0;
  }
}

function optionOf({ id, changedMs, messages }: KeptConversation): HTMLOptionElement {
  const question = messages[0]!.content.replace(/\s+/g, " ");
  const title =
    question.length > TITLE_CHARACTERS_MAX ? `${question.slice(0, TITLE_CHARACTERS_MAX - 1)}…` : question;
  return new Option(
    `${title} (${new Date(changedMs).toLocaleString([], { dateStyle: "short", timeStyle: "short" })})`,
    id,
  );
}
