/* The tables of this file are laid out by hand. */
/* clang-format off */
/* engine.h - the whole boundary between Bunting's scheduler (TypeScript) and a compute engine (C++/CUDA).
 *
 * Plain C: opaque handles, fixed-size integers, flat arrays. The caller owns policy and the bookkeeping of memory
 * (which page holds what); the engine owns memory and mathematics. Nothing here decides what to run.
 *
 * Every function returns a bunting_status. On anything but BUNTING_OK, bunting_last_error() has a sentence for
 * people, valid on the calling thread until its next call into the library. No C++ exception leaves the library.
 * A NULL or stale handle is a bug of the caller and undefined.
 *
 * Threads: any thread may use a handle, one at a time per handle. A model may serve several engines at once once it
 * is sealed (it is read-only from then on) and must outlive them.
 *
 * Dimension letters, as everywhere in csrc: T tokens in the step, S chunks ("sequences" of the step), H hidden size,
 * Hq / Hk query / key-value heads, D head size, F feed-forward size, V vocabulary, L layers, P pages, Tp tokens per page.
 */
#ifndef BUNTING_ENGINE_H
#define BUNTING_ENGINE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default) /* the rest of the library is compiled hidden */

#define BUNTING_ABI_VERSION 12

/* ---- status ------------------------------------------------------------------------------------------------- */

typedef int32_t bunting_status;
enum {
  BUNTING_OK = 0,
  /* The caller's data is wrong (a bad file, an impossible shape, an unsupported option). Nothing changed. */
  BUNTING_INVALID = 1,
  /* Not enough memory. Nothing changed. */
  BUNTING_NO_MEMORY = 2,
  /* A file cannot be opened, mapped or read. Nothing changed. */
  BUNTING_IO = 3,
  /* The step computed nothing and may be started again. */
  BUNTING_RETRY = 4,
  /* The device is gone: close the engine. Its pages are lost. */
  BUNTING_LOST = 5,
  /* The step was given up as its caller asked. Its moves are made; nothing else of it counts. */
  BUNTING_GAVE_WAY = 6,
};

/* The version the library was built with; compare with BUNTING_ABI_VERSION before anything else. */
int32_t bunting_abi_version(void);

/* The sentence for the calling thread's last failure; "" if there was none. */
char const* bunting_last_error(void);

/* ---- the machine --------------------------------------------------------------------------------------------- */

/* Instruction sets in rising order of preference; a level implies everything below it but AMX (which also needs
 * the kernel's permission). */
enum {
  BUNTING_ISA_AUTO = -1,
  BUNTING_ISA_PORTABLE = 0,
  BUNTING_ISA_AVX2 = 1,        /* AVX2 + FMA + F16C */
  BUNTING_ISA_AVX512 = 2,      /* F, BW, DQ, VL */
  BUNTING_ISA_AVX512_BF16 = 3, /* BF16, VNNI */
  BUNTING_ISA_AMX_BF16 = 4,    /* tiles of bf16 and int8 */
};

typedef struct bunting_machine {
  int32_t isa_best;           /* the best level this processor and kernel allow */
  int32_t isa_built;          /* the best level this library contains */
  int32_t cores;              /* cores this process may run on */
  int32_t reserved;
  uint64_t memory_bytes;      /* physical, or the container's limit if lower */
  uint64_t memory_free_bytes; /* available now, without swapping */
  char processor[96];         /* brand string, NUL-terminated */
} bunting_machine;

bunting_status bunting_machine_probe(bunting_machine* out);

typedef struct bunting_device {
  int32_t devices;            /* how many there are */
  int32_t capability;         /* 90: sm_90 */
  int32_t multiprocessors;
  int32_t reserved;
  uint64_t memory_bytes;
  uint64_t memory_free_bytes;
  char name[96];              /* NUL-terminated, as the next one */
  char note[128];             /* the driver, for people */
} bunting_device;

/* Describes GPU `index`. BUNTING_INVALID, with the reason as a sentence, if there is none, and from the CPU engine. */
bunting_status bunting_device_probe(int32_t index, bunting_device* out);

