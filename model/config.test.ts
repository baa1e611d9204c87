import { describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { parseModelConfig } from "./config.ts";
import type { JsonObject } from "./json.ts";
import { ModelError } from "./model-error.ts";
import { plainLayer } from "./shape.ts";

const base = {
  vocab_size: 1000,
  hidden_size: 256,
  intermediate_size: 512,
  num_hidden_layers: 4,
  num_attention_heads: 8,
  num_key_value_heads: 2,
  max_position_embeddings: 4096,
};
const llama = { ...base, architectures: ["LlamaForCausalLM"], model_type: "llama" };
const mistral = { ...base, architectures: ["MistralForCausalLM"], model_type: "mistral" };
const qwen2 = { ...base, architectures: ["Qwen2ForCausalLM"], model_type: "qwen2" };
const qwen3 = { ...base, architectures: ["Qwen3ForCausalLM"], model_type: "qwen3" };

const parse = (config: JsonObject, generation: JsonObject = {}) =>
  parseModelConfig(
    { file: "dir/config.json", json: config },
    { file: "dir/generation_config.json", json: generation },
  );
const shape = (config: JsonObject) => parse(config).shape;
const layer = (config: JsonObject) => shape(config).layers[0]!;
const windows = (config: JsonObject) => shape(config).layers.map(({ slidingWindow }) => slidingWindow);
const rope = (config: JsonObject) => shape(config).ropes[0]!;
const refusal = (config: JsonObject, generation: JsonObject = {}): ModelError => {
  try {
    parse(config, generation);
  } catch (error) {
    expect(error).toBeInstanceOf(ModelError);
    return error as ModelError;
  }
  throw new Error(`accepted ${JSON.stringify({ config, generation })}`);
};

describe("models of text and images", () => {
  const qwen25Vl = {
    ...base,
    architectures: ["Qwen2_5_VLForConditionalGeneration"],
    model_type: "qwen2_5_vl",
    rope_scaling: { type: "mrope", mrope_section: [4, 6, 6] },
    vision_config: { depth: 32 },
  };

  test("have the fields of the text model inside or, as published first, outside", () => {
    const { architectures, model_type, vision_config, ...text } = qwen25Vl;
    const inside = {
      ...{ architectures, model_type, vision_config },
      text_config: { ...text, model_type: "qwen2_5_vl_text" },
    };
    expect(parse(inside)).toEqual(parse(qwen25Vl));
    expect(rope(inside)).toEqual({ kind: "plain", dimensions: 32, theta: 1e6 });
  });

  test("of another text model are refused", () => {
    const { subject } = refusal({ ...qwen25Vl, model_type: "qwen3_vl" });
    expect(subject).toBe("text_config");
  });
});

describe("a dense Granite 4", () => {
  const granite4 = {
    ...base,
    architectures: ["GraniteMoeHybridForCausalLM"],
    model_type: "granitemoehybrid",
    shared_intermediate_size: 768,
    layer_types: Array(4).fill("attention"),
    num_local_experts: 0,
    position_embedding_type: "rope",
  };

  test("has the width of the shared MLP, and rotates only if it says so", () => {
    expect(shape(granite4).feedForward).toBe(768);
    expect(layer(granite4).rope).toBe(0);
    expect(layer({ ...granite4, position_embedding_type: "nope" }).rope).toBeNull();
  });

  test.each([
    ["layer_types", { layer_types: ["conv", "attention", "attention", "attention"] }],
    ["layer_types", { layer_types: null }],
    ["mamba_n_groups", { layer_types: ["mamba", "attention", "mamba", "mamba"] }],
    ["num_experts_per_tok", { num_local_experts: 62 }],
  ])("with %s of no hybrid, or a hybrid's missing, is refused", (field, changes) => {
    expect(refusal({ ...granite4, ...changes }).subject).toBe(field);
  });
});

describe("families", () => {
  test("Llama with nothing but sizes means what transformers assumes", () => {
    expect(parse(llama)).toEqual({
      family: "llama",
      shape: {
        layers: Array.from({ length: 4 }, () => plainLayer),
        hidden: 256,
        feedForward: 512,
        queryHeads: 8,
        kvHeads: 2,
        headSize: 32,
        vocab: 1000,
        contextMax: 4096,
        tiedEmbeddings: false,
        normEpsilon: 1e-6,
        norm: "rms",
        activation: "silu",
        experts: null,
        attentionScale: 32 ** -0.5,
        attentionCap: 0,
        embeddingScale: 1,
        layerInputs: 0,
        residualScale: 1,
        logitScale: 1,
        logitCap: 0,
        ropes: [{ kind: "plain", theta: 10_000, dimensions: 32 }],
      },
      eosTokens: [],
      generationDefaults: { temperature: null, topP: null, topK: null, minP: null, repetitionPenalty: null },
    });
  });

  test("each family brings its own parts", () => {
    expect(layer(qwen2)).toEqual({ ...plainLayer, biases: { ...plainLayer.biases, qkv: true } });
    expect(layer(qwen3)).toEqual({ ...plainLayer, qkNorm: "head" });
    expect([shape(qwen2).headSize, shape(qwen3).headSize]).toEqual([32, 128]);
    expect(shape({ ...qwen3, head_dim: 48 }).headSize).toBe(48);
    expect(shape({ ...llama, head_dim: null, tie_word_embeddings: true })).toMatchObject({
      headSize: 32,
      tiedEmbeddings: true,
    });
    expect(shape({ ...llama, num_key_value_heads: undefined }).kvHeads).toBe(8);
  });

  test("a model_type alone is enough", () => {
    expect(parse({ ...qwen2, architectures: undefined }).family).toBe("qwen2");
  });
});

describe("sliding windows", () => {
  test("Mistral has one unless it says null", () => {
    expect(windows(mistral)).toEqual(Array(4).fill(4096));
    expect(windows({ ...mistral, sliding_window: 128 })).toEqual(Array(4).fill(128));
    expect(windows({ ...mistral, sliding_window: null })).toEqual(Array(4).fill(0));
  });

  test("Qwen has one only where use_sliding_window is set and reaches the layers", () => {
    expect(windows({ ...qwen2, sliding_window: 128, max_window_layers: 0 })).toEqual(Array(4).fill(0));
    const sliding = { ...qwen2, use_sliding_window: true, sliding_window: 128 };
    expect(windows({ ...sliding, max_window_layers: 4 })).toEqual(Array(4).fill(0));
    expect(windows({ ...sliding, max_window_layers: 0 })).toEqual(Array(4).fill(128));
    expect(windows({ ...sliding, max_window_layers: 3 })).toEqual([0, 0, 0, 128]);
  });

  test("layer_types must agree", () => {
    const layers = (kinds: string[]) => ({ ...qwen3, layer_types: kinds });
    const full = "full_attention";
    expect(windows(layers([full, full, full, full]))).toEqual(Array(4).fill(0));
    expect(refusal(layers([full, full])).subject).toBe("layer_types");
    expect(refusal(layers([full, full, full, "chunked_attention"])).subject).toBe("layer_types");
    expect(refusal(layers([full, full, full, "sliding_attention"])).message).toContain("no window is in use");
    const mixed = {
      ...layers([full, full, full, "sliding_attention"]),
      use_sliding_window: true,
      sliding_window: 8,
    };
    expect(windows({ ...mixed, max_window_layers: 0 })).toEqual([0, 0, 0, 8]);
    expect(refusal({ ...llama, layer_types: Array(4).fill("sliding_attention") }).subject).toBe(
      "layer_types",
    );
  });
});

describe("positions", () => {
  const llama3 = {
    rope_type: "llama3",
    factor: 8,
    low_freq_factor: 1,
    high_freq_factor: 4,
    original_max_position_embeddings: 2048,
  };

  test("old and new spelling mean the same", () => {
    const wanted = {
      kind: "llama3",
      theta: 500_000,
      factor: 8,
      lowFreqFactor: 1,
      highFreqFactor: 4,
      originalContext: 2048,
      dimensions: 32,
    } as const;
    expect(rope({ ...llama, rope_theta: 500_000, rope_scaling: llama3 })).toEqual(wanted);
    expect(rope({ ...llama, rope_parameters: { ...llama3, rope_theta: 500_000 } })).toEqual(wanted);
    const linear = { kind: "linear", theta: 10_000, factor: 2.5, dimensions: 32 } as const;
    expect(rope({ ...llama, rope_scaling: { type: "linear", factor: 2.5 } })).toEqual(linear);
    expect(rope({ ...llama, rope_parameters: { rope_type: "linear", factor: 2.5 } })).toEqual(linear);
    expect(rope({ ...llama, rope_scaling: null, rope_theta: 1e6 })).toEqual({
      kind: "plain",
      theta: 1e6,
      dimensions: 32,
    });
  });

  test("the original context is looked for where transformers looks", () => {
    const { original_max_position_embeddings: _, ...without } = llama3;
    expect(rope({ ...llama, rope_scaling: without })).toMatchObject({ originalContext: 4096 });
    const outside = { ...llama, rope_scaling: llama3, original_max_position_embeddings: 1024 };
    expect(rope(outside)).toMatchObject({ originalContext: 1024 });
  });

  test.each(["ntk", "__proto__"])("rope type %s is refused by name", (type) => {
    const error = refusal({ ...llama, rope_scaling: { rope_type: type, factor: 2 } });
    expect(error.subject).toBe("rope_scaling.rope_type");
    expect(error.reason).toBe(
      `"${type}": supported rope types: default, dynamic, linear, llama3, longrope, mrope, yarn`,
    );
  });

  test("rotations that differ between layers of a family whose do not, or of an odd part of a head, are refused", () => {
    const nested = { full_attention: { rope_type: "default" }, sliding_attention: { rope_type: "default" } };
    expect(refusal({ ...llama, rope_parameters: nested }).subject).toBe("rope_parameters.full_attention");
    expect(refusal({ ...llama, partial_rotary_factor: 0.1 }).subject).toBe("partial_rotary_factor");
    expect(refusal({ ...llama, rope_parameters: { partial_rotary_factor: 1.5 } }).subject).toBe(
      "rope_parameters.partial_rotary_factor",
    );
    const inverted = { ...llama3, low_freq_factor: 4, high_freq_factor: 1 };
    expect(refusal({ ...llama, rope_scaling: inverted }).subject).toBe("rope_scaling.high_freq_factor");
  });
});

describe("what would compute something else is refused by name", () => {
  test.each([
    [{ ...llama, architectures: ["GPT2LMHeadModel"] }, "architectures"],
    [{ ...llama, architectures: ["LlamaForTokenClassification"] }, "architectures"],
    [{ ...llama, architectures: ["toString"] }, "architectures"],
    [{ ...llama, architectures: ["LlamaForCausalLM", "MistralForCausalLM"] }, "architectures"],
    [{ ...llama, architectures: "LlamaForCausalLM" }, "architectures"],
    [{ ...llama, architectures: undefined, model_type: "gpt2" }, "model_type"],
    [{ ...llama, model_type: "mistral" }, "model_type"],
    [{ ...llama, hidden_act: "relu" }, "hidden_act"],
    [{ ...llama, attention_bias: 1 }, "attention_bias"],
    [{ ...llama, mlp_bias: "yes" }, "mlp_bias"],
    [{ ...llama, auto_map: { AutoModel: "modeling_evil.Evil" } }, "auto_map"],
    [{ ...llama, num_key_value_heads: 3 }, "num_key_value_heads"],
    [{ ...llama, head_dim: 20 }, "head_dim"],
    [{ ...llama, hidden_size: 160 }, "hidden_size"],
    [{ ...llama, hidden_size: 250 }, "num_attention_heads"],
    [{ ...qwen2, num_key_value_heads: null }, "num_key_value_heads"],
  ])("%j", (config, field) => {
    const error = refusal(config as JsonObject);
    expect(error.subject).toBe(field);
    expect(error.message).toStartWith("dir/config.json: ");
    expect(error.message).toContain(JSON.stringify((config as JsonObject)[field]) ?? "missing");
  });

  test("the error says that code in a model folder is never run, and names it", () => {
    expect(refusal({ ...llama, auto_map: { AutoModel: "modeling_evil.Evil" } }).message).toBe(
      'dir/config.json: auto_map: {"AutoModel":"modeling_evil.Evil"}: asks to run code from the model folder, which is never done',
    );
  });
});

describe("absurd numbers", () => {
  const sizes = Object.keys(base);
  test.each(
    sizes.flatMap((field) =>
      [0, -1, 2 ** 62, 2 ** 31, 1.5, Number.NaN, "8", true, [8], {}].map((v) => [field, v]),
    ),
  )("%s = %p is refused", (field, value) => {
    expect(refusal({ ...mistral, [field as string]: value }).subject).toBe(field as string);
  });

  test.each([
    ["rms_norm_eps", [0, -1, "1e-6", Number.NaN, 1e300]],
    ["rope_theta", [0, -10_000, "1e4", Number.POSITIVE_INFINITY]],
    ["sliding_window", [0, -1, "4096", 2.5]],
    ["head_dim", [0, -16, 2 ** 20, "64"]],
    ["tie_word_embeddings", [1, "true"]],
    ["eos_token_id", [-1, 1000, "2", [2, 1000], 0.5, true]],
  ])("%s in %j is refused", (field, values) => {
    for (const value of values as unknown[]) {
      expect(refusal({ ...mistral, [field as string]: value }).subject).toBe(field as string);
    }
  });
});

describe("generation_config.json", () => {
  test("its end tokens win over config.json's, and its sampling becomes the default", () => {
    const generation = {
      eos_token_id: [7, 9, 7],
      temperature: 0.6,
      top_p: 0.9,
      top_k: 20,
      min_p: 0.05,
      repetition_penalty: 1.1,
    };
    const config = parse({ ...llama, eos_token_id: 2 }, generation);
    expect(config.eosTokens).toEqual([7, 9]);
    expect(config.generationDefaults).toEqual({
      temperature: 0.6,
      topP: 0.9,
      topK: 20,
      minP: 0.05,
      repetitionPenalty: 1.1,
    });
    expect(parse({ ...llama, eos_token_id: 2 }).eosTokens).toEqual([2]);
    expect(parse(llama, { top_k: -1 }).generationDefaults.topK).toBe(0);
    const never = { suppress_tokens: [5, 10_000_000], bad_words_ids: [[6, 7]] };
    expect(parse(llama, never).generationDefaults.badWords).toEqual([[5], [6, 7]]);
  });

  test("names fields that would change what is sampled, if they are not neutral", () => {
    const set = { begin_suppress_tokens: [5], no_repeat_ngram_size: 3, num_beams: 1, typical_p: 1.0 };
    const unset = { forced_bos_token_id: null, sequence_bias: [], guidance_scale: 1 };
    const { unheeded } = parse(llama, { ...set, ...unset }).generationDefaults;
    expect(unheeded).toEqual(["begin_suppress_tokens", "no_repeat_ngram_size"]);
    expect(parse(llama, unset).generationDefaults).not.toHaveProperty("unheeded");
  });

  test.each([
    ["temperature", -1],
    ["top_p", -0.1],
    ["top_p", 1.5],
    ["top_k", 2.5],
    ["min_p", 2],
    ["repetition_penalty", 0],
    ["temperature", "warm"],
  ])("%s = %p is refused, naming the file", (field, value) => {
    const error = refusal(llama, { [field]: value });
    expect(error.file).toBe("dir/generation_config.json");
    expect(error.subject).toBe(field);
  });
});

test("a mixture of nomic-bert (nomic-embed-text-v2-moe) is refused by the field that makes it one", () => {
  const file = join(import.meta.dir, "../tests/reference/encoders/nomic-bert-mean/config.json");
  const nomic = JSON.parse(readFileSync(file, "utf8")) as object;
  expect(parse({ ...nomic, moe_every_n_layers: 0 }).family).toBe("nomic-bert");
  const moe = { moe_every_n_layers: 2, num_experts: 8, moe_top_k: 2, qkv_proj_bias: true };
  expect(refusal({ ...nomic, ...moe }).subject).toBe("moe_every_n_layers");
});
