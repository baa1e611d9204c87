/** Recordings on disk: MessagePack records, each preceded by its length in four bytes, little-endian. */

import { closeSync, existsSync, openSync, readFileSync, unlinkSync, writeSync } from "node:fs";
import { Packr, Unpackr } from "msgpackr";
import {
  RECORDING_VERSION,
  type RecordingEntry,
  type RecordingHead,
} from "../../scheduler/recording/recording.ts";
import { ConfigError } from "../config.ts";

const options = { useRecords: false, moreTypes: true } as const;
const LENGTH_BYTES = 4;
const FLUSH_BYTES = 256 * 1024;
const FLUSH_MS = 1000;

/** Content of a recording. */
export interface Recording {
  readonly head: RecordingHead;
  readonly entries: readonly RecordingEntry[];
  /** True if it ends within a record because its process was killed. */
  readonly isCut: boolean;
}

/** Writes a recording. A crash may lose the last second. A full disk ends the recording, not the server. */
export class RecordingWriter {
  readonly #packer = new Packr(options);
  /** File descriptor; null after the recording has ended. */
  #file: number | null;
  #pending: Buffer[] = [];
  #pendingBytes = 0;
  #timer: ReturnType<typeof setTimeout> | null = null;

  /** Replaces the file at `path`. Throws ConfigError if it cannot be written. */
  constructor(path: string) {
    this.#file = openToWrite(path, "w");
  }

  /** Appends a record; the head must be first. */
  write(record: RecordingHead | RecordingEntry): void {
    if (this.#file === null) return;
    const bytes = this.#packer.pack(record);
    const length = Buffer.alloc(LENGTH_BYTES);
    length.writeUInt32LE(bytes.length);
    this.#pending.push(length, bytes);
    this.#pendingBytes += LENGTH_BYTES + bytes.length;
    if (this.#pendingBytes >= FLUSH_BYTES) this.#flush();
    else this.#timer ??= setTimeout(() => this.#flush(), FLUSH_MS);
  }

  close(): void {
    this.#flush();
    if (this.#file !== null) closeSync(this.#file);
    this.#file = null;
  }

  #flush(): void {
    if (this.#timer !== null) clearTimeout(this.#timer);
    this.#timer = null;
    const bytes = Buffer.concat(this.#pending);
    this.#pending = [];
    this.#pendingBytes = 0;
    if (this.#file === null) return;
    try {
      for (let done = 0; done < bytes.length; ) done += writeSync(this.#file, bytes, done);
    } catch (error) {
      console.error(`the recording ends here: ${String(error)}`);
      closeSync(this.#file);
      this.#file = null;
    }
  }
}

/** Reads a recording. Throws ConfigError if it is missing or invalid. */
export function readRecording(path: string): Recording {
  const bytes = readBytes(path);
  const unpacker = new Unpackr(options);
  const records: unknown[] = [];
  let at = 0;
  while (at + LENGTH_BYTES <= bytes.length) {
    const end = at + LENGTH_BYTES + bytes.readUInt32LE(at);
    if (end > bytes.length) break;
    try {
      records.push(unpacker.unpack(bytes.subarray(at + LENGTH_BYTES, end)));
    } catch {
      throw new ConfigError(`${path} is no recording.`);
    }
    at = end;
  }
  const [head, ...entries] = records as [RecordingHead | undefined, ...RecordingEntry[]];
  if (head?.kind !== "head") throw new ConfigError(`${path} is no recording.`);
  if (head.version !== RECORDING_VERSION) {
    const versions = `version ${head.version}; this Bunting decides by version ${RECORDING_VERSION}`;
    throw new ConfigError(`${path} was recorded by another Bunting, whose rules are ${versions}.`);
  }
  return { head, entries, isCut: at < bytes.length };
}

function readBytes(path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError(`The recording cannot be read: ${reason}`);
  }
}

/** Throws ConfigError if a recording cannot be written to `path`. Changes no file. */
export function expectWritable(path: string): void {
  const isNew = !existsSync(path);
  closeSync(openToWrite(path, "a"));
  if (isNew) unlinkSync(path);
}

function openToWrite(path: string, flags: "w" | "a"): number {
  try {
    return openSync(path, flags, 0o600); // recordings contain users' text
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new ConfigError(`The recording cannot be written: ${reason}`);
  }
}
