/** Counts of pages and segments of a store since it was opened. */
export interface StoreCounts {
  stored: number;
  read: number;
  /** Pages that were not as they were stored. */
  damaged: number;
  /** Reads and writes that the system refused. */
  failedReads: number;
  failedWrites: number;
  droppedSegments: number;
}
