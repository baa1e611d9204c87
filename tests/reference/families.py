"""What transformers computes with the models that families.ts writes.

    npx bun tests/reference/families.ts <folder>
    python tests/reference/families.py <folder> [names]

For each model, or those named: families/<name>.f32.bin, the logits after three positions of a fixed prompt as raw little-endian
float32 [3, vocab], computed in float32 from the weights as stored; those in MXFP4 transformers turns into
bfloat16 first (with the package accelerate), which has all of their numbers. The committed files come from torch 2.13.0 and transformers
5.23.0.
"""

import json
import sys
from pathlib import Path

import torch
import transformers
from transformers import AutoModelForCausalLM

HERE = Path(__file__).parent / "families"
POSITIONS = [9, 30, 47]


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    folder = Path(sys.argv[1])
    names = sys.argv[2:] or sorted(path.name for path in folder.iterdir())
    HERE.mkdir(exist_ok=True)
    for name in names:
        vocab = json.loads((folder / name / "config.json").read_text())["vocab_size"]
        prompt = [(index * 37 + 11) % vocab for index in range(48)]
        model = AutoModelForCausalLM.from_pretrained(folder / name, dtype=torch.float32, attn_implementation="eager").eval()
        with torch.no_grad():
            logits = model(torch.tensor([prompt])).logits[0].float()
        logits[POSITIONS].numpy().astype("<f4").tofile(HERE / f"{name}.f32.bin")
        best = logits.topk(2).values
        print(f"{name:14} logits std {logits.std():.2f}  margin median {(best[:, 0] - best[:, 1]).median():.3f}")


if __name__ == "__main__":
    main()
