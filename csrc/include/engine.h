/* Hand-aligned tables: clang-format is off. */
/* clang-format off */
/* engine.h - the whole boundary between Bunting's scheduler (TypeScript) and a compute engine (C++/CUDA).
 *
 * The interface is plain C: opaque handles, fixed-size integers, flat arrays. The caller owns policy and the page tables
 * (which KV page belongs to which sequence). The engine owns memory and mathematics and never decides what to run.
 *
 * Functions return a bunting_status. After any status but BUNTING_OK, bunting_last_error() returns a readable sentence.
 * The sentence is valid on the calling thread until its next call into the library. No C++ exception leaves the library.
 * Passing a NULL or stale handle is a bug of the caller; the behaviour is undefined.
 *
 * Threads: any thread may use a handle, but only one thread at a time per handle, except for copies of pages and states
 * (bunting_engine_read_pages). A sealed model is read-only: several engines may share it, and it must outlive them.
 *
 * Dimension letters, the same everywhere in csrc: T tokens in the step, S chunks (one per sequence in the step), H hidden
 * size, Hq / Hk query / key-value heads, D head size, F feed-forward size, V vocabulary, L layers, P pages, Tp tokens per
 * page.
 */
#ifndef BUNTING_ENGINE_H
#define BUNTING_ENGINE_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#pragma GCC visibility push(default) /* exports only this header; the build hides all other symbols */

#define BUNTING_ABI_VERSION 25

/* ---- status ------------------------------------------------------------------------------------------------- */

typedef int32_t bunting_status;
enum {
  BUNTING_OK = 0,
  /* Wrong data from the caller (a bad file, an impossible shape, an unsupported option). Nothing changed. */
  BUNTING_INVALID = 1,
  /* Insufficient memory. Nothing changed. */
  BUNTING_NO_MEMORY = 2,
  /* Failure to open, map or read a file. Nothing changed. */
  BUNTING_IO = 3,
  /* The step computed nothing; the caller may start it again. */
  BUNTING_RETRY = 4,
  /* The device is lost, with its pages. The caller must close the engine. */
  BUNTING_LOST = 5,
  /* The engine aborted the step because the caller asked for it. Its moves are done; its other effects must be ignored. */
  BUNTING_GAVE_WAY = 6,
};

/* ABI version of the library. Callers compare it with BUNTING_ABI_VERSION before any other call. */
int32_t bunting_abi_version(void);

/* Error sentence of the calling thread's last failure; "" if there was none. */
char const* bunting_last_error(void);

/* ---- the machine --------------------------------------------------------------------------------------------- */

#include "include/engine_machine.h"

/* ---- model --------------------------------------------------------------------------------------------------- */

typedef struct bunting_model bunting_model;

enum { BUNTING_F32 = 0, BUNTING_F16 = 1, BUNTING_BF16 = 2 };
/* Quantised storage types of files: blocks that share scales, as in GGUF. They are valid for loading only. A row is a whole
 * number of blocks: 256 numbers each in the K types, IQ4_XS and codebook types, 32 in the others. This enum has only the types
 * that this header mentions. The other type numbers, up to 63, are in the rows of cpu/kernels/block_formats.h. Codebook
 * types, which are not a format of matrices in memory, are in model/codebook_types.cpp. */
enum { BUNTING_Q4_0 = 16, BUNTING_Q4_1 = 17, BUNTING_Q8_0 = 20, BUNTING_MXFP4 = 29, BUNTING_NVFP4 = 37 };
/* Flags added to the storage type.
 * PAIRED_ROWS, for Q, K and their biases: the file interleaves the rotated rows of each head. Its rows 2j and 2j+1 are the
 * head's rows j and j + R/2 (R: bunting_rope's dimensions).
 * ONE_LESS, for norms: the file stores the weights minus 1. */
enum { BUNTING_PAIRED_ROWS = 256, BUNTING_ONE_LESS = 512 };
/* In latent layers the rotated rows of Q and K are the last R of a head.
 * Flag of the same kind for LATENT_KEYS and LATENT_VALUES. The file has both in one matrix [Hq*(key_size + value_size),
 * latent_rank]. Per head its first rows have the head's rows of the keys as columns, and its others are those of the values.
 * `offset` is that of the whole matrix. */
enum { BUNTING_KEYS_WITH_VALUES = 16384 };
/* Flags of the same kind for tensors of experts.
 * EVERY_SECOND: the file alternates rows of this tensor and of another one, starting at `offset`; biases alternate elements.
 * TRANSPOSED, for plain numbers: the file has columns where the engine has rows. With both flags, each row of the file
 * alternates elements of the two tensors.
 * HALF_ROWS, with TRANSPOSED only: each row of the file has as many elements of another tensor, before or after this one's. */
enum { BUNTING_EVERY_SECOND = 1024, BUNTING_TRANSPOSED = 2048, BUNTING_HALF_ROWS = 8192 };
/* Flag of the same kind for Q, K, V and their biases. The file groups rows by key-value head: rows of its query heads, then
 * its key, then its value. It excludes PAIRED_ROWS. The file groups rows of STATE_Q, _K, _V and _Z by key head of the
 * state: its q, its k, v of its value heads, then their z. It groups those of STATE_B and _A likewise: b, then a. */
enum { BUNTING_GROUPED_HEADS = 4096 };
/* Flags of the same kind. GATED_HEADS, for Q and Q_GATE: the file has both in one matrix, per query head its rows of Q, then those
 * of its gate. NEGATED_EXP, for STATE_A_LOG: the file has -exp(A_log). ROW_PER_HEAD, for Q_GATE: the file has one row per query
 * head, which gates all numbers of the head. */
enum { BUNTING_GATED_HEADS = 32768, BUNTING_NEGATED_EXP = 65536, BUNTING_ROW_PER_HEAD = 131072 };
/* Formats of a matrix in memory, which decide how the engine multiplies it.
 * PLAIN: the type that `compute` names.
 * INT8, INT6, INT4, Q8_0: integers in groups along a row that share one f16 scale. INT8 and INT6 have groups of 128 (8.125
 * and 6.125 bits per weight). INT4 (4.5 bits) and Q8_0 (int8, 8.5 bits) have groups of 32, as GGUF's Q4_0 and Q8_0. A tensor
 * stored in the same format keeps its numbers exactly, as does Q4_0 in Q8_0; any other tensor is rounded. On a CPU the
 * engine rounds the activations for such a matrix to int8, except outliers, in groups of 32 for Q8_0, otherwise 128. Sums
 * within a group are exact. A GPU's copy of INT6 is int8.
 * FP8, for GPUs: e4m3 with one f32 scale per row. The packed weights are bf16; each engine rounds them for its own copy.
 * On CPUs also the type number of any row of block_formats.h that files can have, for tensors stored in that type. They
 * keep their numbers exactly, in the same number of bits or up to 6 % more. GPUs support BUNTING_MXFP4 of these. */
