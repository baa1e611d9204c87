/** Handling of signals and of a vanished parent process. */

import { isatty } from "node:tty";

/**
 * Two signals within this time count as one: a terminal sends Ctrl-C to every process of a group, and npm
 * forwards it as well.
 */
const SAME_SIGNAL_MS = 100;
/** Interval at which a server started by npx checks that npx is still running. */
const PARENT_CHECK_MS = 1000;
/** Read at once, because npx may have ended by the time the model is loaded. */
const parent = process.ppid;

export interface SignalHandlers {
  /** Called on a request to end; `isAgain` is true for a repeated one. */
  onEnd(exitCode: number, isAgain: boolean): void;
  /** Called on a request to reload the settings files. */
  onReload(): void;
}

/** Interruption of a command that can end before its work is done. */
export interface Interruption {
  /** Aborts on the first SIGINT or SIGTERM; a second one ends the process at once. */
  readonly signal: AbortSignal;
  /** Resolves on the first signal. */
  readonly aborted: Promise<null>;
  /** Exit code after an interruption: 130 after SIGINT, 143 after SIGTERM. */
  readonly exitCode: number;
}

/** Starts listening for signals, for the life of the process. */
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
 * SIGINT and SIGTERM end the process; SIGHUP reloads files. A closed terminal also sends SIGHUP, which then
 * ends the server. npx ends without forwarding signals, so the end of npx counts as one.
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

/** Calls `onEnd` on SIGINT, SIGTERM, and calls of the returned function, with their exit codes. */
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
