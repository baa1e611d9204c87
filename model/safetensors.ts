/**
 * Reads safetensors headers and no data. The resulting byte ranges lie in the file, have the length that
 * dtype and shape demand, and do not overlap. Native code maps the file only after these checks.
 *
 * Layout: header length (u64, little-endian), JSON header {name: {dtype, shape, data_offsets: [begin, end]},
 * …} with offsets relative to the end of the header, then the data. The tensors must cover the data without
 * holes.
 */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { isObject, parseJsonObject, readExactly, readJsonObject, show, withFile } from "./json.ts";
import { ModelError } from "./model-error.ts";

/** Name, type and place of a stored tensor. */
export interface StoredTensor {
  readonly name: string;
  /** Path of the file that holds it. */
  readonly file: string;
  /** Type name in the file: "BF16", "F32", … */
  readonly dtype: string;
  readonly shape: readonly number[];
  /** First byte, counted from the start of the file; `offset + bytes` is at most the file's size. */
  readonly offset: number;
  readonly bytes: number;
}

export interface StoredTensors {
  readonly tensors: ReadonlyMap<string, StoredTensor>;
  /** Weight files, in the order of their names. */
  readonly files: readonly string[];
  /** Total size of the weight files. */
  readonly filesBytes: number;
}

/** Limit of the safetensors format. */
const headerBytesMax = 100_000_000;
const lengthBytes = 8;
const indexBytesMax = 64 << 20;
const dimensionsMax = 8;

const dtypeBytes: Readonly<Record<string, number>> = {
  BOOL: 1,
  U8: 1,
  I8: 1,
  F8_E4M3: 1,
  F8_E5M2: 1,
  F8_E8M0: 1,
  U16: 2,
  I16: 2,
  F16: 2,
  BF16: 2,
  U32: 4,
  I32: 4,
  F32: 4,
  U64: 8,
  I64: 8,
  F64: 8,
};

/** All tensors of a folder: from model.safetensors, else from the shards in model.safetensors.index.json. */
export function readStoredTensors(dir: string): StoredTensors {
  const index = join(dir, "model.safetensors.index.json");
  const single = join(dir, "model.safetensors");
  return existsSync(index) && !existsSync(single) ? readShards(dir, index) : readFiles([single]);
}

/** Reads and checks the header of one file. */
export function readSafetensors(file: string): {
  readonly tensors: readonly StoredTensor[];
  readonly bytes: number;
} {
  return withFile(file, (descriptor, bytes) => {
    const start = readExactly(file, descriptor, 0, Math.min(bytes, lengthBytes));
    const headerBytes = headerLength(file, start, bytes);
    const header = readExactly(file, descriptor, lengthBytes, headerBytes);
    return { tensors: parseHeader(file, header, bytes), bytes };
  });
}

/**
 * Header length (u64) at the start of a file of `fileBytes` bytes. Throws ModelError if such a header cannot
 * fit.
 */
export function headerLength(file: string, start: Uint8Array, fileBytes: number): number {
  if (start.length < lengthBytes) {
    throw new ModelError(file, null, `has ${fileBytes} bytes, too short for a safetensors file`);
  }
  if (new TextDecoder().decode(start) === "version ") {
    throw new ModelError(file, null, "is a Git LFS pointer, not the weights; `git lfs pull` fetches them");
  }
  const length = new DataView(start.buffer, start.byteOffset, lengthBytes).getBigUint64(0, true);
  if (length > BigInt(headerBytesMax)) {
    throw new ModelError(
      file,
      "header",
      `states a length of ${length} bytes; at most ${headerBytesMax} are allowed`,
    );
  }
  if (Number(length) > fileBytes - lengthBytes) {
    throw new ModelError(file, "header", `states a length of ${length} bytes in a file of ${fileBytes}`);
  }
  return Number(length);
}

