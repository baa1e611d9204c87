import { readFileSync } from "node:fs";

/** Descriptors reserved for everything but connections: engines, workers, and the files of jobs. */
const OTHERS = 64;
/** Share reserved for them in addition, which matters if the limit is high. */
const OTHERS_PART = 1 / 16;
const LEAST = 16;

/**
 * Connections that this process can hold. Without a free descriptor the server can neither accept nor refuse
 * the next one. The kernel then reports it again and again, and the event loop does nothing else.
 */
export function connectionsMax(limits = openFilesText()): number {
  const soft = /^Max open files +(\d+)/m.exec(limits)?.[1];
  if (soft === undefined) return Number.POSITIVE_INFINITY;
  return Math.max(LEAST, Math.floor(Number(soft) * (1 - OTHERS_PART)) - OTHERS);
}

/** Limits of this process, which Linux shows in a file. */
function openFilesText(): string {
  try {
    return readFileSync("/proc/self/limits", "utf8");
  } catch {
    return "";
  }
}
