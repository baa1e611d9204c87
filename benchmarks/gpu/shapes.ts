/** Launches of an 8B model that docs/gpu.md lists, with what each needs at least; bunting_bench_cuda measures them. */
import type { KernelRun } from "./cost-model.ts";

const FORMATS = { bf16: 2, int8: 1 + 2 / 128, int4: 0.5 + 2 / 32, fp8: 1, mxfp4: 0.5 + 2 / 32 } as const;

function product(
  kernel: string,
  name: string,
  n: number,
  k: number,
  tokens: number,
  format: keyof typeof FORMATS,
): KernelRun {
  const bytes = n * k * FORMATS[format] + tokens * (2 * k + 4 * n);
  return { kernel, product: name, format, tokens, n, k, bytes, flops: 2 * tokens * n * k };
}

function decodes(batch: string, sequences: number, start: number): KernelRun {
  const common = { kernel: "attention", batch, pages: "engine", shared_once: false, count: 1, head: 128 };
  return {
    ...common,
    bytes: sequences * (start + 1) * 8 * 128 * 4,
    flops: sequences * (start + 1) * 32 * 128 * 4,
  };
}

function chunk(batch: string, count: number, start: number): KernelRun {
  const common = { kernel: "attention", batch, pages: "engine", shared_once: false, count, head: 128 };
  const positions = start + count;
  return {
    ...common,
    bytes: positions * 8 * 128 * 4,
    flops: count * (start + (count + 1) / 2) * 32 * 128 * 4,
  };
}

const formats = ["bf16", "int8", "int4", "fp8", "mxfp4"] as const;

export const listedRuns: readonly KernelRun[] = [
  ...formats.flatMap((format) =>
    [1, 32, 64].map((tokens) => product("gemm_few", "gate, up", 28672, 4096, tokens, format)),
  ),
  ...formats.flatMap((format) =>
    [128, 512, 4096].map((tokens) => product("gemm_many", "gate, up", 28672, 4096, tokens, format)),
  ),
  decodes("64 decodes of 2k", 64, 2047),
  decodes("1 decode of 32k", 1, 32767),
  chunk("a chunk of 2048", 2048, 0),
  chunk("a chunk of 512 at 16k", 512, 16384),
  ...[1, 64, 2048].map((tokens) => ({ kernel: "add_norm", tokens, bytes: 14 * tokens * 4096, flops: 0 })),
  ...[1, 64, 2048].map((tokens) => ({ kernel: "gate", tokens, bytes: 10 * tokens * 14336, flops: 0 })),
  ...[1, 64, 2048].map((tokens) => ({ kernel: "rope_append", tokens, bytes: 6 * tokens * 6144, flops: 0 })),
  ...[1, 64].map((tokens) => ({
    kernel: "sample",
    tokens,
    drawn: "greedy",
    bytes: 4 * tokens * 128256,
    flops: 0,
  })),
  { kernel: "graph node", nodes: 512, bytes: 0, flops: 0 },
];
