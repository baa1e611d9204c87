/* Hand-aligned tables: clang-format is off. */
/* clang-format off */
/* engine_machine.h - the part of engine.h that probes and measures the machine; only engine.h includes it. */
#ifndef BUNTING_ENGINE_MACHINE_H
#define BUNTING_ENGINE_MACHINE_H

/* Instruction sets by rising preference. A level implies all levels below it. AMX also needs the operating system's
 * permission. */
enum {
  BUNTING_ISA_AUTO = -1,
  BUNTING_ISA_PORTABLE = 0,
  BUNTING_ISA_AVX2 = 1,        /* AVX2 + FMA + F16C */
  BUNTING_ISA_AVX512 = 2,      /* F, BW, DQ, VL */
  BUNTING_ISA_AVX512_BF16 = 3, /* BF16, VNNI */
  BUNTING_ISA_AMX_BF16 = 4,    /* tiles of bf16 and int8 */
};

typedef struct bunting_machine {
  int32_t isa_best;           /* best level that the processor and the operating system allow */
  int32_t isa_built;          /* best level compiled into this library */
  int32_t cores;              /* cores on which this process may run */
  int32_t reserved;
  uint64_t memory_bytes;      /* physical memory, or the container's limit if that is lower */
  uint64_t memory_free_bytes; /* memory available now without swapping */
  char processor[96];         /* brand string, NUL-terminated */
} bunting_machine;

bunting_status bunting_machine_probe(bunting_machine* out);

typedef struct bunting_device {
  int32_t devices;            /* number of GPUs in the machine */
  int32_t capability;         /* compute capability times ten; 90 means sm_90 */
  int32_t multiprocessors;
  int32_t reserved;
  uint64_t memory_bytes;
  uint64_t memory_free_bytes;
  char name[96];              /* NUL-terminated */
  char note[128];             /* readable description of the driver, NUL-terminated */
} bunting_device;

/* Describes GPU `index`. Fails with BUNTING_INVALID and a reason if there is no such GPU, and always in the CPU engine. */
bunting_status bunting_device_probe(int32_t index, bunting_device* out);

/* Loads cuBLASLt for GPU `index` and checks a product against a known result. Writes its name and version, NUL-terminated.
 * Fails with BUNTING_INVALID and a reason if the library is absent or its result is wrong, and always in the CPU engine. */
bunting_status bunting_cublaslt_probe(int32_t index, char* description, int32_t description_bytes);

/* Meter (micro-benchmark) of this machine's processor: all rates are per second, of `threads` threads together, by wall time, over about
 * `ms` milliseconds. A multiplication and an addition are two operations. `isa` is BUNTING_ISA_AUTO or a level that the machine and
 * the library have. A meter takes 64 MiB per thread, at least 256 MiB and at most 4 GiB. */
typedef struct bunting_meter bunting_meter;

/* READ: bytes of a plain read of memory. F32, BF16 and INT8: operations of multiply-adds in registers, with the instruction by
 * which the level multiplies these numbers. */
enum { BUNTING_CEILING_READ = 0, BUNTING_CEILING_F32 = 1, BUNTING_CEILING_BF16 = 2, BUNTING_CEILING_INT8 = 3 };

bunting_status bunting_meter_open(int32_t isa, int32_t threads, bunting_meter** out);
bunting_status bunting_meter_ceiling(bunting_meter* meter, int32_t ceiling, int32_t ms, double* per_second);
/* Writes operations and bytes of weights of a matrix [columns, depth] times `rows` rows. `format` is one of
 * bunting_model_shape's `formats`; PLAIN is bf16. */
bunting_status bunting_meter_gemm(bunting_meter* meter, int32_t format, int32_t rows, int32_t columns, int32_t depth,
                                  int32_t ms, double* rates);
/* Writes operations and bytes of keys and values, in bf16, of attention of a chunk of `tokens` tokens behind `positions` keys,
 * with 32 query heads and 8 key-value heads of 128. */
bunting_status bunting_meter_attention(bunting_meter* meter, int32_t tokens, int32_t positions, int32_t ms, double* rates);
bunting_status bunting_meter_close(bunting_meter* meter);

#endif /* BUNTING_ENGINE_MACHINE_H */
