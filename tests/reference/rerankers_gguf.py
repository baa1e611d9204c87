"""Writes GGUF files of small random rerankers by llama.cpp's own converter, and the scores that transformers gives.

    python tests/reference/rerankers_gguf.py <llama.cpp>

For the reference encoders with a score head: encoders/<name>/f16.gguf. Their scores are in expected.json. For a model as
Qwen3-Reranker is: qwen3-reranker/f16.gguf and expected.json, with its prompts, tokens, and the probabilities of "yes" beside "no". The
committed files come from torch 2.13.0, transformers 5.24.0 and the llama.cpp in PyPI's llama-cpp-python 0.3.36.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from encoders import PAIRS, randomise

HERE = Path(__file__).parent
PROMPT = (
    '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. Note that the'
    ' answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, retrieve relevant passages'
    " that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n"
)


def convert(converter, folder, out):
    sys.argv = ["convert", str(folder), "--outtype", "f16", "--outfile", str(out)]
    converter.main()


def byte_level(texts):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator([*texts, *["yes no"] * 9], trainers.BpeTrainer(vocab_size=380, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_tokens([AddedToken(text, special=True, normalized=False) for text in ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>", pad_token="<|endoftext|>")


def qwen3(converter):
    tokenizer = byte_level([PROMPT, *(text for pair in PAIRS for text in pair)])
    yes, no = (tokenizer.convert_tokens_to_ids(text) for text in ["yes", "no"])
    assert yes is not None and no is not None
    torch.manual_seed(3)
    config = Qwen3Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, head_dim=16, intermediate_size=48,
        vocab_size=len(tokenizer), max_position_embeddings=600, tie_word_embeddings=True, eos_token_id=tokenizer.eos_token_id,
    )
    model = Qwen3ForCausalLM(config).eval()
    randomise(model)
    prompts = [PROMPT.replace("{query}", query).replace("{document}", document) for query, document in PAIRS]
    tokens = [tokenizer(prompt)["input_ids"] for prompt in prompts]
    with torch.no_grad():
        logits = [model(torch.tensor([ids])).logits[0, -1] for ids in tokens]
    scores = [torch.softmax(row[[yes, no]].double(), 0)[0].item() for row in logits]
    out = HERE / "qwen3-reranker"
    out.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        # The converter knows such a model by its folder's name.
        path = Path(folder) / "qwen3-reranker"
        model.half().save_pretrained(path)
        tokenizer.save_pretrained(path)
        convert(converter, path, out / "f16.gguf")
    (out / "expected.json").write_text(json.dumps({"pairs": PAIRS, "tokens": tokens, "scores": scores}, ensure_ascii=False))


def spaced_tokenizers():
    """Says of tokenizers that they put a space before a text, as XLM-RoBERTa's class says of its own."""
    load = AutoTokenizer.from_pretrained

    def spaced(*args, **options):
        tokenizer = load(*args, **options)
        tokenizer.add_prefix_space = True
        return tokenizer

    AutoTokenizer.from_pretrained = spaced


def encoder(converter, name):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        shutil.copytree(HERE / "encoders" / name, path)
        if name.startswith("xlm"):
            # The converter wants a compiled map of characters; any serves, as the tests give tokens.
            shapes = json.loads((HERE / "tokenizers" / "pieces.json").read_text())["shapes"]
            file = path / "tokenizer.json"
            tokenizer = json.loads(file.read_text())
            tokenizer["normalizer"] = next(shape for shape in shapes if shape["name"] == "XLM-R")["normalizer"]
            file.write_text(json.dumps(tokenizer))
            spaced_tokenizers()
        convert(converter, path, HERE / "encoders" / name / "f16.gguf")


def main():
    llama = Path(sys.argv[1])
    sys.path[:0] = [str(llama), str(llama / "gguf-py")]
    import convert_hf_to_gguf as converter
    from conversion import base

    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "default"
    for name in ["bert-score", "xlm-roberta-score", "modern-bert-score"]:
        encoder(converter, name)
    base.TextModel.get_vocab_base_pre = lambda self, tokenizer: "gpt-2"
    qwen3(converter)


if __name__ == "__main__":
    main()
