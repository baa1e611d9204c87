#include "cuda/forward.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

#include "boundary/error.h"
#include "host/memory_region.h"

namespace bunting::cuda {
namespace {

// Decodes of the steps that are one launch. Products of up to eight tokens cost the same.
constexpr int32_t kGraphTokens[] = {1, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256};
constexpr int32_t kBiasesMax =
    2048;  // of a row, on the average: the server lets in 1024, and 128 stop tokens and more that are banned

int32_t pages_of(int32_t tokens) {
  return (tokens + kPageTokens - 1) / kPageTokens;
}

size_t mask_words(Model const& model) {
  return size_t(model.shape().vocab + 31) / 32;
}

// Of each plan; the last one is for layers with windows, if any layer has one.
std::vector<AttentionShape> attention_shapes(Model const& model, int32_t blocks) {
  bunting_model_shape const& s = model.shape();
  int32_t widest = 0;
  bool has_full = false;
  for (int32_t i = 0; i < s.layers; ++i) {
    int32_t const window = model.layer_shape(i).sliding_window;
    widest = std::max(widest, window);
    has_full = has_full || window == 0;
  }
  std::vector<AttentionShape> shapes;
  if (has_full) shapes.push_back({s.query_heads, s.kv_heads, 0, blocks});
  if (widest > 0) shapes.push_back({s.query_heads, s.kv_heads, widest, blocks});
  return shapes;
}

// What the plans of steps of so many tokens take at most.
void add_largest_plans(StepArrays::Sizes& sizes, std::vector<AttentionShape> const& shapes, int32_t tokens) {
  for (size_t i = 0; i < shapes.size(); ++i)
    sizes.plan[i] = {size_t(attention_items_max(tokens, shapes[i])),
                     size_t(attention_merge_rows_max(shapes[i]))};
}

size_t rows_max(bunting_engine_limits const& limits) {
  return size_t(limits.step_draws_max) + size_t(limits.step_hidden_max);
}

// The largest step of the limits.
StepArrays::Sizes largest_sizes(Model const& model, bunting_engine_limits const& limits, int32_t blocks) {
  bunting_model_shape const& s = model.shape();
  size_t const tokens = size_t(limits.step_tokens_max), chunks = size_t(limits.step_chunks_max),
               draws = size_t(limits.step_draws_max);
  StepArrays::Sizes sizes{
      .tokens = tokens,
      .pages = chunks * size_t(pages_of(s.context_max)),
      .rows = rows_max(limits),
      .draws = draws,
      .copies = size_t(limits.pages),
      .blocks = size_t(blocks),
      .pairs_of_heads = tokens * size_t(s.kv_heads),
      .sample_pairs = draws * (size_t(std::min(s.vocab, s.context_max)) + size_t(kBiasesMax)),
      .mask_words = draws * mask_words(model),
      .plan = {}};
  add_largest_plans(sizes, attention_shapes(model, blocks), limits.step_tokens_max);
  return sizes;
}

// Bytes of the arrays of the largest step.
size_t arrays_bytes(Model const& model, bunting_engine_limits const& limits, int32_t blocks) {
  int32_t const plans = int32_t(attention_shapes(model, blocks).size());
  return StepArrays().place(largest_sizes(model, limits, blocks), plans, nullptr);
}

size_t result_row_words(bunting_engine_limits const& limits) {
  return BUNTING_RESULT_ROW_WORDS + 2 * size_t(limits.top_logprobs_max);
}

float to_float(bf16 value) {
  uint32_t const bits = uint32_t(value) << 16;
  float number;
  std::memcpy(&number, &bits, sizeof number);
  return number;
}

// Rows of a step that go through the MLPs of a layer at most, times the width of these: [T, F] or [T k, Fe].
size_t widest_activated(Model const& model, size_t tokens) {
  size_t widest = 0;
  for (int32_t i = 0; i < model.shape().layers; ++i) {
    size_t const rows = tokens * size_t(model.has_experts(i) ? model.shape().experts_used : 1);
    widest = std::max(widest, rows * size_t(model.feed_forward(i)));
  }
  return widest;
}

// Counters of matrix products.
size_t gemm_counters(Model const& model) {
  bunting_model_shape const& s = model.shape();
  int32_t const widest = std::max(2 * s.expert_feed_forward, s.hidden);
  return size_t(std::max(kGemmArrived, model.has_experts() ? gemm_experts_arrived(widest, s.experts) : 0));
}

// Of the device that is then in use.
int32_t multiprocessors(bunting_engine_limits const& limits) {
  use_device(limits.devices[0]);
  return device_info(limits.devices[0]).multiprocessors;
}

}  // namespace

size_t StepArrays::place(Sizes const& sizes, int32_t plans, char* base) {
  Carver carver(base);
  tokens = carver.take<int32_t>(sizes.tokens);
  positions = carver.take<int32_t>(sizes.tokens);
  slots = carver.take<int32_t>(sizes.tokens);
  wanted = carver.take<int32_t>(sizes.rows);
  for (int32_t i = 0; i < plans; ++i) {
    plan[i].item_begin = carver.take<int32_t>(sizes.blocks + 1);
    plan[i].merge_begin = carver.take<int32_t>(sizes.pairs_of_heads + 1);
    plan[i].items = carver.take<AttentionItem>(sizes.plan[i].items);
    plan[i].merge_rows = carver.take<int32_t>(sizes.plan[i].merge_rows);
  }
  pages = carver.take<int32_t>(sizes.pages);
  copies = carver.take<PageCopy>(sizes.copies);
  draws = carver.take<uint32_t>(sizes.draws * BUNTING_ROW_WORDS);
  pairs = carver.take<int32_t>(2 * sizes.sample_pairs);
  masks = carver.take<uint32_t>(sizes.mask_words);
  return carver.used();
}

size_t Activations::place(Model const& model, bunting_engine_limits const& limits, int32_t attention_blocks,
                          char* base) {
  Carver carver(base);
  bunting_model_shape const& s = model.shape();
  size_t const tokens = size_t(limits.step_tokens_max), rows = rows_max(limits),
               draws = size_t(limits.step_draws_max);
  size_t const hidden = size_t(s.hidden), query = size_t(model.query_width()),
               wide = widest_activated(model, tokens);
  x = carver.take<float>(tokens * hidden);
  wanted_x = carver.take<float>(rows * hidden);
  delta = carver.take<float>(tokens * hidden);
  normed = carver.take<bf16>(tokens * hidden);
  qkv = carver.take<float>(tokens * size_t(model.qkv_width()));
  q = carver.take<bf16>(tokens * query);
  attended = carver.take<bf16>(tokens * query);
  wanted_attended = carver.take<bf16>(rows * query);
  gate_up = carver.take<float>(2 * wide);
  activated = carver.take<bf16>(wide);
  if (model.has_experts()) {
    size_t const experts = size_t(s.experts), pairs = tokens * size_t(s.experts_used);
    router_input = carver.take<float>(tokens * hidden);
    router_logits = carver.take<float>(tokens * experts);
    chosen = carver.take<int32_t>(pairs);
    expert_weights = carver.take<float>(pairs);
    expert_row = carver.take<int32_t>(pairs);
    expert_pair = carver.take<int32_t>(pairs);
    expert_begin = carver.take<int32_t>(experts + 1);
    expert_input = carver.take<bf16>(pairs * hidden);
    expert_output = carver.take<float>(pairs * hidden);
  }
  logits = carver.take<float>(draws * size_t(s.vocab));
  changed = carver.take<float>(draws * size_t(s.vocab));
  size_t partial_rows = 0;
  for (AttentionShape const& shape : attention_shapes(model, attention_blocks))
    partial_rows = std::max(partial_rows, size_t(attention_partial_rows_max(shape)));
  partial_out = carver.take<float>(partial_rows * size_t(s.head_size));
  partial_log = carver.take<float>(partial_rows);
  running = carver.take<float>(size_t(attention_blocks) * kManyRows * size_t(s.head_size));
  arrived = carver.take<int32_t>(tokens * size_t(s.kv_heads));
  gemm_partial = carver.take<float>(kGemmPartialFloats);
  gemm_arrived = carver.take<int32_t>(gemm_counters(model));
  return carver.used();
}

bunting_device probe_device(int32_t index) {
  std::string why_none;
  bunting_device out{};
  out.devices = device_count(why_none);
  if (out.devices == 0) fail(BUNTING_INVALID, "%s", why_none.c_str());
  DeviceInfo const info = device_info(index);
  out.capability = info.capability;
  out.multiprocessors = info.multiprocessors;
  out.memory_bytes = info.memory_bytes;
  out.memory_free_bytes = info.memory_free_bytes;
  std::snprintf(out.name, sizeof out.name, "%s", info.name.c_str());
  std::snprintf(out.note, sizeof out.note, "%s", info.note.c_str());
  return out;
}

double step_deadline_ms(Model const& model, StepPlan const& plan) {
  constexpr double kSlowFlopsPerMs = 1e9;
  bunting_model_shape const& s = model.shape();
  double const hidden = s.hidden, query = double(model.query_width()), tokens = plan.tokens;
  double seen = 0;  // positions, by all tokens
  for (int32_t t = 0; t < plan.tokens; ++t) seen += plan.position[size_t(t)] + 1;
  double flops = 2 * hidden * s.vocab * double(plan.draws);
  for (int32_t i = 0; i < s.layers; ++i) {
    double const wide = double(model.feed_forward(i)) * (model.has_experts(i) ? s.experts_used : 1);
    flops += 2 * hidden * (double(model.qkv_width()) + query + 3 * wide) * tokens + 4 * query * seen;
  }
  return step_deadline_ms() + flops / kSlowFlopsPerMs;
}

uint64_t Forward::workspace_bytes(Model const& model, bunting_engine_limits const& limits) {
  int32_t const blocks = multiprocessors(limits) * kAttentionBlocks;
  return arrays_bytes(model, limits, blocks) + Activations().place(model, limits, blocks, nullptr) +
         (limits.gemm == BUNTING_GEMM_CUBLASLT ? CublasLt::kWorkspaceBytes : 0);
}

Forward::Forward(Model const& model, bunting_engine_limits const& limits)
    : model_(model),
      limits_(limits),
      blocks_(multiprocessors(limits) * kAttentionBlocks),
      cublaslt_(limits.gemm == BUNTING_GEMM_CUBLASLT ? std::make_unique<CublasLt>("") : nullptr),
      weights_(model),
      pages_(size_t(limits.pages) * size_t(model.page_bytes()), "KV pages"),
      work_(Activations().place(model, limits, blocks_, nullptr), "the workspaces of a step"),
      device_arrays_(arrays_bytes(model, limits, blocks_), "the arrays of a step"),
      host_arrays_(device_arrays_.bytes(), "the arrays of a step"),
      results_(size_t(limits.step_draws_max) * result_row_words(limits) * 4, "the results of a step"),
      hidden_(size_t(limits.step_hidden_max) * size_t(model.shape().hidden) * sizeof(bf16),
              "the hidden states of a step"),
      shapes_(attention_shapes(model, blocks_)) {
  act_.place(model, limits, blocks_, work_.data());
  chunks_.reserve(size_t(limits.step_chunks_max));
  shared_.reserve(size_t(limits.step_chunks_max));
  record_graphs();
}

void Forward::record_graphs() {
  int32_t const most = std::min({limits_.step_chunks_max, limits_.step_tokens_max, limits_.step_draws_max});
  is_recording_ = true;
  for (int32_t tokens : kGraphTokens) {
    if (tokens > most) break;
    StepArrays::Sizes sizes{};
    sizes.tokens = sizes.rows = sizes.draws = size_t(tokens);
    sizes.blocks = size_t(blocks_);
    sizes.pairs_of_heads = size_t(tokens) * size_t(model_.shape().kv_heads);
    add_largest_plans(sizes, shapes_, tokens);
    device_.place(sizes, int32_t(shapes_.size()), device_arrays_.data());
    stream_.begin_recording();
    queue_layers(tokens, tokens, tokens);
    graphs_.push_back({tokens, sizes, stream_.end_recording()});
  }
  is_recording_ = false;
}

DecodeGraph const* Forward::graph_of(StepPlan const& plan) const {
  if (plan.tokens == 0 || plan.tokens != plan.chunks || plan.draws != plan.tokens) return nullptr;
  for (DecodeGraph const& graph : graphs_)
    if (plan.tokens <= graph.tokens) return &graph;
  return nullptr;
}

void Forward::run(StepPlan const& plan, void* result) {
  auto const started = std::chrono::steady_clock::now();
  use_device(limits_.devices[0]);
  DecodeGraph const* const graph = graph_of(plan);
  for (Part const& part : write_arrays(plan, graph))
    if (part.bytes > 0)
      stream_.copy(device_arrays_.data() + part.begin, host_arrays_.data() + part.begin, part.bytes);
  copy_pages(stream_, {.pages = reinterpret_cast<bf16*>(pages_.data()),
                       .copies = device_.copies,
                       .count = plan.moves,
                       .page_elements = int64_t(model_.page_bytes()) / int64_t(sizeof(bf16)),
                       .head_size = model_.shape().head_size,
                       .page_tokens = kPageTokens,
                       .fp8_heads = is_fp8() ? model_.shape().kv_heads : 0});
  if (graph)
    stream_.launch(graph->graph);
  else if (plan.tokens > 0)
    queue_layers(plan.tokens, plan.rows, plan.draws);
  if (plan.draws > 0) draw(plan.draws);
  wait(step_deadline_ms(model_, plan));
  draws_ = plan.draws;
  std::chrono::duration<float, std::milli> const elapsed = std::chrono::steady_clock::now() - started;
  bunting_step_result const header{plan.draws, elapsed.count(), plan.hidden(), 0};
  std::memcpy(result, &header, sizeof header);
  char* const results = static_cast<char*>(result) + sizeof header;
  size_t const drawn_bytes = size_t(plan.draws) * result_row_words(limits_) * 4;
  std::memcpy(results, results_.data(), drawn_bytes);
  float* const hidden = reinterpret_cast<float*>(results + drawn_bytes);
  bf16 const* const from = reinterpret_cast<bf16 const*>(hidden_.data());
  for (size_t i = 0; i < size_t(plan.hidden()) * size_t(model_.shape().hidden); ++i)
    hidden[i] = to_float(from[i]);
}

std::array<Forward::Part, 1 + 2 * kPlansMax> Forward::write_arrays(StepPlan const& plan,
                                                                   DecodeGraph const* graph) {
  chunks_.clear();
  StepArrays::Sizes const largest = largest_sizes(model_, limits_, blocks_);
  StepArrays::Sizes sizes{};
  for (int32_t c = 0; c < plan.chunks; ++c) {
    ChunkView const& chunk = plan.chunk[size_t(c)];
    chunks_.push_back({chunk.first_token, chunk.count, chunk.start, int32_t(sizes.pages)});
    sizes.pages += size_t(pages_of(chunk.start + chunk.count));
  }
  shared_.clear();
  for (int32_t i = 0; i < plan.shared_spans; ++i) {
    SharedSpan const& span = plan.shared[size_t(i)];
    shared_.push_back({span.chunk_begin, span.chunk_end, span.begin, span.end, span.parent});
  }
  size_t const plans = shapes_.size();
  for (size_t i = 0; i < plans; ++i) {
    plan_attention(shapes_[i], chunks_, shared_, plans_[i]);
    sizes.plan[i] = {plans_[i].items.size(), plans_[i].merge_rows.size()};
  }
  for (int32_t r = 0; r < plan.draws; ++r) {
    SampleRow const& row = plan.draw[size_t(r)];
    sizes.sample_pairs += size_t(row.bias_count) + size_t(row.seen_count);
    sizes.mask_words += row.mask ? mask_words(model_) : 0;
  }
  if (sizes.sample_pairs > largest.sample_pairs)
    fail(BUNTING_INVALID, "a step has %zu biases and seen tokens, more than %zu", sizes.sample_pairs,
         largest.sample_pairs);
  sizes.tokens = size_t(plan.tokens);
  sizes.rows = size_t(plan.rows);
  sizes.draws = size_t(plan.draws);
  sizes.copies = size_t(plan.moves);
  sizes.blocks = size_t(blocks_);
  sizes.pairs_of_heads = plans_[0].merge_begin.size() - 1;
  if (graph) {
    size_t const pages = sizes.pages, pairs = sizes.sample_pairs, words = sizes.mask_words,
                 copies = sizes.copies;
    sizes = graph->sizes;
    sizes.pages = pages;
    sizes.sample_pairs = pairs;
    sizes.mask_words = words;
    sizes.copies = copies;
  }
  size_t const bytes = host_.place(sizes, int32_t(plans), host_arrays_.data());
  device_.place(sizes, int32_t(plans), device_arrays_.data());

  std::copy_n(plan.token, plan.tokens, host_.tokens);
  std::copy_n(plan.position.begin(), plan.tokens, host_.positions);
  for (int32_t t = 0; t < plan.tokens; ++t)
    host_.slots[t] = plan.token_page[size_t(t)] * kPageTokens + plan.position[size_t(t)] % kPageTokens;
  for (size_t t = size_t(plan.tokens); t < sizes.tokens; ++t) {
    host_.tokens[t] = host_.positions[t] = host_.wanted[t] = 0;
    host_.slots[t] = kNoSlot;
  }
  for (int32_t c = 0; c < plan.chunks; ++c) {
    ChunkView const& chunk = plan.chunk[size_t(c)];
    std::copy_n(chunk.pages, pages_of(chunk.start + chunk.count), host_.pages + chunks_[size_t(c)].pages_at);
  }
  for (int32_t c = 0; c < plan.moves; ++c)
    host_.copies[c] = {plan.move[c].from, plan.move[c].to, plan.move[c].count};
  for (size_t i = 0; i < plans; ++i) {
    std::ranges::copy(plans_[i].items, host_.plan[i].items);
    std::ranges::copy(plans_[i].item_begin, host_.plan[i].item_begin);
    std::ranges::copy(plans_[i].merge_begin, host_.plan[i].merge_begin);
    std::ranges::copy(plans_[i].merge_rows, host_.plan[i].merge_rows);
  }
  write_rows(plan);
  if (!graph) return {{{0, bytes}}};
  // Between them lies room for more items and rows.
  std::array<Part, 1 + 2 * kPlansMax> parts{};
  size_t begin = 0, count = 0;
  auto const close = [&](void const* end, void const* next) {
    parts[count++] = {begin, size_t(static_cast<char const*>(end) - host_arrays_.data()) - begin};
    begin = size_t(static_cast<char const*>(next) - host_arrays_.data());
  };
  for (size_t i = 0; i < plans; ++i) {
    close(host_.plan[i].items + plans_[i].items.size(), host_.plan[i].merge_rows);
    void const* const next =
        i + 1 < plans ? static_cast<void const*>(host_.plan[i + 1].item_begin) : host_.pages;
    close(host_.plan[i].merge_rows + plans_[i].merge_rows.size(), next);
  }
  parts[count] = {begin, bytes - begin};
  return parts;
}

// The rows of the step block again: those to draw from first, with pairs and masks of their own.
void Forward::write_rows(StepPlan const& plan) {
  for (int32_t r = 0; r < plan.rows; ++r) {
    WantedRow const& row = plan.row[size_t(r)];
    host_.wanted[row.is_draw ? row.index : plan.draws + row.index] = row.token_row;
  }
  uint32_t pair = 0, mask = 0;
  for (int32_t r = 0; r < plan.draws; ++r) {
    SampleRow const& row = plan.draw[size_t(r)];
    auto const append = [&](int32_t const* pairs, int32_t count) {
      std::copy_n(pairs, 2 * count, host_.pairs + 2 * pair);
      return std::exchange(pair, pair + uint32_t(count));
    };
    uint32_t* const words = host_.draws + size_t(r) * BUNTING_ROW_WORDS;
    float const reals[] = {row.temperature, row.top_p,    row.min_p,
                           row.repetition,  row.presence, row.frequency};
    std::memcpy(words + BUNTING_ROW_TEMPERATURE, reals, sizeof reals);
    words[BUNTING_ROW_TOP_K] = uint32_t(row.top_k);
    words[BUNTING_ROW_SEED_LOW] = row.seed_low;
    words[BUNTING_ROW_SEED_HIGH] = row.seed_high;
    words[BUNTING_ROW_POSITION] = row.position;
    words[BUNTING_ROW_BIAS_AT] = append(row.bias, row.bias_count);
    words[BUNTING_ROW_BIAS_COUNT] = uint32_t(row.bias_count);
    words[BUNTING_ROW_SEEN_AT] = append(row.seen, row.seen_count);
    words[BUNTING_ROW_SEEN_COUNT] = uint32_t(row.seen_count);
    words[BUNTING_ROW_MASK_AT] = row.mask ? mask : uint32_t(-1);
    words[BUNTING_ROW_TOP_LOGPROBS] = uint32_t(row.top_logprobs);
    if (row.mask) std::copy_n(row.mask, mask_words(model_), host_.masks + mask);
    if (row.mask) mask += uint32_t(mask_words(model_));
  }
}

void Forward::queue_layers(int32_t tokens, int32_t rows, int32_t draws) {
  bunting_model_shape const& s = model_.shape();
  int32_t const last = s.layers - 1, query = int32_t(model_.query_width()), qkv = int32_t(model_.qkv_width());
  embed(stream_, {act_.x, weights_.embedding(), device_.tokens, tokens, s.hidden, s.embedding_scale});
  float* x = act_.x;
  Pending pending;
  for (int32_t i = 0; i <= last; ++i) {
    DeviceLayer const& layer = weights_.layer(i);
    normalise(x, pending, layer.attention_norm, tokens);
    multiply({act_.normed, layer.qkv, layer.qkv_bias, act_.qkv, tokens, qkv, s.hidden});
    rope_append(stream_, {.qkv = act_.qkv,
                          .q = act_.q,
                          .query_heads = s.query_heads,
                          .q_norm = layer.q_norm,
                          .k_norm = layer.k_norm,
                          .norm_epsilon = s.norm_epsilon,
                          .cos = layer.cos,
                          .sin = layer.sin,
                          .query_scale = layer.query_scale,
                          .positions = device_.positions,
                          .slots = device_.slots,
                          .kv = kv_layer(i),
                          .tokens = tokens,
                          .rotated = layer.rotated,
                          .has_wide_norms = model_.layer_shape(i).qk_norm == BUNTING_QK_NORM_WIDE});
    if (i == last && rows == 0) return;
    attend(i);
    bf16 const* attended = act_.attended;
    if (i == last) {
      tokens = rows;
      gather(stream_, {x, act_.wanted_x, device_.wanted, tokens, s.hidden * int32_t(sizeof(float))});
      gather(stream_,
             {attended, act_.wanted_attended, device_.wanted, tokens, query * int32_t(sizeof(bf16))});
      x = act_.wanted_x;
      attended = act_.wanted_attended;
    }
    pending = finish_layer(i, x, attended, tokens, i == last);
  }
  normalise(x, pending, weights_.final_norm(), rows);
  if (rows > draws)
    stream_.copy(hidden_.data(), act_.normed + size_t(draws) * size_t(s.hidden),
                 size_t(rows - draws) * size_t(s.hidden) * sizeof(bf16));
  if (draws == 0) return;
  multiply({act_.normed, weights_.vocabulary_projection(), nullptr, act_.logits, draws, s.vocab, s.hidden});
  if (s.logit_cap > 0) cap(stream_, {act_.logits, int64_t(draws) * s.vocab, s.logit_cap});
}

Forward::Pending Forward::finish_layer(int32_t index, float* x, bf16 const* attended, int32_t tokens,
                                       bool is_last) {
  bunting_model_shape const& s = model_.shape();
  DeviceLayer const& layer = weights_.layer(index);
  Pending const of_attention{
      project_back(attended, layer.o, layer.o_bias, tokens, int32_t(model_.query_width())),
      layer.attention_post_norm};
  bool const has_experts = model_.has_experts(index), is_parallel = model_.layer_shape(index).parallel;
  normalise(x, is_parallel ? Pending{} : of_attention, layer.mlp_norm, tokens,
            has_experts ? act_.router_input : nullptr);
  if (is_parallel) add(x, of_attention, tokens);  // what the MLP reads is there
  if (has_experts) return {mix_experts(layer, tokens, is_last), layer.mlp_post_norm};
  multiply(
      {act_.normed, layer.gate_up, layer.gate_up_bias, act_.gate_up, tokens, 2 * s.feed_forward, s.hidden});
  gate(stream_, {act_.gate_up, act_.activated, tokens, s.feed_forward, s.activation});
  return {project_back(act_.activated, layer.down, layer.down_bias, tokens, s.feed_forward),
          layer.mlp_post_norm};
}

float const* Forward::mix_experts(DeviceLayer const& layer, int32_t tokens, bool is_last) {
  bunting_model_shape const& s = model_.shape();
  int32_t const used = s.experts_used, pairs = tokens * used, wide = s.expert_feed_forward;
  router(stream_, {act_.router_input, layer.router, layer.router_bias, act_.router_logits, tokens, s.experts,
                   s.hidden});
  // What a step of decodes is filled up with uses no expert. In the last layer it is the first row again.
  choose_experts(stream_, {.logits = act_.router_logits,
                           .slots = is_last ? nullptr : device_.slots,
                           .chosen = act_.chosen,
                           .weights = act_.expert_weights,
                           .tokens = tokens,
                           .experts = s.experts,
                           .used = used,
                           .softmax_of_all = s.router == BUNTING_ROUTER_ALL});
  group_experts(stream_,
                {act_.chosen, act_.expert_begin, act_.expert_row, act_.expert_pair, tokens, s.experts, used});
  gather(stream_, {act_.normed, act_.expert_input, act_.expert_row, pairs, s.hidden * int32_t(sizeof(bf16))});
  multiply_experts(
      {act_.expert_input, layer.gate_up, layer.gate_up_bias, act_.gate_up, pairs, 2 * wide, s.hidden});
  gate(stream_, {act_.gate_up, act_.activated, pairs, wide, s.activation});
  multiply_experts({act_.activated, layer.down, layer.down_bias, act_.expert_output, pairs, s.hidden, wide});
  combine_experts(stream_, {act_.delta, act_.expert_output, act_.expert_pair, act_.expert_weights, tokens,
                            used, s.hidden});
  return act_.delta;
}

void Forward::draw(int32_t draws) {
  sample(stream_, {.logits = act_.logits,
                   .changed = act_.changed,
                   .rows = device_.draws,
                   .pairs = device_.pairs,
                   .words = device_.masks,
                   .results = reinterpret_cast<uint32_t*>(results_.data()),
                   .result_words = int32_t(result_row_words(limits_)),
                   .row_count = draws,
                   .vocab = model_.shape().vocab});
}

void Forward::attend(int32_t layer) {
  bunting_model_shape const& s = model_.shape();
  int32_t const window = model_.layer_shape(layer).sliding_window;
  StepArrays::Plan const& plan = device_.plan[window > 0 ? shapes_.size() - 1 : 0];
  static_assert(kPageTokens == 16);
  attention(stream_, {.q = act_.q,
                      .out = act_.attended,
                      .kv = kv_layer(layer),
                      .query_heads = s.query_heads,
                      .sliding_window = window,
                      .scale = s.attention_scale,
                      .blocks = blocks_,
                      .items = plan.items,
                      .item_begin = plan.item_begin,
                      .merge_begin = plan.merge_begin,
                      .merge_rows = plan.merge_rows,
                      .pages = device_.pages,
                      .positions = device_.positions,
                      .partial_out = act_.partial_out,
                      .partial_log = act_.partial_log,
                      .running = act_.running,
                      .arrived = act_.arrived,
                      .cap = s.attention_cap,
                      .sinks = weights_.layer(layer).sinks});
}

float const* Forward::project_back(bf16 const* x, WeightMatrix const& w, float const* bias, int32_t tokens,
                                   int32_t k) {
  multiply({x, w, bias, act_.delta, tokens, model_.shape().hidden, k});
  return act_.delta;
}

void Forward::multiply(Gemm g) {
  g.partial = act_.gemm_partial;
  g.arrived = act_.gemm_arrived;
  // A library may take memory when it is first asked for a shape, which must not happen in a recording.
  if (cublaslt_ && !is_recording_ && g.tokens > kGemmFewTokens && g.w.format == Format::plain)
    cublaslt_->multiply(stream_, g);
  else
    gemm(stream_, g);
}

void Forward::multiply_experts(Gemm g) {
  g.partial = act_.gemm_partial;
  g.arrived = act_.gemm_arrived;
  gemm_experts(stream_, g, {act_.expert_begin, model_.shape().experts, model_.shape().experts_used});
}

void Forward::normalise(float* x, Pending const& pending, float const* weight, int32_t tokens, float* exact) {
  bunting_model_shape const& s = model_.shape();
  add_norm(stream_, {.x = x,
                     .delta = pending.delta,
                     .weight = weight,
                     .y = act_.normed,
                     .epsilon = s.norm_epsilon,
                     .tokens = tokens,
                     .hidden = s.hidden,
                     .delta_scale = s.residual_scale,
                     .delta_weight = pending.norm,
                     .kind = s.norm,
                     .exact = exact});
}

void Forward::add(float* x, Pending const& pending, int32_t tokens) {
  bunting_model_shape const& s = model_.shape();
  add_norm(stream_, {.x = x,
                     .delta = pending.delta,
                     .weight = nullptr,
                     .y = nullptr,
                     .epsilon = s.norm_epsilon,
                     .tokens = tokens,
                     .hidden = s.hidden,
                     .delta_scale = s.residual_scale,
                     .delta_weight = pending.norm,
                     .kind = s.norm});
}

// Pages are [page][layer][keys | values][kv head][Tp][D], and in fp8 the multipliers after the values of each
// layer.
KvPages Forward::kv_layer(int32_t layer) const {
  bunting_model_shape const& s = model_.shape();
  int64_t const page_stride = int64_t(model_.page_bytes() / sizeof(bf16));
  int64_t const part = int64_t(s.kv_heads) * kPageTokens * s.head_size / (is_fp8() ? 2 : 1);
  return {.layer = reinterpret_cast<bf16*>(pages_.data()) + layer * (page_stride / s.layers),
          .page_stride = page_stride,
          .values = part,
          .kv_heads = s.kv_heads,
          .head_size = s.head_size,
          .page_tokens = kPageTokens,
          .fp8 = is_fp8(),
          .multipliers = is_fp8() ? 2 * part : 0};
}

float const* Forward::logits() const {
  logits_.resize(size_t(draws_) * size_t(model_.shape().vocab));
  use_device(limits_.devices[0]);
  stream_.copy(logits_.data(), act_.logits, logits_.size() * sizeof(float));
  wait(step_deadline_ms());
  return logits_.data();
}

void Forward::wait(double deadline_ms) const {
  if (!stream_.wait(deadline_ms))
    lose_device("it has not finished a step after " + std::to_string(int(deadline_ms)) + " ms");
}

}  // namespace bunting::cuda
