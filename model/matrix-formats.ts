/**
 * BUNTING_FORMAT_* values. plain: the type that `compute` sets. Integers share an f16 scale per group: 128 in
 * int8 and int6, 32 in int4 and in q8_0, GGUF's int8. fp8: GPUs round plain matrices to it, with a scale per
 * row. CPUs also accept the number of any stored block type, which they keep unchanged.
 */
export const matrixFormats = { plain: 0, int8: 1, int4: 2, fp8: 3, int6: 4, q8_0: 5 } as const;
