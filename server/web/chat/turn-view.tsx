import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { chat } from "../store.ts";
import { CallList } from "./call-list.tsx";
import { CopyButton } from "./code-block.tsx";
import { siblings, type Turn } from "./conversation.ts";
import { Figures } from "./figures.tsx";
import { Markdown } from "./markdown.tsx";

const speakers = { user: "You", assistant: "Answer", tool: "Result" } as const;

/**
 * Turn of a conversation with its actions. `isPending`: its response is being streamed. `wait`: sentence
 * while the request is queued.
 */
export function TurnView({
  turn,
  isPending = false,
  wait = null,
}: {
  readonly turn: Turn;
  readonly isPending?: boolean;
  readonly wait?: string | null;
}): VNode {
  const [isEdited, setEdited] = useState(false);
  const { role, content, error } = turn;
  const isEmpty = content === "" && turn.calls === undefined && turn.thoughts === undefined;
  const kind = error === undefined ? role : `${role} cut`;
  return (
    <article class={isPending && isEmpty ? `${kind} pending` : kind}>
      <h2 class="unseen">{speakers[role]}</h2>
      {role === "assistant" ? <Answer turn={turn} isPending={isPending} /> : null}
      {wait !== null && <p class="hint wait">{wait}</p>}
      {role === "tool" ? <pre class="result">{content}</pre> : null}
      {role === "user" && !isEdited ? <div class="text body">{content}</div> : null}
      {isEdited ? <Editor turn={turn} onEnd={() => setEdited(false)} /> : null}
      {isPending || isEdited ? null : <Actions turn={turn} onEdit={() => setEdited(true)} />}
    </article>
  );
}

function Answer({ turn, isPending }: { readonly turn: Turn; readonly isPending: boolean }): VNode {
  const { content, thoughts, thoughtMs, calls, error, figures, requestId } = turn;
  return (
    <>
      {thoughts !== undefined && <Thoughts text={thoughts} ms={isPending ? thoughtMs : (thoughtMs ?? 0)} />}
      <Markdown text={content} />
      {calls !== undefined && <CallList calls={calls} isOpen={!isPending} />}
      {error !== undefined && (
        <p class="cut-note">Cut by an error, and left out of what the model reads next: {error}</p>
      )}
      {figures !== undefined && <Figures figures={figures} requestId={requestId} />}
    </>
  );
}

/** Reasoning, open while it streams and folded once the response begins. `ms`: absent while it streams. */
function Thoughts({ text, ms }: { readonly text: string; readonly ms: number | undefined }): VNode {
  return (
    <details class="thoughts" key={ms === undefined ? "coming" : "there"} open={ms === undefined}>
      <summary>{ms === undefined ? "Thinking …" : `Thought for ${(ms / 1000).toFixed(1)} s`}</summary>
      <div class="text">{text}</div>
    </details>
  );
}

function Editor({ turn, onEnd }: { readonly turn: Turn; readonly onEnd: () => void }): VNode {
  const [text, setText] = useState(turn.content);
  const submit = (event: Event) => {
    event.preventDefault();
    if (text.trim() === "" || chat.isBusy) return;
    onEnd();
    void chat.edit(turn, text.trim());
  };
  return (
    <form class="editor" onSubmit={submit}>
      <textarea
        aria-label="Changed message"
        rows={Math.min(12, text.split("\n").length + 1)}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
      />
      <div class="row">
        <button type="submit">Ask this instead</button>
        <button type="button" class="quiet" onClick={onEnd}>
          Leave as it was
        </button>
      </div>
    </form>
  );
}

function Actions({ turn, onEdit }: { readonly turn: Turn; readonly onEdit: () => void }): VNode {
  const isBusy = chat.isBusy;
  const others = siblings(chat.conversation.turns, turn);
  const at = others.findIndex(({ id }) => id === turn.id);
  const go = (to: number) => () => chat.showBranch(others[to]!);
  return (
    <div class="actions">
      {others.length > 1 && (
        <span class="branches">
          <button
            type="button"
            disabled={isBusy || at === 0}
            onClick={go(at - 1)}
            aria-label="Previous version"
          >
            ‹
          </button>
          {at + 1} of {others.length}
          <button
            type="button"
            disabled={isBusy || at + 1 === others.length}
            onClick={go(at + 1)}
            aria-label="Next version"
          >
            ›
          </button>
        </span>
      )}
      {turn.role === "assistant" && (
        <button type="button" disabled={isBusy} onClick={() => void chat.regenerate(turn)}>
          Regenerate
        </button>
      )}
      {turn.role === "user" && (
        <button type="button" disabled={isBusy} onClick={onEdit}>
          Edit
        </button>
      )}
      {navigator.clipboard !== undefined && turn.content !== "" && <CopyButton text={turn.content} />}
      <button type="button" disabled={isBusy} onClick={() => chat.removeTurn(turn)}>
        Delete
      </button>
    </div>
  );
}
