/** How long work goes on before others on this thread get their turn. */
const TURN_MS = 4;

/** Lets others on this thread have their turn when it is time: chats go on while a job or a body is read. */
export class Breath {
  #sinceMs = performance.now();

  async take(): Promise<void> {
    if (performance.now() - this.#sinceMs < TURN_MS) return;
    await new Promise((resolve) => setImmediate(resolve));
    this.#sinceMs = performance.now();
  }
}
