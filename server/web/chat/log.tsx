import type { VNode } from "preact";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import { chat } from "../store.ts";
import { FirstRun } from "./first-run.tsx";
import { TurnView } from "./turn-view.tsx";

/** Distance from the end, in pixels, within which the view follows new text. */
const NEAR_END_PX = 8;

/** Turns on screen. Follows arriving text while the user is at its end. */
export function Log(): VNode {
  const root = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const lastTop = useRef(0);
  const path = chat.path.value;
  const answer = chat.answering.value;
  const coming = answer?.turn.value ?? null;
  const { id } = chat.conversation;

  useLayoutEffect(() => {
    follows.current = true;
  }, [id, path.length]);
  useLayoutEffect(() => {
    if (follows.current) root.current!.scrollTop = root.current!.scrollHeight;
  });
  useEffect(() => {
    const log = root.current!;
    const resized = new ResizeObserver(() => {
      if (follows.current) log.scrollTop = log.scrollHeight;
    });
    resized.observe(log);
    return () => resized.disconnect();
  }, []);
  // Only the user scrolls up: arriving text just moves the end away.
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = root.current!;
    if (scrollTop < lastTop.current) follows.current = false;
    if (scrollHeight - scrollTop - clientHeight < NEAR_END_PX) follows.current = true;
    lastTop.current = scrollTop;
  };
  return (
    <div
      id="log"
      ref={root}
      role="log"
      aria-label="Conversation"
      aria-busy={answer !== null}
      // biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, and so must be reachable by keyboard
      tabIndex={0}
      onScroll={onScroll}
    >
      {path.length === 0 && coming === null && <FirstRun />}
      {path.map((turn) => (
        <TurnView key={turn.id} turn={turn} />
      ))}
      {coming !== null && (
        <TurnView key={coming.id} turn={coming} isPending wait={answer?.wait.value ?? null} />
      )}
      {chat.alert.value !== null && (
        <p class="error" role="alert">
          {chat.alert.value}
        </p>
      )}
    </div>
  );
}
