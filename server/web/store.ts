/** State of the page: the conversation, the server, and the view on screen. */
import { signal } from "@preact/signals";
import type { RequestFacts } from "../explain/request-facts.ts";
import type { CachesNow } from "../http/state-events.ts";
import { Chat } from "./chat/chat.ts";
import { Listing } from "./listing.ts";
import { LiveState } from "./live/live-state.ts";
import { ServerLink } from "./server-link.ts";
import type { BatchFacts } from "./tasks/batch.ts";
import type { ProgramFacts } from "./tasks/program.ts";

export const views = ["chat", "live", "requests", "cache", "programs", "jobs"] as const;
export type View = (typeof views)[number];

/** View and what it shows, as in the address: "#requests/<id>". */
export interface Place {
  readonly view: View;
  readonly rest: string;
}

export const place = signal(readPlace());
addEventListener("hashchange", () => {
  place.value = readPlace();
});

export const chat = new Chat();
export const caches = signal<CachesNow>({ caches: [], isWithheld: false, keys: [] });
export const live = new LiveState();
export const lists = {
  requests: new Listing<RequestFacts>(),
  programs: new Listing<ProgramFacts>(),
  jobs: new Listing<BatchFacts>(),
};
export const server = new ServerLink((event) => {
  if (event.kind === "live") live.take(event);
  if (event.kind === "cache") caches.value = event;
  if (event.kind === "list") lists[event.view].take(event);
});

function readPlace(): Place {
  const [name, ...rest] = location.hash.slice(1).split("/");
  return { view: views.find((one) => one === name) ?? "chat", rest: decodeURIComponent(rest.join("/")) };
}