/* Loads cuBLASLt for GPU `index` and lets it multiply something whose result is known; writes its name and version,
 * NUL-terminated. BUNTING_INVALID, with the reason as a sentence, if there is none or it is wrong, and from the CPU
 * engine. */
bunting_status bunting_cublaslt_probe(int32_t index, char* description, int32_t description_bytes);

/* ---- model --------------------------------------------------------------------------------------------------- */

typedef struct bunting_model bunting_model;

enum { BUNTING_F32 = 0, BUNTING_F16 = 1, BUNTING_BF16 = 2 };
/* How files store numbers besides: blocks that share scales, as in GGUF files. For loading only. A row is a whole
 * number of blocks: of 256 numbers in the types with a K, IQ4_XS and those of code books, of 32 in the
 * others. These are the ones with a part of their own here; the other numbers, up to 63, are in the rows of
 * cpu/kernels/block_formats.h and, of code books, which are no format of a matrix, model/codebook_types.cpp. */
enum { BUNTING_Q4_0 = 16, BUNTING_Q4_1 = 17, BUNTING_Q8_0 = 20, BUNTING_MXFP4 = 29 };
/* Added to the type. PAIRED_ROWS, of Q, K and their biases: the file has the rotated rows of each head in pairs, its rows 2j
 * and 2j+1 are the head's rows j and j + R/2 (R is the rope's). ONE_LESS, of norms: the file has the weights less 1. */
enum { BUNTING_PAIRED_ROWS = 256, BUNTING_ONE_LESS = 512 };
/* Likewise, of tensors of experts. EVERY_SECOND: rows of this tensor and of another one take turns in the file, from `offset`
 * on; so do the numbers of a bias. TRANSPOSED, of plain numbers: the file has columns where the engine has rows; with both, each
 * of its rows has numbers of this tensor and of the other one in turn. */
enum { BUNTING_EVERY_SECOND = 1024, BUNTING_TRANSPOSED = 2048 };
/* Likewise, of Q, K, V and their biases: the file has of each key-value head the rows of its query heads, then of its key and of
 * its value. Not together with PAIRED_ROWS. */
enum { BUNTING_GROUPED_HEADS = 4096 };
/* How a matrix is kept in memory and multiplied. Plain: as `compute` says. The others but FP8 are integers in groups along
 * a row that share one f16 scale: INT8 and INT6 in groups of 128 (8.125 and 6.125 bits per weight), INT4 (4.5) and Q8_0
 * (int8, 8.5) in groups of 32, as GGUF's Q4_0 and Q8_0 are stored. Tensors that are stored so are kept as they are, Q4_0 in
 * Q8_0 with the same numbers; all else is rounded. On a CPU the rows that such a matrix is multiplied with are rounded to
 * int8, for Q8_0 in groups of 32 and else of 128, but for outliers, and sums within a group are exact. A GPU's copy of INT6 is in int8. FP8
 * is e4m3 with one f32 scale per row, for GPUs: the packed weights are in bf16, and each engine rounds them for its copy.
 * Besides, on CPUs, the number of any row of block_formats.h that files have: for tensors that are stored so, which keep
 * their numbers, in as many bits or up to 6 % more; of these BUNTING_MXFP4 on GPUs too. */
enum {
  BUNTING_FORMAT_PLAIN = 0, BUNTING_FORMAT_INT8 = 1, BUNTING_FORMAT_INT4 = 2, BUNTING_FORMAT_FP8 = 3,
  BUNTING_FORMAT_INT6 = 4, BUNTING_FORMAT_Q8_0 = 5,
};

/* How keys and values are kept: as `compute` says, or, with BUNTING_BF16, in eight bits with a scale for a token's keys and
 * one for its values of each head: on CPUs int8 with f32 scales, on GPUs e4m3 with powers of two. */
enum { BUNTING_KV_PLAIN = 0, BUNTING_KV_INT8 = 1, BUNTING_KV_FP8 = 2 };

