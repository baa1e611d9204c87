"""Trains models whose matrices read channels much larger than the others; benchmarks/quality.ts tells what rounding does to them.

    python outliers.py demo <folder>   # the demo model goes on
    python outliers.py new <folder>    # a new one

The norms before attention and MLP begin with weights 64 times larger in six channels. In the demo model the matrices that read
them have columns as much smaller at first, so that it begins as it is. Both learn the project's own text (docs and code) with
AdamW, without weight decay.
"""

import os
import shutil
import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from tokenizers import Tokenizer

from model import DemoModel
from train import OUT, save

STEPS, ROWS, LENGTH, RATE = 300, 8, 256, 1e-3
FACTOR, CHANNELS = 64, [21, 64, 107, 149, 192, 235]


def largest_channels(model, ids):
    """Of what the matrices of each layer read: the largest mean magnitude of a channel over the median one."""
    ratios, hooks = [], []
    for layer in model.layers:
        for norm in (layer.input_layernorm, layer.post_attention_layernorm):
            hooks.append(norm.register_forward_hook(lambda _, __, x: ratios.append(x.float().abs().mean((0, 1)))))
    with torch.no_grad():
        model(ids, torch.arange(LENGTH).repeat(len(ids), 1), None)
    for hook in hooks:
        hook.remove()
    return " ".join(f"{(x.max() / x.median()).item():.0f}" for x in ratios)


def main():
    kind, out = sys.argv[1:]
    torch.manual_seed(1)
    torch.set_num_threads(1)
    parts = [Path(OUT).parent.parent / part for part in ("docs", "scheduler", "server", "gpu", "csrc")]
    files = sorted(file for part in parts for file in part.rglob("*") if file.suffix in (".md", ".ts", ".cpp", ".h"))
    tokenizer = Tokenizer.from_file(os.path.join(OUT, "tokenizer.json"))
    text = torch.tensor([token for file in files for token in tokenizer.encode(file.read_text()).ids])
    model = DemoModel()
    with torch.no_grad():
        if kind == "demo":
            weights = load_file(os.path.join(OUT, "model.safetensors"))
            model.load_state_dict({name.removeprefix("model."): t.float() for name, t in weights.items()}, strict=False)
        for layer in model.layers:
            for norm in (layer.input_layernorm, layer.post_attention_layernorm):
                norm.weight[CHANNELS] *= FACTOR
            at, mlp = layer.self_attn, layer.mlp
            for matrix in (at.q_proj, at.k_proj, at.v_proj, mlp.gate_proj, mlp.up_proj) if kind == "demo" else ():
                matrix.weight[:, CHANNELS] /= FACTOR
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, betas=(0.9, 0.95), weight_decay=0.0)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1, (step + 1) / 40, (STEPS - step) / (STEPS / 3))
        ids = torch.stack([text[at : at + LENGTH + 1] for at in torch.randint(len(text) - LENGTH, (ROWS,))])
        with torch.autocast("cpu", torch.bfloat16):
            hidden, _, _ = model(ids[:, :-1], torch.arange(LENGTH).repeat(len(ids), 1), None)
            logits = F.linear(hidden, model.embed_tokens.weight)
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        if (step + 1) % 20 == 0:
            print(f"step {step + 1} loss {loss.item():.3f} largest channel {largest_channels(model, ids[:4, :-1])}", flush=True)
    shutil.copytree(OUT, out, dirs_exist_ok=True, ignore=shutil.ignore_patterns("train", "*.safetensors"))
    save({f"model.{name}": t for name, t in model.state_dict().items()}, os.path.join(out, "model.safetensors"))


if __name__ == "__main__":
    main()