enum {
  BUNTING_FORMAT_PLAIN = 0, BUNTING_FORMAT_INT8 = 1, BUNTING_FORMAT_INT4 = 2, BUNTING_FORMAT_FP8 = 3,
  BUNTING_FORMAT_INT6 = 4, BUNTING_FORMAT_Q8_0 = 5,
};

/* Formats of the KV cache. PLAIN: the type that `compute` names. The others need BUNTING_BF16. They have one scale per token
 * and head for keys and one for values: INT8 and INT4, on CPUs, with f32 scales; FP8 (e4m3), on GPUs, with powers of two. INT4
 * rotates keys and values by a Hadamard matrix before it rounds them (cpu/kernels/hadamard.h). */
enum { BUNTING_KV_PLAIN = 0, BUNTING_KV_INT8 = 1, BUNTING_KV_FP8 = 2, BUNTING_KV_INT4 = 3 };

/* Transformer: x = embed * embedding_scale, then the layers, then logits = logit_scale * lm_head(norm(x)). With a
 * logit cap, logits = cap * tanh(logits / cap). An encoder adds learned positions and token types to the embedding, and may have
 * a norm of the sum. Its tokens see those behind them too.
 *
 * A layer adds the outputs of its mixer and of its MLP to x, each multiplied by residual_scale. Both may have a pre-norm (of x)
 * and a post-norm (of their output). A layer may lack one of the two, with its norms. An engine rejects a part that it does not
 * compute with BUNTING_INVALID and names it.
 *
 * Values of the fields of a bunting_layer_shape follow. */
enum { BUNTING_MIXER_ATTENTION = 0 };  /* grouped-query attention: softmax(scale * q k^T) v over all visible positions */
/* Multi-head latent attention (arXiv:2405.04434), with c the latent of a token and r its rotated part, which all heads share:
 *   [c | r] = K n, c = norm(c) with K_NORM, r is rotated;   q = Q n or, with query_rank, Q norm(QUERY_LATENT n) with Q_NORM
 *   per head: [qn | qr] = q, qr is rotated; score = scale * ((LATENT_KEYS qn) c + qr r); output = LATENT_VALUES softmax(score) c
 * A page holds [c | r] per token as the keys of one head and no values: kv_heads is 1 and head_size latent_rank + R, in all
 * layers. The engine computes both products of heads per query row, for prompts and decodes alike. Pages are plain. */
enum { BUNTING_MIXER_LATENT = 1 };
/* Recurrent mixers, of which a model has one kind. Their state of fixed size takes the place of keys and values. With n the normed
 * input, q, k, v, z, a, b its projections by STATE_Q to STATE_B, K = state_conv, Gk key heads of size Dk and Gv value heads of
 * size Dv, each for one value head and its key head:
 *   DELTA, SSM: q, k, v = silu(conv(q, k, v)), conv: depthwise over the last K tokens, per channel
 *   DELTA (gated delta net, arXiv:2412.06464): q = q / |q| / sqrt(Dk), k = k / |k|, with |x|^2 = sum(x^2) + 1e-6;
 *     g = exp(-exp(A_log) softplus(a + dt_bias));  S = g S;  S = S + k (sigmoid(b) (v - S^T k))^T;  y = S^T q
 *   SSM (Mamba-2, arXiv:2405.21060; q, k, v are its C, B, x):
 *     dt = clamp(softplus(a + dt_bias), dt_min, dt_max); g = exp(-exp(A_log) dt);  S = g S + k (dt v)^T;  y = S^T q
 *   the output is O of y with D, norm and gate z (state_options)
 *   CONV (short convolution, LFM2; q, k, v are its B, C, x, [H] each): the output is O (k * conv(q * v))
 * S is [Dk, Dv] per value head, in f32. The state of a layer is S and the last K-1 inputs of conv, zeros at position 0.
 * ATTENTION_SSM: attention and SSM of the same input, added up. NONE: the layer has an MLP only. */
enum {
  BUNTING_MIXER_DELTA = 2, BUNTING_MIXER_SSM = 3, BUNTING_MIXER_CONV = 4, BUNTING_MIXER_ATTENTION_SSM = 5,
  BUNTING_MIXER_NONE = 6,
};
enum { BUNTING_MLP_GATED = 0 };        /* down(activation(gate(n)) * up(n)) */
/* Mixture of experts: the sum of weight * gated MLP over the k of E experts that the router chooses by its logits router(n). */
enum { BUNTING_MLP_EXPERTS = 1 };
/* Gated MLP and experts in parallel: norm(norm(gated(n)) + norm(experts(norm(x)))), each norm with its own tensor. It needs all
 * four norms of a layer. The router reads norm(x) / sqrt(H). Each expert's weight is multiplied by its entry of EXPERT_SCALES. */
enum { BUNTING_MLP_BOTH = 2 };
enum { BUNTING_MLP_PLAIN = 3 };        /* down(activation(up(n))); GATE_UP stands for its bias and format of up */
/* Experts and a gated MLP of the same input, added up: experts(n) + gated(n). SHARED_GATED: the latter is multiplied by
 * sigmoid(shared_gate(n)). Neither has biases; a post-norm is that of their sum. */
enum { BUNTING_MLP_SHARED = 4, BUNTING_MLP_SHARED_GATED = 5 };
enum { BUNTING_MLP_NONE = 6 };         /* the layer has a mixer only */
enum { BUNTING_MLP_SHARED_PLAIN = 7 }; /* as SHARED; neither experts nor the MLP have a gate: down(activation(up(n))) */
/* Set of a layer's norms. A part without a pre-norm reads x itself. A norm of a SUM replaces x by norm(x + the part's output);
 * it has the tensor of the post-norm, which the layer then lacks. */
enum {
  BUNTING_NORM_ATTN = 1, BUNTING_NORM_ATTN_POST = 2, BUNTING_NORM_MLP = 4, BUNTING_NORM_MLP_POST = 8,
  BUNTING_NORM_ATTN_SUM = 16, BUNTING_NORM_MLP_SUM = 32,
};
/* Set of the projections with biases. */
enum { BUNTING_BIAS_QKV = 1, BUNTING_BIAS_O = 2, BUNTING_BIAS_GATE_UP = 4, BUNTING_BIAS_DOWN = 8, BUNTING_BIAS_ROUTER = 16 };
/* RMS norm of q and k before the rotation: none, per head with weights [D], or over all heads with [Hq*D] and [Hk*D].
 * ROTATED: as HEAD, but after the rotation. UNIT: per head without weights. */
enum { BUNTING_QK_NORM_NONE = 0, BUNTING_QK_NORM_HEAD = 1, BUNTING_QK_NORM_WIDE = 2 };
enum { BUNTING_QK_NORM_ROTATED = 3, BUNTING_QK_NORM_UNIT = 4 };
/* Set of options for values. KEYS: values are the projection of k before its norm, and the layer has no v. The norm of k is then
 * HEAD or NONE, and q and k have no biases. NORMED: each head's values are divided by their root mean square. */