/* A decoder-only transformer: x = embed * embedding_scale; its layers; logits = vocabulary projection of norm(x), times
 * logit_scale, and where there is a cap, cap * tanh(logits / cap).
 *
 * A layer adds to x, each by residual_scale: what its mixer makes of the tokens, and what its MLP makes of each. Both may
 * have a norm before, of x, and one after, of what is added. What an engine does not compute is BUNTING_INVALID, by name.
 *
 * What a layer may be made of; every word of a bunting_layer_shape has one of these. */
enum { BUNTING_MIXER_ATTENTION = 0 };  /* softmax(scale * q k^T) v over all that a token sees, grouped queries */
enum { BUNTING_MLP_GATED = 0 };        /* down(activation(gate(n)) * up(n)) */
/* The sum, over the k experts with the largest of E logits router(n), of weight * the same of each expert's matrices. */
enum { BUNTING_MLP_EXPERTS = 1 };
/* Both beside each other, with all norms around them and of their own: norm(norm(gated(n)) + norm(experts(norm(x)))), each by its
 * tensor; the router reads norm(x) / sqrt(H), and an expert's weight is multiplied by a number of its own. */
enum { BUNTING_MLP_BOTH = 2 };
/* Which norms a layer has: a set. Without one before, the part reads x itself. */
enum { BUNTING_NORM_ATTN = 1, BUNTING_NORM_ATTN_POST = 2, BUNTING_NORM_MLP = 4, BUNTING_NORM_MLP_POST = 8 };
/* Which projections have biases: a set. */
enum { BUNTING_BIAS_QKV = 1, BUNTING_BIAS_O = 2, BUNTING_BIAS_GATE_UP = 4, BUNTING_BIAS_DOWN = 8, BUNTING_BIAS_ROUTER = 16 };
/* RMS norms of q and k before the rotation: none, of each head by [D], of all heads together by [Hq*D] and [Hk*D]. */
enum { BUNTING_QK_NORM_NONE = 0, BUNTING_QK_NORM_HEAD = 1, BUNTING_QK_NORM_WIDE = 2 };
/* What values are: a set. KEYS: the projection of k, before its norm, and there is no v; with norms of heads of k or none. NORMED:
 * of each head over the root of its mean square. */
enum { BUNTING_VALUES_KEYS = 1, BUNTING_VALUES_NORMED = 2 };

typedef struct bunting_layer_shape {
  int32_t mixer;            /* BUNTING_MIXER_* */
  int32_t mlp;              /* BUNTING_MLP_* */
  int32_t norms;            /* BUNTING_NORM_* */
  int32_t biases;           /* BUNTING_BIAS_* */
  int32_t qk_norm;          /* BUNTING_QK_NORM_* */
  int32_t rope;             /* which of the model's ropes; -1: q and k are not rotated */
  int32_t sliding_window;   /* 0: none; W: a token sees itself and the W-1 before it */
  int32_t sinks;            /* 1: each query head has a score that takes a share of its softmax and adds nothing */
  int32_t parallel;         /* 1: the MLP reads what the attention reads: norm(x) before the attention was added */
  int32_t head_size, kv_heads, feed_forward; /* 0: the model's, which is the largest of all; else of this layer */
  int32_t values;           /* BUNTING_VALUES_* */
  /* n > 0: the layer has no k and v; its queries meet those of the layer n before, which has its own and the same sizes. */
  int32_t kv_layers_back;
  int32_t scaled;           /* 1: in the end x is multiplied by a number of the layer */
  int32_t reserved;         /* 0 */
} bunting_layer_shape;

/* Rotary positions: at position p the pair x[i], x[i + R/2] of a head's first R numbers is turned by p * frequencies[i] and
 * multiplied by `magnitude`. How a context is lengthened (linear, llama3, yarn, ...) shows in these numbers alone. */
typedef struct bunting_rope {
  int32_t dimensions;         /* R: even, 2 to D */
  float magnitude;
  double const* frequencies;  /* [R/2] radians per position */
  /* Queries are also multiplied by 1 + query_growth * ln(1 + floor(p / query_span)); 0: they are not. */
  float query_growth;
  int32_t query_span;         /* >= 1 if they are */
} bunting_rope;

