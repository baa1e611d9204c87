"""Computes the logits of transformers for the models that families.ts writes.

    npx bun tests/reference/families.ts <folder>
    python tests/reference/families.py <folder> [names]

InternLM 2, whose code comes with its weights, is converted to a Llama with the same numbers; so is Bailing-MoE v2 to a
GLM-4 MoE, whose layers compute the same. MiMo is read as a Qwen2, MiniCPM as a Granite, and EXAONE 3 as a Llama.

For each model, or those named: families/<name>.f32.bin, the logits after three positions of a fixed prompt as raw little-endian
float32 [3, vocab], computed in float32 from the weights as stored. transformers converts MXFP4 weights to
bfloat16 first (with the package accelerate), which is exact. The committed files come from torch 2.13.0 and transformers
5.23.0 and 5.24.0.
"""

import json
import sys
import tempfile
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoModelForImageTextToText, LlamaConfig, LlamaForCausalLM

HERE = Path(__file__).parent / "families"
POSITIONS = [9, 30, 47]


RENAMED = {
    "tok_embeddings.": "embed_tokens.",
    "output.": "lm_head.",
    "attention.wo.": "self_attn.o_proj.",
    "feed_forward.w1.": "mlp.gate_proj.",
    "feed_forward.w3.": "mlp.up_proj.",
    "feed_forward.w2.": "mlp.down_proj.",
    "attention_norm.": "input_layernorm.",
    "ffn_norm.": "post_attention_layernorm.",
}


