import { chmodSync, closeSync, mkdirSync, readdirSync, statSync, unlinkSync } from "node:fs";
import { join } from "node:path";
import { tryLock } from "../hub/lock.ts";
import type { StoredId } from "./page-ids.ts";
import { Segment, type SegmentShape, type WriteHook } from "./segment.ts";
import type { StoreCounts } from "./store-counts.ts";

/**
 * Maximum bytes of a segment, and minimum number of segments in a full store: eviction drops whole segments.
 */
const SEGMENT_BYTES_MAX = 256 * 2 ** 20;
const SEGMENTS_MIN = 16;
/** Maximum number of segments: each one has an open file. */
const SEGMENTS_MAX = 256;
const SEGMENT_PAGES_MAX = 4096;
/** Minimum interval between updates of a segment's modification time, which records its use. */
const MARK_MS = 60_000;
/** Time without writes after a failed one. */
const PAUSE_MS = 60_000;
const SUFFIX = ".kv";

export interface StoreOptions {
  /** Folder of this store alone; made if it is absent. */
  readonly folder: string;
  /** Identity of model, formats and kernels (plan.ts): 64 hexadecimal digits. */
  readonly identity: string;
  readonly pageBytes: number;
  readonly bytesMax: number;
  /** Key of 32 bytes that encrypts the pages; null: they are not encrypted. */
  readonly secret: Uint8Array | null;
  /** Receives a sentence for the operator, once for each kind of failure. */
  readonly say?: (sentence: string) => void;
  readonly onWrite?: WriteHook;
  readonly nowMs?: () => number;
}

interface Used {
  readonly segment: Segment;
  /** Value of the store's use counter at the last use. */
  used: number;
  markedMs: number;
}

interface Place {
  readonly of: Used;
  readonly index: number;
}

/**
 * Pages in the files of one folder, which outlive the process. While another process has the folder open,
 * this one is read-only. A page that cannot be read or written counts as absent; only opening the folder
 * throws.
 *
 * Evicts the least recently used segment first. Reading or touching a page counts as a use of its whole
 * segment.
 */
export class PageStore {
  readonly counts: StoreCounts = {
    stored: 0,
    read: 0,
    damaged: 0,
    failedReads: 0,
    failedWrites: 0,
    droppedSegments: 0,
  };
  readonly #options: StoreOptions;
  readonly #say: (sentence: string) => void;
  readonly #nowMs: () => number;
  readonly #shape: SegmentShape;
  /** Descriptor of the lock file; null: read-only. */
  #lock: number | null;
  readonly #segments = new Set<Used>();
  readonly #places = new Map<StoredId, Place>();
  readonly #said = new Set<string>();
  /** Ids of pages dropped since the last call of `takeGone`. */
  #gone: StoredId[] = [];
  /** Segment that is being filled; null: the next page begins one. */
  #current: Used | null = null;
  #uses = 0;
  #nextNumber = 1;
  #writesFromMs = Number.NEGATIVE_INFINITY;

