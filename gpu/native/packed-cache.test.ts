import { afterAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, statSync, utimesSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type ModelShape, plainLayer } from "../../model/shape.ts";
import type { ModelTensor } from "../../model/weights.ts";
import type { ComputeOptions } from "../native.ts";
import { packedKey, packedPlace } from "./packed-cache.ts";

const scratch = mkdtempSync(join(tmpdir(), "bunting-packed-"));
afterAll(() => rmSync(scratch, { recursive: true }));

const shape: ModelShape = {
  ...{
    layers: [plainLayer],
    hidden: 32,
    feedForward: 64,
    queryHeads: 2,
    kvHeads: 1,
    headSize: 16,
    vocab: 40,
  },
  ...{
    contextMax: 64,
    tiedEmbeddings: true,
    normEpsilon: 1e-6,
    norm: "rms",
    activation: "silu",
    experts: null,
  },
  ...{ ropes: [{ kind: "plain", theta: 10_000, dimensions: 16 }], attentionScale: 0.25, attentionCap: 0 },
  ...{ embeddingScale: 1, layerInputs: 0, residualScale: 1, logitScale: 1, logitCap: 0 },
};
const options: ComputeOptions = { compute: "bf16", isa: "auto", threads: 1, formats: [1, 1, 2, 2, 2, 2] };

/** Tensor in a file of 9 MiB. */
function tensorIn(name: string): ModelTensor {
  const path = join(scratch, name);
  writeFileSync(path, new Uint8Array(9 << 20));
  return {
    ...{
      tensor: 0,
      layer: 0,
      path,
      offset: 8,
      bytes: 2560,
      dtype: 2,
      pairedRows: false,
      oneLess: false,
      expert: 0,
      everySecond: false,
      groupedHeads: false,
      transposed: false,
      halfRows: false,
      keysWithValues: false,
      rows: 40,
      cols: 32,
    },
    name: "embedding",
  };
}

const keyOf = (tensor: ModelTensor, of = shape, as = options): string =>
  Buffer.from(packedKey(of, [tensor], as)).toString("hex");

test("the key changes with all that packed weights depend on, and with nothing else", () => {
  const tensor = tensorIn("one");
  const key = keyOf(tensor);
  expect(key).toMatch(/^[0-9a-f]{64}$/);
  expect(keyOf(tensor, { ...shape, contextMax: 128 }, { ...options, threads: 4, isa: "avx2" })).toBe(key);
  const others = [
    keyOf(tensor, { ...shape, hidden: 48 }),
    keyOf(tensor, shape, { ...options, compute: "f32" }),
    keyOf(tensor, shape, { ...options, formats: [1, 1, 1, 2, 2, 2] }),
    keyOf({ ...tensor, offset: 16 }),
    keyOf({ ...tensor, dtype: 1 }),
  ];
  const { mtime } = statSync(tensor.path);
  const bytes = new Uint8Array(9 << 20);
  bytes[bytes.length - 1] = 1; // same size and time as before
  writeFileSync(tensor.path, bytes);
  utimesSync(tensor.path, mtime, mtime);
  others.push(keyOf(tensor));
  utimesSync(tensor.path, mtime, new Date(0));
  others.push(keyOf(tensor));
  expect(new Set([key, ...others]).size).toBe(others.length + 1);
});

test("the place is the first folder that can be used", () => {
  const tensor = tensorIn("two");
  const path = (folders: readonly string[]) => packedPlace(folders, shape, [tensor], options)?.path;
  expect(path([scratch, join(scratch, "cache")])).toMatch(/^.*\/two\.bf16-[0-9a-f]{6}\.bunting-packed$/);
  expect(path([scratch])).toStartWith(`${scratch}/two.`);
  expect(path([join(tensor.path, "x"), join(scratch, "new", "cache")])).toStartWith(
    join(scratch, "new", "cache", "bunting-packed-"),
  );
  expect(path([join(tensor.path, "x")])).toBeUndefined();
  expect(packedPlace([scratch], shape, [], options)).toBeNull();
});
