"""Hashes of transformers' renderings of our conversations with published templates."""

import datetime
import hashlib
import json
from pathlib import Path

import transformers.utils.chat_template_utils as chat_template_utils
from conversations import CONVERSATIONS, as_templates_read
from environment import chat

NOW = datetime.datetime(2026, 7, 4, 15, 5, 9)
SPECIAL_TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}


class FixedClock(datetime.datetime):
    @classmethod
    def now(cls, tz: object = None) -> datetime.datetime:
        return NOW


def short_hash(text: str | None) -> str:
    """Returns eight characters; refusals and errors have no hash of their own."""
    return "refused!" if text is None else hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def make_golden(folder: Path) -> dict:
    chat_template_utils.datetime = FixedClock
    golden = {}
    for path in sorted(folder.glob("*.jinja")):
        template = path.read_bytes().decode("utf-8")
        texts = [
            chat(
                template,
                as_templates_read(conversation["messages"]),
                conversation.get("tools"),
                conversation.get("addGenerationPrompt", True),
                {**SPECIAL_TOKENS, **conversation.get("variables", {})},
            )
            for conversation in CONVERSATIONS
        ]
        golden[path.stem] = "".join(map(short_hash, texts))
    refused = sum(hashes.count("refused!") for hashes in golden.values())
    print(f"{len(golden)} templates, {len(CONVERSATIONS)} conversations, {refused} of the texts are refusals")
    return {
        "now": NOW.isoformat(),
        "specialTokens": SPECIAL_TOKENS,
        "conversations": [json.dumps(conversation, ensure_ascii=False) for conversation in CONVERSATIONS],
        "golden": golden,
    }
