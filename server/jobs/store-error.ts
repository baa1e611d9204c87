/** Stored data is damaged or unreadable; the message is a sentence for people that names the place. */
export class StoreError extends Error {
  override readonly name = "StoreError";
}

/** The disk is full or fails; the write did not happen and may be retried. */
export class DiskFullError extends Error {
  override readonly name = "DiskFullError";
}

/** Error codes of a disk that is full, fails or refuses writes. */
const DISK =
  /^(ENOSPC|EDQUOT|EFBIG|EIO|EROFS|EACCES|EPERM|EMFILE|ENFILE|ENOENT|SQLITE_(FULL|IOERR|READONLY|CANTOPEN).*)$/;

/**
 * Maps an error of a full, failing or closed disk to DiskFullError, and one of a damaged database to StoreError;
 * returns others unchanged. Clients read the message, so it names no path.
 */
export function asStoreTrouble(error: unknown): unknown {
  const code = (error as { readonly code?: unknown } | null)?.code;
  const reason = (error as Error | null)?.message?.replace(/,? '.*'$/, "");
  if (typeof code === "string" && DISK.test(code))
    return new DiskFullError(`the disk takes no more: ${reason}`);
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
