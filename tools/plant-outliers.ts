/**
 * Gives a model outlier channels like those of trained models, without changing its function. The norms
 * before attention and MLP scale some channels up by a power of two; the matrices that read them have columns
 * scaled down by the same factor.
 */
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { openModelFolder } from "../model/folder.ts";
import { TensorKind } from "../model/tensor-kinds.ts";
import type { ModelTensor } from "../model/weights.ts";

const { attentionNorm, mlpNorm, q, k, v, gate, up } = TensorKind;
const norms: readonly number[] = [attentionNorm, mlpNorm];
const readers: readonly number[] = [q, k, v, gate, up];
const bf16 = 2;

/** Copies a folder in bf16 and scales `channels` channels of every layer by `factor`, a power of two. */
export function plantOutliers(from: string, to: string, factor: number, channels = 6): void {
  cpSync(from, to, { recursive: true });
  const { tensors, config } = openModelFolder(to);
  const { hidden } = config.shape;
  const planted = Array.from({ length: channels }, (_, index) =>
    Math.floor(((index + 0.5) * hidden) / channels),
  );
  const changed = tensors.filter(({ tensor }) => norms.includes(tensor) || readers.includes(tensor));
  for (const [path, own] of Map.groupBy(changed, ({ path }) => path)) {
    const bytes = readFileSync(path);
    for (const tensor of own)
      scaleColumns(bytes, tensor, planted, norms.includes(tensor.tensor) ? factor : 1 / factor);
    writeFileSync(path, bytes);
  }
}

function scaleColumns(
  bytes: Buffer,
  { name, dtype, offset, rows, cols }: ModelTensor,
  columns: readonly number[],
  by: number,
): void {
  if (dtype !== bf16) throw new Error(`${name}: outliers are planted in bf16 alone`);
  const number = new DataView(new ArrayBuffer(4));
  for (let row = 0; row < rows; row += 1) {
    for (const column of columns) {
      const at = offset + (row * cols + column) * 2;
      number.setUint32(0, bytes.readUInt16LE(at) << 16);
      number.setFloat32(0, number.getFloat32(0) * by);
      bytes.writeUInt16LE(number.getUint32(0) >>> 16, at);
    }
  }
}
