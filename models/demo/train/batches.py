"""What training reads in one step: conversations as tokens with hints, packed into rows of three lengths."""

import torch

import corpus
from model import CONTEXT, LOOK_LAYERS, TELL_LAYERS

NONE = -1  # no hint here


class Sample:
    """A conversation in tokens: `ids`, `learned` (what the assistant says), and hints, which layers between learn beside the text.

    An answer that is found by a word which stands after it ("Who has the kite?") takes four steps of the model, and none of them is of
    use before the others are there, so that training alone finds them late or never. Each hint teaches one step by itself:

    tells  which token the state at a position tells. After the second layer: at the end of a fact or an item, what it begins with.
           After the fourth: at the end of a question, what its answer begins with; at the end of an item, its length as a letter.
    looks  which position the first head looks at. In the third layer: from the word asked about to the same word in the fact (from
           the fact to the question where the question stands first). In the fifth: from the token before the answer to the word
           asked about, or else to the end of the fact or item that answers.

    Messages carry them as positions of characters in their content. In what is asked: "ends", the (last, first) character of each fact
    or item; "lengths", (last character, letters) of items; "asks", the last character of the word asked about. In the answer: "found",
    which of the ends it is taken from; "begins", where that stands in the answer; "after", whether the question came after the text.
    """

    def __init__(self, tokenizer, messages, definitions):
        self.ids, self.learned = [], []
        self.tells, self.looks = [[] for _ in TELL_LAYERS], [[] for _ in LOOK_LAYERS]
        asked, ends = NONE, []
        bodies = iter(messages[1:] if definitions and messages[0]["role"] == "system" else messages)
        for text, learned in corpus.render(messages, definitions):
            piece, first = tokenizer.encode(text), len(self.ids)
            self.ids += piece.ids
            self.learned += [learned] * len(piece)
            for hints in (*self.tells, *self.looks):
                hints += [NONE] * len(piece)
            if not text.endswith("<|im_end|>"):
                continue
            message = next(bodies)

            def at(character):
                return next(i for i, (start, end) in enumerate(piece.offsets) if start <= character < end)

            if "ends" in message:
                ends = [first + at(end) for end, _ in message["ends"]]
            for end, begin in message.get("ends", []):
                self.tells[0][first + at(end)] = piece.ids[at(begin)]
            for end, length in message.get("lengths", []):
                self.tells[1][first + at(end)] = tokenizer.token_to_id(chr(ord("a") + length - 1))
            if "asks" in message:
                asked = first + at(message["asks"])
            if "found" in message:
                begins, found = first + at(message["begins"]), ends[message["found"]]
                if message["after"]:
                    self.tells[1][asked] = self.ids[begins]
                    self.looks[0][asked] = found
                elif asked != NONE:
                    self.looks[0][found] = asked
                self.looks[1][begins - 1] = asked if message["after"] else found
            if learned:
                asked = NONE


class Rows:
    """Conversations end to end in rows of a fixed length, none of them cut."""

    def __init__(self, length):
        self.length, self.rows = length, []

    def add(self, sample):
        row = next((r for r in self.rows if len(r[0]) + len(sample.ids) <= self.length + 1), None)
        if row is None:
            row = ([], [], [], *([] for _ in (*sample.tells, *sample.looks)))
            self.rows.append(row)
        begins = len(row[0])
        numbers = [row[2][-1] + 1 if row[2] else 0] * len(sample.ids)
        looks = ([NONE if i == NONE else begins + i for i in hints] for hints in sample.looks)
        for column, values in zip(row, (sample.ids, sample.learned, numbers, *sample.tells, *looks)):
            column.extend(values)

    def take(self, count):
        """The fullest `count` rows as padded tensors: tokens, learned, number of the conversation, [hints of tells and looks]."""
        self.rows.sort(key=lambda r: len(r[0]))
        taken, self.rows = self.rows[-count:], self.rows[:-count]
        size = self.length + 1
        ids, learned, numbers, *hints = (torch.tensor([[*values, *[padding] * (size - len(values))] for values in column])
                                         for column, padding in zip(zip(*taken), (0, False, -1, *(NONE for _ in TELL_LAYERS + LOOK_LAYERS))))
        return ids, learned, numbers, hints


class Batches:
    """The micro-batches of one step: short rows always, medium rows as they come, long rows every few steps."""

    SHORT, MEDIUM, LONG = (256, 24), (512, 6), (CONTEXT, 2)  # tokens in a row, rows
    LONG_EVERY = 4
    SLACK = 12  # rows kept open, so that they fill up

    def __init__(self, tokenizer, seed, usual):
        self.tokenizer = tokenizer
        self.usual, self.long = corpus.stream(seed, usual), corpus.stream(seed + 1000, corpus.long_conversation)
        self.pools = {length: Rows(length) for length, _ in (self.SHORT, self.MEDIUM, self.LONG)}

    def draw(self):
        sample = Sample(self.tokenizer, *next(self.usual))
        for length, pool in self.pools.items():
            if len(sample.ids) <= length + 1:
                pool.add(sample)
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
                sample = Sample(self.tokenizer, *next(self.long))
                if len(sample.ids) <= length + 1:
                    pool.add(sample)
            yield pool.take(rows)


def attention_mask(conversations):
    """0 where a token may look (earlier in its own conversation), minus infinity elsewhere."""
    length = conversations.shape[1]
    allowed = (conversations[:, :, None] == conversations[:, None, :]) & torch.ones(length, length, dtype=torch.bool).tril()
    return torch.zeros(allowed.shape).masked_fill_(~allowed, float("-inf"))
