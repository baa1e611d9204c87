/**
 * Reports a model that cannot be used. The message names the file, the field or tensor in it, and the reason.
 */
export class ModelError extends Error {
  override readonly name = "ModelError";
  /** Path of the faulty file or folder, as it was opened. */
  readonly file: string;
  /** Tensor, field or entry at fault; null for the file itself. */
  readonly subject: string | null;
  readonly reason: string;

  constructor(file: string, subject: string | null, reason: string) {
    super(subject === null ? `${file}: ${reason}` : `${file}: ${subject}: ${reason}`);
    this.file = file;
    this.subject = subject;
    this.reason = reason;
  }
}

/** Reason of a failed open or read in words, without the error code and path of the system's message. */
export function ioReason(error: unknown): string {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  if (code === "ENOENT") return "does not exist";
  if (code === "EACCES" || code === "EPERM") return "may not be read (permission denied)";
  if (code === "EISDIR") return "is a folder, not a file";
  return `cannot be read (${code === "" ? String(error) : code})`;
}
