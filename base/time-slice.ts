import { setPriority } from "node:os";

/** Time that all sliced work together may take before the event loop runs other work. */
const SLICE_MS = 4;

let sinceMs = performance.now();
let nextTurn: Promise<void> | null = null;

/** Runs a long generator in slices; the event loop runs other work in between. */
export async function inSlices<Result>(work: Generator<void, Result>): Promise<Result> {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
    await yieldIfSpent();
  }
}

/** Runs all steps at once. */
export function atOnce<Result>(work: Generator<void, Result>): Result {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}

/**
 * Splits long work on this thread into slices, so that streaming continues during jobs and large bodies.
 * Waits for the event loop if the slice is used up; all concurrent sliced work shares one slice.
 */
export function yieldIfSpent(): Promise<void> | undefined {
  if (nextTurn === null && performance.now() - sinceMs >= SLICE_MS) {
    nextTurn = new Promise((resolve) => {
      setImmediate(() => {
        nextTurn = null;
        sinceMs = performance.now();
        resolve();
      });
    });
  }
  return nextTurn ?? undefined;
}

/**
 * Lowers the calling thread's priority. "serving" puts it behind the threads that stream answers,
 * "background" behind all others. Linux has priorities per thread, other systems only per process.
 */
export function lowerPriority(work: "serving" | "background"): void {
  if (process.platform === "linux") setPriority(0, work === "serving" ? 5 : 10);
}
