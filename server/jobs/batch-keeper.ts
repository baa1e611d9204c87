import { ANSWERED, type BatchRecord, type FileRecord, type LineResult } from "./records.ts";
import type { JobStore } from "./store.ts";

/**
 * Record of a batch as in the store, and results that the next `write` stores. Writing methods throw
 * DiskFullError or StoreError and then change nothing.
 */
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

  /** Number of results that are not stored yet. */
  get pending(): number {
    return this.#pending.length;
  }

  /** Adds a result, which clients cannot see before it is stored. */
  add(result: LineResult): void {
    this.#pending.push(result);
  }

  /** Stores the pending results and updates the counters. */
  write(): void {
    if (this.#pending.length === 0) return;
    let { completed, failed, unrun = 0 } = this.#record;
    const usage = { ...this.#record.usage };
    for (const { state, usage: used, isUnrun } of this.#pending) {
      if (state === ANSWERED) completed += 1;
      else failed += 1;
      if (isUnrun === true) unrun += 1;
      usage.promptTokens += used.promptTokens;
      usage.cachedTokens += used.cachedTokens;
      usage.completionTokens += used.completionTokens;
    }
    const record = { ...this.#record, usage, completed, failed, unrun };
    this.#store.settle(record, this.#pending);
    this.#record = record;
    this.#pending = [];
  }

  /** Updates the batch record and stores its result files in the same commit. */
  update(changes: Partial<BatchRecord>, files: readonly FileRecord[] = []): void {
    const record = { ...this.#record, ...changes };
    this.#store.putBatch(record, files);
    this.#record = record;
  }
}
