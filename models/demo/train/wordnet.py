"""Reads WordNet 3.0 (Debian's package wordnet-base) and picks the words that the demo model learns to define.

Formats: index.<pos> gives each lemma's synset offsets, most frequent sense first; a line of data.<pos> at such an offset is
"<offset> <file number> <type> <words...> | <gloss>", a gloss being a definition, then quoted examples; cntlist.rev counts how
often each sense was tagged in text.
"""

import collections
import functools
import os
import re

DIRECTORY = os.environ.get("WORDNET_DIR", "/usr/share/wordnet")
PARTS = {"1": "noun", "2": "verb", "3": "adj", "5": "adj"}
SPOKEN = {"noun": "noun", "verb": "verb", "adj": "adjective"}
WORDS_LEARNED = 3000
LONGEST_DEFINITION = 30  # words; a longer definition is cut at its first semicolon
FILE_ANIMAL, FILE_ARTIFACT, FILE_FOOD, FILE_PERSON = 5, 6, 13, 18
# Everyday words that the tagged texts hardly mention: what a visitor asks for first.
EVERYDAY_NOUNS = """lighthouse kite umbrella piano violin guitar flute trumpet cello harp drum elephant tiger lion penguin rabbit owl fox parrot
turtle dolphin whale shark seal squirrel hedgehog kangaroo giraffe zebra camel butterfly spider beetle wasp mosquito moth
frog lizard crocodile octopus lobster crab snail swan goose duck crow sparrow eagle robin pigeon banana cherry lemon peach
grape melon apple pear plum strawberry carrot potato onion cabbage tomato spinach pumpkin mushroom garlic pepper salt sugar
butter cheese bread cake cookie pizza pasta soup salad sandwich chocolate honey milk tea coffee juice hammer saw drill wrench
ladder nail screw axe shovel rake bucket broom telescope microscope candle lantern bicycle motorcycle train tram airplane
helicopter submarine rocket tractor castle palace cottage tent harbour island volcano desert waterfall glacier valley canyon
rainbow thunder lightning snowflake tornado hurricane earthquake robot planet galaxy comet asteroid astronaut library museum
theater cinema restaurant bakery pharmacy supermarket airport computer keyboard printer laptop internet software program
algorithm database network server password calculator television radio camera telephone battery magnet compass thermometer
clock calendar pencil eraser scissors glue envelope stamp dictionary encyclopedia poem novel fairy pirate wizard witch dragon
ghost monster giant princess prince knight king queen emperor puzzle riddle chess dice balloon doll toy teddy swing slide
football tennis basketball swimming skating soccer golf hockey marathon gymnastics dentist plumber carpenter baker butcher
tailor barber pilot sailor nurse surgeon lawyer engineer architect librarian firefighter policeman waiter chef farmer
gardener fisherman shepherd blacksmith circle square triangle rectangle sphere cube cylinder pyramid oxygen hydrogen carbon
iron copper gold silver diamond ruby crystal atom molecule electron gravity electricity evolution photosynthesis democracy
philosophy psychology biology chemistry physics mathematics geometry algebra grammar alphabet vowel noun verb adjective
sentence paragraph blanket pillow mattress curtain carpet sofa armchair bathtub toothbrush towel soap mirror oven
refrigerator kettle spoon fork knife plate bowl napkin apron button zipper pocket sleeve glove scarf sock boot sandal
necklace bracelet earring ring birthday wedding holiday vacation breakfast lunch dinner picnic recipe family grandmother
grandfather uncle aunt cousin nephew niece neighbor stranger friend enemy heart brain lung stomach liver kidney skeleton
muscle elbow ankle shoulder knee thumb eyebrow tongue tooth medicine vaccine fever headache virus""".split()
EVERYDAY_OTHERS = """happy sad angry hungry thirsty tired sleepy lazy clever stupid funny serious polite rude generous selfish honest shy curious
lonely jealous nervous calm proud wise rich poor fast slow heavy tall tiny huge enormous gigantic soft smooth rough sharp
sweet sour bitter salty spicy loud quiet bright noisy dirty clean wet empty dangerous safe easy difficult expensive cheap
ancient modern jump swim climb crawl whisper shout laugh cry smile sing dance paint cook bake borrow lend forgive apologize
celebrate explore invent discover translate""".split()

