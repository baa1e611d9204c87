/** Stored data is damaged or unreadable; the message is a sentence for people that names the place. */
export class StoreError extends Error {
  override readonly name = "StoreError";
}

/** The disk is full or fails; the write did not happen and may be retried. */
export class DiskFullError extends Error {
  override readonly name = "DiskFullError";
}

/**
 * Maps an error of a full or failing disk to DiskFullError, and one of a damaged database to StoreError;
 * returns others unchanged.
 */
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

/** Runs I/O and maps its errors to StoreError or DiskFullError. */
export function onDisk<Value>(work: () => Value): Value {
  try {
    return work();
  } catch (error) {
    throw asStoreTrouble(error);
  }
}
