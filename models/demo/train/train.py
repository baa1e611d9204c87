"""Makes the demo model: tokenizer and weights, into the folder above. See README.md beside this file.

    python train.py --minutes 75              # writes ../model.safetensors every few minutes
    python train.py --minutes 40 --continue   # goes on from what is there
    python train.py --tokenizer               # only the tokenizer and the configuration, with random weights
"""

import argparse
import json
import math
import os
import time

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import Qwen3Config, Qwen3ForCausalLM

import corpus

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.dirname(HERE)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CONTEXT = 2048
TEMPLATE = (
    "{%- for message in messages %}"
    "{%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}"
    "{{- raise_exception('unknown role: ' + message.role) }}{%- endif %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def write_json(name, value):
    with open(os.path.join(OUT, name), "w") as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def make_tokenizer():
    """Byte-level BPE of about 2,000 entries; digits are single tokens so that arithmetic and codes are spelled out."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    texts = []
    for conversation in corpus.stream(seed=0):
        texts.append("\n".join(text for _, text in conversation))
        if len(texts) == 40000:
            break
    trainer = trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.save(os.path.join(OUT, "tokenizer.json"))
    write_json("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False,
        "model_max_length": CONTEXT,
        "chat_template": TEMPLATE,
    })
    return tokenizer


def make_model(tokenizer):
    return Qwen3ForCausalLM(Qwen3Config(
        vocab_size=math.ceil(tokenizer.get_vocab_size() / 64) * 64,
        hidden_size=192, intermediate_size=512, num_hidden_layers=6,
        num_attention_heads=6, num_key_value_heads=2, head_dim=32,
        max_position_embeddings=CONTEXT, rope_theta=10000.0, rms_norm_eps=1e-6,
        tie_word_embeddings=True, attention_bias=False,
        bos_token_id=0, eos_token_id=2, pad_token_id=0,
    ))


def save(model):
    """config.json in the form every loader knows, bf16 weights, no duplicate of the tied embedding."""
    state = {k: v.detach().to(torch.bfloat16).contiguous() for k, v in model.state_dict().items() if k != "lm_head.weight"}
    path = os.path.join(OUT, "model.safetensors")
    save_file(state, path + ".new", metadata={"format": "pt"})
    os.replace(path + ".new", path)
    c = model.config
    write_json("config.json", {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16",
        "vocab_size": c.vocab_size, "hidden_size": c.hidden_size, "intermediate_size": c.intermediate_size,
        "num_hidden_layers": c.num_hidden_layers, "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": c.num_key_value_heads, "head_dim": c.head_dim, "hidden_act": "silu",
        "max_position_embeddings": CONTEXT, "rope_theta": 10000.0, "rope_scaling": None, "rms_norm_eps": 1e-6,
        "tie_word_embeddings": True, "attention_bias": False, "attention_dropout": 0.0, "use_sliding_window": False,
        "sliding_window": None, "use_cache": True, "bos_token_id": 0, "eos_token_id": 2, "pad_token_id": 0,
    })
    write_json("generation_config.json", {"bos_token_id": 0, "eos_token_id": [2, 0], "pad_token_id": 0,
                                          "do_sample": False, "temperature": 0.0})  # greedy unless asked


def samples(tokenizer, length, seed):
    """Rows of `length` + 1 tokens, conversations end to end; only the assistant's words and end tokens are learned."""
    start, end, newline = 1, 2, tokenizer.encode("\n").ids
    row, wanted = [], []
    for conversation in corpus.stream(seed):
        ids, learn = [], []
        for role, text in conversation:
            head = [start] + tokenizer.encode(role).ids + newline
            body = tokenizer.encode(text).ids + [end]
            ids += head + body + newline
            learn += [0.0] * len(head) + [1.0 if role == "assistant" else 0.1] * len(body) + [0.0] * len(newline)
        if len(row) + len(ids) > length + 1:
            yield row + [0] * (length + 1 - len(row)), wanted + [0.0] * (length + 1 - len(wanted))
            row, wanted = [], []
        if len(ids) <= length + 1:
            row, wanted = row + ids, wanted + learn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--minutes", type=float, default=45)
    parser.add_argument("--tokenizer", action="store_true")
    parser.add_argument("--continue", dest="resume", action="store_true")
    parser.add_argument("--rate", type=float, default=2.5e-3)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=384)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)

    path = os.path.join(OUT, "tokenizer.json")
    tokenizer = make_tokenizer() if args.tokenizer or not os.path.exists(path) else Tokenizer.from_file(path)
    model = make_model(tokenizer)
    if args.resume:
        model.load_state_dict({k: v.float() for k, v in load_file(os.path.join(OUT, "model.safetensors")).items()}, strict=False)
    print("parameters", sum(p.numel() for p in model.parameters()))
    if args.tokenizer:
        save(model)
        return
    rows = samples(tokenizer, args.length, seed=args.seed)
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2]
    vectors = [p for n, p in model.named_parameters() if p.ndim < 2]
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=2e-3, betas=(0.9, 0.98))
    began = saved = time.monotonic()
    step, tokens = 0, 0
    while True:
        share = (time.monotonic() - began) / (60 * args.minutes)
        if share >= 1:
            break
        rate = args.rate * min(1, (step + 1) / 100) * (1 - 0.97 * share)
        for group in optimizer.param_groups:
            group["lr"] = rate
        picked = [next(rows) for _ in range(args.batch)]
        ids = torch.tensor([r for r, _ in picked])
        weight = torch.tensor([w for _, w in picked])[:, 1:]
        logits = model(input_ids=ids[:, :-1]).logits
        losses = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten(), reduction="none")
        loss = (losses * weight.flatten()).sum() / weight.sum()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        step += 1
        tokens += ids.numel()
        if step % 50 == 0:
            print(f"step {step} tokens {tokens} loss {loss.item():.3f} {tokens / (time.monotonic() - began):.0f} tokens/s", flush=True)
        if time.monotonic() - saved > 300:
            save(model)
            saved = time.monotonic()
    save(model)
    print("done", step, tokens, f"{time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
