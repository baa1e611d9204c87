"""Records the tokens that Hugging Face's `tokenizers` makes with each kind of pre-tokenizer, over one tiny byte-level model. Run by
hand when a kind is added; the result is committed.

    python tests/reference/tokenizers/shapes.py
"""

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from make import CORPUS

TEXTS = [
    "it's 12345 and ①② or १२३, x  ①",
    "naïve café — “quotes” … $5 + 3 = ^8` snake_case a.b",
    "  two  spaces\n\nlines\r\n\tend ",
    "banana aaa aa a",
    "<think>a thought</think> and  <tool> x",
    "小さな鳥 हिन्दी 👍🏽 \u00a0\u200d",
    "",
]

BEHAVIORS = ["isolated", "removed", "contiguous", "merged_with_previous", "merged_with_next"]
bytes_only = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def kinds():
    yield "ByteLevel", pre_tokenizers.ByteLevel(add_prefix_space=False)
    yield "ByteLevel with a space before", pre_tokenizers.ByteLevel(add_prefix_space=True)
    for alone in [False, True]:
        yield f"Digits, each alone: {alone}", pre_tokenizers.Digits(alone)
    for behavior in BEHAVIORS:
        yield f"Punctuation, {behavior}", pre_tokenizers.Punctuation(behavior)
        yield f"Split by a text, {behavior}", pre_tokenizers.Split("a", behavior)
        yield f"Split by an expression, {behavior}", pre_tokenizers.Split(Regex("[0-9]|\\s"), behavior)
    yield "Split, inverted", pre_tokenizers.Split(Regex("\\p{L}+|\\p{N}"), "removed", invert=True)
    yield "Whitespace", pre_tokenizers.Whitespace()
    yield "WhitespaceSplit", pre_tokenizers.WhitespaceSplit()


tokenizer = Tokenizer(models.BPE())
trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
tokenizer.pre_tokenizer = bytes_only
tokenizer.decoder = decoders.ByteLevel()
tokenizer.train_from_iterator([*CORPUS, *["banana aaa aa 12345"] * 20], trainer)
tokenizer.add_tokens([AddedToken("<think>", normalized=False), AddedToken("<tool>", normalized=False, lstrip=True, rstrip=True)])

shapes = []
for name, kind in kinds():
    alone = isinstance(kind, pre_tokenizers.ByteLevel)
    tokenizer.pre_tokenizer = kind if alone else pre_tokenizers.Sequence([kind, bytes_only])
    ids = [tokenizer.encode(text, add_special_tokens=False).ids for text in TEXTS]
    shapes.append({"name": name, "pre_tokenizer": json.loads(tokenizer.to_str())["pre_tokenizer"], "ids": ids})
tokenizer.pre_tokenizer = None
whole = {"tokenizer": json.loads(tokenizer.to_str()), "texts": TEXTS, "shapes": shapes}
(Path(__file__).parent / "shapes.json").write_text(json.dumps(whole, ensure_ascii=False) + "\n", encoding="utf-8")
