/**
 * Cache of packed weights on disk: file locations, and the key that detects changed model files. Uses the
 * model's own folder if it is writable, else the user's cache folder. The reader of such a file checks its
 * content (csrc/model/packed_file.h).
 */
import { accessSync, constants, mkdirSync, statSync } from "node:fs";
import { basename, dirname, join } from "node:path";
import { readExactly, withFile } from "../../model/json.ts";
import { matrixFormats } from "../../model/matrix-formats.ts";
import type { ModelShape } from "../../model/shape.ts";
import type { ModelTensor } from "../../model/weights.ts";
import type { ComputeOptions } from "../native.ts";

/** Place of a model's packed weights. */
export interface PackedPlace {
  readonly path: string;
  /** 32 bytes. */
  readonly key: Uint8Array;
}

/** Number and size of the samples of each file, which distinguish files of the same size and time. */
const samples = 64;
const sampleBytes = 4096;

/**
 * File for these weights in the first of `folders` that is writable (or can be made); null if there is none.
 */
export function packedPlace(
  folders: readonly string[],
  shape: ModelShape,
  tensors: readonly ModelTensor[],
  options: ComputeOptions,
): PackedPlace | null {
  const folder = folders.find(isWritable);
  const first = tensors[0];
  if (folder === undefined || first === undefined) return null;
  const key = packedKey(shape, tensors, options);
  // Outside the model's folder, equally named folders must not overwrite each other's files.
  const origin = dirname(first.path);
  const stem = folder === origin ? "" : `${basename(origin)}-${hex(hashOf(origin)).slice(0, 8)}-`;
  const formats = hex(hashOf(JSON.stringify(packedFormats(options)))).slice(0, 6);
  const name = `${stem}${basename(first.path)}.${options.compute}-${formats}.bunting-packed`;
  return { path: join(folder, name), key };
}

/**
 * Hash of everything on which packed weights depend: shape, formats, and the model files by size,
 * modification time and samples.
 */
export function packedKey(
  shape: ModelShape,
  tensors: readonly ModelTensor[],
  options: ComputeOptions,
): Uint8Array {
  const { contextMax: _, ...packedShape } = shape; // rotation tables are not packed
  const paths = [...new Set(tensors.map(({ path }) => path))];
  const hasher = new Bun.CryptoHasher("sha256");
  const entries = tensors.map(({ path, name: _name, ...tensor }) => ({
    ...tensor,
    file: paths.indexOf(path),
  }));
  hasher.update(JSON.stringify([packedShape, options.compute, packedFormats(options), entries]));
  for (const path of paths) {
    withFile(path, (descriptor, bytes) => {
      hasher.update(JSON.stringify([bytes, statSync(path).mtimeMs]));
      const count = Math.min(sampleBytes, bytes);
      for (let i = 0; i < samples; i += 1) {
        const offset = Math.floor(((bytes - count) * i) / (samples - 1));
        hasher.update(readExactly(path, descriptor, offset, count));
      }
    });
  }
  return hasher.digest();
}

/** Formats as packed: fp8 matrices are packed unquantized and rounded on the GPU. */
function packedFormats({ formats = [] }: ComputeOptions): readonly number[] {
  return formats.map((format) => (format === matrixFormats.fp8 ? matrixFormats.plain : format));
}

function isWritable(folder: string): boolean {
  try {
    mkdirSync(folder, { recursive: true, mode: 0o700 });
    accessSync(folder, constants.W_OK);
    return true;
  } catch {
    return false; // the caller tries the next folder
  }
}

function hashOf(text: string): Uint8Array {
  return new Bun.CryptoHasher("sha256").update(text).digest();
}

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}
