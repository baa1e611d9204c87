"""Prints the perplexity of a GGUF file's model in transformers, in f32, on the runs of tokens that `quality.ts --text` reads.

    pip install torch transformers accelerate gguf
    python benchmarks/quality-reference.py <file.gguf> <tokens.json> [tokens of a run]

tokens.json is the list of the text's tokens, as POST /tokenize of a server with this model gives them. transformers' own
conversion of a GGUF tokenizer may cut a text elsewhere.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM

RUNS = 16


def main(file: Path, tokens: Path, count: int) -> None:
    model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32).eval()
    ids = json.loads(tokens.read_text())
    ids = ids["tokens"] if isinstance(ids, dict) else ids
    runs = torch.tensor([ids[i * count : (i + 1) * count] for i in range(RUNS)])
    with torch.no_grad():
        logits = model(runs[:, :-1]).logits.double()
    loss = -logits.log_softmax(-1).gather(-1, runs[:, 1:].unsqueeze(-1)).mean()
    print(f"perplexity {loss.exp().item():.4f}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 64)