enum { BUNTING_VALUES_KEYS = 1, BUNTING_VALUES_NORMED = 2 };

typedef struct bunting_layer_shape {
  int32_t mixer;            /* BUNTING_MIXER_* */
  int32_t mlp;              /* BUNTING_MLP_* */
  int32_t norms;            /* BUNTING_NORM_* */
  int32_t biases;           /* BUNTING_BIAS_* */
  int32_t qk_norm;          /* BUNTING_QK_NORM_* */
  int32_t rope;             /* index into the model's ropes; -1: q and k are not rotated */
  int32_t sliding_window;   /* 0: none; W: a token sees itself and the W-1 tokens before it; in an encoder also the W-1 behind it */
  int32_t sinks;            /* 1: each query head has a sink, a score in the softmax denominator without a value */
  int32_t parallel;         /* 1: parallel residual: the MLP reads the attention's input, norm(x) before the attention is added */
  int32_t head_size, kv_heads, feed_forward; /* size in this layer; 0: the model's, which is the largest of all layers */
  int32_t values;           /* BUNTING_VALUES_* */
  /* n > 0: the layer has no k and v and reads those of the layer n before. That layer has its own and the same sizes. */
  int32_t kv_layers_back;
  int32_t scaled;           /* 1: the layer ends by multiplying x by its BUNTING_T_LAYER_SCALE */
  /* 1: the window is a chunk: a token sees itself and the tokens before it from the last multiple of sliding_window on */
  int32_t chunked;
  int32_t gated_output;     /* 1: the attention's output is multiplied by sigmoid(q_gate(n)) before O */
  /* LAuReL (arXiv:2411.07501), with norms around: R > 0: behind the attention x becomes
   *   (x + n + norm(laurel_out(laurel_in(n)))) / sqrt(2), with n the attention's input */
  int32_t laurel_rank;
  /* 1: a gate g of a gated MLP becomes max(0, g - mean - gate_cutoff * deviation), both over the token's gates in the layer */
  int32_t sparse_gate;
  float gate_cutoff;
} bunting_layer_shape;

/* Rotary position embedding. Pairs are x[i] and x[i + R/2] of a head's first R elements. At position p the engine
 * rotates pair i by p * frequencies[i] and multiplies it by `magnitude`. These numbers alone express context extension
 * (linear, llama3, yarn). */
typedef struct bunting_rope {
  int32_t dimensions;         /* R: even, 2 to D */
  float magnitude;
  double const* frequencies;  /* [R/2] radians per position */
  /* Position-dependent query scale: 1 + query_growth * ln(1 + floor((p + query_offset) / query_span)). 0: queries are not
   * scaled. */
  float query_growth;
  int32_t query_span;         /* >= 1 with query_growth */
  int32_t query_offset;       /* 0 or 1 */
  int32_t reserved;           /* 0 */
} bunting_rope;

enum { BUNTING_NORM_RMS = 0, BUNTING_NORM_LAYER = 1 };  /* x / sqrt(mean(x^2) + e) * w; the same of x - mean(x) */
/* CLAMPED_SWIGLU defines all of activation(gate) * up: g sigmoid(1.702 g) (u + 1) with g = min(gate, 7), u = clamp(up, -7, 7). */
enum { BUNTING_ACTIVATION_SILU = 0, BUNTING_ACTIVATION_GELU_TANH = 1, BUNTING_ACTIVATION_CLAMPED_SWIGLU = 2 };
enum { BUNTING_ACTIVATION_GELU = 3 };  /* x/2 (1 + erf(x / sqrt(2))) */
/* xIELU (arXiv:2411.13010), in plain MLPs only, by four numbers of each layer:
 *   x > 0: p x^2 + beta x, with p = ln(1 + e^alpha_p)
 *   else:  n (e^min(x, eps) - 1 - x) + beta x, with n = beta + ln(1 + e^alpha_n) */
enum { BUNTING_ACTIVATION_XIELU = 4 };
enum { BUNTING_ACTIVATION_RELU_SQUARED = 5 };  /* max(x, 0)^2 */

/* BIDIRECTIONAL: a token sees all tokens of its text. Each text is then one chunk, and pages hold the keys and values of one layer
 * at a time: no later step reads them. */
enum { BUNTING_ATTENTION_CAUSAL = 0, BUNTING_ATTENTION_BIDIRECTIONAL = 1 };

/* Score of an expert: its share of the softmax over the chosen experts' logits, or over all logits, or the sigmoid of its
 * logit. */
enum { BUNTING_ROUTER_CHOSEN = 0, BUNTING_ROUTER_ALL = 1, BUNTING_ROUTER_SIGMOID = 2 };
/* Set of options of a router. BIASED: it chooses by score + BUNTING_T_CHOICE_BIAS, but not with CHOSEN. NORMALISED: the chosen
 * experts' scores are divided by their sum. SCALES_INPUT: the score multiplies the expert's input instead of its output; k is 1.
 * A weight is the score times router_scale. */
enum { BUNTING_ROUTER_BIASED = 1, BUNTING_ROUTER_NORMALISED = 2, BUNTING_ROUTER_SCALES_INPUT = 4 };

/* Set of options of recurrent mixers. CONV_BIAS: conv has biases. SKIP: y becomes y + D v, with STATE_D. At most one norm, RMS with
 * weights STATE_NORM: NORM_HEADS per value head, [Dv]; NORM_GROUPS per group of Gv*Dv/Gk numbers, NORM_WIDE over all, [Gv*Dv]. The
 * output is norm(y) * silu(z), with GATE_FIRST norm(y * silu(z)), without a norm y * silu(z). TILED_HEADS: the key head of value
 * head h is h % Gk; else it is h / (Gv/Gk). */
enum {
  BUNTING_STATE_CONV_BIAS = 1, BUNTING_STATE_NORM_HEADS = 2, BUNTING_STATE_NORM_GROUPS = 4, BUNTING_STATE_NORM_WIDE = 8,
  BUNTING_STATE_GATE_FIRST = 16, BUNTING_STATE_SKIP = 32, BUNTING_STATE_TILED_HEADS = 64,
};

/* Draft head (multi-token prediction, MTP, arXiv:2412.19437 section 2.2), on CPUs. The last layer of `layer` is then the
 * head's. It has keys and values of its own and is no part of the model's forward pass. With h the last layer's output for a
 * token at position p, and t the token after it, the head computes
 *   x = HEAD_PROJECTION [norm(embed(t)) | norm(h)], with HEAD_EMBED_NORM and HEAD_HIDDEN_NORM;   y = layer(x), at position p.
 * It drafts the token behind t with the largest logit of lm_head(norm(y)), with HEAD_NORM. For each further draft y replaces h, and
 * the draft replaces t, one position on. NORMED: h and y are outputs of the norm before the vocabulary projection. HIDDEN_FIRST: the
 * input of HEAD_PROJECTION has h before embed(t). */
