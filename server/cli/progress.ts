/** Progress for people: one line that is redrawn on a terminal, a line from time to time elsewhere. */

import { formatBytes } from "../../gpu/memory.ts";
import type { LoadStage } from "../../gpu/native/open.ts";
import type { LoadProgress } from "../engines/protocol.ts";

export interface ProgressLine {
  /** Draws the line; `share` is 0 … 1. */
  show(text: string, share: number): void;
  clear(): void;
}

const BAR_WIDTH = 24;
const REDRAW_MS = 50;
const FIRST_LINE_MS = 1000;
const LINE_MS = 5000;

export function progressLine(
  stream: { readonly isTTY: boolean; write(text: string): boolean } = process.stderr,
  nowMs: () => number = performance.now.bind(performance),
): ProgressLine {
  let shownMs = nowMs();
  const isDue = (everyMs: number): boolean => {
    const now = nowMs();
    if (now - shownMs < everyMs) return false;
    shownMs = now;
    return true;
  };
  if (!stream.isTTY) {
    let waitMs = FIRST_LINE_MS;
    return {
      show: (text) => {
        if (!isDue(waitMs)) return;
        waitMs = LINE_MS;
        stream.write(`${text}\n`);
      },
      clear: () => {},
    };
  }
  return {
    show(text, share) {
      if (!isDue(REDRAW_MS)) return;
      const full = Math.round(Math.min(1, Math.max(0, share)) * BAR_WIDTH);
      stream.write(`\r\x1b[K${"█".repeat(full)}${"░".repeat(BAR_WIDTH - full)} ${text}`);
    },
    clear() {
      stream.write("\r\x1b[K");
    },
  };
}

const stageTexts: Readonly<Record<LoadStage, string>> = {
  reading: "reading packed weights:",
  loading: "loading",
  keeping: "keeping packed weights:",
  copying: "copying to the GPU:",
};

/** Shows the progress of loading a model. */
export function showLoading(line: ProgressLine): (progress: LoadProgress) => void {
  return ({ stage, bytesDone, bytesTotal }) =>
    line.show(
      `${stageTexts[stage]} ${formatBytes(bytesDone)} of ${formatBytes(bytesTotal)}`,
      bytesDone / bytesTotal,
    );
}
