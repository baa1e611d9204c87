"""Writes tiny random encoders, and what sentence-transformers and tokenizers make of them.

    python tests/reference/encoders.py [names]

For each model, or those named: encoders/<name>/, a folder as sentence-transformers saves it, with weights in float16, and
expected.json: tokens of texts, their vectors in float32 computed from the stored weights, and scores of pairs where the model
has a head for them. The vocabularies are trained on the texts of this file alone. The committed files come from torch 2.13.0,
transformers 5.24.0, tokenizers 0.22 and sentence-transformers 5.
"""

import json
import shutil
import sys
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers, decoders
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer, PreTrainedTokenizerFast
import transformers

HERE = Path(__file__).parent / "encoders"
TEXTS = [
    "the sea",
    "An ocean is a large body of salt water.",
    "Déjà vu: ÀÉÎÕÜ naïve façade, crème brûlée — Ångström",
    "漢字かな交じり文、テスト。",
    "мир и война",
    "Straße ΣΊΣΥΦΟΣ İstanbul ﬁancé ½ ①",
    "line one\nline\ttwo\u00a0three\u200bfour\u3000five",
    "emoji 🙂👩‍👩‍👧 and e\u0301 combined",
    "x" * 120,
    "unaffable undesirability, running runners ran!",
    "a",
    "1234567890 3.14 $5 a+b=c <tag> [UNK] #hash @you",
    "한국어 문장 조사 हिन्दी ไทย",
    " ".join(["The quick brown fox jumps over the lazy dog."] * 5),
]
PAIRS = [
    ("what is the sea?", "An ocean is a large body of salt water."),
    ("what is the sea?", "running runners ran!"),
    ("мир", "漢字かな交じり文、テスト。"),
]
HIDDEN, LAYERS, HEADS = 32, 3, 2
SIZES = dict(hidden_size=HIDDEN, num_hidden_layers=LAYERS, num_attention_heads=HEADS, intermediate_size=48)


def word_piece(vocab=700, lowercase=True, types=False):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(TEXTS * 3, trainers.WordPieceTrainer(vocab_size=vocab, special_tokens=special))
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS]:0 $A:0 [SEP]:0",
        pair="[CLS]:0 $A:0 [SEP]:0 $B:1 [SEP]:1",
        special_tokens=[(name, special.index(name)) for name in ("[CLS]", "[SEP]")],
    )
    names = dict(pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]", mask_token="[MASK]")
    if types:
        names["model_input_names"] = ["input_ids", "token_type_ids", "attention_mask"]
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def unigram(vocab=600):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Replace(" {2,}", " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trainer = trainers.UnigramTrainer(vocab_size=vocab, special_tokens=special, unk_token="<unk>")
    tokenizer.train_from_iterator(TEXTS[:13] * 3, trainer)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[(name, special.index(name)) for name in ("<s>", "</s>")],
    )
    names = dict(bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", pad_token="<pad>", unk_token="<unk>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def byte_pairs(vocab=700):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocab, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(TEXTS * 3, trainer)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False)
    names = dict(bos_token="<s>", eos_token="</s>", cls_token="<s>", sep_token="</s>", pad_token="<pad>", unk_token="<unk>")
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, mask_token=AddedToken("<mask>", lstrip=True), **names)


def roberta(kind, tokenizer, **fields):
    config = transformers.RobertaConfig(
        **SIZES, vocab_size=len(tokenizer), max_position_embeddings=302, type_vocab_size=1, layer_norm_eps=1e-5, **fields,
    )
    return getattr(transformers, kind)(config)


def bert(kind, tokenizer, **fields):
    config = transformers.BertConfig(**SIZES, vocab_size=len(tokenizer), max_position_embeddings=300, **fields)
    return getattr(transformers, kind)(config)


def xlm_roberta(kind, tokenizer, **fields):
    config = transformers.XLMRobertaConfig(
        **SIZES, vocab_size=len(tokenizer), max_position_embeddings=302, type_vocab_size=1, pad_token_id=1,
        layer_norm_eps=1e-5, **fields,
    )
    return getattr(transformers, kind)(config)


def modern_bert(kind, tokenizer, **fields):
    config = transformers.ModernBertConfig(
        **SIZES, vocab_size=len(tokenizer), max_position_embeddings=300, local_attention=16,
        global_attn_every_n_layers=2, pad_token_id=0, cls_token_id=2, sep_token_id=3, bos_token_id=2, eos_token_id=3, **fields,
    )
    return getattr(transformers, kind)(config)


def gemma(kind, tokenizer, **fields):
    config = transformers.Gemma3TextConfig(
        hidden_size=HIDDEN, num_hidden_layers=6, num_attention_heads=HEADS, num_key_value_heads=1, head_dim=32,
        intermediate_size=48, vocab_size=len(tokenizer), max_position_embeddings=300, sliding_window=24,
        query_pre_attn_scalar=32, use_bidirectional_attention=True, pad_token_id=1, eos_token_id=2, bos_token_id=0,
        **fields,
    )
    return getattr(transformers, kind)(config)


def nomic_bert(kind, tokenizer, **fields):
    config = transformers.NomicBertConfig(**SIZES, vocab_size=len(tokenizer), max_position_embeddings=300, **fields)
    return getattr(transformers, kind)(config)


