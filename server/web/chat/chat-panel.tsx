import { signal } from "@preact/signals";
import type { VNode } from "preact";
import { chat } from "../store.ts";
import { Composer } from "./composer.tsx";
import { titleOf } from "./conversation.ts";
import { Log } from "./log.tsx";
import { PastList } from "./past-list.tsx";
import { SettingsForm } from "./settings-form.tsx";

const isWide = matchMedia("(min-width: 60rem)");
const showsPast = signal(isWide.matches);
isWide.addEventListener("change", () => {
  showsPast.value = isWide.matches;
});

/** Closes the list of conversations where it covers the chat. */
function makeRoom(): void {
  showsPast.value = isWide.matches;
}

export function ChatPanel(): VNode {
  return (
    <main id="chat-panel">
      {showsPast.value && <PastList onChosen={makeRoom} />}
      <section id="chat" aria-label="Chat">
        <div class="bar">
          <button
            type="button"
            class="quiet"
            aria-expanded={showsPast.value}
            onClick={() => {
              showsPast.value = !showsPast.value;
            }}
          >
            Conversations
          </button>
          <p class="title">{chat.path.value.length > 0 ? titleOf(chat.conversation) : ""}</p>
        </div>
        <Log />
        <SettingsForm />
        <Composer />
        <p id="keys" class="hint">
          Enter sends, Shift+Enter begins a new line, Esc stops an answer.
        </p>
      </section>
    </main>
  );
}
