"""Records what Hugging Face's `tokenizers` makes of hostile texts with WordPiece and Unigram models: tokens, and hashes of all
characters normalised. The vocabularies are trained on these texts alone, the compiled map of characters is of rules below. Run by
hand when a kind is added; the result is committed (tokenizers 0.23.3, sentencepiece 0.2.3).

    python tests/reference/tokenizers/pieces.py
"""

import hashlib
import io
import json
import random
import tempfile
from pathlib import Path

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

random.seed(5)
WORDS = "the sea, Déjà vu: ÀÉÎÕÜ naïve Straße ΣΊΣΥΦΟΣ İstanbul ﬁancé мир и война [UNK] </s> snake_case 3.14 $5 a+b=c".split()
ODD = (
    "\u0300 \u0301 e\u0301 ½ ① ﷺ ı ς ǅ Å ㍿ ㋿ \u200d \u200c \u200b \ufeff \u00ad \u0085 \u000b \u001c \u0000 \u0001 \u007f \u009f "
    "\u00a0 \u1680 \u180e \u2003 \u2028 \u202e \u3000 \ufffd \uffff \ufdd0 \ue000 \U000f0000 🙂 👩‍👩‍👧 🏳️‍🌈 🇩🇪 👍🏽 𝔘𝔫𝔦 𠀀 𪚥 豈 々 〇 㐀 가 각 ᄀ ᅡ ᆨ "
    "कि क्ष ไทย กำ שׁ لا ـ ١٢ Ⅳ Ａ ｱ ｶﾞ ～ 〜 — … “” $ + ^ ` | ~ _ # ##a ▁ ▁▁ \t \n \r\n \u0378 \u0890 \u08e2 \u2e5d \u2e43 \U000111c9 \u166d \u0897 "
    "\u08d4 \U0001145e \U00011383 ẞ ŉ ΐ ᾳ \u0345 \u20dd \u0903 \u0f73 \u2126 \u0958 \u2adc \U0001d15e \ufe0f \u034f \u3164"
).split(" ")
SPACES = ["", "", " ", "  ", " \t", "\u3000"]


def text():
    parts = random.choices([*WORDS, *ODD], k=random.randint(1, 14))
    return "".join(part + random.choice(SPACES) for part in parts)


TEXTS = ["", " ", " a", "a ", "▁a", "\u0001", "a" * 101, "é" * 100, "a</s>b <s>[CLS]", *(text() for _ in range(150))]


def charsmap():
    """A compiled map of a few rules: letters, a grapheme of two characters, and one to nothing."""
    rules = {"Ａ": "A", "ﬁ": "fi", "e\u0301": "é", "\u3000": " ", "\t": " ", "\n": " ", "½": "1/2", "\u00ad": "", "\u0001": "", "각": "가x"}
    with tempfile.NamedTemporaryFile("w", suffix=".tsv", encoding="utf-8") as file:
        for source, target in rules.items():
            file.write(" ".join(f"{ord(c):x}" for c in source) + "\t" + " ".join(f"{ord(c):x}" for c in target) + "\n")
        file.flush()
        model = io.BytesIO()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(WORDS * 20), model_writer=model, vocab_size=80, hard_vocab_limit=False,
            normalization_rule_tsv=file.name, minloglevel=2,
        )
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)


def word_piece():
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    tokenizer.train_from_iterator(TEXTS[:100], trainers.WordPieceTrainer(vocab_size=700, special_tokens=special, show_progress=False))
    return tokenizer


def unigram():
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "</s>", "<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.UnigramTrainer(vocab_size=900, special_tokens=special, unk_token="<unk>", show_progress=False)
    tokenizer.train_from_iterator(TEXTS[:100], trainer)
    file = json.loads(tokenizer.to_str())
    return Tokenizer.from_str(json.dumps({**file, "added_tokens": file["added_tokens"][:3]}))


def bert(**options):
    return normalizers.BertNormalizer(**options), pre_tokenizers.BertPreTokenizer()


MAP = charsmap()
SPACED = normalizers.Replace(Regex(" {2,}"), " ")
METASPACE = pre_tokenizers.Metaspace()
WORD_PIECE = {
    "BERT, uncased": bert(lowercase=True),
    "BERT, cased": bert(lowercase=False),
    "BERT, uncased with accents": bert(lowercase=True, strip_accents=False),
    "BERT, only cleaned": bert(lowercase=False, handle_chinese_chars=False),
}
UNIGRAM = {
    "XLM-R": (MAP, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), METASPACE])),
    "T5": (normalizers.Sequence([MAP, SPACED]), METASPACE),
    "DeBERTa": (normalizers.Sequence([normalizers.Strip(), MAP, SPACED]), METASPACE),
    "ALBERT": (
        normalizers.Sequence([
            normalizers.Replace("``", '"'), normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), MAP,
        ]),
        METASPACE,
    ),
    "space before the first word alone": (normalizers.NFKC(), pre_tokenizers.Metaspace(prepend_scheme="first")),
    "no space before, words whole": (None, pre_tokenizers.Metaspace(prepend_scheme="never", split=False)),
}


def shapes(tokenizer, kinds, byte_fallback=False):
    for name, (normalizer, pre_tokenizer) in kinds.items():
        file = json.loads(tokenizer.to_str())
        if byte_fallback:
            file["model"]["byte_fallback"] = True
        made = Tokenizer.from_str(json.dumps(file))
        if normalizer is not None:
            made.normalizer = normalizer
        made.pre_tokenizer = pre_tokenizer
        ids = [made.encode(text, add_special_tokens=False).ids for text in TEXTS]
        parts = json.loads(made.to_str())
        yield {
            "name": name + (", bytes" if byte_fallback else ""), "model": file["model"]["type"], "byte_fallback": byte_fallback,
            "normalizer": parts["normalizer"], "pre_tokenizer": parts["pre_tokenizer"], "ids": ids,
        }


def hashes():
    """Hashes of each character between two letters, normalised."""
    kinds = {
        **{name: normalizer for name, (normalizer, _) in WORD_PIECE.items()},
        **{name: getattr(normalizers, name)() for name in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents"]},
    }
    characters = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for name, normalizer in kinds.items():
        digest = hashlib.sha256()
        for character in characters:
            digest.update(normalizer.normalize_str(f"a{character}b").encode())
        only = Tokenizer(models.BPE())
        only.normalizer = normalizer
        yield {"name": name, "normalizer": json.loads(only.to_str())["normalizer"], "sha256": digest.hexdigest()}


words, pieces = word_piece(), unigram()
whole = {
    "texts": TEXTS,
    "tokenizers": {"WordPiece": json.loads(words.to_str()), "Unigram": json.loads(pieces.to_str())},
    "shapes": [*shapes(words, WORD_PIECE), *shapes(pieces, UNIGRAM), *shapes(pieces, {"T5": UNIGRAM["T5"]}, True)],
    "hashes": list(hashes()),
}
(Path(__file__).parent / "pieces.json").write_text(json.dumps(whole, ensure_ascii=False) + "\n", encoding="utf-8")