enum { BUNTING_HEAD_PRESENT = 1, BUNTING_HEAD_NORMED = 2, BUNTING_HEAD_HIDDEN_FIRST = 4 };

/* Shape of a model. The library reads its pointers during the call only. */
typedef struct bunting_model_shape {
  int32_t layers, hidden, feed_forward;
  int32_t query_heads, kv_heads, head_size; /* query_heads % kv_heads == 0, head_size % 16 == 0 */
  int32_t vocab;
  int32_t context_max;      /* positions 0 .. context_max-1 */
  int32_t tied_embeddings;  /* 1: the vocabulary projection (LM head) is the embedding */
  int32_t norm;             /* BUNTING_NORM_*, for norms of x; norms of q and k are always RMS */
  int32_t activation;       /* BUNTING_ACTIVATION_* */
  int32_t ropes;            /* 0 to 8 */
  int32_t compute;          /* BUNTING_BF16: weights, GEMM inputs and KV in bf16, sums in f32; BUNTING_F32: all in f32 */
  int32_t isa;              /* BUNTING_ISA_*; BUNTING_INVALID above the processor's level */
  int32_t threads;          /* threads that pack weights while loading, >= 1 */
  int32_t kv;               /* BUNTING_KV_* */
  float norm_epsilon;
  float attention_scale;    /* factor of scores; 1/sqrt(D) in most models */
  float attention_cap;      /* 0: none; C: a score s becomes C * tanh(s / C) */
  float embedding_scale, residual_scale, logit_scale; /* 1 in most models */
  float logit_cap;          /* 0: none */
  /* P, the size of per-layer embeddings; P % 16 == 0; 0: none. The input of layer l for a token is
   *   input_l = (norm_P(projection_l(x) / sqrt(H)) + embed_l * sqrt(P)) / sqrt(2), with x = embed * embedding_scale.
   * Each layer ends by adding norm(out(activation(gate(x)) * input_l)) to x. */
  int32_t layer_inputs;
  /* Sizes of layers with experts; 0 in models without experts. */
  int32_t experts;             /* E */
  int32_t experts_used;        /* k, 1 to E */
  int32_t expert_feed_forward; /* Fe: feed-forward size of one expert */
  int32_t router;              /* BUNTING_ROUTER_CHOSEN, .._ALL, .._SIGMOID */
  int32_t attention;           /* BUNTING_ATTENTION_* */
  int32_t norm_biases;         /* 1: all norms of x have biases; needs BUNTING_NORM_LAYER */
  int32_t no_final_norm;       /* 1: hidden states are the output of the last layer, without a final norm */
  int32_t embedding_norm;      /* 1: x begins as a norm of the embedding */
  int32_t positions;           /* rows of learned positions; 0: none */
  int32_t position_offset;     /* row of position 0; positions >= context_max + position_offset */
  int32_t token_types;         /* rows of token types; 0: none */
  int32_t router_options;      /* BUNTING_ROUTER_BIASED, .. */
  /* The experts are in this many groups of equal size, 1 to 64. The router chooses among the experts of the groups used. Those
   * have the largest sums of their two best scores (with bias). 1 and 1: all. */
  int32_t router_groups, router_groups_used;
  float router_scale;          /* 1 in most models */
  /* A, residual streams of a token, up to 8 and up to layers + 1; 0 and 1: one. More (AltUp, arXiv:2301.13310) need layer_inputs
   * and laurel_rank. Stream i begins as stream_in_i(x), scaled to the root mean square of x, the embedding and stream 0. With
   * m(x) = tanh(router(norm(x) / H)), a layer
   *   adds sum_j P_ij x_j to each stream, P = predict(m(x_0)) as [A, A];     computes x, its output, from the new x_0;
   *   adds (1 + correct(m(x))_i) (x - x_0) to each stream i;                 reads stream_scale * x_0 at the gate of its input;
   *   adds that input's output to all streams but the first.
   * At the end x is the mean of x_0 and all stream_out_i(x_i), scaled to its root mean square. */
  int32_t streams;
  bunting_layer_shape const* layer; /* [layers] */
  bunting_rope const* rope;         /* [ropes]; null if there is none */
  /* BUNTING_FORMAT_* per matrix, 3 + 7*layers bytes, with recurrent layers 3 + 10*layers. First the embedding and the vocabulary projection (ignored if tied). Then
   * per layer: Q with K and Q_GATE; V; O; gate with up; down (all experts share the last two); gate with up beside experts; down
   * beside experts. Then the embedding of per-layer inputs. Last, with recurrent layers, per layer: STATE_Q with _K and _V;
   * STATE_Z; STATE_O. GPUs need the same format for V as for Q and K. NULL: all plain.
   * In a latent layer the first is of Q alone and the second of QUERY_LATENT with K; LATENT_KEYS and LATENT_VALUES are plain. */
  uint8_t const* formats;
  /* Sizes of recurrent layers; 0 in models without them. With CONV only state_conv and CONV_BIAS. */
  int32_t state_key_heads;     /* Gk */
  int32_t state_heads;         /* Gv, a multiple of Gk */
  int32_t state_key_size;      /* Dk, a multiple of 16, up to 256 */
  int32_t state_value_size;    /* Dv, a multiple of 16, up to 256 */
  int32_t state_conv;          /* K, 2 to 8 */
  int32_t state_options;       /* BUNTING_STATE_CONV_BIAS, .. */
  float state_dt_min, state_dt_max; /* of SSM; 0 and infinity in most models */
  /* Sizes of latent layers; 0 in models without any. */
  int32_t latent_rank;         /* width of the latent, a multiple of 32 */
  int32_t query_rank;          /* width of the queries' latent, a multiple of 16; 0: none */
  int32_t key_size;            /* numbers of a head of q that are not rotated, a multiple of 16 */
  int32_t value_size;          /* numbers of a head's output, a multiple of 16 */
  float latent_norm_epsilon;   /* of K_NORM and Q_NORM in latent layers */
  int32_t head;                /* BUNTING_HEAD_*; 0: none */
} bunting_model_shape;