enum { BUNTING_NORM_RMS = 0, BUNTING_NORM_LAYER = 1 };  /* x / sqrt(mean(x^2) + e) * w; the same of x - mean(x) */
/* The last is for activation(gate) * up as a whole: g sigmoid(1.702 g) (u + 1) with g = min(gate, 7), u = clamp(up, -7, 7). */
enum { BUNTING_ACTIVATION_SILU = 0, BUNTING_ACTIVATION_GELU_TANH = 1, BUNTING_ACTIVATION_CLAMPED_SWIGLU = 2 };

/* What an expert's weight is: its share of the softmax of the chosen experts' logits, or of that of all logits. */
enum { BUNTING_ROUTER_CHOSEN = 0, BUNTING_ROUTER_ALL = 1 };

/* The pointers are read during the call only. */
typedef struct bunting_model_shape {
  int32_t layers, hidden, feed_forward;
  int32_t query_heads, kv_heads, head_size; /* query_heads % kv_heads == 0, head_size % 16 == 0 */
  int32_t vocab;
  int32_t context_max;      /* positions 0 .. context_max-1 */
  int32_t tied_embeddings;  /* 1: the vocabulary projection is the embedding */
  int32_t norm;             /* BUNTING_NORM_RMS or BUNTING_NORM_LAYER: of x; those of q and k are always RMS */
  int32_t activation;       /* BUNTING_ACTIVATION_* */
  int32_t ropes;            /* 0 to 8 */
  int32_t compute;          /* BUNTING_BF16: bf16 weights, activations into GEMMs and KV, f32 sums; BUNTING_F32: all f32 */
  int32_t isa;              /* BUNTING_ISA_*; more than the processor has is BUNTING_INVALID */
  int32_t threads;          /* used for packing while loading, >= 1 */
  int32_t kv;               /* BUNTING_KV_* */
  float norm_epsilon;
  float attention_scale;    /* of scores; 1/sqrt(D) in most models */
  float attention_cap;      /* 0: none; C: a score s becomes C * tanh(s / C) */
  float embedding_scale, residual_scale, logit_scale; /* 1 in most models */
  float logit_cap;          /* 0: none */
  /* P: 0, or the layers have inputs of P numbers of their own for each token, P % 16 == 0: of layer l
   *   input = (norm_P(projection_l(x)) + embed_l * sqrt(P)) / sqrt(2), x = embed * embedding_scale, the projection over sqrt(H),
   * and each ends by adding norm(out(activation(gate(x)) * input)) to x. */
  int32_t layer_inputs;
  /* Of layers with experts; 0 if there is none. */
  int32_t experts;             /* E */
  int32_t experts_used;        /* k, 1 to E */
  int32_t expert_feed_forward; /* Fe: F of each expert */
  int32_t router;              /* BUNTING_ROUTER_* */
  bunting_layer_shape const* layer; /* [layers] */
  bunting_rope const* rope;         /* [ropes]; null if there is none */
  /* BUNTING_FORMAT_* of each matrix: embedding, vocabulary projection (ignored if tied), then per layer Q with K, V,
   * O, gate with up, down, those of experts together, and gate with up, down beside experts; then that of layers' inputs:
   * 3 + 7*layers bytes. NULL: all plain. For a GPU V is as Q and K. */
  uint8_t const* formats;
} bunting_model_shape;

/* Every tensor a model may need. Shapes are [rows, cols] row-major as in the Hugging Face files; vectors have
 * rows = 1. */
