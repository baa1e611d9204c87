import { createHash, timingSafeEqual } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { ApiError } from "./errors.ts";

/** Shortest interval between two checks of the key file for changes. */
const FILE_CHECK_MS = 1000;

export interface KeySources {
  readonly keys: readonly string[];
  /**
   * File with one key per line, and its name after a space and #; blank lines and lines starting with # do not
   * count. The server reads it again when it changes.
   */
  readonly file: string | null;
  /** Keys of the operator, who sees all keys' requests. The file has the same format. */
  readonly adminKeys?: readonly string[];
  readonly adminFile?: string | null;
}

/** Sender of a request. */
export interface KeyHolder {
  /** Name derived from the key, which reveals nothing of it; "" if the server needs no key. */
  readonly tenant: string;
  /**
   * True for a sender who may see all keys' requests: the operator, and every client if the server needs no
   * key.
   */
  readonly isAdmin: boolean;
}

/**
 * Keys that the server accepts. With neither keys nor a key file it accepts every client. Keys are kept as
 * digests of equal length and every one is compared, so the time taken reveals nothing about them.
 */
export class ApiKeys {
  readonly #users: KeyList;
  readonly #admins: KeyList;

  /**
   * Throws if a file cannot be read or holds no key: a server that was meant to be closed must not start
   * open.
   */
  constructor(
    { keys, file, adminKeys = [], adminFile = null }: KeySources,
    nowMs: () => number = () => performance.now(),
  ) {
    this.#users = new KeyList(keys, file, nowMs);
    this.#admins = new KeyList(adminKeys, adminFile, nowMs);
  }

  get isOpen(): boolean {
    return this.#users.isEmpty && this.#admins.isEmpty;
  }

  /** True if the request carries a key that this server accepts. */
  isKnown(headers: Headers): boolean {
    const key = keyOf(headers);
    return key !== null && this.accepts(key);
  }

  accepts(key: string): boolean {
    return this.#admins.holds(key) || this.#users.holds(key);
  }

  /**
   * Throws 401 unless the request carries a key, as `Authorization: Bearer …`, `x-api-key` or `api-key`
   * (Azure's clients).
   */
  authorize(headers: Headers): KeyHolder {
    if (this.isOpen) return { tenant: "", isAdmin: true };
    const key = keyOf(headers);
    if (key === null) {
      throw unauthorized("this server needs an API key: send the header Authorization: Bearer <key>");
    }
    const isAdmin = this.#admins.holds(key);
    if (!isAdmin && !this.#users.holds(key)) throw unauthorized("this API key is not known here");
    return { tenant: tenantOf(key), isAdmin };
  }

  /** Name that a key file gives the key of a tenant; null: none. */
  nameOf(tenant: string): string | null {
    return this.#users.nameOf(tenant) ?? this.#admins.nameOf(tenant);
  }

  /** Reads the files again now. Returns the outcome in sentences. */
  reload(): string {
    const sentences = [this.#users.reload(), this.#admins.reload()].filter((sentence) => sentence !== null);
    return sentences.length === 0 ? "There is no file of API keys to read again." : sentences.join(" ");
  }
}

/** Keys from the configuration and from one file. */
class KeyList {
  readonly #given: readonly Buffer[];
  readonly #file: string | null;
  readonly #nowMs: () => number;
  #fromFile: readonly FileKey[] = [];
  #fileVersion = "";
  #checkedMs = Number.NEGATIVE_INFINITY;

  /** Throws `KeyFileError`. */
  constructor(keys: readonly string[], file: string | null, nowMs: () => number) {
    this.#given = keys.map(digest);
    this.#file = file;
    this.#nowMs = nowMs;
    if (file === null) return;
    try {
      this.#fromFile = readKeys(file);
      this.#fileVersion = fileVersion(file);
    } catch (error) {
      throw new KeyFileError(file, error);
    }
  }

  get isEmpty(): boolean {
    return this.#given.length === 0 && this.#file === null;
  }

  holds(key: string): boolean {
    this.#reloadFile();
    const given = digest(key);
    let isFound = false;
    for (const known of [...this.#given, ...this.#fromFile.map((one) => one.digest)]) {
      if (timingSafeEqual(known, given)) isFound = true;
    }
    return isFound;
  }

  nameOf(tenant: string): string | null {
    return this.#fromFile.find((one) => one.tenant === tenant)?.name ?? null;
  }

  /** Reads the file again now. Returns a sentence about the outcome; null if there is no file. */
  reload(): string | null {
    if (this.#file === null) return null;
    this.#checkedMs = Number.NEGATIVE_INFINITY;
    this.#fileVersion = "";
    this.#reloadFile();
    return this.#fileVersion === ""
      ? "The keys read before stay valid."
      : `${this.#fromFile.length} API key${this.#fromFile.length === 1 ? "" : "s"} read from ${this.#file}.`;
  }

  /** Keeps the last keys valid if the file cannot be read now, or is empty (an editor is replacing it). */
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

/** Key file that cannot be used at the start. */
export class KeyFileError extends Error {
  override readonly name = "KeyFileError";
  readonly file: string;

  constructor(file: string, cause: unknown) {
    super((cause as Error).message, { cause });
    this.file = file;
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

/** Key of a file. */
interface FileKey {
  readonly digest: Buffer;
  readonly tenant: string;
  readonly name: string | null;
}

function readKeys(path: string): FileKey[] {
  const lines = readFileSync(path, "utf8").split("\n");
  const rows = lines.map((line) => line.trim()).filter((line) => line !== "" && !line.startsWith("#"));
  if (rows.length === 0) throw new Error("it holds no key");
  return rows.map((row, index) => {
    const [, key = row, name = null] = /^(\S+)\s+#\s*(.+)$/.exec(row) ?? [];
    if (!isSendable(key)) throw new Error(`its key ${index + 1} holds ${UNSENDABLE}`);
    return { digest: digest(key), tenant: tenantOf(key), name };
  });
}

/** Part of a message that refuses a key. */
export const UNSENDABLE = "a space or a character beyond ASCII, which no Authorization header carries";

/** True for a key that a client can send in each of the headers. */
export function isSendable(key: string): boolean {
  return /^[\x21-\x7e]+$/.test(key);
}

/** Name of a key's tenant. It differs from the digest used to compare keys: names are kept on disk beside jobs. */
export function tenantOf(key: string): string {
  return createHash("sha256").update(`owner ${key}`).digest("hex");
}

function unauthorized(message: string): ApiError {
  return new ApiError(401, "authentication_error", message, {
    apiCode: "invalid_api_key",
    headers: { "www-authenticate": "Bearer" },
  });
}

/** Cache salt of a tenant's prompts: prompts share cached prefixes only under equal salts. */
export type CacheSaltFor = (tenant: string, requested: string) => string;

/**
 * Isolates the prefix caches of tenants: neither `cached_tokens` nor the time to first token reveals another
 * tenant's prompts. Without API keys there is one tenant, "".
 */
export function cacheSalts({ sharePrefixes }: { readonly sharePrefixes: boolean }): CacheSaltFor {
  return (tenant, requested) => (sharePrefixes || tenant === "" ? requested : `${tenant}:${requested}`);
}
