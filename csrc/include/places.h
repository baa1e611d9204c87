/*
 * places.h - host tier of a GPU engine's KV cache: pinned host memory for pages and pieces of states that are
 * offloaded from the GPU. A part of the boundary, with the rules of engine.h.
 */
#ifndef BUNTING_PLACES_H
#define BUNTING_PLACES_H

#include "include/engine.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Allocates `count` places: buffers of page_bytes each in pinned host memory, for offloaded pages and pieces
 * of states. Once per engine. BUNTING_INVALID on a CPU engine, whose pages are in the host's memory already.
 */
bunting_status bunting_engine_open_places(bunting_engine* engine, int32_t count);

/* Queue copies from the GPU to places: of pages, or of `size` bytes of a state slot from `offset` on. Both
 * return at once. A later step or copy that writes such a page or slot first waits for its copy. Only the
 * thread that starts steps may send, and a step in flight must not write the pages or slot. The last function
 * returns when all copies sent before have ended; any thread may call it. */
bunting_status bunting_engine_send_pages(bunting_engine* engine, int32_t const* pages, int32_t const* places,
                                         int32_t count);
bunting_status bunting_engine_send_state(bunting_engine* engine, int32_t slot, uint64_t offset, uint64_t size,
                                         int32_t place);
bunting_status bunting_engine_wait_sent(bunting_engine* engine);

/* Copy from places to pages, or to a part of a state slot, and return when the copies are done. Copies to
 * these places must have ended (bunting_engine_wait_sent). Otherwise as bunting_engine_write_pages. */
bunting_status bunting_engine_fetch_pages(bunting_engine* engine, int32_t const* pages, int32_t const* places,
                                          int32_t count);
bunting_status bunting_engine_fetch_state(bunting_engine* engine, int32_t slot, uint64_t offset,
                                          uint64_t size, int32_t place);

/* Copy up to page_bytes between a place and the caller's memory. Any thread may call them; no other may use
 * the place meanwhile. */
bunting_status bunting_engine_read_place(bunting_engine* engine, int32_t place, void* bytes, uint64_t size);
bunting_status bunting_engine_write_place(bunting_engine* engine, int32_t place, void const* bytes,
                                          uint64_t size);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif /* BUNTING_PLACES_H */
