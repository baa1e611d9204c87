"""Writes GGUF files of a BERT-base of random weights, for benchmarks/embeddings.ts: real sizes, nothing to download.

    python benchmarks/bert-base.py <folder>

Needs the Python package gguf. Writes bert-base-f16.gguf and bert-base-q8_0.gguf.
"""

import sys
from pathlib import Path

import gguf
import numpy

VOCAB, HIDDEN, LAYERS, HEADS, FEED_FORWARD, CONTEXT = 30522, 768, 12, 12, 3072, 512
SPECIAL = {0: "[PAD]", 100: "[UNK]", 101: "[CLS]", 102: "[SEP]", 103: "[MASK]"}


def write(path, kind):
    writer = gguf.GGUFWriter(path, "bert")
    writer.add_name(path.stem)
    writer.add_block_count(LAYERS)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_layer_norm_eps(1e-12)
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_token_type_count(2)
    writer.add_tokenizer_model("bert")
    writer.add_token_list([SPECIAL.get(i, f"\u2581w{i}") for i in range(VOCAB)])
    writer.add_token_types([gguf.TokenType.CONTROL if i in SPECIAL else gguf.TokenType.NORMAL for i in range(VOCAB)])
    for name, token in (("bos", 101), ("eos", 102), ("unk", 100), ("sep", 102), ("pad", 0), ("mask", 103)):
        getattr(writer, f"add_{name}_token_id")(token)

    random = numpy.random.default_rng(7)

    def add(name, *shape, is_matrix=True):
        values = (random.standard_normal(shape) * 0.05).astype(numpy.float32)
        if name.endswith("norm.weight"):
            values += 1
        if is_matrix and len(shape) == 2:
            type_ = gguf.GGMLQuantizationType.Q8_0 if kind == "q8_0" else gguf.GGMLQuantizationType.F16
            writer.add_tensor(name, gguf.quantize(values, type_), raw_dtype=type_)
        else:
            writer.add_tensor(name, values)

    add("token_embd.weight", VOCAB, HIDDEN)
    add("position_embd.weight", CONTEXT, HIDDEN, is_matrix=False)
    add("token_types.weight", 2, HIDDEN, is_matrix=False)
    for part in ("weight", "bias"):
        add(f"token_embd_norm.{part}", HIDDEN)
    for layer in range(LAYERS):
        for name, rows, columns in (
            *((f"attn_{part}", HIDDEN, HIDDEN) for part in ("q", "k", "v", "output")),
            ("ffn_up", FEED_FORWARD, HIDDEN),
            ("ffn_down", HIDDEN, FEED_FORWARD),
        ):
            add(f"blk.{layer}.{name}.weight", rows, columns)
            add(f"blk.{layer}.{name}.bias", rows)
        for name in ("attn_output_norm", "layer_output_norm"):
            for part in ("weight", "bias"):
                add(f"blk.{layer}.{name}.{part}", HIDDEN)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for kind in ("f16", "q8_0"):
        write(folder / f"bert-base-{kind}.gguf", kind)