/* Tensors of a model. Shapes are [rows, cols], row-major, as in Hugging Face files; vectors have rows = 1. */
enum {
  BUNTING_T_EMBED = 0,      /* [V, H] */
  BUNTING_T_FINAL_NORM = 1, /* [1, H] */
  BUNTING_T_LM_HEAD = 2,    /* [V, H], only if not tied */
  BUNTING_T_LAYER_EMBED = 3,      /* [V, layers*P], with layer_inputs, as the next two */
  BUNTING_T_LAYER_PROJECTION = 4, /* [layers*P, H] */
  BUNTING_T_LAYER_INPUT_NORM = 5, /* [1, P] */
  BUNTING_T_FINAL_NORM_BIAS = 6,  /* [1, H], with norm_biases, as all biases of norms */
  BUNTING_T_EMBED_NORM = 7, BUNTING_T_EMBED_NORM_BIAS = 8, /* [1, H] each */
  BUNTING_T_POSITIONS = 9,        /* [positions, H], kept in f32, as the next */
  BUNTING_T_TOKEN_TYPES = 10,     /* [token_types, H] */
  BUNTING_T_ATTN_NORM = 16, /* [1, H]; this and all later tensors exist per layer */
  BUNTING_T_Q = 17,         /* [Hq*D, H] */
  BUNTING_T_K = 18,         /* [Hk*D, H] */
  BUNTING_T_V = 19,         /* [Hk*D, H] */
  BUNTING_T_O = 20,         /* [H, Hq*D] */
  BUNTING_T_Q_BIAS = 21, BUNTING_T_K_BIAS = 22, BUNTING_T_V_BIAS = 23, /* [1, Hq*D], then [1, Hk*D] */
  BUNTING_T_Q_NORM = 24,    /* [1, D] or [1, Hq*D] */
  BUNTING_T_K_NORM = 25,    /* [1, D] or [1, Hk*D] */
  BUNTING_T_MLP_NORM = 26,  /* [1, H] */
  BUNTING_T_GATE = 27,      /* [F, H] */
  BUNTING_T_UP = 28,        /* [F, H] */
  BUNTING_T_DOWN = 29,      /* [H, F] */
  /* [1, H], [1, F], [1, F] and [1, H]. */
  BUNTING_T_O_BIAS = 30, BUNTING_T_GATE_BIAS = 31, BUNTING_T_UP_BIAS = 32, BUNTING_T_DOWN_BIAS = 33,
  BUNTING_T_ATTN_POST_NORM = 34, /* [1, H] */
  BUNTING_T_MLP_POST_NORM = 35,  /* [1, H] */
  BUNTING_T_SINKS = 36,     /* [1, Hq] */
  /* In a layer with experts each expert has its own gate, up and down, with Fe instead of F, and its own biases. */
  BUNTING_T_ROUTER = 37,      /* [E, H], kept in f32 */
  BUNTING_T_ROUTER_BIAS = 38, /* [1, E] */
  /* Tensors of BUNTING_MLP_BOTH; its gated MLP has F, its experts have Fe. MLP_SHARED has the last three matrices. */
  BUNTING_T_EXPERT_SCALES = 40,     /* [1, E]; the norms are [1, H] */
  BUNTING_T_ROUTER_NORM = 39, BUNTING_T_EXPERTS_NORM = 41, BUNTING_T_EXPERTS_POST_NORM = 42, BUNTING_T_BESIDE_POST_NORM = 43,
  BUNTING_T_BESIDE_GATE = 44,       /* [F, H] */
  BUNTING_T_BESIDE_UP = 45,         /* [F, H] */
  BUNTING_T_BESIDE_DOWN = 46,       /* [H, F] */
  BUNTING_T_LAYER_SCALE = 47,       /* [1, 1] */
  BUNTING_T_INPUT_GATE = 48,        /* [P, H], with layer_inputs, as the next two */
  BUNTING_T_INPUT_OUT = 49,         /* [H, P] */
  BUNTING_T_INPUT_POST_NORM = 50,   /* [1, H] */
  /* [1, H] each. */
  BUNTING_T_ATTN_NORM_BIAS = 51, BUNTING_T_MLP_NORM_BIAS = 52, BUNTING_T_ATTN_POST_NORM_BIAS = 53, BUNTING_T_MLP_POST_NORM_BIAS = 54,
  BUNTING_T_CHOICE_BIAS = 55,         /* [1, E], with ROUTER_BIASED */
  BUNTING_T_SHARED_GATE = 56,         /* [1, H], with MLP_SHARED_GATED, kept in f32 */
  /* Tensors of latent layers. Such a layer has no V. Its Q is [Hq*(key_size + R), H], or [.., query_rank] with query_rank; its K
   * is [latent_rank + R, H], Q_NORM is [1, query_rank] and K_NORM [1, latent_rank]; O is [H, Hq*value_size]. */
  BUNTING_T_QUERY_LATENT = 57,                 /* [query_rank, H], with query_rank */
  BUNTING_T_LATENT_KEYS = 58,                 /* [Hq*latent_rank, key_size]: per head the transposed projection of the latent to keys */
  BUNTING_T_LATENT_VALUES = 59,                 /* [Hq*value_size, latent_rank] */
  BUNTING_T_Q_GATE = 64,              /* [Hq*D, H], with gated_output */
  /* Tensors of recurrent mixers; CONV has Q, K, V, CONV_Q, its bias, and O, with H for each width. */
  BUNTING_T_STATE_Q = 65,             /* [Gk*Dk, H] */
  BUNTING_T_STATE_K = 66,             /* [Gk*Dk, H] */
  BUNTING_T_STATE_V = 67, BUNTING_T_STATE_Z = 68, /* [Gv*Dv, H] each */
  BUNTING_T_STATE_A = 69,             /* [Gv, H], kept in f32, as is the next */
  BUNTING_T_STATE_B = 70,             /* [Gv, H], with DELTA */
  BUNTING_T_STATE_CONV_Q = 71,        /* [Gk*Dk, K], the oldest token's weight first; kept in f32, as are all that follow but O */
  BUNTING_T_STATE_CONV_K = 72,        /* [Gk*Dk, K] */
  BUNTING_T_STATE_CONV_V = 73,        /* [Gv*Dv, K] */
  /* [1, Gk*Dk] twice, then [1, Gv*Dv], with CONV_BIAS. */
  BUNTING_T_STATE_CONV_Q_BIAS = 74, BUNTING_T_STATE_CONV_K_BIAS = 75, BUNTING_T_STATE_CONV_V_BIAS = 76,
  BUNTING_T_STATE_DT_BIAS = 77,       /* [1, Gv] */
  BUNTING_T_STATE_A_LOG = 78,         /* [1, Gv] */
  BUNTING_T_STATE_D = 79,             /* [1, Gv], with SKIP */
  BUNTING_T_STATE_NORM = 80,          /* [1, Dv] or [1, Gv*Dv], with a norm */
  BUNTING_T_STATE_O = 81,             /* [H, Gv*Dv] */
  /* [1, 1] each, with ACTIVATION_XIELU. */
  BUNTING_T_XIELU_ALPHA_P = 84, BUNTING_T_XIELU_ALPHA_N = 85, BUNTING_T_XIELU_BETA = 86, BUNTING_T_XIELU_EPS = 87,
  BUNTING_T_STREAM_IN = 88,           /* [H, H] of stream i, with several streams, as the next six; its `layer` is i - 1 */
  BUNTING_T_STREAM_OUT = 89,          /* [H, H] likewise */
  BUNTING_T_STREAM_ROUTER = 90,       /* [A, H], kept in f32, as the next four */
  BUNTING_T_STREAM_NORM = 91,         /* [1, H] */
  BUNTING_T_STREAM_PREDICT = 92,      /* [A*A, A] */
  BUNTING_T_STREAM_CORRECT = 93,      /* [A, A] */
  BUNTING_T_STREAM_SCALE = 94,        /* [1, H] */
  /* [R, H], [H, R] and [1, H], with laurel_rank. */
  BUNTING_T_LAUREL_IN = 95, BUNTING_T_LAUREL_OUT = 96, BUNTING_T_LAUREL_NORM = 97,
  /* In the layer of a head: [1, H], but [H, 2*H] and plain the projection. */
  BUNTING_T_HEAD_EMBED_NORM = 98, BUNTING_T_HEAD_HIDDEN_NORM = 99, BUNTING_T_HEAD_PROJECTION = 100, BUNTING_T_HEAD_NORM = 101,
};
/* Stride between experts in tensor numbers: BUNTING_T_GATE + 5 * BUNTING_EXPERT is the gate of expert 5. */
enum { BUNTING_EXPERT = 128 };

