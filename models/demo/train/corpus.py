"""The demo model's training text: conversations drawn from the skills, and their rendering in the chat format.

Everything the model reads is made here from a seed: WordNet's definitions and examples, and text from generators.
"""

import json

from skills_chat import capital, count, definition, fact, make_list, story, unknown
from skills_context import long_recall, lookups, recall, remember, repeat, several_facts
from skills_tasks import arithmetic, extract, join, letters, merge, pick, summarise
from skills_tools import tools
from words import Draw

# Skills that make an exchange of their own, with their share of the exchanges drawn.
SKILLS = [(definition, 27), (fact, 3), (capital, 0.7), (unknown, 1), (make_list, 3), (count, 0.7), (story, 1.4), (arithmetic, 8), (repeat, 8),
          (several_facts, 22), (recall, 4), (remember, 4), (extract, 10), (join, 7), (pick, 12), (letters, 5), (summarise, 4), (merge, 4)]
TOOLS_SHARE = 0.18
# What the later stages draw beside the usual conversations, with its share of the samples. The second is for what is learned late and
# slowly beside everything else (whom a fact is said of, which item is the longest), the third for what that has pushed aside.
SECOND = [(lookups, 0.35), (pick, 0.1)]
THIRD = [(lookups, 0.15), (pick, 0.06), (story, 0.04), (summarise, 0.05), (merge, 0.03), (join, 0.05)]
SYSTEMS = ["You are a helpful assistant.", "You are the demo model of Bunting.", "Answer briefly.", "Be kind.", "You are Bunting.",
           "You are an assistant. Answer the user's questions.", "Be brief and correct."]


def conversation(r):
    """One sample, (messages, tool definitions or None): sometimes a system message, one to three exchanges."""
    if r.chance(TOOLS_SHARE):
        return tools(r)
    out = []
    for _ in range(r.choice([1, 1, 1, 1, 2, 3])):
        skill = r.choices([s for s, _ in SKILLS], [w for _, w in SKILLS])[0]
        messages = skill(r)
        if out and messages[0]["role"] == "system":
            continue
        out += messages
    if out[0]["role"] != "system" and r.chance(0.15):
        out.insert(0, {"role": "system", "content": r.choice(SYSTEMS)})
    return out, None


def conversation_or(drills):
    """A generator of samples that draws from `drills`, [(skill, share)], and usual conversations for the rest."""
    def draw(r):
        kind = r.random()
        for skill, share in drills:
            if kind < share:
                return skill(r), None
            kind -= share
        return conversation(r)
    return draw


def long_conversation(r):
    """Up to about 1,900 tokens: questions about a long text, or something said many turns ago."""
    if r.chance(0.2):
        return remember(r, between=r.randint(8, 40)), None
    return long_recall(r, r.randint(15, 112)), None


def render(messages, definitions=None):
    """The conversation as text in pieces, [(text, learned)]: equal to the chat template's rendering, `learned` being what the
    assistant says with the end token. The template is in train.py; evaluate compares the two."""
    pieces = []
    if definitions:
        system = messages[0]["content"] + "\n\n" if messages[0]["role"] == "system" else ""
        lines = "".join(json.dumps(d["function"], ensure_ascii=False) + "\n" for d in definitions)
        pieces.append((f"<|im_start|>system\n{system}Tools:\n<tools>\n{lines}</tools><|im_end|>\n", False))
        messages = messages[1:] if system else messages
    for message in messages:
        text = message["content"]
        for c in message.get("tool_calls", []):
            body = json.dumps({"name": c["function"]["name"], "arguments": c["function"]["arguments"]}, ensure_ascii=False)
            text += ("\n" if text else "") + f"<tool_call>\n{body}\n</tool_call>"
        learned = message["role"] == "assistant"
        pieces.append((f"<|im_start|>{message['role']}\n", False))
        pieces.append((text + "<|im_end|>", learned))
        pieces.append(("\n", False))
    return pieces


def stream(seed, draw=conversation):
    r = Draw(seed)
    while True:
        yield draw(r)