enum {
  BUNTING_T_EMBED = 0,      /* [V, H] */
  BUNTING_T_FINAL_NORM = 1, /* [1, H] */
  BUNTING_T_LM_HEAD = 2,    /* [V, H], only if not tied */
  BUNTING_T_LAYER_EMBED = 3,      /* [V, layers*P], with inputs of layers */
  BUNTING_T_LAYER_PROJECTION = 4, /* [layers*P, H] */
  BUNTING_T_LAYER_INPUT_NORM = 5, /* [1, P] */
  BUNTING_T_ATTN_NORM = 16, /* [1, H], per layer from here on */
  BUNTING_T_Q = 17,         /* [Hq*D, H] */
  BUNTING_T_K = 18,         /* [Hk*D, H] */
  BUNTING_T_V = 19,         /* [Hk*D, H] */
  BUNTING_T_O = 20,         /* [H, Hq*D] */
  BUNTING_T_Q_BIAS = 21,    /* [1, Hq*D] */
  BUNTING_T_K_BIAS = 22,    /* [1, Hk*D] */
  BUNTING_T_V_BIAS = 23,    /* [1, Hk*D] */
  BUNTING_T_Q_NORM = 24,    /* [1, D] or [1, Hq*D] */
  BUNTING_T_K_NORM = 25,    /* [1, D] or [1, Hk*D] */
  BUNTING_T_MLP_NORM = 26,  /* [1, H] */
  BUNTING_T_GATE = 27,      /* [F, H] */
  BUNTING_T_UP = 28,        /* [F, H] */
  BUNTING_T_DOWN = 29,      /* [H, F] */
  BUNTING_T_O_BIAS = 30,    /* [1, H] */
  BUNTING_T_GATE_BIAS = 31, /* [1, F] */
  BUNTING_T_UP_BIAS = 32,   /* [1, F] */
  BUNTING_T_DOWN_BIAS = 33, /* [1, H] */
  BUNTING_T_ATTN_POST_NORM = 34, /* [1, H] */
  BUNTING_T_MLP_POST_NORM = 35,  /* [1, H] */
  BUNTING_T_SINKS = 36,     /* [1, Hq] */
  /* In a layer with experts each of them has its own gate, up and down, of Fe instead of F, and biases. */
  BUNTING_T_ROUTER = 37,      /* [E, H], kept in f32 */
  BUNTING_T_ROUTER_BIAS = 38, /* [1, E] */
  /* With BUNTING_MLP_BOTH, F and Fe: */
  BUNTING_T_ROUTER_NORM = 39,       /* [1, H] */
  BUNTING_T_EXPERT_SCALES = 40,     /* [1, E] */
  BUNTING_T_EXPERTS_NORM = 41,      /* [1, H] */
  BUNTING_T_EXPERTS_POST_NORM = 42, /* [1, H] */
  BUNTING_T_BESIDE_POST_NORM = 43,  /* [1, H] */
  BUNTING_T_BESIDE_GATE = 44,       /* [F, H] */
  BUNTING_T_BESIDE_UP = 45,         /* [F, H] */
  BUNTING_T_BESIDE_DOWN = 46,       /* [H, F] */
  BUNTING_T_LAYER_SCALE = 47,       /* [1, 1] */
  BUNTING_T_INPUT_GATE = 48,        /* [P, H], with inputs of layers */
  BUNTING_T_INPUT_OUT = 49,         /* [H, P] */
  BUNTING_T_INPUT_POST_NORM = 50,   /* [1, H] */
};
/* Added e times to a tensor of expert e: BUNTING_T_GATE + 5 * BUNTING_EXPERT is the gate of the expert with number 5. */
enum { BUNTING_EXPERT = 64 };

/* Bytes the packed weights will take, and the bytes of one KV page, before anything is allocated. */
bunting_status bunting_model_plan(bunting_model_shape const* shape, int32_t page_tokens, uint64_t* weight_bytes,
                                  uint64_t* page_bytes);

bunting_status bunting_model_open(bunting_model_shape const* shape, bunting_model** out);

/* Takes one tensor from its bytes at `offset` of a file, row after row, converts and packs it. `dtype` is how the file
 * stores it. The file is mapped read-only while needed. `layer` is 0 for the tensors below BUNTING_T_ATTN_NORM. The shape
 * must be the one the model wants; each tensor is loaded once. */
bunting_status bunting_model_load(bunting_model* model, int32_t tensor, int32_t layer, char const* path,
                                  uint64_t offset, int32_t dtype, int64_t rows, int64_t cols);

/* How a quantised matrix [rows, cols] is stored whose integers, scales and zeros are tensors of their own, as published
 * safetensors have it: a number is (q - z) s. */
