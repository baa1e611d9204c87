/** What a command is told from outside the process. */

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

/** A command that may be told to end before its work is done. */
export interface Interruption {
  /** Aborts with the first SIGINT or SIGTERM; a second one ends the process at once. */
  readonly signal: AbortSignal;
  /** Resolves then. */
  readonly aborted: Promise<null>;
  /** What the command ends with then: 130 after SIGINT, 143 after SIGTERM. */
  readonly exitCode: number;
}

/** Listens from now on, for as long as the process lives. */
export function interruption(): Interruption {
  const controller = new AbortController();
  const aborted = Promise.withResolvers<null>();
  let exitCode = 0;
  onEndSignals((code, isAgain) => {
    if (isAgain) process.exit(code);
    exitCode = code;
    controller.abort(new Error("interrupted"));
    aborted.resolve(null);
  });
  return {
    signal: controller.signal,
    aborted: aborted.promise,
    get exitCode() {
      return exitCode;
    },
  };
}

/**
 * SIGINT and SIGTERM ask to end, SIGHUP to read files again. A terminal that is closed sends SIGHUP as well, and then ends its
 * server. npx ends without passing signals on to what it runs, so the end of npx is taken as one.
 */
export function handleSignals({ onEnd, onReload }: SignalHandlers): void {
  const end = onEndSignals(onEnd);
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

/** Passes on SIGINT and SIGTERM, and what the returned function is called for, with the exit code of each. */
function onEndSignals(onEnd: SignalHandlers["onEnd"]): (exitCode: number) => void {
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
  return end;
}
