import type { BatchRoom } from "../../scheduler/batch/batch-admission.ts";
import type { InputLimits } from "./input.ts";
import { Job } from "./job.ts";
import type { JobParts } from "./job-parts.ts";
import { type BatchRecord, isEnded } from "./records.ts";
import { DiskFullError, StoreError } from "./store-error.ts";

/** Interval at which expired results are deleted. */
const EXPIRY_EVERY_MS = 3_600_000;

/** Runs every unfinished batch of the store concurrently, from the start of the server to its end. */
export class JobRunner {
  readonly #parts: JobParts;
  /** Total capacity of all engines. */
  readonly #engines: () => BatchRoom;
  readonly #jobs = new Map<string, { readonly job: Job; readonly done: Promise<void> }>();
  readonly #expiry: ReturnType<typeof setInterval>;
  #isStopping = false;

  constructor(parts: JobParts, engines: () => BatchRoom) {
    this.#parts = parts;
    this.#engines = engines;
    this.#deleteExpired();
    this.#expiry = setInterval(() => this.#deleteExpired(), EXPIRY_EVERY_MS);
    this.#expiry.unref();
    for (const batch of parts.store.allBatches()) if (!isEnded(batch)) this.begin(batch);
  }

  /** Model names of this server; null to accept any. */
  get models(): readonly string[] | null {
    return this.#parts.models;
  }

  /** Limits of a batch's input. */
  get limits(): InputLimits {
    return this.#parts.limits;
  }

  /** Number of running jobs. */
  get active(): number {
    return this.#jobs.size;
  }

  /** Number of running jobs of one key. */
  activeOf(owner: string): number {
    return [...this.#jobs.values()].filter(({ job }) => job.record.owner === owner).length;
  }

  begin(batch: BatchRecord): void {
    const isWaiting = this.waitingFor(batch) !== null && this.#parts.nowSeconds() < batch.expiresAt;
    if (this.#isStopping || isWaiting) return;
    const job = new Job(this.#parts, batch, this.#roomFor(batch));
    const done = (async () => {
      await Promise.resolve();
      await job.run();
      this.#ended(batch);
      this.#shareOut();
    })();
    this.#jobs.set(batch.id, { job, done });
    this.#shareOut();
  }

  /** Current record of a batch, from its job if that runs, else as given. */
  current(batch: BatchRecord): BatchRecord {
    return this.#jobs.get(batch.id)?.job.record ?? batch;
  }

  /** Reason why a batch is paused, for people; null if it runs or has ended. */
  pausedBy(batch: BatchRecord): string | null {
    return this.#jobs.get(batch.id)?.job.pausedBy ?? (isEnded(batch) ? null : this.waitingFor(batch));
  }

  /** Reason if the batch waits for a model that is not served; else null. */
  waitingFor({ model }: BatchRecord): string | null {
    const { models } = this.#parts;
    if (model === null || models === null || models.includes(model)) return null;
    return `its model ${model} is not served now`;
  }

  /** Number of lines on the engines. */
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
    this.#jobs.set(batch.id, { job, done: job.run().then(() => this.#ended(batch)) });
    return record;
  }

  /** Resolves when `batch` has ended, or the server stops. */
  async ended(batch: string): Promise<void> {
    await this.#jobs.get(batch)?.done;
  }

  /** Stops all jobs; resolves when nothing runs. The next start continues them. */
  async stop(): Promise<void> {
    this.#isStopping = true;
    clearInterval(this.#expiry);
    for (const { job } of this.#jobs.values()) job.stop();
    await Promise.all([...this.#jobs.values()].map(({ done }) => done));
  }

  /**
   * Deletes expired files. A failure is retried later: a full or partly damaged disk does not stop the
   * server.
   */
  #deleteExpired(): void {
    try {
      this.#parts.store.deleteExpired(this.#parts.nowSeconds());
    } catch (error) {
      if (!(error instanceof DiskFullError || error instanceof StoreError)) throw error;
      console.error("files of jobs whose time is over are not deleted yet:", error.message);
    }
  }

  #ended({ id }: BatchRecord): void {
    this.#jobs.delete(id);
    if (this.#jobs.size === 0) this.#parts.prepared.clear();
  }

  #shareOut(): void {
    for (const { job } of this.#jobs.values()) job.setRoom(this.#roomFor(job.record));
  }

  /**
   * Room of one job. Jobs share the engines' memory equally. The engines' queues share compute by tokens, so
   * every job may queue as many lines as there are places. A lower-priority job of the same key does not
   * reduce this job's share; it would otherwise take room that this job can use.
   */
  #roomFor({ id, owner, priority }: BatchRecord): BatchRoom {
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
