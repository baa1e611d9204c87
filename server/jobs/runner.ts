import type { FeedRoom } from "../../scheduler/job/feed.ts";
import { Job } from "./job.ts";
import type { JobParts } from "./job-parts.ts";
import { type BatchRecord, isEnded } from "./records.ts";
import { DiskFullError, StoreError } from "./store-error.ts";

/** How often results are looked at whose time is over. */
const EXPIRY_EVERY_MS = 3_600_000;

/** What runs jobs: every unfinished batch of the store, side by side, from the start of the server to its end. */
export class JobRunner {
  readonly #parts: JobParts;
  /** What all engines hold. */
  readonly #engines: () => FeedRoom;
  readonly #jobs = new Map<string, { readonly job: Job; readonly done: Promise<void> }>();
  readonly #expiry: ReturnType<typeof setInterval>;
  #isStopping = false;

  constructor(parts: JobParts, engines: () => FeedRoom) {
    this.#parts = parts;
    this.#engines = engines;
    this.#deleteExpired();
    this.#expiry = setInterval(() => this.#deleteExpired(), EXPIRY_EVERY_MS);
    this.#expiry.unref();
    for (const batch of parts.store.allBatches()) if (!isEnded(batch)) this.begin(batch);
  }

  /** Jobs that go on. */
  get active(): number {
    return this.#jobs.size;
  }

  begin(batch: BatchRecord): void {
    const isWaiting = this.waitingFor(batch) !== null && this.#parts.nowSeconds() < batch.expiresAt;
    if (this.#isStopping || isWaiting) return;
    const job = new Job(this.#parts, batch, this.#roomFor(batch));
    const done = (async () => {
      await Promise.resolve();
      await job.run();
      this.#jobs.delete(batch.id);
      this.#shareOut();
    })();
    this.#jobs.set(batch.id, { job, done });
    this.#shareOut();
  }

  /** A batch as it is now, in memory or in the store. */
  current(batch: BatchRecord): BatchRecord {
    return this.#jobs.get(batch.id)?.job.record ?? batch;
  }

  /** Why a batch does not go on, for people; null: it does, or has ended. */
  pausedBy(batch: BatchRecord): string | null {
    return this.#jobs.get(batch.id)?.job.pausedBy ?? (isEnded(batch) ? null : this.waitingFor(batch));
  }

  /** The model that a batch waits for. */
  waitingFor({ model }: BatchRecord): string | null {
    const { models } = this.#parts;
    if (model === null || models === null || models.includes(model)) return null;
    return `its model ${model} is not served now`;
  }

  /** Lines that are on the engines. */
  get linesRunning(): number {
    let lines = 0;
    for (const { job } of this.#jobs.values()) lines += job.running;
    return lines;
  }

  cancel(batch: BatchRecord): BatchRecord {
    const running = this.#jobs.get(batch.id);
    if (running !== undefined) return running.job.cancel();
    if (isEnded(batch)) return batch;
    const job = new Job(this.#parts, batch, this.#roomFor(batch));
    const record = job.cancel();
    this.#jobs.set(batch.id, { job, done: job.run().then(() => void this.#jobs.delete(batch.id)) });
    return record;
  }

  /** Resolves when `batch` has ended, or the server stops. */
  async ended(batch: string): Promise<void> {
    await this.#jobs.get(batch)?.done;
  }

  /** Nothing runs any more when it resolves; what is left is taken up at the next start. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    clearInterval(this.#expiry);
    for (const { job } of this.#jobs.values()) job.stop();
    await Promise.all([...this.#jobs.values()].map(({ done }) => done));
  }

  /** What cannot be deleted now is deleted later: a disk that is full, or damaged in one place, keeps no server from its work. */
  #deleteExpired(): void {
    try {
      this.#parts.store.deleteExpired(this.#parts.nowSeconds());
    } catch (error) {
      if (!(error instanceof DiskFullError || error instanceof StoreError)) throw error;
      console.error("files of jobs whose time is over are not deleted yet:", error.message);
    }
  }

  #shareOut(): void {
    for (const { job } of this.#jobs.values()) job.setRoom(this.#roomFor(job.record));
  }

  /**
   * Jobs have equal parts of the engines' memory, and what each computes, the engines' queues decide, by tokens: so as many lines of each may wait as
   * there are places for. Those of the same key that come after a job take no part of its own: else they had what its lines do not fill.
   */
  #roomFor({ id, owner, priority }: BatchRecord): FeedRoom {
    let parts = 1;
    for (const { job } of this.#jobs.values()) {
      const { record } = job;
      const comesAfter = record.owner === owner && record.priority > priority;
      if (record.id !== id && !comesAfter) parts += 1;
    }
    const room = this.#engines();
    return { ...room, tokens: room.tokens / parts };
  }
}
