import { signal } from "@preact/signals";
import type { ListChange, ListEntry } from "../http/state-events.ts";

/** List that the state stream updates. */
export class Listing<Entry extends ListEntry> {
  /** Entries in order; null: not received yet. */
  readonly entries = signal<readonly Entry[] | null>(null);
  /** Sentence in place of the list; null if there is a list. */
  readonly problem = signal<string | null>(null);
  #byId = new Map<string, Entry>();

  take({ ids, entries, problem }: ListChange): void {
    const known = new Map([...this.#byId, ...entries.map((entry) => [entry.id, entry as Entry] as const)]);
    const listed = ids.map((id) => known.get(id)).filter((entry) => entry !== undefined);
    this.#byId = new Map(listed.map((entry) => [entry.id, entry]));
    this.entries.value = listed;
    this.problem.value = problem;
  }
}
