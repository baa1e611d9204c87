import { signal } from "@preact/signals";
import { type LiveView, nextView } from "../../http/live-view.ts";
import type { LiveNow } from "../../http/state-events.ts";

/** Last received state of the engines, with the history that the plots need. */
export class LiveState {
  readonly view = signal<LiveView | null>(null);

  take(now: LiveNow): void {
    this.view.value = nextView(this.view.value, now);
  }
}
