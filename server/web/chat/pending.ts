/** Response that is being streamed when the page is left. The tab keeps it until the page returns. */
import type { Turn } from "./conversation.ts";

const KEY = "bunting-answer";

export interface Pending {
  readonly conversation: string;
  /** The response so far; its id names the stream. */
  readonly turn: Turn;
}

/** Stores the result of `now` whenever the page may be left; null: no response is being streamed. */
export function keepPending(now: () => Pending | null): void {
  const keep = (): void => {
    const pending = now();
    try {
      if (pending === null) sessionStorage.removeItem(KEY);
      else sessionStorage.setItem(KEY, JSON.stringify(pending));
    } catch {} // the browser forbids storage
  };
  addEventListener("pagehide", keep);
  document.addEventListener("visibilitychange", keep);
}

/** Returns and removes the stored response; null for none. */
export function takePending(): Pending | null {
  try {
    const text = sessionStorage.getItem(KEY);
    sessionStorage.removeItem(KEY);
    return text === null ? null : (JSON.parse(text) as Pending);
  } catch {
    return null;
  }
}
