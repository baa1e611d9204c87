"""Records the rendering of chats with functions by transformers: definitions, calls and results, through a template like
those of Qwen and Hermes models. Run by hand when a case is added; the results are committed.

    python tests/reference/tools/make.py
"""

import json
from pathlib import Path

from transformers import PreTrainedTokenizerFast

HERE = Path(__file__).parent
TOKENIZER = HERE.parent / "tokenizers" / "qwen" / "tokenizer.json"


def function(name: str, **more: object) -> dict:
    return {"type": "function", "function": {"name": name, **more}}


def call(identity: str, name: str, arguments: object) -> dict:
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


WEATHER = function(
    "get_weather",
    description="Weather of a city, e.g. Zürich or 東京.",
    parameters={
        "type": "object",
        "properties": {"city": {"type": "string"}, "days": {"type": "integer", "minimum": 1, "maximum": 16}},
        "required": ["city"],
    },
)
# Values that JSON writers treat differently. Left out: numbers such as 1.0 and 1e16, which JavaScript reads as integers,
# and integer keys, which it puts first.
ODD = function(
    "odd",
    parameters={
        "z first": ["é", "小鳥", "🐦", "\u2028", "\u007f", "\u0001", "\t\n\r\b\f", '"quoted" \\ / \'single\'', "<&>"],
        "a": {"empty": [{}, [], ""], "nested": [[{"k": None}]], "truth": [True, False]},
        "numbers": [0, -1, 0.5, -2.25, 3.141592653589793, 9007199254740991, 0.001],
        "": "an empty key",
        "key with \"quotes\" and ü": 1,
    },
    strict=False,
)

CASES = [
    {"tools": [WEATHER], "messages": [{"role": "user", "content": "Rain in Zürich?"}]},
    {"tools": [ODD, WEATHER], "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "x"}]},
    {
        "tools": [WEATHER],
        "messages": [
            {"role": "user", "content": "Rome and Oslo?"},
            {
                "role": "assistant",
                "content": "Let me look.",
                "tool_calls": [
                    call("call_1", "get_weather", {"city": "Rome", "days": 2}),
                    call("call_2", "get_weather", {"city": "Oslo \"north\"", "where": {"b": [1, None], "a": 0.5}}),
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": '{"rain": false}'},
            {"role": "tool", "tool_call_id": "call_2", "content": "snow ❄"},
            {"role": "assistant", "content": "Dry in Rome, snow in Oslo."},
            {"role": "user", "content": "And now?"},
        ],
    },
    {
        "tools": [function("now")],
        "messages": [
            {"role": "user", "content": "Time?"},
            {"role": "assistant", "content": "", "tool_calls": [call("a", "now", {})]},
            {"role": "tool", "tool_call_id": "a", "content": "12:00"},
        ],
    },
    {"messages": [{"role": "assistant", "content": "", "tool_calls": [call("b", "now", {})]}, {"role": "user", "content": "?"}]},
]


def main() -> None:
    template = (HERE / "template.jinja").read_text()
    fast = PreTrainedTokenizerFast(tokenizer_file=str(TOKENIZER), chat_template=template)
    golden = []
    for case in CASES:
        arguments = {"conversation": case["messages"], "tools": case.get("tools"), "add_generation_prompt": True}
        rendered = fast.apply_chat_template(**arguments, tokenize=False)
        ids = fast.apply_chat_template(**arguments, tokenize=True, return_dict=False)
        golden.append({**case, "rendered": rendered, "ids": list(ids)})
    (HERE / "golden.json").write_text(json.dumps(golden, ensure_ascii=True) + "\n")


if __name__ == "__main__":
    main()
