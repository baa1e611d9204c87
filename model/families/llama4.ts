/**
 * Llama 4 (text): most layers apply RoPE to neighbouring pairs, norm the heads of q and k without weights,
 * and attend within chunks. The others attend to everything, have no RoPE, and scale queries by their
 * position. A router chooses one expert and scales its input; a shared expert is added. Some layers are
 * dense.
 */
import { type LayerShape, plainLayer, shapeLimits } from "../shape.ts";
import { TensorKind } from "../tensor-kinds.ts";
import { biasesOf } from "./biases.ts";
import { expertsOf, mixedLayers, sharedWidth } from "./experts.ts";
import { type Family, layersOf, type Names } from "./family.ts";
import { allBut } from "./windows.ts";

const gateAndUp = "feed_forward.experts.gate_up_proj";
/** Values of all published models, which GGUF files do not have. */
const published = { chunk: 8192, growth: 0.1, span: 8192, period: 4, expertsWithoutNorms: 128 };

export const llama4: Family = {
  name: "llama4_text",
  models: "Llama 4 Scout and Maverick (text)",
  classes: ["Llama4ForCausalLM"],
  wrappers: ["Llama4ForConditionalGeneration"],
  metadata: ["llama4"],
  kvHeadsOptional: true,
  hasExperts: true,
  readsRouter: true,
  feedForwardField: "intermediate_size_mlp",
  transposesExperts: "halves",
  pairedRows: { folder: true, gguf: true },
  defaults: { rms_norm_eps: 1e-5, rope_theta: 500_000, attention_chunk_size: published.chunk },
  folderNames: {
    [TensorKind.router]: "feed_forward.router.weight",
    [TensorKind.gate]: "feed_forward.gate_proj.weight",
    [TensorKind.up]: "feed_forward.up_proj.weight",
    [TensorKind.down]: "feed_forward.down_proj.weight",
    [TensorKind.besideGate]: "feed_forward.shared_expert.gate_proj.weight",
    [TensorKind.besideUp]: "feed_forward.shared_expert.up_proj.weight",
    [TensorKind.besideDown]: "feed_forward.shared_expert.down_proj.weight",
  },
  expertNames: {
    [TensorKind.gate]: gateAndUp,
    [TensorKind.up]: gateAndUp,
    [TensorKind.down]: "feed_forward.experts.down_proj",
  },
  describe(source) {
    const used: Names = ["num_experts_per_tok", "expert_used_count"];
    if (source.integer(used, 1, shapeLimits.experts, 1) !== 1) {
      source.refuse(used, "a router that scales inputs chooses one expert");
    }
    const experts = expertsOf(source, "num_local_experts", "intermediate_size", {
      score: "sigmoid",
      scalesInput: true,
    });
    const period = source.integer(["no_rope_layer_interval", null], 1, shapeLimits.layers, published.period);
    const listed = source.perLayer(["no_rope_layers", null]); // 1: rotated
    const rotates = layersOf(source.layers, (index) =>
      listed && listed.length > 0 ? listed[index] === 1 : allBut(period)(index),
    );
    const types = source.texts(["layer_types", null]);
    const window = source.integer(
      ["attention_chunk_size", "attention.sliding_window"],
      0,
      shapeLimits.contextMax,
      published.chunk,
    );
    const isChunk = (index: number): boolean =>
      types ? types[index] === "chunked_attention" : rotates[index]! && window > 0;
    const hasNorms =
      source.kind === "config"
        ? source.flag(["use_qk_norm", null], true)
        : experts.count !== published.expertsWithoutNorms;
    const tunes = source.flag(["attn_temperature_tuning", null], true);
    const growth = tunes ? source.number(["attn_scale", null], 0, 10, published.growth) : 0;
    const span = source.integer(["floor_scale", null], 1, shapeLimits.contextMax, published.span);
    const step = source.integer(["interleave_moe_layer_step", null], 1, shapeLimits.layers, 1);
    const sparse = source.has(["moe_layers", null]) ? source.indices(["moe_layers", null]) : null;
    const width = experts.feedForward;
    const layer: LayerShape = {
      ...plainLayer,
      biases: { ...biasesOf(source), gateUp: false, down: false },
    };
    const { layers, feedForward } = mixedLayers(
      source,
      layer,
      sharedWidth(source, () => width),
      (index) => sparse?.includes(index) ?? (index + 1) % step === 0,
    );
    const rope = source.rope();
    // A rope of angles 0, for the scale of queries alone.
    const { dimensions, theta } = rope;
    const still = { kind: "proportional", factor: 1, turned: 0, dimensions, theta } as const;
    return {
      experts,
      feedForward,
      ropes: growth > 0 ? [rope, { ...still, queries: { growth, span, offset: 1 } }] : [rope],
      layers: layers.map((own, index) => ({
        ...own,
        qkNorm: hasNorms && rotates[index] ? "unit" : "none",
        rope: rotates[index] ? 0 : growth > 0 ? 1 : null,
        slidingWindow: isChunk(index) ? window : 0,
        chunked: isChunk(index) && window > 0,
      })),
    };
  },
};
