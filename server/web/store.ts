/** State of the page: the conversation, the server, and the view on screen. */
import { signal } from "@preact/signals";
import { Chat } from "./chat/chat.ts";
import { ServerLink } from "./server-link.ts";

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
export const server = new ServerLink();

function readPlace(): Place {
  const [name, ...rest] = location.hash.slice(1).split("/");
  return { view: views.find((one) => one === name) ?? "chat", rest: decodeURIComponent(rest.join("/")) };
}