# Never drawn as a name, an animal or a job.
OFFENSIVE = set("""ass asshole bastard bitch cock coon cunt dick fag faggot fuck fucker gook homo kike nazi negro nigger pansy paddy prick pussy
queer rape rapist slave slut spic whore wog yid hooker prostitute pimp pervert terrorist murderer dyke jap paki wop tit tits
penis vagina feces shit crap piss""".split())
# Words whose first sense is not the one people mean.
SENSES = {"kite": 3, "tiger": 2, "turtle": 2, "dolphin": 2, "whale": 2, "octopus": 2, "lobster": 2, "hedgehog": 2, "wasp": 2, "barber": 2,
          "banana": 2, "cherry": 3, "peach": 3, "plum": 2, "pumpkin": 2, "pepper": 3, "salt": 2, "cake": 3, "chocolate": 2,
          "hammer": 2, "saw": 2, "wrench": 3, "screw": 4, "rake": 3, "nail": 2, "server": 3, "calculator": 2, "battery": 2,
          "printer": 2, "television": 2, "radio": 2, "galaxy": 3, "stamp": 4, "pirate": 2, "wizard": 2, "ghost": 3, "queen": 2,
          "chess": 2, "swing": 2, "slide": 4, "marathon": 2, "shepherd": 2, "sphere": 5, "gold": 3, "plate": 4, "glove": 2,
          "ring": 3, "heart": 2, "skeleton": 3, "headache": 2, "enemy": 4, "medicine": 2, "pharmacy": 2}


class Entry:
    """One word with the part of speech it is most often used as, its definition, examples and rank (0 = most common)."""

    def __init__(self, word, part, definition, examples, file_number, count):
        self.word, self.part, self.definition = word, part, definition
        self.examples, self.file_number, self.count = examples, file_number, count

    @property
    def line(self):
        """The model's answer: "lighthouse (noun): a tower with a light that ..."."""
        return f"{self.word} ({SPOKEN[self.part]}): {self.definition}"


def split_gloss(gloss):
    examples = re.findall(r'"([^"]+)"', gloss)
    cut = gloss.find('; "')
    definition = gloss if cut < 0 else gloss[:cut]
    if len(definition.split()) > LONGEST_DEFINITION:
        definition = definition.split(";")[0]
    return definition.strip(), [e for e in examples if e.isascii()]


@functools.lru_cache(maxsize=1)
def entries():
    """Every lower-case single word of WordNet with its most used part of speech, most common first."""
    counts = collections.Counter()
    with open(f"{DIRECTORY}/cntlist.rev") as f:
        for line in f:
            key, _, count = line.split()
            lemma, rest = key.split("%")
            if rest[0] in PARTS:
                counts[lemma, PARTS[rest[0]]] += int(count)
    best = {}
    for part in ("noun", "verb", "adj"):
        with open(f"{DIRECTORY}/data.{part}", "rb") as f:
            data = f.read()
        with open(f"{DIRECTORY}/index.{part}") as f:
            for line in f:
                lemma, *fields = line.split()
                if not re.fullmatch("[a-z]{3,14}", lemma):
                    continue
                offset = int(fields[int(fields[2]) + 4 + (SENSES.get(lemma, 1) if part == "noun" else 1)])
                head, gloss = data[offset:data.index(b"\n", offset)].decode("latin-1").split(" | ", 1)
                fields = head.split()
                spelled = [fields[4 + 2 * i].split("(")[0] for i in range(int(fields[3], 16))]
                if lemma not in spelled or (part != "noun" and lemma in EVERYDAY_NOUNS):  # a proper noun: only written with a capital
                    continue
                definition, examples = split_gloss(gloss)
                if not definition.isascii() or '"' in definition:
                    continue
                entry = Entry(lemma, part, definition, examples, int(fields[1]), counts[lemma, part])
                if lemma not in best or entry.count > best[lemma].count:
                    best[lemma] = entry
    return sorted(best.values(), key=lambda e: (-e.count, e.word))


@functools.lru_cache(maxsize=1)
def learned():
    """The words the model defines: the most common ones, then the everyday ones."""
    first = entries()[:WORDS_LEARNED]
    known = {e.word for e in first}
    by_word = {e.word: e for e in entries()}
    return first + [by_word[w] for w in EVERYDAY_NOUNS + EVERYDAY_OTHERS if w not in known and w in by_word]


@functools.lru_cache(maxsize=None)
def nouns(file_number, count):
    """The most common nouns of one lexicographer file, such as FILE_ARTIFACT."""
    found = [e.word for e in entries() if e.part == "noun" and e.file_number == file_number and len(e.word) <= 10]
    return found[:count]


@functools.lru_cache(maxsize=None)
def all_nouns(file_numbers):
    """Nouns of these files, or of all: those that the tagged texts mention, and of single files the others too."""
    found = [e.word for e in entries() if e.part == "noun" and len(e.word) <= 11
             and (e.file_number in file_numbers if file_numbers else e.count > 0)]
    return [w for w in found if w not in OFFENSIVE]


@functools.lru_cache(maxsize=1)
def examples():
    """Example sentences of common words: filler that a fact can hide in."""
    found = [x for e in entries()[:6000] for x in e.examples if 4 <= len(x.split()) <= 14 and x[0].isalpha()]
    return [x[0].upper() + x[1:] + ("" if x[-1] in ".!?" else ".") for x in found]
