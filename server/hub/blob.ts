/** Download of one file to the cache: under its lock, resumed, and checked before it gets its name. */

import {
  closeSync,
  constants,
  fdatasync,
  ftruncateSync,
  mkdirSync,
  openSync,
  read,
  renameSync,
  rmSync,
  statSync,
  write,
} from "node:fs";
import { dirname, join } from "node:path";
import { promisify } from "node:util";
import { repositoryFolder } from "../../model/hub-cache.ts";
import { HubError } from "./hub-error.ts";
import type { HubFile } from "./listing.ts";
import { withLock } from "./lock.ts";
import type { FileReader } from "./ranges.ts";

const PIECE_BYTES = 1 << 20;
/**
 * Bytes written between two flushes to the disk, which run while more arrives; little is left to flush at the
 * end.
 */
const FLUSH_BYTES = 64 << 20;
const flush = promisify(fdatasync);

/** Receives numbers of bytes: of those found in the cache, and of those that arrive from the hub. */
export type OnDone = (bytes: number, from: "cache" | "hub") => void;

/** Path of a file's content in the cache. */
export function blobPath(cache: string, repository: string, { hash }: HubFile): string {
  return join(repositoryFolder(cache, repository), "blobs", hash.hex);
}

/** True if the content is in the cache. A file gets this name only after its hash was checked. */
export function hasBlob(path: string, bytes: number): boolean {
  return statSync(path, { throwIfNoEntry: false })?.size === bytes;
}

/** Bytes that remain to be fetched. */
export function missingBytes(path: string, bytes: number): number {
  if (hasBlob(path, bytes)) return 0;
  return bytes - Math.min(bytes, statSync(`${path}.incomplete`, { throwIfNoEntry: false })?.size ?? 0);
}

/** Downloads a file's content to the cache, unless it is there. */
export async function fetchBlob(
  cache: string,
  repository: string,
  reader: FileReader,
  signal: AbortSignal,
  onDone: OnDone,
): Promise<void> {
  const { file } = reader;
  const path = blobPath(cache, repository, file);
  const lock = join(cache, ".locks", `models--${repository.replace("/", "--")}`, `${file.hash.hex}.lock`);
  if (hasBlob(path, file.bytes)) return onDone(file.bytes, "cache");
  await withLock(lock, signal, async () => {
    if (hasBlob(path, file.bytes)) return onDone(file.bytes, "cache");
    mkdirSync(dirname(path), { recursive: true });
    const part = `${path}.incomplete`;
    const keptBytes = await fill(part, reader, signal, onDone);
    if (keptBytes === 0) throw wrongHash(file);
    // The earlier download was damaged and is removed; the file is fetched from the start.
    if (keptBytes !== null && (await fill(part, reader, signal, () => {})) !== null) throw wrongHash(file);
    renameSync(part, path);
  });
}

function wrongHash({ path, hash }: HubFile): HubError {
  const kind = hash.kind === "git" ? "git hash" : "sha256";
  return new HubError(`The hub sent ${path} with another ${kind} than ${hash.hex}: it is not taken.`);
}

/**
 * Completes the file and checks its hash. Returns null if the hash is right. Otherwise removes the file and
 * returns how many bytes of an earlier download it began with.
 */
async function fill(
  part: string,
  reader: FileReader,
  signal: AbortSignal,
  onDone: OnDone,
): Promise<number | null> {
  const { bytes, hash: wanted } = reader.file;
  const hash = new Bun.CryptoHasher(wanted.kind === "sha256" ? "sha256" : "sha1");
  if (wanted.kind === "git") hash.update(`blob ${bytes}\0`);
  const descriptor = openSync(part, constants.O_RDWR | constants.O_CREAT | constants.O_NOFOLLOW, 0o666);
  const disk = new WriteBehind(descriptor);
  try {
    const keptBytes = await hashStart(descriptor, bytes, (piece) => {
      hash.update(piece);
      onDone(piece.length, "cache");
    });
    let at = keptBytes;
    for await (const piece of reader.from(at, signal, (count) => onDone(count, "hub"))) {
      hash.update(piece);
      await writeAt(descriptor, piece, at);
      at += piece.length;
      disk.wrote(piece.length);
    }
    if (at === bytes && hash.digest("hex") === wanted.hex) {
      ftruncateSync(descriptor, bytes);
      // The content must reach the disk before its final name does.
      await disk.end();
      return null;
    }
    rmSync(part, { force: true });
    return keptBytes;
  } finally {
    await disk.idle();
    closeSync(descriptor);
  }
}

/** Flushes written content to the disk, one flush at a time. */
class WriteBehind {
  readonly #descriptor: number;
  #unflushedBytes = 0;
  #flushing: Promise<void> | null = null;
  #failure: Error | null = null;

  constructor(descriptor: number) {
    this.#descriptor = descriptor;
  }

  /** Begins a flush if enough was written since the last one. */
  wrote(bytes: number): void {
    this.#unflushedBytes += bytes;
    if (this.#unflushedBytes < FLUSH_BYTES || this.#flushing !== null) return;
    this.#unflushedBytes = 0;
    this.#flushing = flush(this.#descriptor)
      .catch((error: Error) => {
        this.#failure ??= error;
      })
      .finally(() => {
        this.#flushing = null;
      });
  }

  /** Resolves when no flush is under way. */
  async idle(): Promise<void> {
    await this.#flushing;
  }

  /**
   * Flushes the rest. Throws if any content could not be written: the system reports such an error only once.
   */
  async end(): Promise<void> {
    await this.idle();
    if (this.#failure !== null) throw this.#failure;
    await flush(this.#descriptor);
  }
}

/** Hashes an earlier download, at most `bytes` of it; returns how many bytes it has. */
async function hashStart(
  descriptor: number,
  bytes: number,
  onPiece: (piece: Uint8Array) => void,
): Promise<number> {
  const buffer = new Uint8Array(PIECE_BYTES);
  let at = 0;
  while (at < bytes) {
    const count = await readAt(descriptor, buffer, Math.min(PIECE_BYTES, bytes - at), at);
    if (count === 0) break;
    onPiece(buffer.subarray(0, count));
    at += count;
  }
  return at;
}

function readAt(descriptor: number, buffer: Uint8Array, count: number, at: number): Promise<number> {
  return new Promise((resolve, reject) => {
    read(descriptor, buffer, 0, count, at, (error, done) => (error === null ? resolve(done) : reject(error)));
  });
}

async function writeAt(descriptor: number, piece: Uint8Array, at: number): Promise<void> {
  for (let done = 0; done < piece.length; ) {
    done += await new Promise<number>((resolve, reject) => {
      write(descriptor, piece, done, piece.length - done, at + done, (error, count) =>
        error === null ? resolve(count) : reject(error),
      );
    });
  }
}
