import { signal } from "@preact/signals";
import type { VNode } from "preact";
import { chat } from "../store.ts";
import { type Conversation, titleOf } from "./conversation.ts";

const search = signal("");
/** Outcome of the last import. */
const note = signal("");

/** Earlier conversations, to search, continue, delete, export and import. */
export function PastList({ onChosen }: { readonly onChosen: () => void }): VNode {
  const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  const all = chat.history.all.value.filter(({ turns }) => turns.length > 0);
  const found = all.filter((one) => words.every((word) => textOf(one).includes(word)));
  return (
    <aside id="past" aria-label="Conversations">
      <button
        id="new"
        type="button"
        onClick={() => {
          chat.clear();
          onChosen();
        }}
      >
        New conversation
      </button>
      <input
        id="search"
        type="search"
        placeholder="Search"
        aria-label="Search conversations"
        value={search.value}
        onInput={({ currentTarget }) => {
          search.value = currentTarget.value;
        }}
      />
      <ul>
        {found.map((one) => (
          <Entry key={one.id} conversation={one} onChosen={onChosen} />
        ))}
      </ul>
      {found.length === 0 && <p class="hint">{all.length === 0 ? "No conversations yet." : "None found."}</p>}
      <div class="row tools">
        <button type="button" class="quiet" disabled={all.length === 0} onClick={exportAll}>
          Export
        </button>
        <label class="quiet button">
          Import
          <input
            id="import"
            class="unseen"
            type="file"
            accept=".json,application/json"
            onChange={importFile}
          />
        </label>
        <button id="forget" type="button" class="quiet" disabled={all.length === 0} onClick={forget}>
          Forget all
        </button>
      </div>
      <p class="hint" role="status">
        {note.value || "Kept in this browser, the last 200."}
      </p>
    </aside>
  );
}

function Entry(given: { readonly conversation: Conversation; readonly onChosen: () => void }): VNode {
  const { conversation, onChosen } = given;
  const title = titleOf(conversation);
  const isShown = conversation.id === chat.conversation.id;
  const when = new Date(conversation.changedMs).toLocaleString([], {
    dateStyle: "short",
    timeStyle: "short",
  });
  return (
    <li>
      <button
        type="button"
        class="entry"
        aria-current={isShown ? "true" : undefined}
        onClick={() => {
          chat.open(conversation);
          onChosen();
        }}
      >
        <span class="title">{title}</span>
        <span class="hint">{when}</span>
      </button>
      <button
        type="button"
        class="delete"
        aria-label={`Delete “${title}”`}
        onClick={() => chat.remove(conversation.id)}
      >
        ×
      </button>
    </li>
  );
}

function textOf({ turns, settings }: Conversation): string {
  return [settings.system, ...turns.map(({ content }) => content)].join("\n").toLowerCase();
}

function forget(): void {
  chat.history.forget();
  chat.clear();
}

function exportAll(): void {
  const file = new Blob([JSON.stringify(chat.history.all.value, null, 1)], { type: "application/json" });
  const link = document.createElement("a");
  link.href = URL.createObjectURL(file);
  link.download = "bunting-conversations.json";
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href));
}

async function importFile({ currentTarget }: { readonly currentTarget: HTMLInputElement }): Promise<void> {
  const file = currentTarget.files?.[0];
  if (file === undefined) return;
  try {
    const added = chat.history.import(await file.text());
    note.value = `${added} conversation${added === 1 ? "" : "s"} imported.`;
  } catch (error) {
    note.value = (error as Error).message;
  }
  currentTarget.value = "";
}
