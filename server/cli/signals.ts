/** What a server is told from outside the process. */

import { isatty } from "node:tty";

/** Two signals closer together than this are one: a terminal sends Ctrl-C to every process of a group, and npm passes
 *  on what it gets. */
const SAME_SIGNAL_MS = 100;
/** How often a server that npx has started looks whether npx is still there. */
const PARENT_CHECK_MS = 1000;
/** Read at once: npx may be gone by the time that the model is loaded. */
const parent = process.ppid;

export interface SignalHandlers {
  /** Asked to end: `isAgain` when it was asked before. */
  onEnd(exitCode: number, isAgain: boolean): void;
  /** Asked to read its files of settings again. */
  onReload(): void;
}

/**
 * SIGINT and SIGTERM ask to end, SIGHUP to read files again. A terminal that is closed sends SIGHUP as well, and then ends its
 * server. npx ends without passing signals on to what it runs, so the end of npx is taken as one.
 */
export function handleSignals({ onEnd, onReload }: SignalHandlers): void {
  let firstMs: number | null = null;
  const end = (exitCode: number): void => {
    const nowMs = performance.now();
    if (firstMs === null) {
      firstMs = nowMs;
      onEnd(exitCode, false);
    } else if (nowMs - firstMs > SAME_SIGNAL_MS) onEnd(exitCode, true);
  };
  process.on("SIGINT", () => end(130));
  process.on("SIGTERM", () => end(143));
  const hadTerminal = isatty(1);
  process.on("SIGHUP", () => {
    if (hadTerminal && !isatty(1)) end(129);
    else onReload();
  });
  if (process.env.npm_command !== "exec") return;
  const timer = setInterval(() => {
    if (process.ppid === parent) return;
    clearInterval(timer);
    end(143);
  }, PARENT_CHECK_MS);
  timer.unref();
}