typedef struct bunting_quantised {
  int32_t layout;     /* BUNTING_LAYOUT_*: the order of integers and scales (model/quantised_matrix.cpp) */
  int32_t number;     /* BUNTING_NUMBER_*: what the bits of q are */
  int32_t bits;       /* of q: 4 or 8 */
  int32_t zero_added; /* what is added to a stored z: 1 in the first version of GPTQ's format */
  int64_t group_rows, group_cols; /* numbers that share a scale */
  int32_t scale_type; /* BUNTING_SCALE_* */
  int32_t reserved;   /* 0 */
} bunting_quantised;
enum { BUNTING_LAYOUT_ROWS = 0, BUNTING_LAYOUT_GPTQ = 1, BUNTING_LAYOUT_AWQ = 2 };
enum { BUNTING_NUMBER_UNSIGNED = 0, BUNTING_NUMBER_SIGNED = 1, BUNTING_NUMBER_E4M3 = 2, BUNTING_NUMBER_E2M1 = 3 };
enum { BUNTING_SCALE_F32 = 0, BUNTING_SCALE_F16 = 1, BUNTING_SCALE_BF16 = 2, BUNTING_SCALE_E8M0 = 3 };

/* bunting_model_load for such a matrix, which becomes blocks of `dtype` on the way: BUNTING_Q4_0, BUNTING_Q4_1 or
 * BUNTING_MXFP4, which have its numbers as they are but for scales in f16, or BUNTING_Q8_0, which may round them. `paths`
 * are four texts, each ended by a NUL, and `offsets` four places: of integers, scales, zeros (empty: 2^(bits - 1)), and of
 * each column's group as i32 (empty: in order). With BUNTING_EVERY_SECOND rows of integers and of scales take turns. */
bunting_status bunting_model_load_quantised(bunting_model* model, int32_t tensor, int32_t layer, char const* paths,
                                            uint64_t const* offsets, bunting_quantised const* how, int32_t dtype,
                                            int64_t rows, int64_t cols);

/* All tensors are there: read-only from now on. Names the first missing tensor otherwise. */
bunting_status bunting_model_seal(bunting_model* model);

/* Told now and then, on the thread that made the call, how much of its work is done. It must return. */
typedef void (*bunting_progress)(uint64_t bytes_done, uint64_t bytes_total);

/* The packed weights of a sealed model as a file, and back: restoring maps it, with nothing to convert or to copy. `key` is
 * 32 bytes that tell what was packed; the caller changes it whenever shape, formats or the model's files change. The file
 * holds checksums and is the same for every instruction set.
 *
 * Save writes beside `path` and renames, so that a file of that name is always whole; on failure none is left behind.
 * Restore fills an open model in the place of every bunting_model_load; seal it afterwards. BUNTING_IO: there is no such
 * file, or it cannot be read; BUNTING_INVALID: it has another version, key or length, or is damaged. After either, load
 * the tensors as if restore had not been called. `progress` may be null. */
bunting_status bunting_model_save(bunting_model const* model, char const* path, uint8_t const* key,
                                  bunting_progress progress);
bunting_status bunting_model_restore(bunting_model* model, char const* path, uint8_t const* key,
                                     bunting_progress progress);

/* Gives the memory of a sealed model's weights back, once engines on GPUs have copies: those go on, no other can be opened.
 * No engine may be opened meanwhile. BUNTING_INVALID from the CPU engine, which computes with them. */
bunting_status bunting_model_release(bunting_model* model);

bunting_status bunting_model_close(bunting_model* model);

/* ---- engine -------------------------------------------------------------------------------------------------- */

typedef struct bunting_engine bunting_engine;

/* What multiplies plain matrices on a GPU: the engine's own kernels, or cuBLASLt in steps that are not decodes alone, for
 * more than 64 tokens. It is loaded and checked when the engine opens (bunting_cublaslt_probe). With it a result depends on
 * what else is in the step. */
enum { BUNTING_GEMM_OWN = 0, BUNTING_GEMM_CUBLASLT = 1 };

#define BUNTING_DEVICES_MAX 8

