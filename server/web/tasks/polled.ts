import { type Signal, signal } from "@preact/signals";
import { useEffect, useMemo } from "preact/hooks";
import { call, messageOf } from "../api.ts";

const RENEWED_MS = 2000;

/** Answer of a route, and the sentence in place of it. */
export interface Polled<Answer> {
  readonly answer: Signal<Answer | null>;
  readonly problem: Signal<string | null>;
}

/** Reads a route of which the state's stream tells nothing, while its view is on screen. */
export function usePolled<Answer>(path: string): Polled<Answer> {
  const polled = useMemo(
    (): Polled<Answer> => ({ answer: signal<Answer | null>(null), problem: signal<string | null>(null) }),
    [],
  );
  useEffect(() => {
    const read = async (): Promise<void> => {
      if (document.visibilityState !== "visible") return;
      try {
        polled.answer.value = (await (await call(path)).json()) as Answer;
        polled.problem.value = null;
      } catch (error) {
        polled.problem.value = messageOf(error);
      }
    };
    void read();
    const timer = setInterval(read, RENEWED_MS);
    return () => clearInterval(timer);
  }, [path]);
  return polled;
}