MODELS = {
    "bert-mean": lambda: (word_piece(), bert, "BertModel", "mean", {}),
    "bert-cls-cased": lambda: (word_piece(lowercase=False), bert, "BertModel", "cls", {"hidden_act": "gelu_new"}),
    "bert-score": lambda: (word_piece(types=True), bert, "BertForSequenceClassification", None, {"num_labels": 1}),
    "xlm-roberta-cls": lambda: (unigram(), xlm_roberta, "XLMRobertaModel", "cls", {}),
    "xlm-roberta-score": lambda: (unigram(), xlm_roberta, "XLMRobertaForSequenceClassification", None, {"num_labels": 1}),
    "roberta-cls": lambda: (byte_pairs(), roberta, "RobertaModel", "cls", {}),
    "modern-bert-mean": lambda: (word_piece(), modern_bert, "ModernBertModel", "mean", {}),
    "modern-bert-score": lambda: (
        word_piece(), modern_bert, "ModernBertForSequenceClassification", None,
        {"num_labels": 1, "classifier_pooling": "mean"},
    ),
    "nomic-bert-mean": lambda: (word_piece(), nomic_bert, "NomicBertModel", "mean", {}),
    "embedding-gemma": lambda: (unigram(), gemma, "Gemma3TextModel", "mean", {}),
}


def randomise(model):
    """Gives every parameter numbers that matter, biases and norms too."""
    generator = torch.Generator().manual_seed(7)
    for name, parameter in model.named_parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        is_norm = "norm" in name.lower() and name.endswith("weight") and "Gemma" not in type(model).__name__
        spread = 0.15 if parameter.dim() > 1 else 0.3
        parameter.data = (1 + 0.3 * noise if is_norm else spread * noise).half().float()


def save_sentence_transformer(folder, tokenizer, pooling, dense):
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({
        "word_embedding_dimension": HIDDEN,
        "pooling_mode_cls_token": pooling == "cls",
        "pooling_mode_mean_tokens": pooling == "mean",
        "include_prompt": True,
    }))
    for index, (size, to) in enumerate(dense, 2):
        from safetensors.torch import save_file

        path = folder / f"{index}_Dense"
        path.mkdir()
        activation = "torch.nn.modules.linear.Identity" if index == 2 else "torch.nn.modules.activation.Tanh"
        (path / "config.json").write_text(json.dumps({
            "in_features": size, "out_features": to, "bias": index == 3, "activation_function": activation,
        }))
        generator = torch.Generator().manual_seed(index)
        weights = {"linear.weight": torch.randn(to, size, generator=generator) / size**0.5}
        if index == 3:
            weights["linear.bias"] = torch.randn(to, generator=generator)
        save_file(weights, path / "model.safetensors")
        modules.append((path.name, "Dense"))
    modules.append((f"{len(modules)}_Normalize", "Normalize"))
    (folder / "modules.json").write_text(json.dumps([
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for i, (path, kind) in enumerate(modules)
    ]))
    (folder / "config_sentence_transformers.json").write_text(json.dumps({
        "prompts": {"query": "query: ", "document": "passage: "}, "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    }))


def as_published(file):
    """Renames the fields of a nomic-bert as published ones have them."""
    config = json.loads(file.read_text())
    published = {
        "architectures": ["NomicBertModel"], "model_type": "nomic_bert", "activation_function": "swiglu",
        "n_embd": config["hidden_size"], "n_head": config["num_attention_heads"], "n_layer": config["num_hidden_layers"],
        "n_inner": config["intermediate_size"], "n_positions": 8192, "max_trained_positions": 2048,
        "layer_norm_epsilon": config["layer_norm_eps"], "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
        "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": None,
        "type_vocab_size": 2, "vocab_size": config["vocab_size"], "prenorm": False, "causal": False,
        "qkv_proj_bias": False, "mlp_fc1_bias": False, "mlp_fc2_bias": False, "use_rms_norm": False, "parallel_block": False,
    }
    # llama.cpp's converter reads the fields of transformers.
    file.write_text(json.dumps({**config, **published}, indent=2))


def main():
    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    from sentence_transformers import CrossEncoder, SentenceTransformer

    for name in sys.argv[1:] or MODELS:
        tokenizer, make, kind, pooling, fields = MODELS[name]()
        folder = HERE / name
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        model = make(kind, tokenizer, **fields).eval()
        randomise(model)
        model.half().save_pretrained(folder)
        model.float()
        tokenizer.model_max_length = 300
        tokenizer.save_pretrained(folder)
        expected = {"texts": TEXTS, "tokens": [tokenizer(text)["input_ids"] for text in TEXTS]}
        if pooling is None:
            encoder = CrossEncoder(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
            expected["pairs"] = PAIRS
            expected["pairTokens"] = [tokenizer(*pair)["input_ids"] for pair in PAIRS]
            expected["scores"] = [float(score) for score in encoder.predict(PAIRS, batch_size=1)]
        else:
            dense = [(HIDDEN, 40), (40, 24)] if name == "embedding-gemma" else []
            save_sentence_transformer(folder, tokenizer, pooling, dense)
            encoder = SentenceTransformer(str(folder), device="cpu", model_kwargs={"dtype": torch.float32})
            vectors = encoder.encode(TEXTS, batch_size=1)
            expected["vectors"] = [[round(float(x), 7) for x in vector] for vector in vectors]
            query = encoder.encode([TEXTS[0]], prompt_name="query")[0]
            expected["query"] = [round(float(x), 7) for x in query]
        if name.startswith("nomic"):
            as_published(folder / "config.json")
        (folder / "expected.json").write_text(json.dumps(expected, ensure_ascii=False))
        print(name, "written")


if __name__ == "__main__":
    main()
