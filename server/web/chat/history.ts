import { signal } from "@preact/signals";
import type { Conversation, Turn } from "./conversation.ts";
import { type ChatSettings, noSettings } from "./settings.ts";

/** Storage keys: the browser stores all conversations, a tab the id of its own. */
const ALL = "bunting-conversations";
const OWN = "bunting-own-conversation";
const CONVERSATIONS_MAX = 200;
/** Maximum characters of all conversations together, as JSON: browsers store some five million per site. */
const CHARACTERS_MAX = 2 ** 21;

/** Conversations of all tabs of this browser, most recently changed first. */
export class History {
  readonly all = signal(readAll());
  /** Called after another tab has changed the list. */
  onForeign: () => void = () => {};

  constructor() {
    addEventListener("storage", ({ key }) => {
      if (key !== ALL && key !== null) return;
      this.all.value = readAll();
      this.onForeign();
    });
  }

  /** Conversation of this tab; null if it has none yet. */
  get own(): Conversation | null {
    return this.all.value.find(({ id }) => id === ownId()) ?? null;
  }

  /** Makes a conversation the tab's own. */
  take({ id }: Pick<Conversation, "id">): void {
    write(() => sessionStorage.setItem(OWN, id));
  }

  /** Stores a conversation. Drops the oldest ones beyond the limits. */
  keep(conversation: Conversation): void {
    this.#store([conversation, ...readAll().filter(({ id }) => id !== conversation.id)]);
  }

  remove(removed: string): void {
    this.#store(readAll().filter(({ id }) => id !== removed));
  }

  forget(): void {
    write(() => localStorage.removeItem(ALL));
    this.all.value = [];
  }

  /** Adds the conversations of an exported file and returns their number. Throws an Error with a sentence. */
  import(text: string): number {
    let given: unknown;
    try {
      given = JSON.parse(text);
    } catch {
      throw new Error("The file is not JSON.");
    }
    const read = Array.isArray(given) ? given.map(conversationOf) : [];
    const added = read.filter((one) => one !== null && one.turns.length > 0) as Conversation[];
    if (added.length === 0) throw new Error("The file holds no conversations that this page has exported.");
    const ids = new Set(added.map(({ id }) => id));
    const others = readAll().filter(({ id }) => !ids.has(id));
    this.#store([...added, ...others].sort((a, b) => b.changedMs - a.changedMs));
    return added.length;
  }

  #store(conversations: readonly Conversation[]): void {
    const kept = conversations
      .filter(({ id, turns }) => turns.length > 0 || id === ownId())
      .slice(0, CONVERSATIONS_MAX);
    for (;;) {
      const text = JSON.stringify(kept);
      const fits = text.length <= CHARACTERS_MAX && write(() => localStorage.setItem(ALL, text));
      if (fits || kept.length <= 1) break;
      kept.pop();
    }
    this.all.value = kept;
  }
}

function readAll(): readonly Conversation[] {
  try {
    const read = JSON.parse(localStorage.getItem(ALL) ?? "[]") as unknown[];
    return read.map(conversationOf).filter((one) => one !== null);
  } catch {
    return []; // The browser forbids storage, or the stored text is not from this page.
  }
}

/**
 * Checks a stored conversation, which an earlier version of the page may have written; null if it is invalid.
 */
function conversationOf(stored: unknown): Conversation | null {
  if (typeof stored !== "object" || stored === null) return null;
  const { id, changedMs, settings, turns, messages, head } = stored as Partial<Conversation> & {
    readonly messages?: readonly Pick<Turn, "role" | "content">[];
  };
  if (typeof id !== "string" || !(Array.isArray(turns) || Array.isArray(messages))) return null;
  const chained = (messages ?? []).map(({ role, content }, at) => ({
    id: String(at),
    parent: at === 0 ? null : String(at - 1),
    role,
    content,
  }));
  return {
    id,
    changedMs: Number(changedMs) || 0,
    settings: settingsOf(settings),
    turns: turns ?? chained,
    head: turns === undefined ? (chained.at(-1)?.id ?? null) : (head ?? null),
  };
}

function settingsOf(
  stored:
    | (Partial<ChatSettings> & { readonly temperature?: string; readonly tokensMax?: string })
    | undefined,
): ChatSettings {
  const { temperature, tokensMax, ...settings } = stored ?? {};
  const numbers = {
    ...(temperature ? { temperature } : {}),
    ...(tokensMax ? { max_tokens: tokensMax } : {}),
  };
  return { ...noSettings, numbers, ...settings };
}

function ownId(): string | null {
  try {
    return sessionStorage.getItem(OWN);
  } catch {
    return null;
  }
}

/** Returns false if the write failed: a browser may forbid storage, or be out of space. */
function write(put: () => void): boolean {
  try {
    put();
    return true;
  } catch {
    return false;
  }
}
