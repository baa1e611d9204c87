import { brokenOff, ConnectionLost, resumeChat, ServerError, type StreamEvent } from "../../cli/client.ts";
import { call, target } from "../api.ts";

/** Pauses in ms before the attempts to resume after a lost connection. */
const WAITS_MS = [100, 400, 1000, 2000, 3000];

/**
 * Streams a response over as many connections as necessary, from its beginning or resumed from an earlier
 * one.
 */
export async function* streamNamed(
  name: string,
  signal: AbortSignal,
  begin: AsyncGenerator<StreamEvent> = resumeChat(target(), name, null, signal),
): AsyncGenerator<StreamEvent> {
  let events = begin;
  let after: number | null = null;
  let tries = 0;
  let lost: ConnectionLost | null = null;
  for (;;) {
    try {
      for await (const event of events) {
        if (event.kind === "number") after = event.number;
        tries = 0;
        lost = null;
        yield event;
      }
      return;
    } catch (error) {
      if (signal.aborted) throw error;
      const isGone = error instanceof ServerError && (error.status === 404 || error.status === 410);
      if (isGone) throw lost ?? brokenOff();
      if (!(error instanceof ConnectionLost)) throw error;
      lost ??= error;
      if (tries === WAITS_MS.length) throw lost;
    }
    yield { kind: "wait", text: "The connection was lost; trying again" };
    await waitFor(WAITS_MS[tries++]!, signal);
    events = resumeChat(target(), name, after, signal);
  }
}

/**
 * Ends a response on the server, even without a connection. An unreachable server ends it later by itself.
 */
export function endNamed(name: string): void {
  call(`v1/stream?conv_id=${encodeURIComponent(name)}`, { method: "DELETE" }).catch(() => {});
}

/** Resolves after the time, or when the signal is aborted. */
function waitFor(ms: number, signal: AbortSignal): Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  setTimeout(resolve, ms);
  signal.addEventListener("abort", () => resolve(), { once: true });
  return promise;
}
