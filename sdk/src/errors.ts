/** Reason why a value failed, as the server reports it. */
export interface FailedValue {
  /** Error code: cancelled, transform, engine_error, context_length_exceeded, … */
  readonly code: string;
  readonly message: string;
  /** Call in which the failure began. */
  readonly origin: string;
  /** Calls and values from the origin to the requested value. */
  readonly path: readonly string[];
}

/** Failure of a value. */
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

/** The server refused a request, sent an unreadable response, or is unreachable. */
export class ServerError extends Error {
  override readonly name = "ServerError";

  constructor(
    /** HTTP status; 0 if there was no response, or if it ended early. */
    readonly status: number,
    /** Error code for programs, such as cycle, model_not_found or unreachable; null if there is none. */
    readonly code: string | null,
    message: string,
    /** Field at fault, such as calls[0].temperature. */
    readonly param: string | null = null,
    /** Error of the runtime if no server responded. */
    cause?: unknown,
  ) {
    super(message, { cause });
  }
}