typedef struct bunting_engine_limits {
  int32_t threads;          /* compute threads, the caller of bunting_step_wait included; >= 1 */
  int32_t pages;            /* KV pages, all allocated here */
  int32_t page_tokens;      /* tokens per page; 16 */
  int32_t step_tokens_max;  /* most tokens of a step */
  int32_t step_chunks_max;  /* most chunks of a step */
  int32_t step_draws_max;   /* most rows to draw from in a step */
  int32_t step_hidden_max;  /* most rows whose hidden state is wanted in a step */
  int32_t top_logprobs_max; /* most alternatives per row */
  int32_t gemm;             /* BUNTING_GEMM_*; CPU engines do not look at it */
  /* The GPUs that compute one step together. Today an engine for GPUs takes exactly one and a CPU engine none; anything
   * else is BUNTING_INVALID. */
  int32_t device_count;
  int32_t devices[BUNTING_DEVICES_MAX];
} bunting_engine_limits;

/* Bytes an engine of these limits takes besides its pages, at most, before anything is allocated: to work in, and for a
 * copy of the weights. A CPU engine has no copy; on a GPU all of it is the GPU's memory. */
bunting_status bunting_engine_plan(bunting_model_shape const* shape, bunting_engine_limits const* limits,
                                   uint64_t* workspace_bytes, uint64_t* copy_bytes);

/* Allocates everything: pages, workspaces, threads. Nothing is allocated afterwards. */
bunting_status bunting_engine_open(bunting_model const* model, bunting_engine_limits const* limits, bunting_engine** out);

bunting_status bunting_engine_close(bunting_engine* engine);

/* ---- step ---------------------------------------------------------------------------------------------------- */

/* A step block is one flat buffer of 32-bit words, little-endian: this header, then the arrays it announces, each at
 * the stated word offset from the start of the block. Offsets of empty arrays are ignored.
 *
 *   moves    [moves,    4]  done first: the first tokens (1..Tp) of page `from` become those of page `to`. from, to,
 *                           tokens, tier of `from` (0: this device's pages; others are not supported yet)
 *   tokens   [T]            token ids of all chunks, chunk after chunk
 *   chunks   [chunks,   8]  first token row, count, start position, first entry in `pages`, page count, first entry in
 *                           `rows`, row count, adapter (0: none; others are not supported yet)
 *   pages    [..]           page ids; a chunk has ceil((start + count) / Tp) of them
 *   rows     [rows,    20]  what is wanted, see below; chunk after chunk, and by rising index within a chunk
 *   pairs    [..,       2]  (token, value): biases (value is a float's bits) and seen tokens (value is a count)
 *   words    [..]           allowed-token bitmasks, ceil(V/32) words each, bit t%32 of word t/32 = token t allowed
 *   shared   [shared,   4]  advice: token rows [a, b) have the keys and values of positions [c, d) in common. An engine
 *                           may read them once; on a CPU engine results do not depend on it. [a, b) are the rows of
 *                           two or more whole chunks, [c, d) whole pages below the start of each of them, the same in
 *                           all their lists. Spans nest: parents first, a child's c is its parent's d and its chunks
 *                           are among its parent's; c of the others is 0. So no row and position occur twice, and a
 *                           row's spans follow each other from 0 on. Fewer than chunks.
 *
 * Chunks of one step belong to different sequences. Keys and values of a chunk's own tokens are appended before they are
 * read; positions [0, start) must have been computed or moved there by earlier steps (or moves of this one). No page is
 * written by two chunks, and no page that a chunk writes is read by another. */
typedef struct bunting_step_header {
  uint32_t magic;      /* BUNTING_STEP_MAGIC */
  uint32_t words_total;
  int32_t moves, tokens, chunks, pages, rows, pairs, words, shared;                    /* counts of entries */
  int32_t moves_at, tokens_at, chunks_at, pages_at, rows_at, pairs_at, words_at, shared_at; /* word offsets */
} bunting_step_header;

#define BUNTING_STEP_MAGIC 0x31505453u /* "STP1" */
#define BUNTING_MOVE_WORDS 4
#define BUNTING_CHUNK_WORDS 8
#define BUNTING_ROW_WORDS 20

