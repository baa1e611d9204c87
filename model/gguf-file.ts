/**
 * Reads the head of a GGUF file (versions 2 and 3, little-endian): metadata and tensor table, no tensor data.
 * As with safetensors, every returned byte range lies in the file, has the length that type and shape demand,
 * and overlaps no other. The reader never allocates memory for a length in the file before it has found that
 * many bytes.
 *
 * Layout: "GGUF", version (u32), tensor count and entry count (u64); then entries: key, type (u32), value.
 * Then tensors: name, number of dimensions (u32), dimensions (u64, fastest first), type (u32), offset (u64)
 * in the data. The data begins at the next multiple of `general.alignment`, and so does each tensor in it. A
 * text is its length (u64) and UTF-8; an array is the type of its items (u32), their number (u64) and the
 * items.
 */
import { readExactly, show, withFile } from "./json.ts";
import { ModelError } from "./model-error.ts";
import type { StoredTensor } from "./safetensors.ts";
import { storedTypes } from "./stored-types.ts";

/** Metadata value, tagged with its type. 64-bit integers beyond 2^53 are bigints. */
export type GgufValue =
  | { readonly type: IntegerType; readonly value: number | bigint }
  | { readonly type: RealType; readonly value: number }
  | { readonly type: "bool"; readonly value: boolean }
  | { readonly type: "string"; readonly value: string }
  | { readonly type: "array"; readonly of: "string"; readonly value: readonly string[] }
  | {
      readonly type: "array";
      readonly of: NumberType | "bool";
      readonly value: ArrayLike<number>;
      /** Bytes from the start of the file to the first item. */
      readonly offset: number;
    };

export interface GgufFile {
  readonly file: string;
  readonly fileBytes: number;
  readonly metadata: ReadonlyMap<string, GgufValue>;
  /** Tensors with row-major shapes: the fastest dimension is last. */
  readonly tensors: readonly StoredTensor[];
}

/** Random-access bytes of a file. */
export interface ByteSource {
  readonly bytes: number;
  /** Reads exactly [offset, offset + count), a range that must lie in the source. */
  read(offset: number, count: number): Uint8Array;
}

type IntegerType = "u8" | "i8" | "u16" | "i16" | "u32" | "i32" | "u64" | "i64";
type RealType = "f32" | "f64";
type NumberType = IntegerType | RealType;

/** Limits far above any released model. */
const limits = {
  headBytes: 128 << 20,
  tensors: 1 << 17,
  entries: 1 << 16,
  keyBytes: 65_535,
  nameBytes: 1024,
  textBytes: 16 << 20,
  items: 1 << 24,
  dimensions: 4,
  alignmentMin: 8,
  alignmentMax: 1 << 20,
} as const;

const windowBytes = 1 << 20;
const defaultAlignment = 32;

/** Value types by number. */
const valueTypes = [
  ...(["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool"] as const),
  ...(["string", "array", "u64", "i64", "f64"] as const),
];
type ValueType = (typeof valueTypes)[number];

const arrays = {
  u8: Uint8Array,
  i8: Int8Array,
  u16: Uint16Array,
  i16: Int16Array,
  u32: Uint32Array,
  i32: Int32Array,
  f32: Float32Array,
  bool: Uint8Array,
  u64: BigUint64Array,
  i64: BigInt64Array,
  f64: Float64Array,
} as const;

/** Supported tensor types by number. */
const tensorTypes = new Map(
  Object.entries(storedTypes).map(([name, type]) => [type.gguf as number, { name, ...type }]),
);
const supportedTypes = Object.keys(storedTypes);

