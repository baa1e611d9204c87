/** Cosine of two rows of logits. */

export function cosineOf(a: Float32Array, b: Float32Array): number {
  let [ab, aa, bb] = [0, 0, 0];
  for (let i = 0; i < a.length; i += 1) {
    ab += a[i]! * b[i]!;
    aa += a[i]! * a[i]!;
    bb += b[i]! * b[i]!;
  }
  return ab / Math.sqrt(aa * bb);
}

/** Indices of the largest and second-largest value. */
export function bestTwo(values: Float32Array): readonly [number, number] {
  const order = [...values.keys()].sort((a, b) => values[b]! - values[a]!);
  return [order[0]!, order[1]!];
}

export function sameBits(a: Float32Array, b: Float32Array): boolean {
  const bytes = (row: Float32Array) => Buffer.from(row.buffer, row.byteOffset, row.byteLength);
  return bytes(a).equals(bytes(b));
}

export function largestDifference(a: Float32Array, b: Float32Array): number {
  return a.reduce((max, value, index) => Math.max(max, Math.abs(value - b[index]!)), 0);
}