  /** Opens the folder. Throws the errors of the system. */
  constructor(options: StoreOptions) {
    const { folder, identity, pageBytes, bytesMax } = options;
    this.#options = options;
    this.#say = options.say ?? (() => {});
    this.#nowMs = options.nowMs ?? (() => performance.now());
    const segmentBytes = Math.min(SEGMENT_BYTES_MAX, bytesMax / SEGMENTS_MIN);
    const pagesMax = Math.floor(segmentBytes / pageBytes);
    this.#shape = { identity, pageBytes, pagesMax: Math.max(1, Math.min(SEGMENT_PAGES_MAX, pagesMax)) };
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    chmodSync(folder, 0o700);
    this.#lock = tryLock(join(folder, "lock"));
    if (this.#lock === null)
      this.#say(
        `${folder} is in use by another server; until it ends, this one reads pages there and writes none`,
      );
    this.#openSegments();
    if (this.#lock !== null) this.#makeRoom(0);
  }

  /** Becomes the writer, and lists the pages anew, if the process that had the folder has ended. */
  tryWrite(): boolean {
    this.#lock = tryLock(join(this.#options.folder, "lock"));
    if (this.#lock === null) return false;
    const before = [...this.#places.keys()];
    this.#closeSegments();
    this.#openSegments();
    this.#makeRoom(0);
    for (const id of before) if (!this.#places.has(id)) this.#gone.push(id);
    return true;
  }

  get isReadOnly(): boolean {
    return this.#lock === null;
  }

  /** Size of all files. */
  get bytes(): number {
    let bytes = 0;
    for (const { segment } of this.#segments) bytes += segment.bytes;
    return bytes;
  }

  /** Ids of all pages, which may turn out to be damaged. */
  ids(): IterableIterator<StoredId> {
    return this.#places.keys();
  }

  has(id: StoredId): boolean {
    return this.#places.has(id);
  }

  /** Stores a page; false if that is not possible now. */
  put(id: StoredId, page: Uint8Array): boolean {
    if (this.#places.has(id)) return true;
    if (this.#lock === null || this.#nowMs() < this.#writesFromMs) return false;
    try {
      const of = this.#growing();
      of.segment.append(id, page, this.#options.secret);
      this.#places.set(id, { of, index: of.segment.pages - 1 });
      this.#use(of);
      this.counts.stored += 1;
      return true;
    } catch (error) {
      this.counts.failedWrites += 1;
      this.#current = null; // its end may be damaged
      this.#writesFromMs = this.#nowMs() + PAUSE_MS;
      this.#sayOnce("write", `a page could not be written to ${this.#options.folder}: ${reasonOf(error)}`);
      return false;
    }
  }

  /** Reads a page into `page`. Returns false if it is absent or damaged. */
  get(id: StoredId, page: Uint8Array): boolean {
    const place = this.#places.get(id);
    if (place === undefined) return false;
    try {
      if (place.of.segment.read(place.index, page, this.#options.secret)) {
        this.#use(place.of);
        this.counts.read += 1;
        return true;
      }
      this.counts.damaged += 1;
      this.#sayOnce("damage", `${place.of.segment.path} is damaged; its pages are checked and left out`);
    } catch (error) {
      this.counts.failedReads += 1;
      this.#sayOnce("read", `a page could not be read: ${reasonOf(error)}`);
    }
    this.#places.delete(id);
    this.#gone.push(id);
    return false;
  }

  /** Marks the stored ones of these pages as used. */
  touch(ids: readonly StoredId[]): void {
    for (const id of ids) {
      const place = this.#places.get(id);
      if (place !== undefined) this.#use(place.of);
    }
  }

  /** Returns the ids of pages dropped since the last call. */
  takeGone(): readonly StoredId[] {
    const gone = this.#gone;
    this.#gone = [];
    return gone;
  }

  close(): void {
    this.#closeSegments();
    if (this.#lock !== null) closeSync(this.#lock);
  }

  #closeSegments(): void {
    for (const { segment } of this.#segments) segment.close();
    this.#segments.clear();
    this.#places.clear();
  }

  #openSegments(): void {
    const { folder } = this.#options;
    const files = readdirSync(folder).filter((name) => name.endsWith(SUFFIX));
    const byAge = files
      .map((name) => ({ path: join(folder, name), number: Number.parseInt(name, 10) }))
      .map((file) => ({ ...file, mtimeMs: statSync(file.path, { throwIfNoEntry: false })?.mtimeMs ?? 0 }))
      .sort((a, b) => a.mtimeMs - b.mtimeMs || a.number - b.number);
    for (const { path, number } of byAge) {
      if (number >= this.#nextNumber) this.#nextNumber = number + 1;
      this.#openSegment(path);
    }
  }

  #openSegment(path: string): void {
    try {
      const segment = Segment.open(path, this.#shape);
      const of = segment === null ? null : { segment, used: this.#uses++, markedMs: 0 };
      const pages = of === null ? 0 : this.#list(of);
      if (of !== null && pages > 0) {
        this.#segments.add(of);
      } else {
        segment?.close();
        if (this.#lock !== null) unlinkSync(path);
      }
    } catch (error) {
      this.counts.failedReads += 1;
      this.#sayOnce("read", `${path} could not be read: ${reasonOf(error)}`);
    }
  }

  /** Lists the pages of a segment; returns how many. */
  #list(of: Used): number {
    let pages = 0;
    for (let index = 0; index < of.segment.pages; index += 1) {
      const id = of.segment.idAt(index);
      if (id === null) continue;
      this.#places.set(id, { of, index });
      pages += 1;
    }
    return pages;
  }

  /** Returns the segment for the next page. */
  #growing(): Used {
    if (this.#current?.segment.isFull) this.#current = null;
    this.#makeRoom(this.#shape.pageBytes);
    if (this.#current === null) {
      const path = join(this.#options.folder, `${this.#nextNumber}${SUFFIX}`);
      this.#nextNumber += 1;
      const segment = Segment.create(path, this.#shape, this.#options.onWrite ?? (() => {}));
      this.#current = { segment, used: this.#uses++, markedMs: this.#nowMs() };
      this.#segments.add(this.#current);
    }
    return this.#current;
  }

  /** Drops segments until `bytes` more fit, and another file may be opened. */
  #makeRoom(bytes: number): void {
    while (
      this.#segments.size > 0 &&
      (this.bytes + bytes > this.#options.bytesMax || this.#segments.size >= SEGMENTS_MAX)
    ) {
      let least: Used | null = null;
      for (const one of this.#segments) if (least === null || one.used < least.used) least = one;
      this.#drop(least!);
    }
  }

  #drop(of: Used): void {
    const { segment } = of;
    for (let index = 0; index < segment.pages; index += 1) {
      const id = segment.idAt(index);
      if (id === null || this.#places.get(id)?.of !== of) continue;
      this.#places.delete(id);
      this.#gone.push(id);
    }
    this.#segments.delete(of);
    if (this.#current === of) this.#current = null;
    this.counts.droppedSegments += 1;
    segment.remove();
  }

  #use(of: Used): void {
    of.used = this.#uses++;
    const nowMs = this.#nowMs();
    if (this.#lock === null || nowMs - of.markedMs < MARK_MS) return;
    of.markedMs = nowMs;
    try {
      of.segment.markUsed();
    } catch {
      // Only the eviction order after a restart depends on it.
    }
  }

  #sayOnce(kind: string, sentence: string): void {
    if (this.#said.has(kind)) return;
    this.#said.add(kind);
    this.#say(sentence);
  }
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
