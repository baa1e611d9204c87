import { yieldIfSpent } from "../../base/time-slice.ts";
import { bodyPieces, type PaceLimits } from "./body-pieces.ts";
import { ApiError, badRequest } from "./errors.ts";

/** Upper bounds on a form. */
export interface FormLimits {
  readonly fileBytesMax: number;
  readonly fieldBytesMax: number;
  readonly fieldsMax: number;
}

/** Sink for the bytes of a form's file, piece by piece, as they arrive. */
export interface FileSink {
  write(part: Uint8Array): void;
}

/** Bytes of the head of a part, at most. */
const HEAD_BYTES_MAX = 8192;
const LINE = Buffer.from("\r\n");
const HEAD_END = Buffer.from("\r\n\r\n");

/**
 * Reads a form (multipart/form-data, RFC 7578) with at most one file, which is never held in memory. Calls
 * `onFile` for the file's sink when the file begins. Returns the other fields. Throws 400, 413 or 415.
 */
export async function readForm(
  request: Request,
  limits: FormLimits & PaceLimits,
  onFile: (field: string, filename: string) => FileSink,
): Promise<ReadonlyMap<string, string>> {
  const type = request.headers.get("content-type") ?? "";
  const boundary = /^multipart\/form-data;.*\bboundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))/i.exec(type);
  if (boundary === null) {
    throw new ApiError(
      415,
      "invalid_request_error",
      "the content-type must be multipart/form-data with a boundary",
    );
  }
  const parser = new FormParser(`\r\n--${boundary[1] ?? boundary[2]}`, limits, onFile);
  for await (const piece of bodyPieces(request, limits)) {
    parser.push(piece);
    await yieldIfSpent();
  }
  return parser.end();
}

/** Parses a form's bytes as they arrive, cut anywhere. */
export class FormParser {
  readonly #delimiter: Buffer;
  readonly #limits: FormLimits;
  readonly #onFile: (field: string, filename: string) => FileSink;
  readonly #fields = new Map<string, string>();
  /** Bytes that are not parsed yet. The first delimiter may come without a line before it. */
  #rest: Buffer = LINE;
  #state: "outside" | "head" | "body" | "done" = "outside";
  #sink: FileSink | null = null;
  #fileBytes = 0;
  #hasFile = false;
  /** Field that is being read. */
  #name = "";
  #value: Buffer[] = [];
  #valueBytes = 0;

  constructor(delimiter: string, limits: FormLimits, onFile: (field: string, filename: string) => FileSink) {
    this.#delimiter = Buffer.from(delimiter);
    this.#limits = limits;
    this.#onFile = onFile;
  }

  push(bytes: Uint8Array): void {
    this.#rest = Buffer.concat([this.#rest, bytes]);
    while (this.#state !== "done" && this.#advance());
    if (this.#state === "done") this.#rest = Buffer.alloc(0);
  }

  end(): ReadonlyMap<string, string> {
    if (this.#state !== "done") throw badRequest("the form ends before its last boundary");
    return this.#fields;
  }

  /** Parses one element; true if it succeeded and there may be more. */
  #advance(): boolean {
    if (this.#state === "head") return this.#readHead();
    const at = this.#rest.indexOf(this.#delimiter);
    if (at < 0) {
      // A delimiter may have begun.
      const sure = this.#rest.length - this.#delimiter.length + 1;
      if (sure > 0) {
        this.#take(this.#rest.subarray(0, sure));
        this.#rest = this.#rest.subarray(sure);
      }
      return false;
    }
    const after = at + this.#delimiter.length;
    if (this.#rest.length < after + 2) return false;
    this.#take(this.#rest.subarray(0, at));
    this.#endPart();
    const next = this.#rest.toString("latin1", after, after + 2);
    if (next !== "--" && next !== "\r\n")
      throw badRequest("a boundary of the form is followed by neither a line nor the end");
    this.#state = next === "--" ? "done" : "head";
    this.#rest = this.#rest.subarray(after); // with the line's end, which ends an empty head too
    return true;
  }

  #readHead(): boolean {
    const end = this.#rest.indexOf(HEAD_END);
    if (Math.max(end, end < 0 ? this.#rest.length : 0) > HEAD_BYTES_MAX) {
      throw badRequest(`the head of a form's part may have ${HEAD_BYTES_MAX} bytes at most, and has more`);
    }
    if (end < 0) return false;
    const head = this.#rest.toString("utf8", 0, end);
    this.#rest = this.#rest.subarray(end + HEAD_END.length);
    const disposition = /^content-disposition:\s*form-data\s*;(.*)$/im.exec(head)?.[1];
    const name = disposition === undefined ? undefined : parameterOf(disposition, "name");
    if (disposition === undefined || name === undefined) throw badRequest("a part of the form has no name");
    this.#state = "body";
    this.#name = name;
    const filename = parameterOf(disposition, "filename");
    if (filename !== undefined) {
      if (this.#hasFile) throw badRequest("a form may hold one file, and this one holds more");
      this.#hasFile = true;
      this.#sink = this.#onFile(name, filename);
    } else if (this.#fields.size >= this.#limits.fieldsMax) {
      throw badRequest(`a form may have ${this.#limits.fieldsMax} fields at most, and has more`);
    } else if (this.#fields.has(name)) throw badRequest(`the form's field ${name} is given twice`, name);
    return true;
  }

  #take(bytes: Buffer): void {
    if (this.#state !== "body" || bytes.length === 0) return;
    const { fileBytesMax, fieldBytesMax } = this.#limits;
    if (this.#sink !== null) {
      this.#fileBytes += bytes.length;
      if (this.#fileBytes > fileBytesMax) {
        const message = `a file may have ${fileBytesMax} bytes at most, and this one has more`;
        throw new ApiError(413, "invalid_request_error", message, { headers: { connection: "close" } });
      }
      this.#sink.write(bytes);
      return;
    }
    this.#valueBytes += bytes.length;
    if (this.#valueBytes > fieldBytesMax) {
      throw badRequest(
        `a form's field may have ${fieldBytesMax} bytes at most, and ${this.#name} has more`,
        this.#name,
      );
    }
    this.#value.push(Buffer.from(bytes));
  }

  #endPart(): void {
    if (this.#state === "body" && this.#sink === null) {
      this.#fields.set(this.#name, Buffer.concat(this.#value).toString("utf8"));
    }
    this.#sink = null;
    this.#value = [];
    this.#valueBytes = 0;
  }
}

function parameterOf(disposition: string, name: string): string | undefined {
  const found = new RegExp(`(?:^|;)\\s*${name}=(?:"((?:[^"\\\\]|\\\\.)*)"|([^\\s;"]+))`, "i").exec(
    disposition,
  );
  const value = found?.[1] ?? found?.[2];
  return value?.replace(/\\(.)/g, "$1").replaceAll("%22", '"');
}
