/** What is kept is not what was written, or cannot be read: a sentence for people that names the place. */
export class StoreError extends Error {
  override readonly name = "StoreError";
}

/** The disk takes no more: what was to be written is not, and may be later. */
export class DiskFullError extends Error {
  override readonly name = "DiskFullError";
}

/** A `DiskFullError` for what says that the disk is full or fails to write; else the error itself. */
export function asStoreTrouble(error: unknown): unknown {
  const code = (error as { readonly code?: unknown } | null)?.code;
  const isDisk =
    typeof code === "string" && /^(ENOSPC|EDQUOT|EIO|EROFS|SQLITE_FULL|SQLITE_IOERR.*)$/.test(code);
  if (isDisk) return new DiskFullError(`the disk takes no more: ${(error as Error).message}`);
  if (typeof code === "string" && /^SQLITE_(CORRUPT|NOTADB)/.test(code)) {
    return new StoreError(`The store of jobs is damaged: ${(error as Error).message}.`);
  }
  return error;
}

/** Runs what reads or writes; a failure of the disk, or of what is on it, becomes what it is. */
export function onDisk<Value>(work: () => Value): Value {
  try {
    return work();
  } catch (error) {
    throw asStoreTrouble(error);
  }
}
