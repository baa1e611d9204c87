import { yieldIfSpent } from "../../base/time-slice.ts";
import { BatchAdmission, type BatchRoom } from "../../scheduler/batch/batch-admission.ts";
import type { Attributes } from "../trace/request-spans.ts";
import { WholeTrace } from "../trace/traces.ts";
import { ahead } from "./ahead.ts";
import { BatchKeeper } from "./batch-keeper.ts";
import { checkInput } from "./checked-input.ts";
import type { JobParts } from "./job-parts.ts";
import { LineAsker } from "./line-asker.ts";
import { Portion, PortionBuilder } from "./portion.ts";
import {
  ANSWERED,
  type BatchRecord,
  FAILED,
  type FileRecord,
  isEnded,
  type LineRecord,
  type LineResult,
  MESSAGES,
  newId,
} from "./records.ts";
import { DiskFullError, StoreError } from "./store-error.ts";

/** Maximum results per commit. */
const COMMIT_MAX = 256;
/** Maximum lines that are being tokenised. */
const READING_MAX = 64;
/**
 * Maximum bytes of the lines that are being tokenised, beside the last one, so that memory does not grow with
 * the file.
 */
const READING_BYTES = 8 * 2 ** 20;

/**
 * A running batch: checks its file, orders and runs its lines, and stores results until each line has one.
 * All durable state is in the store: a restarted job reads the remaining lines, and lines that were running
 * run again.
 */
export class Job {
  readonly #parts: JobParts;
  readonly #keeper: BatchKeeper;
  readonly #asker: LineAsker;
  readonly #ending = new AbortController();
  /** True while the server stops; remaining lines are left for the next start. */
  #isStopping = false;
  #room: BatchRoom;
  #feed: BatchAdmission | null = null;
  #portion = new Portion();
  #isFeeding = false;
  #commitTimer: ReturnType<typeof setTimeout> | null = null;
  #portionDone = Promise.withResolvers<void>();
  #pausedBy: string | null = null;
  #expiry: ReturnType<typeof setTimeout> | null = null;
  #trace: WholeTrace | null = null;

  constructor(parts: JobParts, record: BatchRecord, room: BatchRoom) {
    this.#parts = parts;
    this.#keeper = new BatchKeeper(parts.store, record);
    this.#asker = new LineAsker(parts, record, this.#ending.signal);
    this.#room = room;
    if (record.status === "cancelling") this.#ending.abort();
  }

  get record(): BatchRecord {
    return this.#keeper.record;
  }

  /** Reason why the job is paused, for people; null if it is running. */
  get pausedBy(): string | null {
    return this.#pausedBy;
  }

  /** Number of lines on the engines. */
  get running(): number {
    return this.#feed?.given ?? 0;
  }

  setRoom(room: BatchRoom): void {
    this.#room = room;
    this.#feed?.setRoom(room);
    void this.#give();
  }

  /** Runs to the end, or until `stop`. Never rejects: the record reports failures. */
  async run(): Promise<void> {
    const { traces } = this.#parts;
    this.#trace = traces === null ? null : new WholeTrace(traces, "batch", null);
    await this.#run();
    this.#trace?.end(attributesOf(this.record), this.record.status === "failed");
  }

  async #run(): Promise<void> {
    this.#expireInTime();
    for (;;) {
      try {
        if (this.record.status === "validating") await this.#validate();
        if (this.record.status === "in_progress") await this.#work();
        if (!this.#isStopping && !isEnded(this.record)) await this.#finish();
        break;
      } catch (error) {
        if (this.#isStopping) break;
        if (error instanceof DiskFullError) await this.#waitForDisk(error);
        else if (!this.#fail(error)) break;
      }
    }
    if (this.#expiry !== null) clearTimeout(this.#expiry);
  }

  /**
   * Cancels the job and keeps finished results. Throws DiskFullError if the cancellation cannot be stored.
   */
  cancel(): BatchRecord {
    if (isEnded(this.record) || this.record.status === "cancelling") return this.record;
    this.#keeper.update({ status: "cancelling", cancellingAt: this.#parts.nowSeconds() });
    this.#end();
    return this.record;
  }

  /** Stops the job because the process ends: running lines are aborted, and run again at the next start. */
  stop(): void {
    try {
      this.#keeper.write();
    } catch (error) {
      console.error(`results of ${this.record.id} are computed again, since they cannot be kept:`, error);
    }
    this.#isStopping = true;
    this.#end();
  }

  #end(): void {
    this.#ending.abort();
    if (this.#commitTimer !== null) clearTimeout(this.#commitTimer);
    this.#commitTimer = null;
    this.#portionDone.resolve();
  }

  get #isEnding(): boolean {
    return this.#ending.signal.aborted;
  }

  #expireInTime(): void {
    const leftMs = 1000 * (this.record.expiresAt - this.#parts.nowSeconds());
    // setTimeout supports at most 24 days.
    this.#expiry = setTimeout(
      () => {
        if (this.#isExpired) this.#end();
        else this.#expireInTime();
      },
      Math.min(Math.max(0, leftMs), 2 ** 31 - 1),
    );
    this.#expiry.unref();
  }

  get #isExpired(): boolean {
    return this.#parts.nowSeconds() >= this.record.expiresAt;
  }

  /* ---- the file ---- */

  async #validate(): Promise<void> {
    const checked = await checkInput(this.#parts, this.record, () => !this.#isEnding);
    if (checked === null) return;
    const { lines, model, faults } = checked;
    const now = this.#parts.nowSeconds();
    this.#keeper.update(
      faults.length > 0
        ? { status: "failed", failedAt: now, faults, model }
        : { status: "in_progress", inProgressAt: now, total: lines, model },
    );
  }

