/** Reads small tensors to the server's own memory, as f32. */
import { readExactly, withFile } from "./json.ts";
import { ModelError } from "./model-error.ts";
import type { StoredTensor } from "./safetensors.ts";

/** Types that `numbersOf` reads. */
export const readTypes: readonly string[] = ["F32", "F16", "BF16", "Q8_0"];

/** Numbers of a tensor; of one row of a matrix if `row` is given. */
export function numbersOf(tensor: StoredTensor, row?: number): Float32Array {
  const { file, name, dtype, shape, offset, bytes } = tensor;
  const rows = row === undefined ? 1 : shape[0]!;
  const rowBytes = bytes / rows;
  const raw = withFile(file, (descriptor) =>
    readExactly(file, descriptor, offset + (row ?? 0) * rowBytes, rowBytes),
  );
  const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength);
  const read: Record<string, (at: number) => number> = {
    F32: (at) => view.getFloat32(4 * at, true),
    F16: (at) => view.getFloat16(2 * at, true),
    BF16: (at) => bf16(view.getUint16(2 * at, true)),
    // 32 bytes behind the scale that they share.
    Q8_0: (at) => {
      const block = 34 * Math.floor(at / 32);
      return view.getFloat16(block, true) * view.getInt8(block + 2 + (at % 32));
    },
  };
  const value = read[dtype];
  if (value === undefined)
    throw new ModelError(file, name, `has dtype ${dtype}; wanted: ${Object.keys(read).join(", ")}`);
  const count = shape.reduce((product, size) => product * size, 1) / rows;
  return Float32Array.from({ length: count }, (_, at) => value(at));
}

function bf16(bits: number): number {
  const view = new DataView(new ArrayBuffer(4));
  view.setUint16(2, bits, true);
  return view.getFloat32(0, true);
}
