import type { ChatMessage } from "../cli/client.ts";
import type { ChatSettings } from "./settings.ts";

/** Conversation as the browser keeps it. */
export interface KeptConversation {
  readonly id: string;
  readonly changedMs: number;
  readonly settings: ChatSettings;
  readonly messages: readonly ChatMessage[];
}

/** Keys of storage: all conversations are in the browser, the id of a tab's own one in the tab. */
const ALL = "bunting-conversations";
const OWN = "bunting-own-conversation";
const CONVERSATIONS_MAX = 20;
/** Characters of all conversations together, as JSON: browsers store some five million per site. */
const CHARACTERS_MAX = 2 ** 21;

/** Last conversations of all tabs of this browser, most recently changed first. */
export class History {
  readonly #changed: (isForeign: boolean) => void;

  /** Calls `changed` after a change of the list; `isForeign` is true if another tab made it. */
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
      return []; // The browser stores nothing for pages, or the stored text is not from this page.
    }
  }

  /** Conversation of this tab; null if it has none yet. */
  get own(): KeptConversation | null {
    return this.all.find(({ id }) => id === this.#ownId) ?? null;
  }

  /** Makes a conversation this tab's own. */
  take({ id }: Pick<KeptConversation, "id">): void {
    write(() => sessionStorage.setItem(OWN, id));
  }

  /**
   * Keeps a conversation in its current state. Drops empty conversations of other tabs, and the oldest ones
   * beyond the limits.
   */
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

/** Returns false if the write failed: a browser may store nothing for pages, or have no room. */
function write(put: () => void): boolean {
  try {
    put();
    return true;
  } catch {
    return false;
  }
}
