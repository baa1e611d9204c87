"""Writes the distributions that transformers gives 1,000 rows of logits, for csrc/tests/test_sample_transformers.cpp. Run by
hand; the result is committed. Both make the rows from the same numbers, the top 16 bits of a linear congruential generator.
transformers has no presence and frequency penalties; OpenAI's formula gives them here.

    pip install torch transformers==5.24.0
    python tests/reference/sampling.py
"""

from pathlib import Path

import torch
from transformers import (
    MinPLogitsWarper,
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

ROWS, VOCAB = 1000, 32
TEMPERATURES, TOP_KS, TOP_PS, MIN_PS = [0.3, 0.7, 1.0, 1.5, 2.0], [0, 1, 5, 20], [1.0, 0.95, 0.8, 0.5], [0.0, 0.02, 0.1, 0.3]
REPETITIONS, PRESENCES, FREQUENCIES = [1.0, 1.1, 1.5], [0.0, 0.5, 1.5], [0.0, 0.25, -0.25]
state = 1


def draw(below: int) -> int:
    global state
    state = (state * 1664525 + 1013904223) % 2**32
    return (state >> 16) % below


def row() -> bytes:
    """Returns the greedy token, then each token's probability in 65,535ths, at least 1 if it is kept."""
    shares = [draw(4096) / 4096 for _ in range(VOCAB)]
    logits = torch.tensor([[12 * u * u * u - 3 + t / 8192 for t, u in enumerate(shares)]], dtype=torch.float64).float()
    pick = lambda values: values[draw(len(values))]
    temperature, top_k, top_p, min_p = pick(TEMPERATURES), pick(TOP_KS), pick(TOP_PS), pick(MIN_PS)
    repetition, presence, frequency = pick(REPETITIONS), pick(PRESENCES), pick(FREQUENCIES)
    seen = {4 * i + draw(4): draw(4) for i in range(VOCAB // 4)}
    ids = torch.tensor([list(seen)])
    scores = RepetitionPenaltyLogitsProcessor(repetition)(ids, logits.clone())
    for token, count in seen.items():
        scores[0, token] -= frequency * count + (presence if count > 0 else 0)
    greedy = int(scores.argmax())
    scores = TemperatureLogitsWarper(temperature)(ids, scores)
    if top_k > 0:
        scores = TopKLogitsWarper(top_k)(ids, scores)
    if top_p < 1:
        scores = TopPLogitsWarper(top_p)(ids, scores)
    if min_p > 0:
        scores = MinPLogitsWarper(min_p)(ids, scores)
    parts = [max(1, round(p * 65535)) if s > -float("inf") else 0 for p, s in zip(scores.double().softmax(-1)[0].tolist(), scores[0].tolist())]
    return bytes([greedy]) + b"".join(part.to_bytes(2, "little") for part in parts)


if __name__ == "__main__":
    path = Path(__file__).parent / "sampling.bin"
    path.write_bytes(b"".join(row() for _ in range(ROWS)))
    print(path.stat().st_size, "bytes")
