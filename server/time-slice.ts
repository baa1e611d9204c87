/** How long work goes on before the thread's other work has its turn. */
const SLICE_MS = 4;

/** Cuts long work on this thread into slices, so that chats go on while a job or a body is read. */
export class TimeSlice {
  #sinceMs = performance.now();

  /** Lets other work have its turn if the slice is used up. */
  async yieldIfSpent(): Promise<void> {
    if (performance.now() - this.#sinceMs < SLICE_MS) return;
    await new Promise((resolve) => setImmediate(resolve));
    this.#sinceMs = performance.now();
  }
}
