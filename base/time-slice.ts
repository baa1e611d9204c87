/** How long such work goes on, all of it together, before the thread's other work has its turn. */
const SLICE_MS = 4;

let sinceMs = performance.now();
let nextTurn: Promise<void> | null = null;

/** Does work that has many steps in slices, between which others on this thread have their turn. */
export async function inSlices<Result>(work: Generator<void, Result>): Promise<Result> {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
    await yieldIfSpent();
  }
}

/** Does all its steps now. */
export function atOnce<Result>(work: Generator<void, Result>): Result {
  for (;;) {
    const { done, value } = work.next();
    if (done === true) return value;
  }
}

/**
 * Cuts long work on this thread into slices, so that chats go on while jobs and bodies are read. Lets other work have its turn if
 * the slice is used up: eight bodies that are read at a time share one.
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
