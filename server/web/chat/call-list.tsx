import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { chat } from "../store.ts";
import type { ToolCall } from "./conversation.ts";

/** Tool calls of a response. The user enters the results that are missing. */
export function CallList({
  calls,
  isOpen,
}: {
  readonly calls: readonly ToolCall[];
  readonly isOpen: boolean;
}): VNode {
  const [results, setResults] = useState<ReadonlyMap<string, string>>(new Map());
  const waiting = new Set(isOpen ? chat.openCalls.value.map(({ id }) => id) : []);
  const asked = calls.filter(({ id }) => waiting.has(id));
  const submit = (event: Event) => {
    event.preventDefault();
    if (!chat.isBusy) void chat.giveResults(new Map(asked.map(({ id }) => [id, results.get(id) ?? ""])));
  };
  return (
    <form class="calls" onSubmit={submit}>
      {calls.map((call) => (
        <div key={call.id} class="call">
          <p>
            Calls <code>{call.name}</code>
          </p>
          <pre>{indented(call.arguments)}</pre>
          {waiting.has(call.id) && (
            <label>
              Result
              <textarea
                rows={2}
                placeholder="What the tool returns"
                value={results.get(call.id) ?? ""}
                onInput={({ currentTarget }) =>
                  setResults(new Map(results).set(call.id, currentTarget.value))
                }
              />
            </label>
          )}
        </div>
      ))}
      {asked.length > 0 && (
        <button type="submit" disabled={chat.isBusy}>
          {asked.length === 1 ? "Give this result" : "Give these results"}
        </button>
      )}
    </form>
  );
}

/** Truncated arguments are not JSON, and stay as they are. */
function indented(json: string): string {
  try {
    return JSON.stringify(JSON.parse(json), null, 2);
  } catch {
    return json;
  }
}
