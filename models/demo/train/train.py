"""Makes the demo model: tokenizer, configuration and weights, into the folder above.

    python train.py --tokenizer           # only the tokenizer and the configuration files
    python train.py                       # trains in three stages; writes ../model.safetensors at the end
    python train.py --resume              # goes on from the checkpoint in the work folder
"""

import argparse
import json
import os
import time

import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

import corpus
from batches import NONE, Batches, attention_mask
from model import (CONTEXT, EPSILON, HEAD_SIZE, HEADS, HIDDEN, INNER, KV_HEADS, LAYERS, PLAIN_ATTENTION_MAX, ROPE_THETA, TELL_LAYERS,
                   VOCABULARY, DemoModel, Muon)

HERE = os.path.dirname(os.path.abspath(__file__))
OUT = os.path.dirname(HERE)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CALLS = ["<tool_call>", "</tool_call>"]  # tokens of their own, but part of the text: a client must see them
START, END = 1, 2
HINT_WEIGHT = 0.25
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


def save(tensors, path):
    """Tensors in bf16, under the names of a Hugging Face checkpoint; the output head is the embedding."""
    save_file({name: t.detach().to(torch.bfloat16).contiguous() for name, t in tensors.items()}, path + ".new", metadata={"format": "pt"})
    os.replace(path + ".new", path)


def mean(parts):
    """The weighted sum of files of tensors, [(path, share)]."""
    total = {}
    for path, share in parts:
        for name, tensor in load_file(path).items():
            total[name] = total.get(name, 0) + share * tensor.float()
    return total


def positions(rows, length, generator):
    """0, 1, 2, ...; in some rows with a jump, so that short rows too teach what lies far back."""
    p = torch.arange(length).repeat(rows, 1)
    if length < CONTEXT:
        for row in p:
            if torch.rand((), generator=generator) < 0.3:
                at = torch.randint(length, (), generator=generator)
                row[at:] += torch.randint(CONTEXT - length, (), generator=generator)
    return p


class Stage:
    """Steps `first` to `end` on one kind of short conversations, with or without hints; the learning rate warms up, holds at `peak`
    times its full value, then falls linearly to zero over the last `fall` steps."""

    def __init__(self, first, end, usual, peak, fall, hinted):
        self.first, self.end, self.usual, self.peak, self.fall, self.hinted = first, end, usual, peak, fall, hinted

    def rate(self, step):
        return self.peak * min(1, (step - self.first + 1) / 60, (self.end - step) / self.fall)


STAGES = [Stage(0, 6000, corpus.conversation, 1.0, 2700, False),
          Stage(6000, 8000, corpus.conversation_or(corpus.SECOND), 0.5, 1400, True),
          Stage(8000, 8600, corpus.conversation_or(corpus.THIRD), 0.3, 600, True)]
# The weights that are kept are a mean of those at these steps: what a later stage has pushed aside comes back, what it taught stays.
MEAN = [(8000, 0.45), (8600, 0.45), (6000, 0.1)]


