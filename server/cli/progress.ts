/** One line of progress that is drawn over, on a terminal; nothing elsewhere, where each caller says what it needs. */

export interface ProgressLine {
  /** `share` is 0 … 1. */
  show(text: string, share: number): void;
  clear(): void;
}

const BAR_WIDTH = 24;
const REDRAW_MS = 50;

export function progressLine(stream: NodeJS.WriteStream = process.stderr): ProgressLine {
  if (!stream.isTTY) return { show: () => {}, clear: () => {} };
  let drawnMs = 0;
  return {
    show(text, share) {
      const nowMs = performance.now();
      if (nowMs - drawnMs < REDRAW_MS && share < 1) return;
      drawnMs = nowMs;
      const full = Math.round(Math.min(1, Math.max(0, share)) * BAR_WIDTH);
      stream.write(`\r\x1b[K${"█".repeat(full)}${"░".repeat(BAR_WIDTH - full)} ${text}`);
    },
    clear() {
      stream.write("\r\x1b[K");
    },
  };
}
