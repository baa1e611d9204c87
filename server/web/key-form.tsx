import type { VNode } from "preact";
import { useState } from "preact/hooks";
import { keyProblem, useKey } from "./api.ts";
import { server } from "./store.ts";

/** Form that asks for an API key once the server demands one. */
export function KeyForm(): VNode | null {
  const [key, setKey] = useState("");
  if (keyProblem.value === null) return null;
  const submit = (event: Event) => {
    event.preventDefault();
    useKey(key.trim());
    setKey("");
    server.connect();
  };
  return (
    <form id="key" class="card" onSubmit={submit}>
      <p id="key-reason" role="alert">
        {keyProblem.value}
      </p>
      <label for="key-value">API key</label>
      <div class="row">
        <input
          id="key-value"
          ref={focus}
          type="password"
          autocomplete="off"
          spellcheck={false}
          required
          value={key}
          onInput={({ currentTarget }) => setKey(currentTarget.value)}
        />
        <button type="submit">Use this key</button>
      </div>
      <p class="hint">Kept in this tab until it is closed.</p>
    </form>
  );
}

function focus(field: HTMLInputElement | null): void {
  field?.focus();
}
