/** Counts of pages and segments of a store since it was opened. */
export interface StoreCounts {
  stored: number;
  read: number;
  /** Pages whose contents failed their checksum or decryption. */
  damaged: number;
  /** Reads and writes that failed with a system error. */
  failedReads: number;
  failedWrites: number;
  droppedSegments: number;
}
