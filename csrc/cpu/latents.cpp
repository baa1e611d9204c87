// latents.cpp - the parts of latent layers (MLA with absorbed projections; engine.h, BUNTING_MIXER_LATENT)
// around their attention, which sees one key head: a query head's q becomes [LATENT_KEYS q | rotated part],
// and its output is LATENT_VALUES (attention).
#include <algorithm>

#include "cpu/forward.h"
#include "cpu/kernels/row_stride.h"

namespace bunting {

void Forward::project_and_append_latents(StepPlan const& plan, int32_t layer) {
  LayerWeights const& weights = model_.layer(layer);
  bunting_model_shape const& shape = model_.shape();
  LatentWidths const widths(model_);
  Norm const query_norm{NormKind::rms, weights.q_norm, shape.latent_norm_epsilon};
  multiply({.w = &weights.v, .y = work_.latents, .ldy = widths.latents, .tokens = plan.tokens},
           normalise(weights.attention_norm, plan.tokens, weights.v));
  Operand queries;
  if (shape.query_rank > 0) {
    queries = operand(weights.qkv, work_.query_latents, row_stride(model_.dtype(), shape.query_rank));
    share_rows(plan.tokens, shape.query_rank, [&](int64_t begin, int64_t end) {
      kernels_.norm(queries, work_.latents, widths.latents, query_norm, shape.query_rank, begin, end);
    });
  } else {
    queries = normalise(weights.attention_norm, plan.tokens, weights.qkv);
  }
  multiply({.w = &weights.qkv, .y = work_.heads, .ldy = widths.queries, .tokens = plan.tokens}, queries);
  RopeTable const& rope = *model_.rope(layer);
  Workspace::Angles const angles = work_.angles[size_t(model_.layer_shape(layer).rope)];
  LatentAppend const append{
      .q = work_.heads,
      .ldq = widths.queries,
      .kv = work_.latents + shape.query_rank,
      .ldkv = widths.latents,
      .query_heads = shape.query_heads,
      .nope_size = shape.key_size,
      .norm = weights.k_norm,
      .norm_epsilon = shape.latent_norm_epsilon,
      .rotated = rope.dimensions,
      .cos = angles.cos,
      .sin = angles.sin,
      .query_scale = rope.query_scale,
      .positions = plan.position.data(),
      .token_pages = plan.token_page.data(),
      .kv_layer = pages_.layer(layer),
      .nope = {work_.nope, row_stride(model_.dtype(), widths.nope), model_.dtype()},
      .absorbed = work_.qkv,
      .ldabsorbed = model_.qkv_width(),
  };
  share_rows(plan.tokens, widths.queries,
             [&](int64_t begin, int64_t end) { kernels_.latent_append(append, begin, end); });
}

// Projects the unrotated part of each query head to the latent.
void Forward::turn_to_latents(StepPlan const& plan, int32_t layer) {
  LatentWidths const widths(model_);
  Operand const nope{work_.nope, row_stride(model_.dtype(), widths.nope), model_.dtype()};
  multiply_heads(model_.layer(layer).keys, nope, widths.nope_of_head, work_.qkv, model_.qkv_width(),
                 model_.shape().head_size, plan.tokens);
}

// Projects each head's output from the latent to its values, for the first `rows` rows.
void Forward::turn_from_latents(int32_t layer, int64_t rows) {
  Operand const latents{work_.attended, attended_stride_, model_.dtype()};
  multiply_heads(model_.layer(layer).values, latents, model_.shape().latent_rank, work_.heads,
                 model_.mixed_width(layer), model_.shape().value_size, rows);
}

// Multiplies each head's columns of x, `of_head` apart, by its rows of w, into its columns of y.
void Forward::multiply_heads(PackedMatrix const& w, Operand const& x, int64_t of_head, float* y, int64_t ldy,
                             int64_t of_head_y, int64_t rows) {
  int64_t const heads = model_.shape().query_heads, panels = w.panels() / heads;
  pool_.run(w.panels(), grain(w.panels(), gemm_ns(w, rows)), [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end;) {
      int64_t const head = at / panels, first = at % panels, last = std::min(panels, first + end - at);
      PackedMatrix part = w;
      part.n = w.n / heads;
      part.data = w.panel(head * panels);
      kernels_.gemm({.x = x.row(0) + head * of_head * x.element_bytes(),
                     .ldx = x.ld,
                     .w = &part,
                     .y = y + head * of_head_y,
                     .ldy = ldy,
                     .tokens = rows},
                    first, last);
      at += last - first;
    }
  });
}

}  // namespace bunting