/** Names of unsupported types, for error messages. */
const otherTypes: Readonly<Record<number, string>> = {
  ...{ 9: "Q8_1", 15: "Q8_K", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64" },
  ...{ 34: "TQ1_0", 35: "TQ2_0" },
};

/** Reads and checks the head of a file. Throws ModelError with the key or tensor at fault. */
export function readGgufFile(file: string): GgufFile {
  return withFile(file, (descriptor, bytes) =>
    parseGguf(file, { bytes, read: (offset, count) => readExactly(file, descriptor, offset, count) }),
  );
}

/** Parses the head from any source; `file` is its name in messages. */
export function parseGguf(file: string, source: ByteSource): GgufFile {
  const reader = new Reader(file, source);
  reader.expectMagic();
  const tensorCount = reader.count("tensors", limits.tensors);
  const entryCount = reader.count("metadata entries", limits.entries);
  const metadata = readMetadata(reader, entryCount);
  const alignment = alignmentOf(file, metadata);
  const tensors = readTensors(reader, tensorCount, alignment);
  return { file, fileBytes: source.bytes, metadata, tensors: placed(reader, tensors, alignment) };
}

function readMetadata(reader: Reader, count: number): Map<string, GgufValue> {
  const metadata = new Map<string, GgufValue>();
  for (let index = 0; index < count; index += 1) {
    reader.subject = `metadata entry ${index}`;
    const key = reader.text("key", limits.keyBytes);
    if (key === "") reader.refuse("has no key");
    reader.subject = key;
    if (metadata.has(key)) reader.refuse("the key appears twice");
    metadata.set(key, readValue(reader));
  }
  return metadata;
}

function readType(reader: Reader, what: string): ValueType {
  const number = reader.u32();
  return (
    valueTypes[number] ??
    reader.refuse(`${what} has the type ${number}; types are 0 to ${valueTypes.length - 1}`)
  );
}

function readValue(reader: Reader): GgufValue {
  const type = readType(reader, "the value");
  if (type === "string") return { type, value: reader.text("text", limits.textBytes) };
  if (type === "array") return readArray(reader);
  const item = reader.items(type, 1)[0]!;
  if (type === "bool") return { type, value: item === 1 };
  const isSafe = item >= Number.MIN_SAFE_INTEGER && item <= Number.MAX_SAFE_INTEGER;
  if (typeof item === "bigint" && isSafe) return { type: type as IntegerType, value: Number(item) };
  return { type, value: item } as GgufValue;
}

function readArray(reader: Reader): GgufValue {
  const of = readType(reader, "an array's items");
  if (of === "array") return reader.refuse("is an array of arrays, which no part of a model here is");
  const count = reader.count("items", limits.items);
  if (of === "string") return new TextArray(reader, count);
  const { offset } = reader;
  const value = reader.items(of, count);
  const isWide = value instanceof BigUint64Array || value instanceof BigInt64Array;
  return { type: "array", of, value: isWide ? Float64Array.from(value, Number) : value, offset };
}

/** Array of texts, which are decoded when they are first read: only tokenizers need them, and they are many. */
class TextArray {
  readonly type = "array";
  readonly of = "string";
  readonly #count: number;
  readonly #key: string | null;
  readonly #file: string;
  readonly #bytes: Uint8Array;
  #texts: readonly string[] | null = null;

  constructor(reader: Reader, count: number) {
    this.#count = count;
    this.#key = reader.subject;
    this.#file = reader.file;
    this.#bytes = reader.textBytes(count, limits.textBytes);
  }

  /** Throws ModelError if a text is not valid UTF-8. */
  get value(): readonly string[] {
    this.#texts ??= this.#decoded();
    return this.#texts;
  }

  #decoded(): string[] {
    const view = new DataView(this.#bytes.buffer, this.#bytes.byteOffset);
    const texts: string[] = [];
    let at = 0;
    for (let index = 0; index < this.#count; index += 1) {
      const bytes = view.getUint32(at, true);
      const text = utf8Or(this.#bytes.subarray(at + 8, at + 8 + bytes));
      if (text === null) throw new ModelError(this.#file, this.#key, `item ${index} is not valid UTF-8`);
      texts.push(text);
      at += 8 + bytes;
    }
    return texts;
  }
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

function utf8Or(bytes: Uint8Array): string | null {
  try {
    return utf8.decode(bytes);
  } catch {
    return null;
  }
}

function alignmentOf(file: string, metadata: ReadonlyMap<string, GgufValue>): number {
  const key = "general.alignment";
  const entry = metadata.get(key);
  if (entry === undefined) return defaultAlignment;
  const { alignmentMin, alignmentMax } = limits;
  const { type, value } = entry;
  const isPower = typeof value === "number" && Number.isInteger(Math.log2(value));
  if (type === "u32" && isPower && value >= alignmentMin && value <= alignmentMax) return value;
  throw new ModelError(
    file,
    key,
    `${show(type === "array" ? type : String(value))} (${type}): wanted: a u32 power of two from ${alignmentMin} to ${alignmentMax}`,
  );
}

/** Tensor table with offsets that are still relative to the data. */
function readTensors(reader: Reader, count: number, alignment: number): StoredTensor[] {
  const tensors: StoredTensor[] = [];
  const names = new Set<string>();
  for (let index = 0; index < count; index += 1) {
    reader.subject = `tensor ${index}`;
    const name = reader.text("name", limits.nameBytes);
    if (name === "") reader.refuse("has no name");
    reader.subject = name;
    if (names.has(name)) reader.refuse("the tensor appears twice");
    names.add(name);
    tensors.push(readTensor(reader, name, alignment));
  }
  return tensors;
}

function readTensor(reader: Reader, name: string, alignment: number): StoredTensor {
  const dimensions = reader.u32();
  if (dimensions < 1 || dimensions > limits.dimensions) {
    reader.refuse(`has ${dimensions} dimensions; 1 to ${limits.dimensions} are possible`);
  }
  const shape: number[] = [];
  let elements = 1;
  for (let index = 0; index < dimensions; index += 1) {
    const size = reader.count("a dimension", Number.MAX_SAFE_INTEGER);
    shape.unshift(size);
    elements *= size;
    if (size === 0) reader.refuse("has a dimension of 0");
    if (!Number.isSafeInteger(elements))
      reader.refuse(`has more elements than a file can hold: ${show(shape)}`);
  }
  const type = reader.u32();
  const { name: dtype, block, bytes: blockBytes } = tensorTypes.get(type) ?? refuseType(reader, type);
  const row = shape.at(-1)!;
  if (row % block !== 0) {
    reader.refuse(`has rows of ${row}, which are no whole number of ${dtype} blocks of ${block}`);
  }
  const bytes = (elements / block) * blockBytes;
  if (!Number.isSafeInteger(bytes))
    reader.refuse(`has more bytes than a file can hold: ${dtype} ${show(shape)}`);
  const offset = reader.count("the offset", Number.MAX_SAFE_INTEGER);
  if (offset % alignment !== 0) reader.refuse(`its offset ${offset} is not a multiple of ${alignment}`);
  return { name, file: reader.file, dtype, shape, offset, bytes };
}

function refuseType(reader: Reader, type: number): never {
  const name = otherTypes[type];
  const named = name === undefined ? "" : `, ${name}`;
  return reader.refuse(`has the type ${type}${named}; supported: ${supportedTypes.join(", ")}`);
}

/**
 * Tensors in file order with offsets from the start of the file; checks that only alignment separates them.
 */
function placed(reader: Reader, tensors: readonly StoredTensor[], alignment: number): StoredTensor[] {
  const { file, fileBytes } = reader;
  const aligned = (offset: number): number => Math.ceil(offset / alignment) * alignment;
  const start = aligned(reader.offset);
  const inFile = tensors
    .map((tensor) => ({ ...tensor, offset: start + tensor.offset }))
    .sort((a, b) => a.offset - b.offset || a.bytes - b.bytes);
  let covered = reader.offset;
  for (const { name, offset, bytes } of inFile) {
    if (offset + bytes > fileBytes) {
      throw new ModelError(
        file,
        name,
        `takes bytes ${offset} to ${offset + bytes} of a file of ${fileBytes}; is the file complete?`,
      );
    }
    if (offset < covered) throw new ModelError(file, name, "overlaps another tensor's data");
    if (offset !== aligned(covered)) {
      throw new ModelError(file, name, `leaves a hole of ${offset - covered} bytes before it`);
    }
    covered = offset + bytes;
  }
  if (fileBytes > aligned(covered)) {
    const reason = `has ${fileBytes - covered} bytes after the last tensor that belong to none`;
    throw new ModelError(file, null, reason);
  }
  return inFile;
}

/** Cursor over a file's head; keeps a window of it in memory. */
class Reader {
  readonly file: string;
  readonly fileBytes: number;
  /** Key or tensor being read, for messages. */
  subject: string | null = null;
  readonly #source: ByteSource;
  #window = new Uint8Array(0);
  #view = new DataView(this.#window.buffer);
  /** File offset of the window's first byte. */
  #start = 0;
  #at = 0;

  constructor(file: string, source: ByteSource) {
    this.file = file;
    this.fileBytes = source.bytes;
    this.#source = source;
  }

  /** File offset of the next byte. */
  get offset(): number {
    return this.#at;
  }

  refuse(reason: string): never {
    throw new ModelError(this.file, this.subject, reason);
  }

  expectMagic(): void {
    if (this.fileBytes < 24) this.refuse(`has ${this.fileBytes} bytes, too short for a GGUF file`);
    const magic = utf8Or(this.#take(4));
    const version = this.u32();
    if (magic === "vers") this.refuse("is a Git LFS pointer, not the weights; `git lfs pull` fetches them");
    if (magic !== "GGUF")
      this.refuse(`begins with ${magic === null ? "other bytes" : show(magic)}, not with "GGUF"`);
    if (version === 2 || version === 3) return;
    if (version === 0x0200_0000 || version === 0x0300_0000) this.refuse("is big-endian, which is not read");
    this.refuse(`is GGUF of version ${version}; versions 2 and 3 are read`);
  }

  u32(): number {
    const at = this.#need(4, "a number");
    this.#at += 4;
    return this.#view.getUint32(at, true);
  }

  /** Reads a u64 and refuses more than `max`. */
  count(what: string, max: number): number {
    const at = this.#need(8, "a number");
    this.#at += 8;
    const value = this.#view.getBigUint64(at, true);
    return value <= max ? Number(value) : this.refuse(`${what}: ${value}; at most ${max} are possible`);
  }

  text(what: string, bytesMax: number): string {
    const bytes = this.count(`bytes of ${what}`, bytesMax);
    const text = utf8Or(this.#take(bytes, what));
    return text ?? this.refuse(`${what} is not valid UTF-8`);
  }

  /** Reads `count` values into a new array. */
  items(type: Exclude<ValueType, "string" | "array">, count: number) {
    const array = arrays[type];
    const bytes = Uint8Array.from(this.#take(count * array.BYTES_PER_ELEMENT, `${count} values of ${type}`));
    const items = new array(bytes.buffer, 0, count);
    if (type === "bool" && (items as Uint8Array).some((item) => item > 1)) {
      this.refuse("a truth value is neither 0 nor 1");
    }
    return items;
  }

  /** Bytes of `count` texts with their lengths, each of which is checked. */
  textBytes(count: number, bytesMax: number): Uint8Array {
    const from = this.#at;
    for (let index = 0; index < count; index += 1) {
      if (this.#skipText(bytesMax)) continue;
      const bytes = this.count(`bytes of item ${index}`, bytesMax);
      this.#need(bytes, `item ${index}`);
      this.#at += bytes;
    }
    return new Uint8Array(this.#source.read(from, this.#at - from));
  }

  /** Returns the next `count` bytes, valid until the next call. */
  #take(count: number, what = "the head"): Uint8Array {
    const at = this.#need(count, what);
    this.#at += count;
    return this.#window.subarray(at, at + count);
  }

  /** Skips a text that is in the window and short enough; false for another, which is left. */
  #skipText(bytesMax: number): boolean {
    const at = this.#at - this.#start;
    if (at + 8 > this.#window.length) return false;
    const bytes = this.#view.getUint32(at, true);
    const isShort = bytes <= bytesMax && this.#view.getUint32(at + 4, true) === 0;
    if (!isShort || at + 8 + bytes > this.#window.length) return false;
    this.#at += 8 + bytes;
    return true;
  }

  /** Brings the next `count` bytes into the window and returns the position of the first one in it. */
  #need(count: number, what: string): number {
    const end = this.#at + count;
    if (end > this.fileBytes) {
      this.refuse(
        `${what} takes bytes ${this.#at} to ${end} of a file of ${this.fileBytes}; is the file complete?`,
      );
    }
    if (end > limits.headBytes) {
      this.refuse(`${what} ends at byte ${end}; metadata and tensor table may take ${limits.headBytes}`);
    }
    if (end > this.#start + this.#window.length) {
      const wanted = Math.min(Math.max(count, windowBytes), this.fileBytes - this.#at);
      this.#window = new Uint8Array(this.#source.read(this.#at, wanted));
      this.#view = new DataView(this.#window.buffer);
      this.#start = this.#at;
    }
    return this.#at - this.#start;
  }
}