/* A row of `rows`, by word: what is wanted of one of its chunk's tokens. Of a row that wants its hidden state all words but
 * BUNTING_ROW_AFTER_INDEX and BUNTING_ROW_WANTS are 0. Drawing: seen-token penalties (repetition, then frequency and presence), biases, bitmask,
 * then greedy (ties to the lowest id) if temperature is 0, else temperature, top-k, top-p, min-p, and one draw by inverse
 * cumulative probability over the tokens kept, by rising id, with u from Philox4x32-10(key = seed, counter = position).
 * Filters keep tokens by falling probability, then rising id. Logprobs are of the raw logits, likeliest first, then by
 * rising id. The same logits give the same token on every instruction set. */
enum {
  BUNTING_ROW_TEMPERATURE = 0, /* f32 */
  BUNTING_ROW_TOP_P = 1,       /* f32 */
  BUNTING_ROW_MIN_P = 2,       /* f32 */
  BUNTING_ROW_REPETITION = 3,  /* f32 */
  BUNTING_ROW_PRESENCE = 4,    /* f32 */
  BUNTING_ROW_FREQUENCY = 5,   /* f32 */
  BUNTING_ROW_TOP_K = 6,       /* 0: all */
  BUNTING_ROW_SEED_LOW = 7,
  BUNTING_ROW_SEED_HIGH = 8,
  BUNTING_ROW_POSITION = 9,
  BUNTING_ROW_BIAS_AT = 10,    /* first entry in `pairs` */
  BUNTING_ROW_BIAS_COUNT = 11,
  BUNTING_ROW_SEEN_AT = 12,    /* first entry in `pairs` */
  BUNTING_ROW_SEEN_COUNT = 13,
  BUNTING_ROW_MASK_AT = 14,    /* first word in `words`, or -1 */
  BUNTING_ROW_TOP_LOGPROBS = 15, /* -1: no logprobs; n: the token's and the n likeliest */
  BUNTING_ROW_AFTER_INDEX = 16, /* index in the chunk, 0 .. count-1, of the token; a drawn one follows it */
  BUNTING_ROW_WANTS = 17,      /* BUNTING_WANTS_* */
  /* 18, 19 reserved, 0 */
};

/* What is wanted of a token: a draw of the next one, or what the vocabulary projection would read: the final norm of x. */
enum { BUNTING_WANTS_DRAW = 0, BUNTING_WANTS_HIDDEN = 1 };

/* A step result is one flat buffer of 32-bit words: header, then per draw BUNTING_RESULT_ROW_WORDS + 2*top_logprobs_max
 * words: status (0 = ok, 1 = logits not finite, 2 = nothing allowed), token, logprob (f32), count of alternatives,
 * then (token, logprob f32) pairs, likeliest first; then H words (f32) per hidden state. Both in the order of `rows`. */
typedef struct bunting_step_result {
  int32_t draws;
  float device_ms; /* wall time of the computation */
  int32_t hidden;
  int32_t reserved;
} bunting_step_result;

#define BUNTING_RESULT_ROW_WORDS 4

/* Checks the whole block (every offset, count, id and range) and starts it; BUNTING_INVALID leaves the engine as it was.
 * One step at a time. `block` must stay unchanged, and both buffers alive, until bunting_step_wait returns. */
bunting_status bunting_step_start(bunting_engine* engine, void const* block, uint64_t block_bytes, void* result,
                                  uint64_t result_bytes);

/* Blocks until the started step is done. A CPU engine computes here, on the calling thread and its helpers. `way` is NULL, or a
 * word that another thread may set: once it is not 0 a CPU engine gives the step up, within a layer, and returns
 * BUNTING_GAVE_WAY. An engine for GPUs does not look at it. */
bunting_status bunting_step_wait(bunting_engine* engine, int32_t const* way);

/* Test and evaluation aid: raw logits of the rows that the last step drew from, [rows, V] f32, valid until the next step. */
bunting_status bunting_engine_logits(bunting_engine const* engine, float const** logits, int32_t* rows);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif /* BUNTING_ENGINE_H */
