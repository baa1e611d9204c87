/** Page with a chat, and views of the server at work. */
import { effect } from "@preact/signals";
import { render, type VNode } from "preact";
import { CachePanel } from "./cache/cache-panel.tsx";
import { ChatPanel } from "./chat/chat-panel.tsx";
import { KeyForm } from "./key-form.tsx";
import { LivePanel } from "./live/live-panel.tsx";
import { requestsQuery } from "./requests/query.ts";
import { RequestsPanel } from "./requests/requests-panel.tsx";
import { ServerStatus } from "./server-status.tsx";
import { chat, place, server, type View } from "./store.ts";
import { JobsPanel } from "./tasks/jobs-panel.tsx";
import { ProgramsPanel } from "./tasks/programs-panel.tsx";

interface Tab {
  readonly title: string;
  /** Parameters of the stream of the state. */
  readonly stream: () => string;
  readonly Panel: () => VNode;
}

const tabs: Record<View, Tab> = {
  chat: { title: "Chat", stream: () => "view=facts", Panel: ChatPanel },
  live: { title: "Live", stream: () => "view=live", Panel: LivePanel },
  requests: { title: "Requests", stream: () => `view=requests&${requestsQuery()}`, Panel: RequestsPanel },
  cache: { title: "Cache", stream: () => "view=cache", Panel: CachePanel },
  programs: { title: "Programs", stream: () => "view=programs", Panel: ProgramsPanel },
  jobs: { title: "Jobs", stream: () => "view=jobs&limit=50", Panel: JobsPanel },
};

function App(): VNode {
  const { view } = place.value;
  const { Panel } = tabs[view];
  return (
    <>
      <header>
        <h1>Bunting</h1>
        <nav aria-label="Views">
          {Object.entries(tabs).map(([name, { title }]) => (
            <a key={name} href={`#${name}`} aria-current={name === view ? "page" : undefined}>
              {title}
            </a>
          ))}
        </nav>
        <p id="model">{server.models.value[0] ?? ""}</p>
      </header>
      <ServerStatus />
      <KeyForm />
      <Panel />
    </>
  );
}

document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") chat.stop();
});
effect(() => server.show(tabs[place.value.view].stream()));
render(<App />, document.getElementById("app")!);
