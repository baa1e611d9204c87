import { createHash, timingSafeEqual } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { ApiError } from "./errors.ts";

/** How often, at most, the key file is looked at for changes. */
const FILE_CHECK_MS = 1000;

export interface KeySources {
  readonly keys: readonly string[];
  /** One key per line; blank lines and lines starting with # do not count. Read again when it changes. */
  readonly file: string | null;
}

/**
 * The keys that the server accepts. With neither keys nor a key file every client may. Keys are
 * kept as digests of equal length and every one is compared, so the time taken tells nothing about them.
 */
export class ApiKeys {
  readonly #given: readonly Buffer[];
  readonly #file: string | null;
  readonly #nowMs: () => number;
  #fromFile: readonly Buffer[] = [];
  #fileVersion = "";
  #checkedMs = Number.NEGATIVE_INFINITY;

  /** Throws when the file cannot be read or holds no key: a server that was meant to be closed must not start open. */
  constructor(sources: KeySources, nowMs: () => number = () => performance.now()) {
    this.#given = sources.keys.map(digest);
    this.#file = sources.file;
    this.#nowMs = nowMs;
    if (this.#file !== null) {
      this.#fromFile = readKeys(this.#file);
      this.#fileVersion = fileVersion(this.#file);
    }
  }

  get isOpen(): boolean {
    return this.#given.length === 0 && this.#file === null;
  }

  /** Whether a request carries a key that is accepted here. */
  isKnown(headers: Headers): boolean {
    const key = keyOf(headers);
    return !this.isOpen && key !== null && this.#accepts(key);
  }

  /** The tenant: a name made of the key, which tells nothing of it; "" when no key is needed. Throws 401 unless the request
   *  carries a key, as `Authorization: Bearer …`, `x-api-key` or `api-key` (Azure's clients). */
  authorize(headers: Headers): string {
    if (this.isOpen) return "";
    const key = keyOf(headers);
    if (key === null) {
      throw unauthorized("this server needs an API key: send the header Authorization: Bearer <key>");
    }
    if (!this.#accepts(key)) throw unauthorized("this API key is not known here");
    // Not the digest that keys are compared by: names are kept on disk beside jobs.
    return createHash("sha256").update(`owner ${key}`).digest("hex");
  }

  /** Reads the file again now. What came of it, as a sentence. */
  reload(): string {
    if (this.#file === null) return "There is no file of API keys to read again.";
    this.#checkedMs = Number.NEGATIVE_INFINITY;
    this.#fileVersion = "";
    this.#reloadFile();
    return this.#fileVersion === ""
      ? "The keys read before stay valid."
      : `${this.#fromFile.length} API key${this.#fromFile.length === 1 ? "" : "s"} read from ${this.#file}.`;
  }

  #accepts(key: string): boolean {
    this.#reloadFile();
    const given = digest(key);
    let isFound = false;
    for (const known of [...this.#given, ...this.#fromFile]) {
      if (timingSafeEqual(known, given)) isFound = true;
    }
    return isFound;
  }

  /** A file that cannot be read now, or is empty (an editor is replacing it), leaves the last keys in force. */
  #reloadFile(): void {
    const now = this.#nowMs();
    if (this.#file === null || now - this.#checkedMs < FILE_CHECK_MS) return;
    this.#checkedMs = now;
    try {
      const version = fileVersion(this.#file);
      if (version === this.#fileVersion) return;
      this.#fromFile = readKeys(this.#file);
      this.#fileVersion = version;
    } catch (error) {
      console.error(`the API key file cannot be read, the keys read before stay valid: ${String(error)}`);
    }
  }
}

function keyOf(headers: Headers): string | null {
  const bearer = headers.get("authorization")?.match(/^bearer +(\S+) *$/i)?.[1];
  return bearer ?? headers.get("x-api-key") ?? headers.get("api-key");
}

function digest(key: string): Buffer {
  return createHash("sha256").update(key).digest();
}

function fileVersion(path: string): string {
  const { ino, mtimeMs, size } = statSync(path);
  return `${ino}:${mtimeMs}:${size}`;
}

function readKeys(path: string): Buffer[] {
  const lines = readFileSync(path, "utf8").split("\n");
  const keys = lines.map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#"));
  if (keys.length === 0) throw new Error("it holds no key");
  return keys.map(digest);
}

function unauthorized(message: string): ApiError {
  return new ApiError(401, "authentication_error", message, {
    apiCode: "invalid_api_key",
    headers: { "www-authenticate": "Bearer" },
  });
}
