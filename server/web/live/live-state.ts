import { signal } from "@preact/signals";
import { type LiveView, nextView } from "../../http/live-view.ts";
import type { LiveNow } from "../../http/state-events.ts";

/** Engines as they were told last, with what a look back needs. */
export class LiveState {
  readonly view = signal<LiveView | null>(null);

  take(now: LiveNow): void {
    this.view.value = nextView(this.view.value, now);
  }
}
