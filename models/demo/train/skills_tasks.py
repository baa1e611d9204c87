"""Skills that compute something from their input: arithmetic, JSON extraction, and the steps of small workflows."""

import json

import wordnet
from skills_chat import ABOUT, LISTS, assistant, numbered, user
from words import COLOURS, DAYS, MONTHS, NUMBER_WORDS, article, held_out, listed, sentence


def worked(a, sign, b):
    """The sum or difference with its steps written out: each step needs only one- and two-digit facts."""
    if sign == "+":
        if a < 10 and b < 10:
            return f"{a} + {b} = {a + b}"
        return f"{a} + {b} = {a // 10 * 10 + b // 10 * 10} + {a % 10 + b % 10} = {a + b}"
    if a < b:
        return f"{a} - {b} = -({worked(b, sign, a).split(' = ', 1)[0]}) = -{b - a}"
    if b < 10:
        return f"{a} - {b} = {a - b}"
    return f"{a} - {b} = {a - b // 10 * 10} - {b % 10} = {a - b}"


def arithmetic(r, both_two_digits=False):
    """Numbers up to 99. A tenth of the pairs with two digits each is held out; the small ones are tables to learn by heart."""
    sign = r.choice("+-")
    while True:
        low, high = (10, 99) if both_two_digits else (0, 9) if r.chance(0.2) else (0, 99)
        a, b = r.randint(low, high), r.randint(low, high)
        if sign == "-" and a < b and not r.chance(0.2):
            a, b = b, a
        if min(a, b) < 10 or held_out(f"{a}{sign}{b}") == r.held:
            break
    word = "plus" if sign == "+" else "minus"
    forms = [f"What is {a} {word} {b}?", f"{a} {sign} {b} = ?", f"What is {a} {sign} {b}?", f"{a} {sign} {b}", f"{a}{sign}{b}",
             f"Calculate {a} {sign} {b}.", f"How much is {a} {word} {b}?", f"What's {a} {sign} {b}?"]
    forms.append(f"Add {a} and {b}." if sign == "+" else f"Subtract {b} from {a}.")
    return [user(r.choice(forms)), assistant(worked(a, sign, b))]


# Records to extract: the fields with the keys they may be asked for by, then how the values are said.
def person(r):
    return ({"name": r.name(), "age": r.randint(18, 99), "city": r.city(), "job": r.job()},
            {"name": ["name", "person", "who"], "age": ["age", "years"], "city": ["city", "place", "town", "where"], "job": ["job", "work", "profession"]},
            ["{name} is {age} years old, lives in {city} and works as {a_job}.", "{name}, {age}, is {a_job} from {city}.",
             "In {city} lives {name}, {a_job} of {age} years.", "My neighbour {name} is {a_job}. {name} is {age} and comes from {city}."])


def order(r):
    return ({"customer": r.name(), "item": r.thing(), "quantity": r.randint(2, 99), "price": r.randint(2, 500)},
            {"customer": ["customer", "name", "buyer", "who"], "item": ["item", "product", "what"], "quantity": ["quantity", "count", "number", "amount"],
             "price": ["price", "cost"]},
            ["{customer} ordered {quantity} of the {item} for {price} euros each.", "Please send {quantity} times the {item} at {price} euros to {customer}.",
             "We sold {quantity} of the {item} to {customer} at a price of {price} euros.",
             "{customer} wants the {item}, {quantity} pieces, {price} euros each."])


def meeting(r):
    return ({"person": r.name(), "day": r.choice(DAYS), "hour": r.randint(1, 12), "place": r.city()},
            {"person": ["person", "name", "with", "who"], "day": ["day", "date", "when"], "hour": ["hour", "time", "at"], "place": ["place", "city", "where"]},
            ["Meet {person} on {day} at {hour} o'clock in {place}.", "On {day} at {hour} there is a meeting with {person} in {place}.",
             "{person} comes to {place} on {day} and we meet at {hour} o'clock.", "The talk with {person} in {place} is on {day} at {hour}."])


def pet(r):
    return ({"owner": r.name(), "animal": r.animal(), "name": r.made_up(), "colour": r.choice(COLOURS)},
            {"owner": ["owner", "person", "who"], "animal": ["animal", "kind", "species"], "name": ["name", "pet", "called"], "colour": ["colour", "color"]},
            ["{owner} has {a_colour} {animal} called {name}.", "The {colour} {animal} {name} belongs to {owner}.",
             "{name} is {a_colour} {animal} and {owner} is the owner.", "{owner} lost {a_colour} {animal}. It is called {name}."])


def trip(r):
    start, end = r.city(), r.city()
    return ({"traveller": r.name(), "from": start, "to": end, "month": r.choice(MONTHS)},
            {"traveller": ["traveller", "name", "who", "person"], "from": ["from", "start", "origin"], "to": ["to", "end", "destination"],
             "month": ["month", "when"]},
            ["{traveller} travels from {from} to {to} in {month}.", "In {month} {traveller} takes the train from {from} to {to}.",
             "{traveller} left {from} in {month} and went to {to}.", "The trip of {traveller} to {to} starts in {from} in {month}."])


