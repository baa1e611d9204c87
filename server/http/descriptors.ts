import { readFileSync } from "node:fs";

/** Descriptors that are left to all but connections: engines, workers, and the files of jobs. */
const OTHERS = 64;
/** Of many, so large a part is left to them. */
const OTHERS_PART = 1 / 16;
const LEAST = 16;

/**
 * Connections that this process can hold. Without a descriptor for the next one it can be neither taken nor refused: the kernel tells of it
 * again and again, and the loop that hears it stands for nothing else.
 */
export function connectionsMax(limits = openFilesText()): number {
  const soft = /^Max open files +(\d+)/m.exec(limits)?.[1];
  if (soft === undefined) return Number.POSITIVE_INFINITY;
  return Math.max(LEAST, Math.floor(Number(soft) * (1 - OTHERS_PART)) - OTHERS);
}

/** Linux tells it in a file. */
function openFilesText(): string {
  try {
    return readFileSync("/proc/self/limits", "utf8");
  } catch {
    return "";
  }
}
