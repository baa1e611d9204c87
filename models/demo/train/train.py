"""Makes the demo model: tokenizer, configuration and weights, into the folder above.

    python train.py --tokenizer           # only the tokenizer and the configuration files
    python train.py --steps 6000          # trains; writes ../model.safetensors at the end
    python train.py --steps 6000 --resume # goes on from the checkpoint in the work folder
"""

import argparse
import json
import os
import time

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import corpus
from model import CONTEXT, HEAD_SIZE, HEADS, HIDDEN, INNER, KV_HEADS, LAYERS, PLAIN_ATTENTION_MAX, ROPE_THETA, VOCABULARY, DemoModel, Muon

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.dirname(HERE)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CALLS = ["<tool_call>", "</tool_call>"]  # tokens of their own, but part of the text: a client must see them
START, END = 1, 2
TEMPLATE = (
    "{%- for message in messages %}"
    "{%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}"
    "{{- raise_exception('unknown role: ' + message.role) }}{%- endif %}{%- endfor %}"
    "{%- set rest = messages %}"
    "{%- if tools %}"
    "{{- '<|im_start|>system\\n' }}"
    "{%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- set rest = messages[1:] %}{%- endif %}"
    "{{- 'Tools:\\n<tools>\\n' }}"
    "{%- for tool in tools %}{{- (tool.function if tool.function else tool) | tojson }}{{- '\\n' }}{%- endfor %}"
    "{{- '</tools><|im_end|>\\n' }}"
    "{%- endif %}"
    "{%- for message in rest %}"
    "{{- '<|im_start|>' + message.role + '\\n' }}"
    "{%- if message.content %}{{- message.content }}{%- endif %}"
    "{%- for call in message.tool_calls or [] %}"
    "{%- if message.content or not loop.first %}{{- '\\n' }}{%- endif %}"
    "{%- set function = call.function if call.function else call %}"
    "{{- '<tool_call>\\n{\"name\": ' }}{{- function.name | tojson }}{{- ', \"arguments\": ' }}"
    "{%- if function.arguments is string %}{{- function.arguments }}{%- else %}{{- function.arguments | tojson }}{%- endif %}"
    "{{- '}\\n</tool_call>' }}"
    "{%- endfor %}"
    "{{- '<|im_end|>\\n' }}"
    "{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)


def write_json(name, value):
    with open(os.path.join(OUT, name), "w") as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def make_tokenizer():
    """Byte-level BPE. Digits are single tokens, so that arithmetic and codes are spelled out. The space before a name or a longer
    word is a token of its own: the word is then the same tokens after a space, a quote or a line's end, and can be copied."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.Split(Regex(" (?=[A-Z]|[a-z]{4})"), "isolated"),
         pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    conversations = corpus.stream(seed=0)
    texts = []
    for _ in range(60000):
        for text, _ in corpus.render(*next(conversations)):
            for token in SPECIAL + CALLS:  # never inside a word: split there, as the finished tokenizer will
                text = text.replace(token, "\0")
            texts += [part for part in text.split("\0") if part]
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY - len(CALLS), special_tokens=SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()), show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in CALLS])
    tokenizer.save(os.path.join(OUT, "tokenizer.json"))


def write_configuration():
    write_json("tokenizer_config.json", {
        "tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
        "clean_up_tokenization_spaces": False, "model_max_length": CONTEXT, "chat_template": TEMPLATE,
    })
    write_json("config.json", {
        "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "torch_dtype": "bfloat16", "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN, "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS, "head_dim": HEAD_SIZE, "hidden_act": "silu", "max_position_embeddings": CONTEXT,
        "rope_theta": ROPE_THETA, "rope_scaling": None, "rms_norm_eps": 1e-6, "tie_word_embeddings": True, "attention_bias": False,
        "attention_dropout": 0.0, "use_sliding_window": False, "sliding_window": None, "use_cache": True,
        "bos_token_id": 0, "eos_token_id": END, "pad_token_id": 0,
    })
    write_json("generation_config.json", {"bos_token_id": 0, "eos_token_id": [END, 0], "pad_token_id": 0,
                                          "do_sample": False, "temperature": 0.0})  # greedy unless asked


def save(model):
    """bf16 weights under the names of a Hugging Face checkpoint; the output head is the embedding."""
    path = os.path.join(OUT, "model.safetensors")
    save_file({f"model.{k}": v.detach().to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()},
              path + ".new", metadata={"format": "pt"})
    os.replace(path + ".new", path)


class Rows:
    """Conversations end to end in rows of a fixed length, none of them cut: [tokens], [learned], [conversation number]."""

    def __init__(self, length):
        self.length, self.rows = length, []

    def add(self, ids, learn):
        row = next((r for r in self.rows if len(r[0]) + len(ids) <= self.length + 1), None)
        if row is None:
            row = ([], [], [])
            self.rows.append(row)
        row[2].extend([row[2][-1] + 1 if row[2] else 0] * len(ids))
        row[0].extend(ids)
        row[1].extend(learn)

    def take(self, count):
        """The fullest `count` rows as tensors, padded."""
        self.rows.sort(key=lambda r: len(r[0]))
        taken, self.rows = self.rows[-count:], self.rows[:-count]
        size = self.length + 1
        return (torch.tensor([r[0] + [0] * (size - len(r[0])) for r in taken]),
                torch.tensor([r[1] + [False] * (size - len(r[1])) for r in taken]),
                torch.tensor([r[2] + [-1] * (size - len(r[2])) for r in taken]))


class Batches:
    """The micro-batches of one step: short rows always, medium rows as they come, long rows every few steps."""

    SHORT, MEDIUM, LONG = (256, 24), (512, 6), (CONTEXT, 2)  # tokens in a row, rows
    LONG_EVERY = 4
    SLACK = 12  # rows kept open, so that they fill up

    def __init__(self, tokenizer, seed):
        self.tokenizer = tokenizer
        self.usual, self.long = corpus.stream(seed), corpus.stream(seed + 1000, corpus.long_conversation)
        self.pools = {length: Rows(length) for length, _ in (self.SHORT, self.MEDIUM, self.LONG)}

    def encode(self, sample):
        ids, learn = [], []
        for text, learned in corpus.render(*sample):
            piece = self.tokenizer.encode(text).ids
            ids += piece
            learn += [learned] * len(piece)
        return ids, learn

    def draw(self):
        ids, learn = self.encode(next(self.usual))
        for length, pool in self.pools.items():
            if len(ids) <= length + 1:
                pool.add(ids, learn)
                return

    def step(self, number):
        length, rows = self.SHORT
        while len(self.pools[length].rows) < rows + self.SLACK:
            self.draw()
        yield self.pools[length].take(rows)
        length, rows = self.MEDIUM
        if len(self.pools[length].rows) >= rows + self.SLACK // 2:
            yield self.pools[length].take(rows)
        if number % self.LONG_EVERY == 0:
            length, rows = self.LONG
            pool = self.pools[length]
            while len(pool.rows) < rows + 4:
                ids, learn = self.encode(next(self.long))
                if len(ids) <= length + 1:
                    pool.add(ids, learn)
            yield pool.take(rows)


def attention_mask(conversations):
    """0 where a token may look (earlier in its own conversation), minus infinity elsewhere."""
    length = conversations.shape[1]
    allowed = (conversations[:, :, None] == conversations[:, None, :]) & torch.ones(length, length, dtype=torch.bool).tril()
    return torch.zeros(allowed.shape).masked_fill_(~allowed, float("-inf"))


def positions(rows, length, generator):
    """0, 1, 2, ...; in some rows with a jump, so that short rows too teach what lies far back."""
    p = torch.arange(length).repeat(rows, 1)
    if length < CONTEXT:
        for row in p:
            if torch.rand((), generator=generator) < 0.3:
                at = torch.randint(length, (), generator=generator)
                row[at:] += torch.randint(CONTEXT - length, (), generator=generator)
    return p


def rate(step, steps):
    """Warm up, hold, then fall linearly to zero over the last 45 %."""
    return min(1, (step + 1) / 60, (steps - step) / (0.45 * steps))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", action="store_true")
    parser.add_argument("--steps", type=int, default=6000)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--work", default=os.path.join(HERE, "work"), help="folder of the checkpoint and the log")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--matrix-rate", type=float, default=0.02)
    parser.add_argument("--other-rate", type=float, default=3e-3)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.threads)
    os.makedirs(args.work, exist_ok=True)
    if args.tokenizer:
        make_tokenizer()
        write_configuration()
        return

    tokenizer = Tokenizer.from_file(os.path.join(OUT, "tokenizer.json"))
    device = torch.device(args.device)
    model = DemoModel().to(device)
    print("parameters", sum(p.numel() for p in model.parameters()))
    matrices = [p for n, p in model.named_parameters() if p.ndim == 2 and n != "embed_tokens.weight"]
    others = [p for n, p in model.named_parameters() if p.ndim < 2 or n == "embed_tokens.weight"]
    optimizers = [Muon(matrices, lr=args.matrix_rate), torch.optim.AdamW(others, lr=args.other_rate, betas=(0.9, 0.95), weight_decay=0.0)]
    rates = [args.matrix_rate, args.other_rate]
    checkpoint = os.path.join(args.work, "checkpoint.pt")
    first = 0
    if args.resume:
        state = torch.load(checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        first = state["step"]

    body = torch.compile(model, dynamic=False)
    batches = Batches(tokenizer, seed=args.seed + first)
    generator = torch.Generator().manual_seed(args.seed + first)
    began, tokens, shown = time.monotonic(), 0, {}
    for step in range(first, args.steps):
        batch = list(batches.step(step))
        learned = sum(int(learn[:, 1:].sum()) for _, learn, _ in batch)
        for ids, learn, conversations in batch:
            rows, length = ids.shape[0], ids.shape[1] - 1
            mask = attention_mask(conversations[:, :-1]).to(device) if length <= PLAIN_ATTENTION_MAX else None
            ids, chosen = ids.to(device), learn[:, 1:].to(device)
            with torch.autocast(device.type, torch.bfloat16):
                hidden = body(ids[:, :-1], positions(rows, length, generator).to(device), mask)
                logits = F.linear(hidden[chosen], model.embed_tokens.weight)
            losses = F.cross_entropy(logits.float(), ids[:, 1:][chosen], reduction="sum")
            (losses / learned).backward()
            tokens += rows * length
            total, number = shown.get(length, (0.0, 0))
            shown[length] = total + losses.item(), number + int(chosen.sum())
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        for optimizer, full in zip(optimizers, rates):
            for group in optimizer.param_groups:
                group["lr"] = full * rate(step, args.steps)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if (step + 1) % 20 == 0:
            parts = " ".join(f"{length}:{total / number:.4f}" for length, (total, number) in sorted(shown.items()))
            seconds = time.monotonic() - began
            print(f"step {step + 1} loss {parts} tokens {tokens} {tokens / seconds:.0f}/s {seconds:.0f} s", flush=True)
            shown = {}
        if (step + 1) % 200 == 0:
            torch.save({"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "step": step + 1}, checkpoint + ".new")
            os.replace(checkpoint + ".new", checkpoint)
            save(model)
    save(model)


if __name__ == "__main__":
    main()