/* Computes the bytes of the packed weights, of one KV page, and of one slot for the states of all recurrent layers. The last is
 * 0 without such layers. Allocates nothing. */
bunting_status bunting_model_plan(bunting_model_shape const* shape, int32_t page_tokens, uint64_t* weight_bytes,
                                  uint64_t* page_bytes, uint64_t* state_bytes);

bunting_status bunting_model_open(bunting_model_shape const* shape, bunting_model** out);

/* Reads one tensor, row after row from byte `offset` of a file, converts and packs it. `dtype` is the storage type in the
 * file, plus flags. The library maps the file read-only for as long as it needs it. `layer` is 0 for tensors below
 * BUNTING_T_ATTN_NORM. The shape must be the model's, and each tensor may be loaded only once.
 *
 * The model of GPU engines checks all this and that the file has the bytes, and notes their place. bunting_engine_open then
 * reads them, so the file must stay as it is while engines may still be opened. */
bunting_status bunting_model_load(bunting_model* model, int32_t tensor, int32_t layer, char const* path,
                                  uint64_t offset, int32_t dtype, int64_t rows, int64_t cols);

/* Multiplies the numbers of a tensor, which must be stored as plain ones, when bunting_model_load reads it afterwards. */
bunting_status bunting_model_factor(bunting_model* model, int32_t tensor, int32_t layer, float factor);

/* Storage of a quantised matrix [rows, cols] in safetensors files (GPTQ, AWQ and others). Integers q, zeros z and scales s are
 * separate tensors: an element is (q - z) * s. */
typedef struct bunting_quantised {
  int32_t layout;     /* BUNTING_LAYOUT_*: order of integers and scales (model/quantised_matrix.cpp) */
  int32_t number;     /* BUNTING_NUMBER_*: encoding of q */
  int32_t bits;       /* bits of q: 4 or 8 */
  int32_t zero_added; /* constant added to a stored z: 1 in the first version of GPTQ's format */
  int64_t group_rows, group_cols; /* shape of a group, whose elements share a scale */
  int32_t scale_type; /* BUNTING_SCALE_* */
  int32_t divided;    /* 1: elements are divided by the factor, 0: multiplied */
  int64_t state_bytes; /* of nested scales */
} bunting_quantised;
enum { BUNTING_LAYOUT_ROWS = 0, BUNTING_LAYOUT_GPTQ = 1, BUNTING_LAYOUT_AWQ = 2, BUNTING_LAYOUT_NVFP4 = 3 };
/* SIGNED_127: q / 127. LEVELS: the f32 with index q of 16, with the first of two in the high bits. */
enum {
  BUNTING_NUMBER_UNSIGNED = 0, BUNTING_NUMBER_SIGNED = 1, BUNTING_NUMBER_E4M3 = 2, BUNTING_NUMBER_E2M1 = 3,
  BUNTING_NUMBER_SIGNED_127 = 4, BUNTING_NUMBER_LEVELS = 5,
};
/* NESTED: the f32 with the index of the scale's byte of 256, times an f32 for each 256 scales, plus an offset. */
enum {
  BUNTING_SCALE_F32 = 0, BUNTING_SCALE_F16 = 1, BUNTING_SCALE_BF16 = 2, BUNTING_SCALE_E8M0 = 3, BUNTING_SCALE_E4M3 = 4,
  BUNTING_SCALE_NESTED = 5,
};

/* Loads such a matrix, like bunting_model_load, by converting it to blocks of `dtype`. BUNTING_Q4_0, BUNTING_Q4_1,
 * BUNTING_MXFP4 and BUNTING_NVFP4 keep its integers and round only scales; BUNTING_Q8_0 may round the numbers too. `paths` has
 * BUNTING_PARTS strings, each ended by a NUL, and `offsets` as many byte offsets. They locate, in this order:
 *   integers;   scales (empty path with BUNTING_LAYOUT_NVFP4, whose blocks have them);
 *   zeros (empty path: all are 2^(bits - 1));   the i32 group of each column (empty path: in order);
 *   an f32 factor of all elements (empty path: 1);   the 16 levels of BUNTING_NUMBER_LEVELS;
 *   for nested scales their f32 scales, their 256 levels, and `state_bytes` of JSON text with their "nested_offset".
 * With BUNTING_EVERY_SECOND rows of integers and rows of scales alternate with those of another tensor. */
#define BUNTING_PARTS 9
bunting_status bunting_model_load_quantised(bunting_model* model, int32_t tensor, int32_t layer, char const* paths,
                                            uint64_t const* offsets, bunting_quantised const* how, int32_t dtype,
                                            int64_t rows, int64_t cols);

/* Makes a model read-only once all tensors are loaded. Fails with the name of the first missing tensor. */
bunting_status bunting_model_seal(bunting_model* model);

/* Progress callback. The library calls it from time to time on the thread that made the call. It must return. */
typedef void (*bunting_progress)(uint64_t bytes_done, uint64_t bytes_total);

/* Save writes the packed weights of a sealed model to a file; restore maps that file without converting or copying. `key` is
 * 32 bytes that identify the contents: the caller changes it whenever the shape, formats or the model's files change. The
 * file holds checksums and is the same for every instruction set.
 *
 * Save writes a temporary file beside `path` and renames it, so a file at `path` is always complete. On failure it leaves no
 * file behind. Restore fills an open model and replaces all calls of bunting_model_load; the caller seals it afterwards.
 * BUNTING_IO: the file is absent or unreadable. BUNTING_INVALID: its version, key or length differs, or it is damaged. After
 * either, the caller loads the tensors as if it had not called restore. `progress` may be null.
 *
 * The model of GPU engines converts its tensors while it saves them, a few MiB at a time, and then maps the file as restore
 * does. */
bunting_status bunting_model_save(bunting_model* model, char const* path, uint8_t const* key,
                                  bunting_progress progress);
bunting_status bunting_model_restore(bunting_model* model, char const* path, uint8_t const* key,
                                     bunting_progress progress);

bunting_status bunting_model_close(bunting_model* model);

