/** Progress of a download for people: a bar with rate and time left, elsewhere a line for each tenth. */

import { formatBytes } from "../../gpu/memory.ts";
import type { PullEvents, PullProgress, PullSize } from "../hub/pull.ts";
import { progressLine } from "./progress.ts";

/** Time over which the rate is averaged. */
const RATE_MS = 5000;

interface Output {
  readonly isTTY: boolean;
  write(text: string): boolean;
}

/** Events that write to a terminal or a log. `onEnd` clears the bar. */
export function pullOutput(
  stream: Output = process.stderr,
  nowMs: () => number = performance.now.bind(performance),
): PullEvents & { onEnd(): void } {
  const line = progressLine(stream, nowMs);
  const samples: { readonly atMs: number; readonly bytes: number }[] = [];
  let shownTenths = 0;
  const onProgress = (progress: PullProgress): void => {
    const { doneBytes, totalBytes, receivedBytes } = progress;
    const atMs = nowMs();
    samples.push({ atMs, bytes: receivedBytes });
    while (samples.length > 2 && atMs - samples[0]!.atMs > RATE_MS) samples.shift();
    const tenths = Math.floor((10 * doneBytes) / totalBytes);
    if (!stream.isTTY && tenths === shownTenths) return;
    const { atMs: sinceMs, bytes: sinceBytes } = samples[0]!;
    const bytesPerSecond = ((receivedBytes - sinceBytes) / Math.max(1, atMs - sinceMs)) * 1000;
    const text = describe(progress, bytesPerSecond);
    if (stream.isTTY) line.show(text, doneBytes / totalBytes);
    else {
      shownTenths = tenths;
      stream.write(`${10 * tenths} %: ${text}\n`);
    }
  };
  return {
    onSize: (size) => void stream.write(`${describeSize(size)}\n`),
    onProgress,
    onEnd: () => line.clear(),
  };
}

function describe({ doneBytes, totalBytes }: PullProgress, bytesPerSecond: number): string {
  const done = `${formatBytes(doneBytes)} of ${formatBytes(totalBytes)}`;
  if (bytesPerSecond <= 0 || doneBytes >= totalBytes) return done;
  const left = duration((totalBytes - doneBytes) / bytesPerSecond);
  return `${done}, ${formatBytes(bytesPerSecond)}/s, ${left} left`;
}

/** Time for people: "8 s", "3 min 20 s", "2 h 5 min". */
function duration(seconds: number): string {
  const whole = Math.ceil(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
}

function describeSize({ model, commit, bytes, missingBytes, cache }: PullSize): string {
  const { name, variant } = model;
  const named = `${name}${variant === null ? "" : `:${variant}`} at ${commit.slice(0, 8)}`;
  if (missingBytes === 0) return `${named}: ${formatBytes(bytes)}, all of it in ${cache}.`;
  const fetched = missingBytes === bytes ? "" : `, of which ${formatBytes(missingBytes)} are missing`;
  return `${named}: ${formatBytes(bytes)}${fetched}, to be fetched to ${cache}.`;
}