/** Checks the JSON header of a file of `fileBytes` bytes. Pure. */
export function parseHeader(file: string, header: Uint8Array, fileBytes: number): StoredTensor[] {
  const dataStart = lengthBytes + header.length;
  const dataBytes = fileBytes - dataStart;
  const tensors = Object.entries(parseJsonObject(file, header))
    .filter(([name]) => name !== "__metadata__")
    .map(([name, entry]) => parseEntry(file, name, entry, dataStart, dataBytes));
  tensors.sort((a, b) => a.offset - b.offset || a.bytes - b.bytes);

  let covered = dataStart;
  for (const { name, offset, bytes } of tensors) {
    if (offset < covered) throw new ModelError(file, name, "overlaps another tensor's data");
    if (offset > covered)
      throw new ModelError(file, name, `leaves a hole of ${offset - covered} bytes before it`);
    covered = offset + bytes;
  }
  if (covered !== fileBytes) {
    throw new ModelError(
      file,
      null,
      `has ${fileBytes - covered} bytes after the last tensor that belong to none`,
    );
  }
  return tensors;
}

function parseEntry(
  file: string,
  name: string,
  entry: unknown,
  dataStart: number,
  dataBytes: number,
): StoredTensor {
  const refuse = (reason: string): never => {
    throw new ModelError(file, name, reason);
  };
  if (!isObject(entry)) return refuse(`is ${show(entry)}, not an object with dtype, shape and data_offsets`);
  const { dtype, shape, data_offsets: offsets } = entry;
  if (typeof dtype !== "string" || !Object.hasOwn(dtypeBytes, dtype))
    return refuse(`unknown dtype ${show(dtype)}`);
  if (!isCounts(shape) || shape.length > dimensionsMax) {
    return refuse(`shape ${show(shape)} is not a list of at most ${dimensionsMax} whole numbers`);
  }
  if (!isCounts(offsets) || offsets.length !== 2) {
    return refuse(`data_offsets ${show(offsets)} are not two whole numbers`);
  }
  const [begin, end] = offsets as [number, number];
  if (begin > end || end > dataBytes) {
    return refuse(
      `data_offsets ${show(offsets)} lie outside the file's ${dataBytes} bytes of data; is the file complete?`,
    );
  }
  let bytes = dtypeBytes[dtype]!;
  for (const size of shape) {
    bytes *= size;
    if (!Number.isSafeInteger(bytes))
      return refuse(`shape ${show(shape)} has more elements than a file can hold`);
  }
  if (bytes !== end - begin) {
    return refuse(
      `${dtype} ${show(shape)} takes ${bytes} bytes, data_offsets ${show(offsets)} give ${end - begin}`,
    );
  }
  return { name, file, dtype, shape, offset: dataStart + begin, bytes };
}

function isCounts(value: unknown): value is readonly number[] {
  return Array.isArray(value) && value.every((item) => Number.isSafeInteger(item) && item >= 0);
}

function readFiles(files: readonly string[]): StoredTensors {
  const tensors = new Map<string, StoredTensor>();
  let filesBytes = 0;
  for (const file of files) {
    const read = readSafetensors(file);
    filesBytes += read.bytes;
    for (const tensor of read.tensors) {
      const other = tensors.get(tensor.name);
      if (other !== undefined) throw new ModelError(file, tensor.name, `is in ${other.file} too`);
      tensors.set(tensor.name, tensor);
    }
  }
  return { tensors, files, filesBytes };
}

/** Reads the shards of an index, which maps each tensor's name to its shard. */
function readShards(dir: string, index: string): StoredTensors {
  const map = readJsonObject(index, indexBytesMax).weight_map;
  if (!isObject(map)) throw new ModelError(index, "weight_map", `is ${show(map)}, not an object`);
  const shards = new Set<string>();
  for (const [name, shard] of Object.entries(map)) {
    // Accepts a plain name in this folder only: no separator, no leading dot, so no path out of the folder.
    if (typeof shard !== "string" || !/^\w[\w.-]*\.safetensors$/.test(shard)) {
      throw new ModelError(index, name, `${show(shard)} is not the plain name of a .safetensors file`);
    }
    shards.add(shard);
  }
  const read = readFiles([...shards].sort().map((shard) => join(dir, shard)));
  for (const [name, shard] of Object.entries(map)) {
    const tensor = read.tensors.get(name);
    const file = join(dir, String(shard));
    if (tensor === undefined)
      throw new ModelError(file, name, "is missing, though the index says it is here");
    if (tensor.file !== file)
      throw new ModelError(file, name, `is in ${tensor.file}, not here as the index says`);
  }
  return read;
}