/* ---- engine -------------------------------------------------------------------------------------------------- */

typedef struct bunting_engine bunting_engine;

/* Implementation of plain GEMMs on a GPU: the engine's own kernels, or cuBLASLt for products of more than 64 rows. Decode-only
 * steps that run as a recorded graph, of up to 256 tokens, never use cuBLASLt. The engine loads and checks cuBLASLt when it
 * opens (bunting_cublaslt_probe). With cuBLASLt results are not batch-invariant. */
enum { BUNTING_GEMM_OWN = 0, BUNTING_GEMM_CUBLASLT = 1 };

enum { BUNTING_DEVICES_MAX = 8, BUNTING_DRAFTS_MAX = 8, BUNTING_ADAPTERS_MAX = 1024, BUNTING_ADAPTER_RANK_MAX = 512 };

typedef struct bunting_engine_limits {
  int32_t threads;          /* compute threads, the caller of bunting_step_wait included; >= 1 */
  int32_t pages;            /* KV pages; the engine allocates all of them when it opens */
  int32_t page_tokens;      /* tokens per page; 16 */
  int32_t step_tokens_max;  /* tokens per step at most */
  int32_t step_chunks_max;  /* chunks per step at most */
  int32_t step_draws_max;   /* sampled rows per step at most */
  int32_t step_hidden_max;  /* rows per step at most that return their hidden state */
  int32_t top_logprobs_max; /* top logprobs per row at most */
  int32_t gemm;             /* BUNTING_GEMM_*; CPU engines ignore it */
  /* GPUs that compute a step together. A GPU engine needs exactly one, a CPU engine none; any other count is
   * BUNTING_INVALID. */
  int32_t device_count;
  int32_t devices[BUNTING_DEVICES_MAX];
  int32_t states;           /* state slots; >= 1 with recurrent layers, else 0 */
  /* tokens drafted behind a chunk at most, by the head or the draft model, up to BUNTING_DRAFTS_MAX; 0: neither runs */
  int32_t drafts_max;
  int32_t adapters_max;     /* slots for LoRA adapters (adapters.h), up to BUNTING_ADAPTERS_MAX; 0 on GPUs */
  int32_t adapter_rank_max; /* highest rank of an adapter in a slot, up to BUNTING_ADAPTER_RANK_MAX */
} bunting_engine_limits;

/* Computes upper bounds, in bytes, of an engine's memory besides its pages and states: workspace, copy of the weights, and host
 * memory. A GPU engine takes most of the last only while it opens. Allocates nothing. A CPU engine has no copy, and its
 * host_bytes are 0. A GPU engine uses GPU memory for the first two. */
bunting_status bunting_engine_plan(bunting_model_shape const* shape, bunting_engine_limits const* limits,
                                   uint64_t* workspace_bytes, uint64_t* copy_bytes, uint64_t* host_bytes);

/* Computes an upper bound, in bytes, of the workspace of a draft model; an engine with these limits has it besides its own. */
bunting_status bunting_draft_plan(bunting_model_shape const* shape, bunting_engine_limits const* limits,
                                  uint64_t* workspace_bytes);

/* Opens an engine and allocates all its pages, states, workspaces and threads. Steps allocate nothing.
 *
 * `draft`, on CPUs, is a draft model (speculative decoding) with the vocabulary of `model`, the target; NULL: none. The target then has
 * no draft head. The draft model is sealed and outlives the engine. It is no encoder, and has no recurrent layers. Its keys and values
 * are in the same pages: the bytes of the draft model's page follow those of the target's.
 *
 * A GPU engine reads the weights here, piece by piece from the model's files to the GPU. It calls `progress`, which may be null,
 * after each piece. A number that is not finite, or a file that is gone, is refused here. Several engines may open at once. */
bunting_status bunting_engine_open(bunting_model const* model, bunting_model const* draft, bunting_engine_limits const* limits,
                                   bunting_progress progress, bunting_engine** out);
bunting_status bunting_engine_close(bunting_engine* engine);

/* Copy whole KV pages, in all layers, to the caller's memory and back. For each of `count` page ids there are the page_bytes of
 * bunting_model_plan, with those of a draft model. The calls for states copy `size` bytes of a slot's state_bytes from `offset` on.
 * The bytes are opaque: they mean the same only to an engine of the same models, formats, kind of engine and instruction set. Each
 * returns when the copies are done. BUNTING_INVALID: an id, `offset` or `size` is wrong, or the model is an encoder; nothing is copied. BUNTING_LOST on GPUs.
 * One thread at a time may read and one, maybe another, may write. A step may be in flight and a further thread in
 * bunting_step_wait. That step must not write a page or slot that is read, nor use one that is written. */
bunting_status bunting_engine_read_pages(bunting_engine* engine, int32_t const* pages, int32_t count, void* bytes,
                                         uint64_t size);
bunting_status bunting_engine_write_pages(bunting_engine* engine, int32_t const* pages, int32_t count, void const* bytes,
                                          uint64_t size);
bunting_status bunting_engine_read_state(bunting_engine* engine, int32_t slot, uint64_t offset, void* bytes, uint64_t size);
bunting_status bunting_engine_write_state(bunting_engine* engine, int32_t slot, uint64_t offset, void const* bytes,
                                          uint64_t size);

/* ---- step ---------------------------------------------------------------------------------------------------- */

/* Step block: one flat little-endian buffer of 32-bit words. It has this header, then the arrays that the header announces,
 * each at its word offset from the start of the block. The engine ignores offsets of empty arrays.
 *
 *   moves    [moves,    4]  page copies, done first: from, to, tokens, tier of `from`. The engine copies the first `tokens`
 *                           (1..Tp) tokens of page `from` to page `to`. Tier 0 is this device's pages; others are not
 *                           supported yet.
 *   tokens   [T]            token ids of all chunks, chunk after chunk
 *   chunks   [chunks,  15]  first token row, count, start position, first entry in `pages`, page count, first entry in
 *                           `rows`, row count, slot of its adapter (0: none), index of the first token
 *                           of type 1 (0: none), state slot (-1: none), slot with the state before the chunk (-1: none,
 *                           start is 0), number of saves, the token after the chunk (-1: none is known), number of
 *                           tokens that the head or the draft model drafts behind the chunk's last valid draw, and
 *                           number of `unread` tokens (-1: the draft model skips the chunk, and drafts nothing)
 *   pages    [..]           page ids; a chunk has ceil((start + count) / Tp) of them
 *   rows     [rows,    20]  outputs, see below: chunk after chunk, and by rising index within a chunk
 *   pairs    [..,       2]  (token, value): logit biases (value is a float's bits) and seen tokens (value is a count)
 *   words    [..]           allowed-token bitmasks, ceil(V/32) words each; bit t%32 of word t/32 = token t allowed
 *   shared   [shared,   4]  shared prefixes, a hint: token rows [a, b) share the keys and values of positions [c, d). An
 *                           engine may read these once for all rows. A CPU engine's results do not depend on the hint.
 *                           [a, b) are the rows of two or more whole chunks. [c, d) are whole pages below the start of
 *                           each of these chunks, the same pages in all their lists. Spans nest, parents first: a
 *                           child's c is its parent's d, and its chunks are among its parent's. c of a span without a
 *                           parent is 0. So no row and position occur twice, and a row's spans are contiguous from 0.
 *                           There are fewer spans than chunks.
 *   saves    [saves,    2]  (count, slot): the slot receives the state after the chunk's first `count` tokens; chunk after
 *                           chunk, and by rising count within a chunk
 *   unread   [..]           tokens of the page in which a chunk begins, before the chunk, that the draft model has not
 *                           computed yet: it computes them before the chunk; chunk after chunk
 *
 * Chunks of one step belong to different sequences. The engine appends keys and values of a chunk's own tokens before it
 * reads them. Earlier steps, or moves of this one, must have filled positions [0, start). No two chunks write the same
 * page, and no chunk reads a page that another chunk writes.
 *
 * Drafts follow a chunk's last valid draw: the first draw that is not the chunk's next token (the first rejection), or else the last
 * draw. A head drafts fewer tokens than requested where the chunk's last page ends. Drafts are hints: a head's depend on where a
 * cached prefix was cut.
 *
 * A draft model computes the chunk's tokens up to that draw, then the drawn token, then its own drafts. The next step names the
 * accepted drafts again, and computes their keys and values anew.
 *
 * With recurrent layers each chunk has a state slot. It updates the slot in place, or begins from the state in another slot, which stays
 * unchanged. A step writes a slot at most once, and no chunk begins from a slot that another chunk or a save writes. */