class Hints(torch.nn.Module):
    """How far the layers are from what the hints tell; reads tokens off states between layers. Only training has it."""

    def __init__(self):
        super().__init__()
        self.readers = torch.nn.ModuleList(torch.nn.Linear(HIDDEN, HIDDEN, bias=False) for _ in TELL_LAYERS)
        for reader in self.readers:
            torch.nn.init.eye_(reader.weight)
        self.counts = {}

    def loss(self, states, scores, hints, totals, embedding):
        """Of one micro-batch, so that the micro-batches of a step add up to the mean over each kind's `totals` hints in the step."""
        parts = []
        for number, (hint, total) in enumerate(zip(hints, totals)):
            here = hint != NONE
            if not here.any():
                continue
            if number < len(TELL_LAYERS):
                state = F.rms_norm(states[number][here].float(), (HIDDEN,), eps=EPSILON)
                guesses = F.linear(self.readers[number](state), embedding)
            else:
                guesses = scores[number - len(TELL_LAYERS)][here].float()
            parts.append(F.cross_entropy(guesses, hint[here], reduction="sum") / total)
            right, of = self.counts.get(number, (0, 0))
            self.counts[number] = right + int((guesses.argmax(-1) == hint[here]).sum()), of + int(here.sum())
        return sum(parts)

    def shown(self):
        """Shares of right guesses since the last call, in percent."""
        text = " ".join(f"{100 * right / of:.0f}" for _, (right, of) in sorted(self.counts.items()))
        self.counts = {}
        return text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--work", default=os.path.join(HERE, "work"), help="folder of the checkpoint and the log")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--matrix-rate", type=float, default=0.02)
    parser.add_argument("--other-rate", type=float, default=3e-3)
    args = parser.parse_args()

    def weights_at(step):
        return os.path.join(args.work, f"step-{step}.safetensors")

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
    hints = Hints().to(device)
    others = [p for n, p in model.named_parameters() if p.ndim < 2 or n == "embed_tokens.weight"] + list(hints.parameters())
    optimizers = [Muon(matrices, lr=args.matrix_rate), torch.optim.AdamW(others, lr=args.other_rate, betas=(0.9, 0.95), weight_decay=0.0)]
    rates = [args.matrix_rate, args.other_rate]
    checkpoint = os.path.join(args.work, "checkpoint.pt")
    first = 0
    if args.resume:
        state = torch.load(checkpoint, map_location=device)
        model.load_state_dict(state["model"])
        for optimizer, saved in zip(optimizers, state["optimizers"]):
            optimizer.load_state_dict(saved)
        hints.load_state_dict(state["hints"])
        first = state["step"]

    body = torch.compile(model, dynamic=False)
    began, tokens, shown = time.monotonic(), 0, {}
    for step in range(first, STAGES[-1].end):
        stage = next(stage for stage in STAGES if step < stage.end)
        if step in (first, stage.first):
            batches = Batches(tokenizer, args.seed + step, stage.usual)
            generator = torch.Generator().manual_seed(args.seed + step)
        batch = list(batches.step(step))
        learned = sum(int(learn[:, 1:].sum()) for _, learn, _, _ in batch)
        totals = [sum(int((hint != NONE).sum()) for hint in kind) for kind in zip(*(hinted for *_, hinted in batch))]
        for ids, learn, conversations, hinted in batch:
            rows, length = ids.shape[0], ids.shape[1] - 1
            mask = attention_mask(conversations[:, :-1]).to(device) if length <= PLAIN_ATTENTION_MAX else None
            ids, chosen = ids.to(device), learn[:, 1:].to(device)
            with torch.autocast(device.type, torch.bfloat16):
                hidden, states, scores = body(ids[:, :-1], positions(rows, length, generator).to(device), mask)
                logits = F.linear(hidden[chosen], model.embed_tokens.weight)
            losses = F.cross_entropy(logits.float(), ids[:, 1:][chosen], reduction="sum")
            loss = losses / learned
            if stage.hinted and mask is not None:
                hinted = [hint[:, :-1].to(device) for hint in hinted]
                loss = loss + HINT_WEIGHT * hints.loss(states, scores, hinted, totals, model.embed_tokens.weight)
            loss.backward()
            tokens += rows * length
            total, number = shown.get(length, (0.0, 0))
            shown[length] = total + losses.item(), number + int(chosen.sum())
        torch.nn.utils.clip_grad_norm_(others, 1.0)
        for optimizer, full in zip(optimizers, rates):
            for group in optimizer.param_groups:
                group["lr"] = full * stage.rate(step)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        if (step + 1) % 20 == 0:
            parts = " ".join(f"{length}:{total / number:.4f}" for length, (total, number) in sorted(shown.items()))
            seconds = time.monotonic() - began
            print(f"step {step + 1} loss {parts} hints {hints.shown()} tokens {tokens} {tokens / seconds:.0f}/s {seconds:.0f} s", flush=True)
            shown = {}
        if (step + 1) % 200 == 0:
            state = {"model": model.state_dict(), "hints": hints.state_dict(), "optimizers": [o.state_dict() for o in optimizers], "step": step + 1}
            torch.save(state, checkpoint + ".new")
            os.replace(checkpoint + ".new", checkpoint)
        if step + 1 in dict(MEAN):
            save({f"model.{name}": t for name, t in model.state_dict().items()}, weights_at(step + 1))
    save(mean([(weights_at(step), share) for step, share in MEAN]), os.path.join(OUT, "model.safetensors"))


if __name__ == "__main__":
    main()
