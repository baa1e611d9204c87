/** Answer that is being streamed while the page is left, kept in the tab until it is there again. */
import type { Turn } from "./conversation.ts";

const KEY = "bunting-answer";

export interface Pending {
  readonly conversation: string;
  /** The answer so far; its id names the stream. */
  readonly turn: Turn;
}

/** Keeps what `now` returns whenever the page may be left; null: nothing is being streamed. */
export function keepPending(now: () => Pending | null): void {
  const keep = (): void => {
    const pending = now();
    try {
      if (pending === null) sessionStorage.removeItem(KEY);
      else sessionStorage.setItem(KEY, JSON.stringify(pending));
    } catch {} // the browser stores nothing for pages
  };
  addEventListener("pagehide", keep);
  document.addEventListener("visibilitychange", keep);
}

/** Takes what was kept; null: there is nothing. */
export function takePending(): Pending | null {
  try {
    const text = sessionStorage.getItem(KEY);
    sessionStorage.removeItem(KEY);
    return text === null ? null : (JSON.parse(text) as Pending);
  } catch {
    return null;
  }
}