typedef struct bunting_step_header {
  uint32_t magic;      /* BUNTING_STEP_MAGIC */
  uint32_t words_total;
  int32_t moves, tokens, chunks, pages, rows, pairs, words, shared, saves, unread;     /* counts of entries */
  int32_t moves_at, tokens_at, chunks_at, pages_at, rows_at, pairs_at, words_at, shared_at, saves_at, unread_at; /* word offsets */
} bunting_step_header;

#define BUNTING_STEP_MAGIC 0x31505453u /* "STP1" */
#define BUNTING_MOVE_WORDS 4
#define BUNTING_CHUNK_WORDS 15
#define BUNTING_SAVE_WORDS 2
#define BUNTING_ROW_WORDS 20

/* Words of an entry of `rows`, which requests an output for one of its chunk's tokens. A row that requests the hidden state has
 * 0 in all words but BUNTING_ROW_AFTER_INDEX and BUNTING_ROW_WANTS.
 *
 * Sampling order: penalties of seen tokens (repetition, then frequency and presence), logit biases, bitmask. Temperature 0 then
 * picks the largest logit, ties to the lowest id. Any other value applies temperature, top-k, top-p and min-p. The engine then
 * draws once by inverse cumulative probability over the kept tokens by rising id, with u from Philox4x32-10(key = seed,
 * counter = position). Filters order tokens by falling probability, then rising id. Logprobs are of the raw logits, ordered by
 * falling probability, then rising id. Equal logits give the same token on every instruction set. */
enum {
  BUNTING_ROW_TEMPERATURE = 0, /* f32 */
  BUNTING_ROW_TOP_P = 1,       /* f32 */
  BUNTING_ROW_MIN_P = 2,       /* f32 */
  BUNTING_ROW_REPETITION = 3,  /* f32 */
  BUNTING_ROW_PRESENCE = 4,    /* f32 */
  BUNTING_ROW_FREQUENCY = 5,   /* f32 */
  BUNTING_ROW_TOP_K = 6,       /* 0: no limit */
  BUNTING_ROW_SEED_LOW = 7,
  BUNTING_ROW_SEED_HIGH = 8,
  BUNTING_ROW_POSITION = 9,
  BUNTING_ROW_BIAS_AT = 10,    /* first entry in `pairs` */
  BUNTING_ROW_BIAS_COUNT = 11,
  BUNTING_ROW_SEEN_AT = 12,    /* first entry in `pairs` */
  BUNTING_ROW_SEEN_COUNT = 13,
  BUNTING_ROW_MASK_AT = 14,    /* first word in `words`, or -1 */
  BUNTING_ROW_TOP_LOGPROBS = 15, /* -1: no logprobs; n: that of the drawn token and of the n most likely ones */
  BUNTING_ROW_AFTER_INDEX = 16, /* index of the row's token in its chunk, 0 .. count-1; a drawn token follows it */
  BUNTING_ROW_WANTS = 17,      /* BUNTING_WANTS_* */
  /* 18, 19 reserved, 0 */
};

/* Output of a row. DRAW: the next token. HIDDEN: the hidden state, norm(x) as the vocabulary projection reads it. */
enum { BUNTING_WANTS_DRAW = 0, BUNTING_WANTS_HIDDEN = 1 };

/* Step result: one flat buffer of 32-bit words. After this header come the draws, then the hidden states, both in the order
 * of `rows`. A draw has BUNTING_RESULT_ROW_WORDS + 2*top_logprobs_max words: status (0 = ok, 1 = logits not finite, 2 = no
 * token allowed), token, logprob (f32), count of top logprobs, then that many pairs (token, logprob f32), most likely first, then,
 * with drafts_max > 0, the count of drafts and drafts_max pairs (token, logprob f32). A hidden state has H words (f32). */
typedef struct bunting_step_result {
  int32_t draws;
  float device_ms; /* wall time of the computation, in ms */
  int32_t hidden;
  float drafts_ms; /* part of it in which a head or draft model ran; a draft model's includes the tokens of decodes that it computes first */
} bunting_step_result;

#define BUNTING_RESULT_ROW_WORDS 4

/* Validates the whole block (every offset, count, id and range) and starts the step. BUNTING_INVALID leaves the engine
 * unchanged. An engine runs one step at a time. `block` must stay unchanged, and both buffers must stay alive, until
 * bunting_step_wait returns. */
bunting_status bunting_step_start(bunting_engine* engine, void const* block, uint64_t block_bytes, void* result,
                                  uint64_t result_bytes);

/* Blocks until the started step is done. A CPU engine computes here, on the calling thread and its helpers. `way` is NULL or an
 * abort flag that another thread may set. Once it is not 0, a CPU engine aborts the step within one layer and returns
 * BUNTING_GAVE_WAY. A GPU engine ignores it. So does an engine with recurrent layers: a step updates states in place, so that the
 * caller could not repeat an aborted one. */
bunting_status bunting_step_wait(bunting_engine* engine, int32_t const* way);

/* Returns the raw logits of the last step's draws, [rows, V] f32, valid until the next step. For tests and evaluation. */
bunting_status bunting_engine_logits(bunting_engine const* engine, float const** logits, int32_t* rows);

#pragma GCC visibility pop

#ifdef __cplusplus
}
#endif
#endif /* BUNTING_ENGINE_H */
