"""Makes the reference models of this folder: tiny random models of every family, and the results of transformers on them.

    python make.py [models]

For each model, or those named: the Hugging Face folder (config.json, generation_config.json, safetensors), reference.json (prompts and
greedy continuations) and logits as raw little-endian float32. See README.md for the formats. Deterministic: same
versions of torch and transformers, same bytes.
"""

import json
import math
import shutil
import sys
from pathlib import Path

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

HERE = Path(__file__).parent
GREEDY_TOKENS = 32
# The smallest distance between the best and the second-best logit on a greedy path: far above float32 noise (about
# 1e-5), so that a different token means a different computation.
MARGIN_MIN = 0.01
# The prompt "branch" shares this many tokens with "long": two full pages of 16 and a part of the third.
BRANCH_AT = 37
LENGTHS = {"long": 53, "branch": 42, "short": 9}

# Old-style configurations spell positions as rope_theta and rope_scaling, new ones as rope_parameters.
MODELS = {
    "llama3": dict(
        config=LlamaConfig(
            vocab_size=259, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=1, max_position_embeddings=512, tie_word_embeddings=True, rms_norm_eps=1e-5,
            rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
                                 high_freq_factor=4.0, original_max_position_embeddings=64)),
        dtype=torch.float32, old_rope=True),
    "llama2": dict(
        config=LlamaConfig(
            vocab_size=256, hidden_size=96, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2,
            max_position_embeddings=256, tie_word_embeddings=False, rms_norm_eps=1e-5,
            rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0)),
        dtype=torch.bfloat16, old_rope=True),
    "mistral": dict(
        config=MistralConfig(
            vocab_size=256, hidden_size=64, intermediate_size=72, num_hidden_layers=2, num_attention_heads=3,
            num_key_value_heads=1, head_dim=64, max_position_embeddings=256, sliding_window=21,
            tie_word_embeddings=False, rms_norm_eps=1e-5,
            rope_parameters=dict(rope_type="default", rope_theta=10000.0)),
        dtype=torch.float16, old_rope=True),
    "qwen2": dict(
        config=Qwen2Config(
            vocab_size=263, hidden_size=64, intermediate_size=96, num_hidden_layers=3, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=256, tie_word_embeddings=True,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        dtype=torch.bfloat16, old_rope=False, shards=2),
    "qwen3": dict(
        config=Qwen3Config(
            vocab_size=241, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=80, max_position_embeddings=256, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        dtype=torch.bfloat16, old_rope=False),
    "llama3-96": dict(
        config=LlamaConfig(
            vocab_size=259, hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=1, head_dim=96, max_position_embeddings=512, tie_word_embeddings=True,
            rms_norm_eps=1e-5,
            rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
                                 high_freq_factor=4.0, original_max_position_embeddings=64)),
        dtype=torch.bfloat16, old_rope=False),
    "qwen3-128": dict(
        config=Qwen3Config(
            vocab_size=241, hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=2,
            num_key_value_heads=1, head_dim=128, max_position_embeddings=256, tie_word_embeddings=False,
            rope_parameters=dict(rope_type="default", rope_theta=1000000.0)),
        dtype=torch.bfloat16, old_rope=False),
}


def random_weights(model, generator):
    """Makes weights for which every part matters: projections keep variance, norms and biases are far from neutral."""
    state = {}
    for name, tensor in model.state_dict().items():
        noise = torch.randn(tensor.shape, generator=generator, dtype=torch.float32)
        if "norm" in name:
            state[name] = 1.0 + 0.25 * noise
        elif name.endswith("bias"):
            state[name] = 0.5 * noise
        elif "embed_tokens" in name or "lm_head" in name:
            state[name] = noise * (2.0 / math.sqrt(tensor.shape[1]))
        else:
            state[name] = noise * (1.4 / math.sqrt(tensor.shape[1]))
    if model.config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    return state


