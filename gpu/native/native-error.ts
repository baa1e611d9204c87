/** Values of bunting_status other than OK. */
export type NativeStatus = "invalid" | "noMemory" | "io" | "retry" | "lost" | "gaveWay";

/** Failed call of the library, with its error message. */
export class NativeError extends Error {
  override readonly name = "NativeError";
  readonly status: NativeStatus;

  constructor(status: NativeStatus, message: string) {
    super(message);
    this.status = status;
  }
}
