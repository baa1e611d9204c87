/** Events of `GET /state/stream`, as the page reads them. */
import type { ServerFacts } from "./state.ts";

/** Parts of the state that a client asks for. */
export const stateViews = ["facts"] as const;
export type StateView = (typeof stateViews)[number];

export type StateEvent =
  /** First, and after each change. */
  { readonly kind: "facts"; readonly facts: FactsNow };

export interface FactsNow extends Omit<ServerFacts, "timeMs"> {
  /** Sentence why the server accepts no work; null: it does. */
  readonly refusal: string | null;
}
