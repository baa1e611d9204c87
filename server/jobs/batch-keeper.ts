import { ANSWERED, type BatchRecord, type FileRecord, type LineResult } from "./records.ts";
import type { JobStore } from "./store.ts";

/** What is known of a batch, as the store has it, and results that are written with the next `write`. What writes throws DiskFullError or StoreError,
 *  and has then changed nothing. */
export class BatchKeeper {
  readonly #store: JobStore;
  #record: BatchRecord;
  #pending: LineResult[] = [];

  constructor(store: JobStore, record: BatchRecord) {
    this.#store = store;
    this.#record = record;
  }

  get record(): BatchRecord {
    return this.#record;
  }

  /** Results that are not written yet. */
  get pending(): number {
    return this.#pending.length;
  }

  /** Takes a result, of which nobody is told before it is written. */
  add(result: LineResult): void {
    this.#pending.push(result);
  }

  /** Writes what is pending, and counts it. */
  write(): void {
    if (this.#pending.length === 0) return;
    let { completed, failed } = this.#record;
    const usage = { ...this.#record.usage };
    for (const { state, usage: used } of this.#pending) {
      if (state === ANSWERED) completed += 1;
      else failed += 1;
      usage.promptTokens += used.promptTokens;
      usage.cachedTokens += used.cachedTokens;
      usage.completionTokens += used.completionTokens;
    }
    const record = { ...this.#record, usage, completed, failed };
    this.#store.settle(record, this.#pending);
    this.#record = record;
    this.#pending = [];
  }

  /** Changes what is known of the batch; with it, the files that come of it. */
  update(changes: Partial<BatchRecord>, files: readonly FileRecord[] = []): void {
    const record = { ...this.#record, ...changes };
    this.#store.putBatch(record, files);
    this.#record = record;
  }
}