def write_folder(folder, spec, state):
    """Writes the folder as users have it: in the old or new spelling of the configuration, in one weight file or several."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    config = spec["config"]
    config.architectures = [type(config).__name__.replace("Config", "ForCausalLM")]
    config.bos_token_id, config.eos_token_id, config.pad_token_id = 1, 2, None
    fields = config.to_diff_dict()
    fields["dtype"] = str(spec["dtype"]).removeprefix("torch.")
    if spec["old_rope"]:
        rope = dict(fields.pop("rope_parameters"))
        fields["rope_theta"] = rope.pop("rope_theta")
        fields["rope_scaling"] = None if rope["rope_type"] == "default" else rope
    (folder / "config.json").write_text(json.dumps(fields, indent=2) + "\n")
    generation = dict(bos_token_id=1, do_sample=True, eos_token_id=[2, 3], temperature=0.7, top_k=20, top_p=0.8)
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")

    state = {name: tensor.to(spec["dtype"]).contiguous() for name, tensor in state.items()}
    shards = spec.get("shards", 1)
    if shards == 1:
        save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
        return
    names = sorted(state)
    weight_map = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = names[shard::shards]
        save_file({name: state[name] for name in part}, folder / file, metadata={"format": "pt"})
        weight_map.update({name: file for name in part})
    total = sum(tensor.numel() * tensor.element_size() for tensor in state.values())
    index = dict(metadata=dict(total_size=total), weight_map=weight_map)
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n")


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens])).logits[0].float()


def continue_greedily(model, prompt):
    """Returns transformers' own greedy decoding, and the smallest margin on its path (from one full pass, as a second opinion)."""
    with torch.no_grad():
        tokens = model.generate(
            torch.tensor([prompt]), attention_mask=torch.ones(1, len(prompt), dtype=torch.long), do_sample=False,
            max_new_tokens=GREEDY_TOKENS, min_new_tokens=GREEDY_TOKENS, eos_token_id=None, pad_token_id=0,
            temperature=None, top_k=None, top_p=None)[0].tolist()
    best = logits_of(model, tokens[:-1])[len(prompt) - 1:].topk(2)
    greedy = tokens[len(prompt):]
    agrees = best.indices[:, 0].tolist() == greedy
    margin = (best.values[:, 0] - best.values[:, 1]).min().item()
    return greedy, margin if agrees else 0.0


def make(name, spec, seed):
    """Makes one attempt; None if a greedy path comes too close to a tie or has too few distinct tokens."""
    folder = HERE / name
    generator = torch.Generator().manual_seed(seed)
    write_folder(folder, spec, random_weights(AutoModelForCausalLM.from_config(spec["config"]), generator))
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()

    vocab = spec["config"].vocab_size
    prompts = {key: torch.randint(4, vocab, (length,), generator=generator).tolist() for key, length in LENGTHS.items()}
    prompts["branch"][:BRANCH_AT] = prompts["long"][:BRANCH_AT]

    greedy = {}
    for key, prompt in prompts.items():
        greedy[key], margin = continue_greedily(model, prompt)
        if margin < MARGIN_MIN or len(set(greedy[key])) < 12:
            return None

    # Rows of the logits files: all positions of "long", then of "short", then those of "branch" beyond the prefix shared with "long".
    def rows(model):
        branch = logits_of(model, prompts["branch"])[BRANCH_AT:]
        return torch.cat([logits_of(model, prompts["long"]), logits_of(model, prompts["short"]), branch])

    exact = rows(model)
    exact.numpy().astype("<f4").tofile(folder / "logits.f32.bin")
    with torch.no_grad():  # input of the vocabulary projection
        hidden = model.model(torch.tensor([prompts["long"]])).last_hidden_state[0]
    hidden.numpy().astype("<f4").tofile(folder / "hidden.f32.bin")
    if spec["dtype"] != torch.bfloat16:
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(parameter.to(torch.bfloat16).float())
        rows(model).numpy().astype("<f4").tofile(folder / "logits.bf16.bin")

    reference = dict(seed=seed, transformers=transformers.__version__, torch=torch.__version__, vocab=vocab,
                     branchAt=BRANCH_AT, prompts=prompts, greedy=greedy)
    (folder / "reference.json").write_text(json.dumps(reference) + "\n")
    return exact


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    for name in sys.argv[1:] or MODELS:
        spec = MODELS[name]
        for seed in range(1, 500):
            logits = make(name, spec, seed)
            if logits is not None:
                break
        else:
            raise SystemExit(f"{name}: no seed gives clear greedy paths")
        best = logits.topk(2).values
        margins = best[:, 0] - best[:, 1]
        print(f"{name:9} seed {seed:3}  logits std {logits.std():.2f}  margin median {margins.median():.2f}  min {margins.min():.4f}")


if __name__ == "__main__":
    main()
