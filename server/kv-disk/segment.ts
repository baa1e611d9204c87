/**
 * File of stored pages: a header, a table with an entry for each page, and the pages in the order of the
 * table. The file only grows. A page is written before its entry, and both carry checks, so that a truncated
 * or changed page is never taken for a right one.
 */
import { createCipheriv, createDecipheriv, randomBytes } from "node:crypto";
import { closeSync, fstatSync, openSync, readSync, unlinkSync, utimesSync, writeSync } from "node:fs";
import type { StoredId } from "./page-ids.ts";

const MAGIC = "BNTKVS01";
const HEADER_BYTES = 4096;
/** Bytes of the header that its checksum covers, which follows them. */
const HEADER_USED_BYTES = 48;

/**
 * Entry: id [32], nonce [12], tag [16], index (u32), checksum of the page (u64, 0 if encrypted), 1 if encrypted
 * (u32), 0 (u32), checksum of the entry (u64).
 */
const ENTRY_BYTES = 88;
const AT = { id: 0, nonce: 32, tag: 44, index: 60, page: 64, isEncrypted: 72, entry: 80 } as const;
const ENTRY_SEED = 0x4b56n;

/** Shape and owner of the pages of a file. */
export interface SegmentShape {
  /** 64 hexadecimal digits. */
  readonly identity: string;
  readonly pageBytes: number;
  /** Maximum number of pages. */
  readonly pagesMax: number;
}

/** Called before each write with its number of bytes; may throw instead. */
export type WriteHook = (bytes: number) => void;

export class Segment {
  readonly path: string;
  /** Number of pages, including damaged ones. */
  pages: number;
  readonly #descriptor: number;
  readonly #shape: SegmentShape;
  readonly #table: Buffer;
  readonly #dataAt: number;
  readonly #onWrite: WriteHook;
  #bytes: number;

  private constructor(path: string, descriptor: number, shape: SegmentShape, onWrite: WriteHook) {
    this.path = path;
    this.#descriptor = descriptor;
    this.#shape = shape;
    this.#table = Buffer.alloc(shape.pagesMax * ENTRY_BYTES);
    this.#dataAt = HEADER_BYTES + Math.ceil(this.#table.length / HEADER_BYTES) * HEADER_BYTES;
    this.#onWrite = onWrite;
    this.pages = 0;
    this.#bytes = this.#dataAt;
  }

  static create(path: string, shape: SegmentShape, onWrite: WriteHook): Segment {
    const segment = new Segment(path, openSync(path, "wx+", 0o600), shape, onWrite);
    try {
      segment.#write(headerOf(shape), 0);
      return segment;
    } catch (error) {
      segment.remove();
      throw error;
    }
  }

