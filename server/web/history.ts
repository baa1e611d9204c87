import type { ChatMessage } from "../cli/client.ts";
import type { ChatSettings } from "./settings.ts";

/** A conversation as the browser keeps it. */
export interface KeptConversation {
  readonly id: string;
  readonly changedMs: number;
  readonly settings: ChatSettings;
  readonly messages: readonly ChatMessage[];
}

/** All conversations, in the browser; which of them is a tab's own, in the tab. */
const ALL = "bunting-conversations";
const OWN = "bunting-own-conversation";
const CONVERSATIONS_MAX = 20;
/** Of all of them together, as JSON: browsers keep some five million of a site. */
const CHARACTERS_MAX = 2 ** 21;

/** The last conversations, of all tabs of this browser, the one that was changed last first. */
export class History {
  readonly #changed: (isForeign: boolean) => void;

  /** `changed` is called when there are others than before; `isForeign`: by another tab. */
  constructor(changed: (isForeign: boolean) => void) {
    this.#changed = changed;
    addEventListener("storage", ({ key }) => {
      if (key === ALL || key === null) changed(true);
    });
  }

  get all(): readonly KeptConversation[] {
    try {
      return JSON.parse(localStorage.getItem(ALL) ?? "[]") as KeptConversation[];
    } catch {
      return []; // The browser keeps nothing for pages, or what it has is not from this page.
    }
  }

  /** The conversation of this tab; null: it has none yet. */
  get own(): KeptConversation | null {
    return this.all.find(({ id }) => id === this.#ownId) ?? null;
  }

  /** Makes a conversation this tab's own. */
  take({ id }: Pick<KeptConversation, "id">): void {
    write(() => sessionStorage.setItem(OWN, id));
  }

  /** Keeps a conversation as it is now. Those of other tabs without messages are forgotten, and the oldest where there are too many. */
  keep(conversation: KeptConversation): void {
    const others = this.all.filter(
      ({ id, messages }) => id !== conversation.id && (messages.length > 0 || id === this.#ownId),
    );
    const kept = [conversation, ...others].slice(0, CONVERSATIONS_MAX);
    for (;;) {
      const text = JSON.stringify(kept);
      const fits = text.length <= CHARACTERS_MAX && write(() => localStorage.setItem(ALL, text));
      if (fits || kept.length === 1) break;
      kept.pop();
    }
    this.#changed(false);
  }

  forget(): void {
    write(() => localStorage.removeItem(ALL));
    this.#changed(false);
  }

  get #ownId(): string | null {
    try {
      return sessionStorage.getItem(OWN);
    } catch {
      return null;
    }
  }
}

/** Whether it was written: a browser may keep nothing for pages, or have no room. */
function write(put: () => void): boolean {
  try {
    put();
    return true;
  } catch {
    return false;
  }
}