  /* ---- the lines ---- */

  async #work(): Promise<void> {
    for (;;) {
      const portion = await this.#readPortion();
      await this.#commitAll();
      if (this.#isEnding || portion === null) return;
      await this.#runPortion(portion);
      if (this.#isEnding) return;
    }
  }

  /**
   * Reads and orders the next lines without a result, up to a portion's size; null if none is left, or the
   * job is ending.
   */
  async #readPortion(): Promise<Portion | null> {
    const lines = this.#parts.store.openLines(this.record.id);
    const builder = new PortionBuilder();
    let isAny = false;
    for await (const [line, read] of ahead(lines, (line) => this.#asker.prepare(line), isReadingEnough)) {
      isAny = true;
      if (this.#isEnding || read === null) return null;
      if ("tokens" in read) builder.add(line.line, read);
      else await this.#keep(read);
      await yieldIfSpent();
      if (builder.isFull) break;
    }
    return isAny ? builder.ordered(this.#feed?.answerTokens ?? 128) : null;
  }

  async #runPortion(portion: Portion): Promise<void> {
    this.#portionDone = Promise.withResolvers();
    this.#portion = portion;
    this.#feed = new BatchAdmission(portion, this.#room);
    void this.#give();
    await this.#portionDone.promise;
  }

  /** Submits lines of the portion while the engines have room. */
  async #give(): Promise<void> {
    const feed = this.#feed;
    if (feed === null || this.#isFeeding) return;
    this.#isFeeding = true;
    while (!this.#isEnding && this.#pausedBy === null) {
      const place = feed.next();
      if (place === null) break;
      void this.#answer(feed, place);
      await Promise.resolve();
      await yieldIfSpent();
    }
    this.#isFeeding = false;
    if (feed.isDone && this.#keeper.pending === 0) this.#portionDone.resolve();
  }

  async #answer(feed: BatchAdmission, place: number): Promise<void> {
    const line = await this.#lineAt(place);
    if (line === null) return;
    const result = await this.#asker.answer(line, this.#trace);
    feed.ended(place, result?.state === ANSWERED ? result.usage.completionTokens : null);
    if (result === null || this.#isEnding) return;
    this.#keeper.add(result);
    if (this.#keeper.pending >= COMMIT_MAX) this.#commitNow();
    else this.#commitTimer ??= setTimeout(() => this.#commitNow(), this.#parts.commitMs);
    void this.#give();
  }

  /** Line at a place of the portion; null if the job is ending. */
  async #lineAt(place: number): Promise<LineRecord | null> {
    const { line } = this.#portion.at(place)!;
    for (;;) {
      try {
        return this.#parts.store.openLine(this.record.id, line);
      } catch (error) {
        if (this.#isEnding) return null;
        if (error instanceof DiskFullError) await this.#waitForDisk(error);
        else {
          if (!this.#fail(error)) this.#end();
          return null;
        }
      }
    }
  }

  /* ---- results ---- */

  /** Stores pending results; a full disk pauses the job until a write succeeds. */
  #commitNow(): void {
    if (this.#commitTimer !== null) clearTimeout(this.#commitTimer);
    this.#commitTimer = null;
    if (this.#isEnding) return;
    try {
      this.#keeper.write();
      this.#pausedBy = null;
    } catch (error) {
      if (!(error instanceof DiskFullError)) {
        if (!this.#fail(error)) this.#end();
        return;
      }
      this.#pausedBy = error.message;
      this.#commitTimer = setTimeout(() => this.#commitNow(), this.#parts.retryMs);
    }
    void this.#give();
  }

  /** Adds the result of a line that did not run. */
  async #keep(result: LineResult): Promise<void> {
    this.#keeper.add(result);
    if (this.#keeper.pending >= COMMIT_MAX) await this.#commitAll();
  }

  async #commitAll(): Promise<void> {
    for (;;) {
      try {
        this.#keeper.write();
        return;
      } catch (error) {
        if (!(error instanceof DiskFullError) || this.#isStopping) throw error;
        await this.#waitForDisk(error);
      }
    }
  }

  async #waitForDisk({ message }: DiskFullError): Promise<void> {
    this.#pausedBy = message;
    await Bun.sleep(this.#parts.retryMs);
    this.#pausedBy = null;
  }

  /* ---- the end ---- */

  /** Gives each line without a result one that states why, and creates the result files. */
  async #finish(): Promise<void> {
    const { store, nowSeconds } = this.#parts;
    const { id, endpoint, status, total, inProgressAt } = this.record;
    const isCancelled = status === "cancelling";
    if (inProgressAt === null && endpoint !== MESSAGES) store.clearLines(id);
    // Messages were checked when the batch was created, perhaps for another model, so each has a result.
    else if (inProgressAt === null) {
      const checked = await checkInput(
        { ...this.#parts, models: null },
        this.record,
        () => !this.#isStopping,
      );
      if (checked === null) return;
    }
    if (this.#isEnding) {
      const [code, message] = isCancelled
        ? (["batch_cancelled", "The batch was cancelled before this line ran."] as const)
        : (["batch_expired", "The batch expired before this line ran."] as const);
      await this.#commitAll();
      const { unanswered } = this.#parts.formOf(endpoint);
      for (const line of store.openLines(id))
        await this.#keep({ ...unanswered(line, code, message), isUnrun: true });
    }
    await this.#commitAll();
    const { completed, failed } = this.record;
    if (completed + failed !== total) {
      throw new StoreError(`${id} has ${completed + failed} results for ${total} lines.`);
    }
    const now = nowSeconds();
    const outputFile = this.#fileOf(ANSWERED, "output", now);
    const errorFile = this.#fileOf(FAILED, "error", now);
    const files = [outputFile, errorFile].filter((file) => file !== null);
    const ended = isCancelled
      ? ({ status: "cancelled", cancelledAt: now } as const)
      : this.#isEnding
        ? ({ status: "expired", expiredAt: now } as const)
        : ({ status: "completed", completedAt: now } as const);
    this.#keeper.update(
      { ...ended, finalizingAt: now, outputFile: outputFile?.id ?? null, errorFile: errorFile?.id ?? null },
      files,
    );
  }

  #fileOf(state: typeof ANSWERED | typeof FAILED, name: string, now: number): FileRecord | null {
    const { id, owner, outputExpiresAfter } = this.record;
    const bytes = this.#parts.store.resultBytes(id, state);
    if (bytes === 0) return null;
    return {
      id: newId("file-"),
      owner,
      purpose: "batch_output",
      filename: `${id}_${name}.jsonl`,
      bytes,
      createdAt: now,
      expiresAt: now + (outputExpiresAfter ?? this.#parts.retentionSeconds),
      content: { kind: "results", batch: id, state },
    };
  }

  /**
   * Fails this job after damaged data or a bug; other jobs continue. Returns false if even that cannot be
   * stored.
   */
  #fail(error: unknown): boolean {
    const message =
      error instanceof StoreError ? error.message : "the server made a mistake; its log tells more";
    console.error(`${this.record.id} failed:`, error);
    try {
      const faults = [{ code: "store_damaged", line: null, message, param: null }];
      this.#keeper.update({ status: "failed", failedAt: this.#parts.nowSeconds(), faults });
      this.#end();
      return true;
    } catch {
      return false;
    }
  }
}

/** Attributes of a batch's span. */
function attributesOf({
  id,
  endpoint,
  model,
  status,
  total,
  completed,
  failed,
  faults,
}: BatchRecord): Attributes {
  return {
    "bunting.batch.id": id,
    "bunting.batch.endpoint": endpoint,
    "bunting.batch.status": status,
    "bunting.batch.lines": total,
    "bunting.batch.completed": completed,
    "bunting.batch.failed": failed,
    ...(model === null ? {} : { "gen_ai.request.model": model }),
    ...(status === "failed" && faults.length > 0 ? { "error.type": faults[0]!.code } : {}),
  };
}

function isReadingEnough(lines: readonly LineRecord[]): boolean {
  return lines.length >= READING_MAX || lines.reduce((sum, { bytes }) => sum + bytes, 0) >= READING_BYTES;
}
