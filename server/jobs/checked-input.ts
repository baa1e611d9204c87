import { yieldIfSpent } from "../../base/time-slice.ts";
import { InputReader } from "./input.ts";
import type { JobParts } from "./job-parts.ts";
import type { BatchFault, BatchRecord, LineRecord } from "./records.ts";
import { StoreError } from "./store-error.ts";

/** Lines stored per commit. */
const LINES_KEPT = 500;

/** Outcome of checking a batch's input file. */
export interface CheckedInput {
  /** Number of lines that are now in the store; 0 if there are faults. */
  readonly lines: number;
  /** Model that the lines name; null if they name none. */
  readonly model: string | null;
  readonly faults: readonly BatchFault[];
}

/**
 * Reads a batch's file line by line into the store, replacing earlier lines. Returns null as soon as
 * `isWanted` is false. Throws DiskFullError or StoreError.
 */
export async function checkInput(
  { store, limits, models, formOf }: JobParts,
  { id, owner, inputFile, endpoint }: BatchRecord,
  isWanted: () => boolean,
): Promise<CheckedInput | null> {
  store.clearLines(id);
  const file = store.file(owner, inputFile);
  if (file === null) throw new StoreError(`The input file ${inputFile} is gone.`);
  const source = {
    bytes: file.bytes,
    read: (start: number, bytes: number) => store.readUpload(inputFile, start, bytes) ?? new Uint8Array(0),
  };
  const reader = new InputReader(source, { form: formOf(endpoint), models, limits });
  let read: LineRecord[] = [];
  let lines = 0;
  for (const line of reader.lines()) {
    if (line !== null) {
      read.push(line);
      lines += 1;
    }
    if (read.length === LINES_KEPT) {
      if (reader.faults.length === 0) store.addLines(id, read);
      read = [];
    }
    await yieldIfSpent();
    if (!isWanted()) return null;
  }
  const { faults, model } = reader;
  if (faults.length === 0) store.addLines(id, read);
  else store.clearLines(id);
  return { lines: faults.length === 0 ? lines : 0, model, faults };
}
