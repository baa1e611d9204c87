import { LRUCache } from "lru-cache";
import type { PreparedLine } from "./door.ts";
import type { BatchRecord, LineRecord } from "./records.ts";

/** Maximum estimated bytes of prepared lines. A line that is evicted is prepared again when it runs. */
const BYTES_MAX = 128 * 2 ** 20;
/** Bytes of a prepared line, besides its texts and tokens. */
const LINE_BYTES = 2048;
/** Bytes of a prepared line's texts for each byte of the line in the file. */
const TEXT_COPIES = 4;
/** Bytes of a token in an array of numbers. */
const TOKEN_BYTES = 8;

/** Prepared lines of all jobs, from the order of their portion until they run. */
export class PreparedLines {
  readonly #lines: LRUCache<string, PreparedLine>;

  constructor(bytesMax = BYTES_MAX) {
    this.#lines = new LRUCache({ maxSize: bytesMax });
  }

  keep(batch: BatchRecord, line: LineRecord, prepared: PreparedLine): void {
    const size = LINE_BYTES + TEXT_COPIES * line.bytes + TOKEN_BYTES * prepared.tokens.length;
    this.#lines.set(keyOf(batch, line), prepared, { size });
  }

  /** Removes a line and returns it; null if it was never kept, or was evicted. */
  take(batch: BatchRecord, line: LineRecord): PreparedLine | null {
    const key = keyOf(batch, line);
    const prepared = this.#lines.get(key) ?? null;
    this.#lines.delete(key);
    return prepared;
  }

  clear(): void {
    this.#lines.clear();
  }
}

function keyOf({ id }: BatchRecord, { line }: LineRecord): string {
  return `${id} ${line}`;
}
