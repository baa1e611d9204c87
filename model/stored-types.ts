/**
 * Storage types of files. Made from csrc/cpu/kernels/block_formats.h and csrc/model/codebook_types.cpp by
 * `bun tools/docs.ts`; do not edit.
 */
export interface StoredType {
  /** csrc/include/engine.h's. */
  readonly number: number;
  /** GGUF's. */
  readonly gguf: number;
  /** Plain, blocks of integers that share scales, or rows of code books. */
  readonly kind: "numbers" | "blocks" | "codebook";
  /** Numbers that are stored together, and their bytes. */
  readonly block: number;
  readonly bytes: number;
  /** Bits per number, without scales. */
  readonly bits: number;
}

export const storedTypes = {
  F32: { number: 0, gguf: 0, kind: "numbers", block: 1, bytes: 4, bits: 32 },
  F16: { number: 1, gguf: 1, kind: "numbers", block: 1, bytes: 2, bits: 16 },
  Q4_0: { number: 16, gguf: 2, kind: "blocks", block: 32, bytes: 18, bits: 4 },
  Q4_1: { number: 17, gguf: 3, kind: "blocks", block: 32, bytes: 20, bits: 4 },
  Q5_0: { number: 18, gguf: 6, kind: "blocks", block: 32, bytes: 22, bits: 5 },
  Q5_1: { number: 19, gguf: 7, kind: "blocks", block: 32, bytes: 24, bits: 5 },
  Q8_0: { number: 20, gguf: 8, kind: "blocks", block: 32, bytes: 34, bits: 8 },
  Q2_K: { number: 22, gguf: 10, kind: "blocks", block: 256, bytes: 84, bits: 2 },
  Q3_K: { number: 23, gguf: 11, kind: "blocks", block: 256, bytes: 110, bits: 3 },
  Q4_K: { number: 24, gguf: 12, kind: "blocks", block: 256, bytes: 144, bits: 4 },
  Q5_K: { number: 25, gguf: 13, kind: "blocks", block: 256, bytes: 176, bits: 5 },
  Q6_K: { number: 26, gguf: 14, kind: "blocks", block: 256, bytes: 210, bits: 6 },
  IQ2_XXS: { number: 30, gguf: 16, kind: "codebook", block: 256, bytes: 66, bits: 2 },
  IQ2_XS: { number: 31, gguf: 17, kind: "codebook", block: 256, bytes: 74, bits: 2 },
  IQ3_XXS: { number: 33, gguf: 18, kind: "codebook", block: 256, bytes: 98, bits: 3 },
  IQ1_S: { number: 35, gguf: 19, kind: "codebook", block: 256, bytes: 50, bits: 1 },
  IQ4_NL: { number: 27, gguf: 20, kind: "blocks", block: 32, bytes: 18, bits: 4 },
  IQ3_S: { number: 34, gguf: 21, kind: "codebook", block: 256, bytes: 110, bits: 3 },
  IQ2_S: { number: 32, gguf: 22, kind: "codebook", block: 256, bytes: 82, bits: 2 },
  IQ4_XS: { number: 28, gguf: 23, kind: "blocks", block: 256, bytes: 136, bits: 4 },
  IQ1_M: { number: 36, gguf: 29, kind: "codebook", block: 256, bytes: 56, bits: 1 },
  BF16: { number: 2, gguf: 30, kind: "numbers", block: 1, bytes: 2, bits: 16 },
  MXFP4: { number: 29, gguf: 39, kind: "blocks", block: 32, bytes: 17, bits: 4 },
  NVFP4: { number: 37, gguf: 40, kind: "blocks", block: 64, bytes: 36, bits: 4 },
} as const satisfies Readonly<Record<string, StoredType>>;