def as_llama(folder, config):
    """Converts InternLM 2: each key head has the rows of its query heads, then of its key, then of its value."""
    heads, keys, hidden = config["num_attention_heads"], config["num_key_value_heads"], config["hidden_size"]
    weights = {}
    for name, numbers in load_file(folder / "model.safetensors").items():
        for old, new in RENAMED.items():
            name = name.replace(old, new)
        if "wqkv" not in name:
            weights[name] = numbers.float()
            continue
        groups = numbers.float().reshape(keys, heads // keys + 2, hidden // heads, -1)
        parts = {"q": groups[:, :-2], "k": groups[:, -2], "v": groups[:, -1]}
        for part, rows in parts.items():
            rows = rows.reshape(-1, rows.shape[-1])
            own = name.replace("attention.wqkv", f"self_attn.{part}_proj")
            weights[own] = rows.squeeze(-1) if name.endswith("bias") else rows
    llama = LlamaForCausalLM(LlamaConfig(**{**config, "model_type": "llama", "attention_bias": config["bias"]}))
    llama.load_state_dict(weights)
    return llama


BAILING = {
    "word_embeddings.": "embed_tokens.",
    "attention.dense.": "self_attn.o_proj.",
    "attention.query_layernorm.": "self_attn.q_norm.",
    "attention.key_layernorm.": "self_attn.k_norm.",
    "gate.expert_bias": "gate.e_score_correction_bias",
}


def as_glm4_moe(folder, config, scratch):
    """Writes Bailing-MoE v2 as a GLM-4 MoE and loads it: joined q, k and v come apart."""
    rows = [config["num_attention_heads"] * config["head_dim"]] + 2 * [config["num_key_value_heads"] * config["head_dim"]]
    weights = {}
    for name, numbers in load_file(folder / "model.safetensors").items():
        for old, new in BAILING.items():
            name = name.replace(old, new)
        if "query_key_value" not in name:
            weights[name] = numbers
            continue
        for part, own in zip("qkv", numbers.split(rows)):
            weights[name.replace("attention.query_key_value", f"self_attn.{part}_proj")] = own.clone()
    own = {**config, "model_type": "glm4_moe", "architectures": ["Glm4MoeForCausalLM"], "num_nextn_predict_layers": 0}
    own.update(n_routed_experts=config["num_experts"], n_shared_experts=config["num_shared_experts"])
    save_file(weights, scratch / "model.safetensors", metadata={"format": "pt"})
    (scratch / "config.json").write_text(json.dumps(own))
    return AutoModelForCausalLM.from_pretrained(scratch, dtype=torch.float32, attn_implementation="eager")


EXAONE = {
    "transformer.wte.": "model.embed_tokens.",
    "transformer.ln_f.": "model.norm.",
    "transformer.h.": "model.layers.",
    "attn.attention.out_proj.": "self_attn.o_proj.",
    "attn.attention.": "self_attn.",
    "ln_1.": "input_layernorm.",
    "ln_2.": "post_attention_layernorm.",
    "mlp.c_fc_0.": "mlp.gate_proj.",
    "mlp.c_fc_1.": "mlp.up_proj.",
    "mlp.c_proj.": "mlp.down_proj.",
}


def as_other(folder, config, model_type, name, renamed):
    """Loads a model as one of another class, whose layers compute the same."""
    weights = {}
    for own, numbers in load_file(folder / "model.safetensors").items():
        for old, new in renamed.items():
            own = own.replace(old, new)
        weights[own] = numbers
    config = {key: value for key, value in config.items() if key != "auto_map"}
    with tempfile.TemporaryDirectory() as scratch:
        save_file(weights, Path(scratch) / "model.safetensors", metadata={"format": "pt"})
        config.update(model_type=model_type, architectures=[name])
        (Path(scratch) / "config.json").write_text(json.dumps(config))
        return AutoModelForCausalLM.from_pretrained(scratch, dtype=torch.float32, attn_implementation="eager").eval()


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    folder = Path(sys.argv[1])
    names = sys.argv[2:] or sorted(path.name for path in folder.iterdir())
    HERE.mkdir(exist_ok=True)
    for name in names:
        config = json.loads((folder / name / "config.json").read_text())
        vocab = config.get("output_vocab_size") or config.get("text_config", config)["vocab_size"]
        if shares := config.get("activation_sparsity_pattern"):  # transformers wants 0.0, and JSON of others has 0
            config["activation_sparsity_pattern"] = [float(share) for share in shares]
            (folder / name / "config.json").write_text(json.dumps(config))
        prompt = [(index * 37 + 11) % vocab for index in range(48)]
        if config["model_type"] == "internlm2":
            model = as_llama(folder / name, config).eval()
        elif config["model_type"] == "minicpm":  # a Granite
            scales = {
                "embedding_multiplier": config["scale_emb"],
                "residual_multiplier": config["scale_depth"] / config["num_hidden_layers"] ** 0.5,
                "logits_scaling": config["hidden_size"] / config["dim_model_base"],
                "attention_multiplier": (config["hidden_size"] / config["num_attention_heads"]) ** -0.5,
            }
            model = as_other(folder / name, {**config, **scales}, "granite", "GraniteForCausalLM", {})
        elif config["model_type"] == "exaone":  # a Llama
            own = {**config, "num_hidden_layers": config["num_layers"], "rms_norm_eps": config["layer_norm_epsilon"]}
            model = as_other(folder / name, own, "llama", "LlamaForCausalLM", EXAONE)
        elif config["model_type"] == "mimo":  # a Qwen2
            config = {**config, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"]}
            del config["auto_map"]
            (folder / name / "config.json").write_text(json.dumps(config))
            model = AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float32, attn_implementation="eager").eval()
        elif config["model_type"] == "bailing_moe":
            with tempfile.TemporaryDirectory() as scratch:
                model = as_glm4_moe(folder / name, config, Path(scratch)).eval()
        else:
            auto = AutoModelForImageTextToText if "vision_config" in config else AutoModelForCausalLM
            if config["model_type"] == "mistral4":  # in no list of models
                auto = transformers.Mistral4ForCausalLM
            model = auto.from_pretrained(folder / name, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            logits = model(torch.tensor([prompt])).logits[0].float()
        logits[POSITIONS].numpy().astype("<f4").tofile(HERE / f"{name}.f32.bin")
        best = logits.topk(2).values
        print(f"{name:14} logits std {logits.std():.2f}  margin median {(best[:, 0] - best[:, 1]).median():.3f}")


if __name__ == "__main__":
    main()