RECORDS = [person, order, meeting, pet, trip]


def extract(r):
    """Some fields of a sentence, under the keys the prompt names."""
    values, keys, sentences = r.choice(RECORDS)(r)
    said = r.choice(sentences)
    for field, value in values.items():
        said = said.replace("{a_" + field + "}", f"{article(str(value))} {value}").replace("{" + field + "}", str(value))
    fields = r.sample(list(values), r.randint(1, len(values)))
    named = {}
    for field in fields:
        free = [k for k in keys[field] if k not in named]
        named[r.choice(free[:1] * 2 + free)] = values[field]
    answer = json.dumps(named, ensure_ascii=False)
    shape = r.random()
    if shape < 0.5:
        wanted = listed(list(named)) if r.chance(0.7) else ", ".join(named)
        ask = r.choice([f"Extract {wanted} as JSON: {said}", f"Extract the fields {wanted} as JSON from: {said}",
                        f"{said}\nAnswer as JSON with the keys {wanted}.", f"{said} Give me {wanted} as JSON.",
                        f"Return JSON with {wanted}.\n{said}", f"Extract {wanted} from this text as JSON.\n\n{said}"])
    else:
        kind = r.randrange(3)
        types = {k: "number" if isinstance(v, int) else "string" for k, v in named.items()}
        form = ("{" + ", ".join(f'"{k}": {t}' for k, t in types.items()) + "}" if kind == 0
                else json.dumps(types) if kind == 1 else "{" + ", ".join(f'"{k}": ...' for k in types) + "}")
        ask = r.choice([f"Reply with JSON like {form}: {said}", f"Use this JSON shape: {form}\n{said}", f"{said}\nAnswer in this form: {form}",
                        f"Fill in {form} from this text: {said}"])
    return [user(ask), assistant(answer)]


def items(r):
    """What a list step may have produced, or anything else: distinct words."""
    kind = r.random()
    if kind < 0.45:
        pool = r.choice(list(LISTS.values()) + list(ABOUT.values()))
        found = r.sample(pool, r.randint(2, min(6, len(pool))))
        return [x.lower() for x in found] if r.chance(0.3) else found
    if kind < 0.75:
        return [e.word for e in r.sample(wordnet.learned(), r.randint(2, 6))]
    found = list(dict.fromkeys(r.choice([r.made_up, r.any_noun, r.name])() for _ in range(r.randint(3, 6))))
    return found if len(found) > 1 else items(r)


def shown(r, found):
    return r.choice([", ".join, "; ".join, "\n".join, numbered, numbered, lambda x: "\n".join(f"- {i}" for i in x), listed])(found)


def join(r):
    found = items(r)
    text = shown(r, found)
    gap = r.choice([": ", ":\n", ":\n\n"])
    kind = r.randrange(5)
    if kind == 4:
        return [user(r.choice(["Make a JSON list of these items", "Make a JSON list", "Write these items as a JSON list"]) + gap + text),
                assistant(json.dumps(found))]
    if kind <= 1:
        return [user(r.choice(["Join these items with commas", "Join with commas", "Join the items with commas"]) + gap + text),
                assistant(", ".join(found))]
    if kind == 2:
        return [user(r.choice(["Join these items with and", "Join these items into a sentence", "Join with and"]) + gap + text),
                assistant(listed(found))]
    return [user(r.choice(["Make a numbered list", "Number these items", "Make a numbered list of these items"]) + gap + text),
            assistant(numbered(found))]


def pick(r):
    found = items(r)
    lengths = sorted(len(x) for x in found)
    kind = r.choice(["longest", "longest", "longest", "longest", "shortest", "first", "last"])
    if (kind == "longest" and lengths[-1] == lengths[-2]) or (kind == "shortest" and lengths[0] == lengths[1]):
        return pick(r)
    answer = {"longest": max(found, key=len), "shortest": min(found, key=len), "first": found[0], "last": found[-1]}[kind]
    gap = r.choice([": ", ":\n", ":\n\n"])
    ask = r.choice([f"Pick the {kind} item", f"Pick the {kind}", f"Pick the {kind} word", f"Which is the {kind} word", f"Choose the {kind} item"]) + gap
    text, ends, lengths = ask + shown(r, found), [], []
    at = len(ask)
    for item in found:  # hints for training (batches.Sample): where an item begins, and how long it is
        at = text.index(item, at) + len(item)
        ends.append((at - 1, at - len(item)))
        lengths.append((at - 1, min(len(item), 26)))
    return [{**user(text), "ends": ends, "lengths": lengths}, {**assistant(answer), "found": found.index(answer), "begins": 0, "after": False}]


