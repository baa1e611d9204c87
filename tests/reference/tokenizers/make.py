"""Trains four tiny tokenizers of the kinds that models ship with, and records the tokens of texts and chats by Hugging Face's
`tokenizers` and `transformers`. Run by hand when a case is added; the results are committed.

    python tests/reference/tokenizers/make.py
"""

import json
import unicodedata
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent

CORPUS = [
    "The bunting is a small bird of open fields; it sings from hedges and wires in early summer.",
    "A server takes many requests at once, shares what they have in common, and answers each as if it were alone.",
    "We measure first, then we change one thing, then we measure again. That's how it's done, they'll say.",
    "for (let i = 0; i < count; i++) {\n    total += values[i];\n}\nreturn total / count;",
    '{"name": "lookup", "arguments": {"city": "Zürich", "days": 3}}',
    "In 1984 there were 12345 pages, 67 chapters and 8 appendices; 3.14159 is not 22/7.",
    "Die Goldammer sitzt über der Hecke und singt: wie, wie, wie hab ich dich lieb.",
    "Le bruant jaune niche près du sol, à l'abri des haies; il n'émigre guère.",
    "Овсянка поёт на рассвете, когда туман ещё лежит над полем.",
    "小さな鳥が朝の畑で歌っている。風は静かで、空は高い。",
    "麦田里的小鸟在清晨歌唱。",
    "   indented text\n\n\twith tabs\r\nand   runs of   spaces   ",
] * 3

TEXTS = [
    "",
    " ",
    "Hello, world!",
    "  leading and trailing  ",
    "The bunting sings.\nIt's early; they'll stay.\n\n\n  next paragraph\r\n\r\nend",
    "numbers 1 12 123 1234 12345 3.14",
    "naïve café — “quotes” … Zürich",
    unicodedata.normalize("NFD", "naïve café Zürich"),
    "Овсянка поёт",
    "小さな鳥が歌っている。麦田里",
    "emoji: 👩‍👩‍👧‍👦 🇨🇭 👍🏽 \U0001f426 end",
    "tabs\tand\u00a0no-break\u3000ideographic\u200bzero-width",
    "<0x41> looks like a byte, ▁ like a space, Ġ like one too",
    "<think>a thought</think> and <tool_call>a call</tool_call>",
    "x" * 40,
    "\u0000\u0001\u001f control",
    "हिन्दी मिश्रित العربية",
    "end with newline\n",
    "a\u0301\u0301\u0301 combining",
]

# Texts that name control tokens: `parse` has the tokens by transformers, which parses such text as the token.
CONTROL_TEXTS = ["{end}", "a{end}b", "{start}user\nhi{end}\n", "{end}{end}  {start} x", " {start} spaced {end} "]

