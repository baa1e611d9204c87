/**
 * Writer of GGUF files for tests, invalid ones included: it checks no input. The format is described in
 * model/gguf-file.ts.
 */
import { type ByteSource, type GgufFile, parseGguf } from "../../model/gguf-file.ts";

/** Types of metadata values, by their numbers. */
const valueTypes: readonly string[] = [
  ...["u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "array", "u64", "i64", "f64"],
];

/** Encoders of one number; this machine is little-endian like the format. */
const numberBytes: Readonly<Record<string, (value: number) => ArrayBufferLike>> = {
  u8: (value) => Uint8Array.of(value).buffer,
  i8: (value) => Int8Array.of(value).buffer,
  u16: (value) => Uint16Array.of(value).buffer,
  i16: (value) => Int16Array.of(value).buffer,
  u32: (value) => Uint32Array.of(value).buffer,
  i32: (value) => Int32Array.of(value).buffer,
  f32: (value) => Float32Array.of(value).buffer,
  f64: (value) => Float64Array.of(value).buffer,
  bool: (value) => Uint8Array.of(Number(value)).buffer,
  u64: (value) => BigUint64Array.of(BigInt(value)).buffer,
  i64: (value) => BigInt64Array.of(BigInt(value)).buffer,
};

/** Metadata entry: key, type ("u32", "string", "f32[]", …) and value. */
export type Entry = readonly [key: string, type: string, value: unknown];

export interface TensorInput {
  readonly name: string;
  /** Shape, row-major as elsewhere in this project. */
  readonly shape: readonly (number | bigint)[];
  /** Type number in the format. */
  readonly type: number;
  readonly data: Uint8Array;
  /** Overrides the true data offset. */
  readonly offset?: number | bigint;
}

export interface GgufInput {
  readonly version?: number;
  readonly alignment?: number;
  readonly entries: readonly Entry[];
  readonly tensors: readonly TensorInput[];
  /** Overrides the true counts. */
  readonly tensorCount?: number | bigint;
  readonly entryCount?: number | bigint;
}

export function ggufBytes(input: GgufInput): Uint8Array {
  const { version = 3, alignment = 32, entries, tensors } = input;
  const writer = new Writer();
  writer.raw(new TextEncoder().encode("GGUF"));
  writer.u32(version);
  writer.u64(input.tensorCount ?? tensors.length);
  writer.u64(input.entryCount ?? entries.length);
  for (const [key, type, value] of entries) {
    writer.text(key);
    writeTyped(writer, type, value);
  }
  let offset = 0;
  for (const tensor of tensors) {
    writer.text(tensor.name);
    writer.u32(tensor.shape.length);
    for (const size of tensor.shape.toReversed()) writer.u64(size);
    writer.u32(tensor.type);
    writer.u64(tensor.offset ?? offset);
    offset = Math.ceil((offset + tensor.data.length) / alignment) * alignment;
  }
  for (const tensor of tensors) {
    writer.alignTo(alignment);
    writer.raw(tensor.data);
  }
  writer.alignTo(alignment);
  return writer.bytes();
}

function writeTyped(writer: Writer, type: string, value: unknown): void {
  if (!type.endsWith("[]")) {
    writer.u32(valueTypes.indexOf(type));
    writeValue(writer, type, value);
    return;
  }
  const of = type.slice(0, -2);
  const items = value as ArrayLike<unknown>;
  writer.u32(valueTypes.indexOf("array"));
  writer.u32(valueTypes.indexOf(of));
  writer.u64(items.length);
  for (let index = 0; index < items.length; index += 1) writeValue(writer, of, items[index]);
}

function writeValue(writer: Writer, type: string, value: unknown): void {
  if (type === "string") writer.text(value as string);
  else writer.raw(new Uint8Array(numberBytes[type]!(value as number)));
}

class Writer {
  #bytes = new Uint8Array(1 << 16);
  #length = 0;

  raw(bytes: Uint8Array): void {
    this.#reserve(bytes.length);
    this.#bytes.set(bytes, this.#length);
    this.#length += bytes.length;
  }

  u32(value: number): void {
    this.#reserve(4);
    new DataView(this.#bytes.buffer).setUint32(this.#length, value, true);
    this.#length += 4;
  }

  u64(value: number | bigint): void {
    this.#reserve(8);
    new DataView(this.#bytes.buffer).setBigUint64(this.#length, BigInt.asUintN(64, BigInt(value)), true);
    this.#length += 8;
  }

  text(text: string): void {
    const bytes = new TextEncoder().encode(text);
    this.u64(bytes.length);
    this.raw(bytes);
  }

  alignTo(alignment: number): void {
    const end = Math.ceil(this.#length / alignment) * alignment;
    this.#reserve(end - this.#length);
    this.#length = end;
  }

  bytes(): Uint8Array {
    return this.#bytes.slice(0, this.#length);
  }

  #reserve(count: number): void {
    if (this.#length + count <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(this.#bytes.length * 2, this.#length + count));
    larger.set(this.#bytes);
    this.#bytes = larger;
  }
}

/** Byte source over an array; reads outside of it are errors. */
export function memorySource(bytes: Uint8Array): ByteSource {
  return {
    bytes: bytes.length,
    read(offset, count) {
      if (!(offset >= 0 && count >= 0 && offset + count <= bytes.length)) {
        throw new Error(`bytes ${offset} to ${offset + count} of ${bytes.length} were read`);
      }
      return bytes.slice(offset, offset + count);
    },
  };
}

/** Returns the parsed head of the file for this input. */
export function parsedGguf(input: GgufInput): GgufFile {
  return parseGguf("model.gguf", memorySource(ggufBytes(input)));
}
