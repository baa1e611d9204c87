import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { chat, server } from "../store.ts";

/** Field for the next message. */
export function Composer(): VNode {
  const field = useRef<HTMLTextAreaElement>(null);
  const { value: text } = chat.draft;
  const isBusy = chat.isBusy;
  const mayAsk = server.problem.value === null;
  const { id } = chat.conversation;

  // Touch screens are left out, where focus would open the keyboard.
  useEffect(() => {
    if (matchMedia("(pointer: fine)").matches) field.current?.focus();
  }, [isBusy, id]);
  // Fits the height to the text, up to the limit in the style sheet.
  useLayoutEffect(() => {
    const { style, scrollHeight } = field.current!;
    style.height = "auto";
    style.height = `${Math.max(scrollHeight, field.current!.scrollHeight) + 2}px`;
  }, [text]);

  const ask = () => {
    const question = text.trim();
    if (question === "" || isBusy || !mayAsk) return;
    chat.draft.value = "";
    void chat.ask(question);
  };
  return (
    <form
      id="composer"
      onSubmit={(event) => {
        event.preventDefault();
        ask();
      }}
    >
      <label for="question" class="unseen">
        Message
      </label>
      <textarea
        id="question"
        ref={field}
        rows={1}
        placeholder="Message"
        aria-describedby="keys"
        value={text}
        onInput={({ currentTarget }) => {
          chat.draft.value = currentTarget.value;
        }}
        onKeyDown={(event) => {
          if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
          event.preventDefault();
          ask();
        }}
      />
      {isBusy ? (
        <button id="stop" type="button" onClick={() => chat.stop()}>
          Stop
        </button>
      ) : (
        <button id="send" type="submit" disabled={!mayAsk}>
          Send
        </button>
      )}
    </form>
  );
}