  /** Opens a file for reading; null if it has another shape or owner. Throws the system's errors. */
  static open(path: string, owner: Omit<SegmentShape, "pagesMax">): Segment | null {
    const descriptor = openSync(path, "r");
    let segment: Segment | null = null;
    try {
      const header = Buffer.alloc(HEADER_BYTES);
      readFully(descriptor, header, 0);
      const shape = { ...owner, pagesMax: header.readUInt32LE(8) };
      if (!header.equals(headerOf(shape))) return null;
      const opened = new Segment(path, descriptor, shape, () => {});
      readFully(descriptor, opened.#table, HEADER_BYTES);
      opened.#bytes = fstatSync(descriptor).size;
      const pages = Math.ceil((opened.#bytes - opened.#dataAt) / shape.pageBytes);
      opened.pages = Math.max(0, Math.min(shape.pagesMax, pages));
      segment = opened;
      return segment;
    } finally {
      if (segment === null) closeSync(descriptor);
    }
  }

  get isFull(): boolean {
    return this.pages === this.#shape.pagesMax;
  }

  /** Size of the file. */
  get bytes(): number {
    return this.#bytes;
  }

  /** Id of the page with this index; null if its entry is damaged. */
  idAt(index: number): StoredId | null {
    const entry = this.#entry(index);
    const isWhole =
      entry.readBigUInt64LE(AT.entry) === checksum(entry.subarray(0, AT.entry), ENTRY_SEED) &&
      entry.readUInt32LE(AT.index) === index;
    return isWhole ? entry.toString("latin1", AT.id, AT.id + 32) : null;
  }

  /** Appends a page. Throws the system's errors; the file must not be written after one. */
  append(id: StoredId, page: Uint8Array, secret: Uint8Array | null): void {
    const index = this.pages;
    const entry = this.#entry(index);
    entry.fill(0);
    entry.write(id, AT.id, "latin1");
    entry.writeUInt32LE(index, AT.index);
    this.pages += 1;
    this.#bytes = this.#offsetOf(this.pages);
    this.#write(secret === null ? seal(entry, page) : encrypt(entry, page, secret), this.#offsetOf(index));
    entry.writeBigUInt64LE(checksum(entry.subarray(0, AT.entry), ENTRY_SEED), AT.entry);
    this.#write(entry, HEADER_BYTES + index * ENTRY_BYTES);
  }

  /** Reads a page and checks it; false if it is damaged. Throws the system's errors. */
  read(index: number, page: Uint8Array, secret: Uint8Array | null): boolean {
    const entry = this.#entry(index);
    if (!readFully(this.#descriptor, page, this.#offsetOf(index))) return false;
    if ((entry.readUInt32LE(AT.isEncrypted) === 1) !== (secret !== null)) return false;
    if (secret !== null) return decrypt(entry, page, secret);
    return entry.readBigUInt64LE(AT.page) === pageChecksum(entry, page);
  }

  /** Sets the file's modification time, so that the order of use outlives the process. */
  markUsed(): void {
    const now = new Date();
    utimesSync(this.path, now, now);
  }

  close(): void {
    closeSync(this.#descriptor);
  }

  remove(): void {
    this.close();
    unlinkSync(this.path);
  }

  #entry(index: number): Buffer {
    return this.#table.subarray(index * ENTRY_BYTES, (index + 1) * ENTRY_BYTES);
  }

  #offsetOf(index: number): number {
    return this.#dataAt + index * this.#shape.pageBytes;
  }

  #write(bytes: Uint8Array, at: number): void {
    this.#onWrite(bytes.length);
    for (let done = 0; done < bytes.length; )
      done += writeSync(this.#descriptor, bytes, done, bytes.length - done, at + done);
  }
}

function headerOf({ identity, pageBytes, pagesMax }: SegmentShape): Buffer {
  const header = Buffer.alloc(HEADER_BYTES);
  header.write(MAGIC, "latin1");
  header.writeUInt32LE(pagesMax, 8);
  header.writeUInt32LE(pageBytes, 12);
  header.write(identity, 16, "hex");
  header.writeBigUInt64LE(checksum(header.subarray(0, HEADER_USED_BYTES), 0n), HEADER_USED_BYTES);
  return header;
}

/** Returns false if the file ends before. */
function readFully(descriptor: number, into: Uint8Array, at: number): boolean {
  for (let done = 0; done < into.length; ) {
    const read = readSync(descriptor, into, done, into.length - done, at + done);
    if (read === 0) return false;
    done += read;
  }
  return true;
}

function seal(entry: Buffer, page: Uint8Array): Uint8Array {
  entry.writeBigUInt64LE(pageChecksum(entry, page), AT.page);
  return page;
}

function encrypt(entry: Buffer, page: Uint8Array, secret: Uint8Array): Uint8Array {
  const nonce = randomBytes(AT.tag - AT.nonce);
  nonce.copy(entry, AT.nonce);
  entry.writeUInt32LE(1, AT.isEncrypted);
  const cipher = createCipheriv("aes-256-gcm", secret, nonce).setAAD(entry.subarray(0, AT.nonce));
  const encrypted = cipher.update(page);
  cipher.final(); // adds nothing to a stream cipher's text
  cipher.getAuthTag().copy(entry, AT.tag);
  return encrypted;
}

function decrypt(entry: Buffer, page: Uint8Array, secret: Uint8Array): boolean {
  const decipher = createDecipheriv("aes-256-gcm", secret, entry.subarray(AT.nonce, AT.tag))
    .setAAD(entry.subarray(0, AT.nonce))
    .setAuthTag(entry.subarray(AT.tag, AT.index));
  const decrypted = decipher.update(page);
  try {
    decipher.final();
  } catch {
    return false;
  }
  page.set(decrypted);
  return true;
}

/** Checksum of a page, keyed by its id: the same contents under another id do not match. */
function pageChecksum(entry: Buffer, page: Uint8Array): bigint {
  return checksum(page, entry.readBigUInt64LE(AT.id));
}

function checksum(bytes: Uint8Array, seed: bigint): bigint {
  return Bun.hash.xxHash3(bytes, seed);
}
