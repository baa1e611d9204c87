"""Records what Hugging Face's `tokenizers` makes of hostile texts: tokens of WordPiece, Unigram and BPE models, with added tokens of
all kinds, and hashes of all characters normalised. The vocabularies are trained on these texts alone, the compiled map of characters is of rules below. Run by
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
from tokenizers import AddedToken, Regex, Tokenizer, models, normalizers, pre_tokenizers, trainers

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


ADDED = ["<think>", "</think>", "<tool>", "<y>", "xword", "   ", "<Big>", "▁<sp>", "é!", "<lr>"]


def text_with_added():
    parts = [random.choice([*ADDED, *ADDED, *WORDS, *ODD, " ", "  ", "a", "_", "."]) for _ in range(random.randint(1, 8))]
    return "".join(parts)


TEXTS = ["", " ", " a", "a ", "▁a", "\u0001", "a" * 101, "é" * 100, "a</s>b <s>[CLS]", *(text() for _ in range(150)), *(text_with_added() for _ in range(120))]


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


def bpe(byte_level):
    """A BPE model of bytes as printable characters, or of SentencePiece's kind with bytes for unknown characters."""
    tokenizer = Tokenizer(models.BPE() if byte_level else models.BPE(unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    special = [] if byte_level else ["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))]
    alphabet = pre_tokenizers.ByteLevel.alphabet() if byte_level else []
    if not byte_level:
        tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel() if byte_level else pre_tokenizers.Split("▁", "merged_with_next")
    trainer = trainers.BpeTrainer(
        vocab_size=700, special_tokens=special, initial_alphabet=alphabet, limit_alphabet=256 if byte_level else 120, show_progress=False
    )
    tokenizer.train_from_iterator(TEXTS[:100], trainer)
    file = json.loads(tokenizer.to_str())
    return Tokenizer.from_str(json.dumps({**file, "added_tokens": file["added_tokens"][:1], "normalizer": None, "pre_tokenizer": None}))


def added(**options):
    return [AddedToken(content, **options) for content in ADDED]


MIXED = [
    AddedToken("<think>", normalized=False, lstrip=True), AddedToken("</think>", normalized=True, rstrip=True),
    AddedToken("<tool>", normalized=True, lstrip=True, rstrip=True), AddedToken("xword", normalized=True, single_word=True),
    AddedToken("<y>", normalized=False, single_word=True), AddedToken("<Big>", normalized=True), AddedToken("▁<sp>", normalized=True),
    AddedToken("é!", normalized=True, single_word=True), AddedToken("<lr>", normalized=False, lstrip=True, rstrip=True),
]


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


SPACES_SHOWN = normalizers.Replace(" ", "▁")
FIRST = pre_tokenizers.Metaspace(prepend_scheme="first")
SENTENCE_PIECE = {
    "Llama 2": (normalizers.Sequence([normalizers.Prepend("▁"), SPACES_SHOWN]), None),
    "Llama 2, added tokens": (normalizers.Sequence([normalizers.Prepend("▁"), SPACES_SHOWN]), None, added(normalized=True)),
    "Llama 2, added tokens of all kinds": (normalizers.Sequence([normalizers.Prepend("▁"), SPACES_SHOWN]), None, MIXED),
    "Mistral, added tokens": (None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), added(normalized=False)),
    "Mistral, added tokens of all kinds": (None, pre_tokenizers.Metaspace(prepend_scheme="first", split=False), MIXED),
    "Gemma, added tokens of all kinds": (SPACES_SHOWN, pre_tokenizers.Split(" ", "merged_with_previous"), MIXED),
    "first word behind NFKC": (normalizers.NFKC(), FIRST, added(normalized=True)),
    "first word behind other splits": (None, pre_tokenizers.Sequence([pre_tokenizers.Digits(True), FIRST]), added(normalized=True)),
    "first word behind white space": (None, pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), FIRST]), MIXED),
}
BYTE_LEVEL = {
    "GPT-2, added tokens": (None, pre_tokenizers.ByteLevel(add_prefix_space=False), added(normalized=True)),
    "RoBERTa, added tokens of all kinds": (None, pre_tokenizers.ByteLevel(add_prefix_space=True), MIXED),
    "NFC, added tokens": (normalizers.NFC(), pre_tokenizers.ByteLevel(add_prefix_space=False), added(normalized=True)),
    "lower case without accents, added tokens of all kinds": (
        normalizers.Sequence([normalizers.NFD(), normalizers.Lowercase(), normalizers.StripAccents()]),
        pre_tokenizers.ByteLevel(add_prefix_space=False), MIXED,
    ),
}


def shapes(tokenizer, kinds, byte_fallback=False, vocabulary=None):
    for name, (normalizer, pre_tokenizer, *more) in kinds.items():
        file = json.loads(tokenizer.to_str())
        if byte_fallback:
            file["model"]["byte_fallback"] = True
        made = Tokenizer.from_str(json.dumps(file))
        if normalizer is not None:
            made.normalizer = normalizer
        if pre_tokenizer is not None:
            made.pre_tokenizer = pre_tokenizer
        made.add_tokens(more[0] if more else [])
        ids = [made.encode(text, add_special_tokens=False).ids for text in TEXTS]
        parts = json.loads(made.to_str())
        yield {
            "name": name + (", bytes" if byte_fallback else ""), "model": vocabulary or file["model"]["type"],
            "byte_fallback": byte_fallback or file["model"].get("byte_fallback", False), "added_tokens": parts["added_tokens"],
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


words, pieces, sentences, byte_pairs = word_piece(), unigram(), bpe(False), bpe(True)
whole = {
    "texts": TEXTS,
    "tokenizers": {
        "WordPiece": json.loads(words.to_str()), "Unigram": json.loads(pieces.to_str()),
        "SentencePiece": json.loads(sentences.to_str()), "ByteLevel": json.loads(byte_pairs.to_str()),
    },
    "shapes": [
        *shapes(words, WORD_PIECE), *shapes(pieces, UNIGRAM), *shapes(pieces, {"T5": UNIGRAM["T5"]}, True),
        *shapes(sentences, SENTENCE_PIECE, vocabulary="SentencePiece"), *shapes(byte_pairs, BYTE_LEVEL, vocabulary="ByteLevel"),
    ],
    "hashes": list(hashes()),
}
(Path(__file__).parent / "pieces.json").write_text(json.dumps(whole, ensure_ascii=False) + "\n", encoding="utf-8")