def letters(r):
    """How many letters a word has, or which: what picking the longest needs to know of every token."""
    word = r.choice([r.made_up, r.any_noun, r.name, r.word, r.word])()
    if r.chance(0.5):
        return [user(r.choice([f"How many letters does {word} have?", f"How many letters are in {word}?", f"How long is the word {word}?"])),
                assistant(str(len(word)))]
    return [user(r.choice([f"Spell {word}.", f"Spell the word {word}.", f"How do you spell {word}?"])), assistant("-".join(word))]


SECTIONS = {
    "Sales": ["sales rose by {n} percent", "sales fell by {n} percent", "the shop sold {n} pieces of the {thing}", "sales stayed the same"],
    "Staff": ["{count} people joined the team", "{count} people left the team", "{name} became the new head of the team", "the team has {n} members now"],
    "Costs": ["costs rose by {n} percent", "costs fell by {n} percent", "the rent rose to {n} coins", "the new {thing} cost {n} coins"],
    "Products": ["the new {thing} is ready", "the {thing} will come in {month}", "we stopped making the {thing}", "{name} designed a better {thing}"],
    "Customers": ["{n} new customers came", "{n} customers complained about the {thing}", "most customers like the {thing}", "the largest customer is now {name}"],
    "Buildings": ["the office moves to {city}", "we opened a shop in {city}", "the shop in {city} was closed", "the house in {city} has a new {thing}"],
    "Plans": ["we will open a shop in {city}", "we want to sell {n} pieces of the {thing}", "{name} will visit {city} in {month}", "the next meeting is in {month}"],
    "Safety": ["there were {count} accidents", "there were no accidents", "the {thing} was repaired", "{name} checks the {thing} every month"],
}
REASONS = ["because of the new {thing}", "after the fair in {city}", "as {name} had hoped", "for the first time this year", "thanks to {name}",
           "although the winter was long"]
PADDING = ["Everyone is happy with this.", "More about this will follow.", "The details are in the appendix.", "This was expected.",
           "{name} will tell more about it at the next meeting.", "We talked about it for a long time.", "The figures were checked twice.",
           "Nobody had thought so.", "This is good news.", "It was hard work.", "We thank {name} for the help.", "The team worked well."]


def fill(r, text):
    for slot, draw in (("{n}", lambda: str(r.randint(2, 99))), ("{count}", lambda: r.choice(NUMBER_WORDS[1:])), ("{name}", r.name),
                       ("{thing}", r.thing), ("{city}", r.city), ("{month}", lambda: r.choice(MONTHS))):
        while slot in text:
            text = text.replace(slot, draw(), 1)
    return text


def key_points(r, number):
    """(section, key point) pairs of a report, a section once."""
    return [(section, fill(r, r.choice(SECTIONS[section]))) for section in r.sample(list(SECTIONS), number)]


def report(r, points):
    """The report as text: in every section one sentence matters, with an adverbial phrase that a summary leaves out."""
    parts = []
    for section, point in points:
        kind = r.random()
        if kind < 0.35:
            said = f"{sentence(point)}."
        elif kind < 0.7 and not any(month in point for month in MONTHS):
            said = f"In {r.choice(MONTHS)}, {point}."
        else:
            said = f"{sentence(point)} {fill(r, r.choice(REASONS))}."
        text = [fill(r, p) for p in r.sample(PADDING, r.randint(0, 2))]
        text.insert(0 if r.chance(0.7) else r.randint(0, len(text)), said)
        parts.append(f"{section}\n{' '.join(text)}")
    head = r.choice(["Report", "Monthly report", f"Report of {r.choice(MONTHS)}", f"Report from {r.city()}"])
    return head + "\n\n" + "\n\n".join(parts)


def summary(points):
    return " ".join(f"{sentence(point)}." for _, point in points)


def summarise(r):
    points = key_points(r, r.randint(1, 5))
    ask = r.choice(["Summarise this report.", "Summarise this report in one sentence per section.", "Summarize this report.",
                    "Give a short summary of this report.", "Write a short summary, one sentence per section."])
    text = report(r, points)
    return [user(f"{ask}\n\n{text}" if r.chance(0.7) else f"{text}\n\n{ask}"), assistant(summary(points))]


def merge(r):
    """Summaries into one: every sentence once, in order."""
    groups = [key_points(r, r.randint(1, 4)) for _ in range(r.randint(2, 3))]
    if r.chance(0.25):
        groups[-1].append(r.choice(groups[0]))
    kind = r.randrange(3)
    texts = [summary(g) for g in groups]
    text = "\n\n".join(texts if kind == 0 else [f"Summary {i + 1}: {t}" for i, t in enumerate(texts)] if kind == 1
                       else [f"{i + 1}. {t}" for i, t in enumerate(texts)])
    ask = r.choice(["Merge these summaries into one.", "Merge these summaries:", "Merge the summaries.", "Make one summary of these."])
    every = list(dict.fromkeys(point for g in groups for point in g))
    return [user(f"{ask}\n\n{text}"), assistant(summary(every))]