CHATS = [
    {"messages": [{"role": "user", "content": "Hello!"}]},
    {
        "messages": [
            {"role": "system", "content": "  You are brief.  "},
            {"role": "user", "content": "Where do buntings sing?\n"},
            {"role": "assistant", "content": "<think>hedges</think>From hedges."},
            {"role": "user", "content": "小さな鳥 🐦 naïve"},
        ]
    },
    {
        "messages": [{"role": "user", "content": "Weather in Zürich?"}],
        "tools": [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string", "description": "a <city>"}}}}}],
    },
    {"messages": [{"role": "user", "content": "no turn opened"}], "add_generation_prompt": False},
    {"messages": [{"role": "user", "content": "be quick"}], "kwargs": {"enable_thinking": False}},
]

# Written for these tests; together they use the features of published chat templates.
CHATML = """{%- if tools %}
    {{- '<|im_start|>system\\n' }}
    {%- if messages[0].role == 'system' %}{{- messages[0].content + '\\n\\n' }}{%- endif %}
    {{- 'Functions:' }}
    {%- for tool in tools %}
        {{- '\\n' }}{{- tool | tojson }}
    {%- endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- set ns = namespace(last=messages|length - 1, seen=0) %}
{%- for message in messages %}
    {%- if loop.first and tools and message.role == 'system' %}{%- continue %}{%- endif %}
    {%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}
        {{- raise_exception('unknown role ' ~ message.role) }}
    {%- endif %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {%- set ns.seen = ns.seen + 1 %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\\n\\n</think>\\n\\n' }}{%- endif %}
{%- endif %}"""

HEADERS = """{{- bos_token }}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] | trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = '' %}
{%- endif %}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}
{%- if tools is not none %}{{- 'Tools:\\n' }}{%- for t in tools %}{{- t | tojson(indent=4) }}{{- '\\n' }}{%- endfor %}{%- endif %}
{{- system_message + '<|eot_id|>' }}
{%- for message in messages %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}"""

BRACKETS = """{{- bos_token }}{%- for message in messages %}
{%- if message.role == 'user' or message.role == 'system' %}{{ '[INST] ' + message.content + ' [/INST]' }}
{%- else %}{{ ' ' + message.content + eos_token }}{% endif %}
{%- endfor %}"""

QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def byte_level(pattern: str, vocab: int, ignore_merges: bool) -> Tokenizer:
    tokenizer = Tokenizer(models.BPE(ignore_merges=ignore_merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior="isolated", invert=False),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def sentence_piece(vocab: int) -> Tokenizer:
    """Trains a model on words; the caller sets the steps around the model."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=True)
    byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=vocab, special_tokens=["<unk>", "<s>", "</s>", *byte_tokens], limit_alphabet=90, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    state = json.loads(tokenizer.to_str())
    state["added_tokens"] = [token for token in state["added_tokens"] if not token["content"].startswith("<0x")]
    return Tokenizer.from_str(json.dumps(state))


def special(*contents: str, **flags: bool) -> list[AddedToken]:
    return [AddedToken(content, special=True, normalized=False, **flags) for content in contents]


def with_start(tokenizer: Tokenizer, start: str) -> None:
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{start} $A", pair=f"{start} $A {start}:1 $B:1", special_tokens=[(start, tokenizer.token_to_id(start))]
    )


def qwen() -> tuple[Tokenizer, dict]:
    tokenizer = byte_level(QWEN, 700, False)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(special("<|endoftext|>", "<|im_start|>", "<|im_end|>"))
    tokenizer.add_tokens([AddedToken(t, special=False, normalized=False) for t in ("<tool_call>", "</tool_call>", "<think>", "</think>")])
    return tokenizer, {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": CHATML}


def llama3() -> tuple[Tokenizer, dict]:
    tokenizer = byte_level(LLAMA3, 600, True)
    tokenizer.add_special_tokens(
        special("<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>")
    )
    with_start(tokenizer, "<|begin_of_text|>")
    return tokenizer, {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>", "chat_template": HEADERS}


def llama2() -> tuple[Tokenizer, dict]:
    """Handles spaces by a normalizer, like older conversions: every piece of text gets a leading space."""
    tokenizer = sentence_piece(620)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = None
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    with_start(tokenizer, "<s>")
    return tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": BRACKETS}


def mistral() -> tuple[Tokenizer, dict]:
    """Handles spaces by Metaspace: only the first piece of a text gets one. Some control tokens strip adjacent spaces."""
    tokenizer = sentence_piece(620)
    tokenizer.normalizer = None
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.add_special_tokens(special("[INST]") + special("[/INST]", lstrip=True, rstrip=True))
    with_start(tokenizer, "<s>")
    return tokenizer, {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "chat_template": BRACKETS}


MAKERS = {"qwen": qwen, "llama3": llama3, "llama2": llama2, "mistral": mistral}
CONTROL = {
    "qwen": ("<|im_start|>", "<|im_end|>"),
    "llama3": ("<|start_header_id|>", "<|eot_id|>"),
    "llama2": ("<s>", "</s>"),
    "mistral": ("[INST]", "[/INST]"),
}


def main() -> None:
    for name, make in MAKERS.items():
        tokenizer, config = make()
        folder = HERE / name
        folder.mkdir(exist_ok=True)
        state = json.loads(tokenizer.to_str())
        (folder / "tokenizer.json").write_text(json.dumps(state, ensure_ascii=False, separators=(",", ":")))
        config = {**config, "clean_up_tokenization_spaces": False}
        (folder / "tokenizer_config.json").write_text(json.dumps(config, ensure_ascii=False, indent=1) + "\n")
        fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **config)
        (folder / "golden.json").write_text(json.dumps(golden(name, tokenizer, fast), ensure_ascii=True, indent=None) + "\n")


def golden(name: str, tokenizer: Tokenizer, fast: PreTrainedTokenizerFast) -> dict:
    start, end = CONTROL[name]
    texts = []
    for text in TEXTS:
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        texts.append(
            {
                "text": text,
                "ids": ids,
                "idsWithSpecial": tokenizer.encode(text, add_special_tokens=True).ids,
                "decoded": tokenizer.decode(ids, skip_special_tokens=False),
            }
        )
    control = []
    for pattern in CONTROL_TEXTS:
        text = pattern.format(start=start, end=end)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        control.append({"text": text, "ids": ids, "shown": tokenizer.decode(ids, skip_special_tokens=True)})
    chats = []
    for chat in CHATS:
        arguments = {
            "conversation": chat["messages"],
            "tools": chat.get("tools"),
            "add_generation_prompt": chat.get("add_generation_prompt", True),
            **chat.get("kwargs", {}),
        }
        rendered = fast.apply_chat_template(**arguments, tokenize=False)
        ids = fast.apply_chat_template(**arguments, tokenize=True, return_dict=False)
        chats.append({**chat, "rendered": rendered, "ids": list(ids)})
    # Tokens cut anywhere: a whole-text decode with incomplete scalars.
    pieces = tokenizer.encode("👩‍👩‍👧 小鳥 é", add_special_tokens=False).ids
    cuts = [{"ids": pieces[a:b], "decoded": tokenizer.decode(pieces[a:b])} for a in range(0, len(pieces), 2) for b in range(a + 1, len(pieces), 3)]
    return {"texts": texts, "control": control, "chats": chats, "cuts": cuts}


if __name__ == "__main__":
    main()
