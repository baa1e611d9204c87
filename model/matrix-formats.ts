/** BUNTING_FORMAT_*: plain is what `compute` says; integers share an f16 scale in groups: int8 and int6 of 128, int4 of 32,
 *  and q8_0, int8 as GGUF files have it, of 32; fp8 is for GPUs, which round plain matrices to it, with a scale for each row.
 *  Besides, on CPUs, the number of any stored type in blocks, which is kept as it is. */
export const matrixFormats = { plain: 0, int8: 1, int4: 2, fp8: 3, int6: 4, q8_0: 5 } as const;
