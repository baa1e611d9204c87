/** Why a value will never come, as the server tells it. */
export interface FailedValue {
  /** cancelled, transform, engine_error, context_length_exceeded, … */
  readonly code: string;
  readonly message: string;
  /** The call where it began. */
  readonly origin: string;
  /** Calls and values from there to the one that was asked for. */
  readonly path: readonly string[];
}

/** A value failed. */
export class ValueError extends Error implements FailedValue {
  override readonly name = "ValueError";
  readonly code: string;
  readonly origin: string;
  readonly path: readonly string[];

  constructor({ code, message, origin, path }: FailedValue) {
    super(message);
    this.code = code;
    this.origin = origin;
    this.path = path;
  }
}

/** The server refused a request, could not be understood, or is not there. */
export class ServerError extends Error {
  override readonly name = "ServerError";

  constructor(
    /** HTTP status; 0 when there was no answer, or it ended before its time. */
    readonly status: number,
    /** For programs, such as cycle, model_not_found or unreachable; null when there is none. */
    readonly code: string | null,
    message: string,
    /** The field at fault, such as calls[0].temperature. */
    readonly param: string | null = null,
    /** What the runtime said where no server answered. */
    cause?: unknown,
  ) {
    super(message, { cause });
  }
}
