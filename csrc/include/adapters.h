/* adapters.h - LoRA adapters of a model (engine.h): y = W x + scale B (A x) for the rows of chunks that name
 * one.
 *
 * A CPU engine computes any number of adapters in one step. A GPU engine computes none yet. */
#ifndef BUNTING_ADAPTERS_H
#define BUNTING_ADAPTERS_H

#include "include/engine.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef struct bunting_adapter bunting_adapter;

/* Place of a factor in a file: its first byte, and its type, one of BUNTING_F32, BUNTING_F16 and
 * BUNTING_BF16. */
typedef struct bunting_factor {
  char const* path;
  uint64_t offset;
  int32_t dtype;
  int32_t reserved; /* 0 */
} bunting_factor;

/* Opens an adapter of a sealed model, which must outlive it. */
bunting_status bunting_adapter_open(bunting_model const* model, bunting_adapter** out);

/* Names both factors for one matrix of a layer: A [rank, K] and B [N, rank]. The type of B has the flags of
 * engine.h for the order of its rows, as in bunting_model_load. Each matrix may be named once.
 * BUNTING_INVALID: the model has no such matrix, or one that adapters cannot change: they may change
 * projections of attention, of recurrent layers, and of MLPs that are no experts and have no sparse gates. */
bunting_status bunting_adapter_load(bunting_adapter* adapter, int32_t tensor, int32_t layer, int32_t rank,
                                    float scale, bunting_factor const* a, bunting_factor const* b);

/* Reads and packs all factors, and returns their bytes in memory. The adapter is read-only from then on. */
bunting_status bunting_adapter_seal(bunting_adapter* adapter, uint64_t* bytes);

/* Closes an adapter that is in no engine. */
bunting_status bunting_adapter_close(bunting_adapter* adapter);

/* Puts a sealed adapter of the engine's model into a slot, 1 to adapters_max of the limits, whose number
 * chunks then name; NULL empties the slot. No step may be in flight. */
bunting_status bunting_engine_put_adapter(bunting_engine* engine, int32_t slot,
                                          bunting_adapter const* adapter);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif /* BUNTING_ADAPTERS_H */
