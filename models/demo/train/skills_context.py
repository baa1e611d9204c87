"""Skills that answer from the conversation itself: facts, codes and names somewhere in the text, repeating, what was said turns ago."""

import re

import wordnet
from skills_chat import assistant, capital, count, definition, fact, make_list, user
from words import ADJECTIVES, COLOURS, DAYS, PLACES, SUBJECTS, article, sentence


def statement(r, person=None):
    """One fact and the questions it answers: (sentence, [(question, answer), ...])."""
    p = person or r.name()
    kind = r.randrange(10)
    if kind <= 2:
        colour, thing = r.choice(COLOURS), r.thing()
        return (r.choice([f"{p} has {article(colour)} {colour} {thing}.", f"{p} owns {article(colour)} {colour} {thing}.",
                          f"{p} bought {article(colour)} {colour} {thing}."]),
                [(f"What colour is {p}'s {thing}?", f"{p}'s {thing} is {colour}.")] * 2
                + [(f"What color is {p}'s {thing}?", f"{p}'s {thing} is {colour}."),
                   (f"Who has the {colour} {thing}?", f"{p} has the {colour} {thing}."),
                   (f"Who has the {thing}?", f"{p} has the {thing}.")])
    if kind == 3:
        city = r.city()
        return (f"{p} lives in {city}.",
                [(f"Where does {p} live?", f"{p} lives in {city}."), (f"Who lives in {city}?", f"{p} lives in {city}.")])
    if kind == 4:
        age = r.randint(3, 99)
        return f"{p} is {age} years old.", [(f"How old is {p}?", f"{p} is {age} years old.")]
    if kind == 5:
        job = r.job()
        return (f"{p} is {article(job)} {job}.",
                [(f"What is {p}'s job?", f"{p} is {article(job)} {job}."), (f"Who is the {job}?", f"{p} is the {job}.")])
    if kind == 6:
        animal, pet = r.animal(), r.made_up()
        return (f"{p}'s {animal} is called {pet}.",
                [(f"What is {p}'s {animal} called?", f"{p}'s {animal} is called {pet}."),
                 (f"Who is {pet}?", f"{pet} is {p}'s {animal}.")])
    if kind == 7:
        food = r.food()
        return f"{p} likes {food}.", [(f"What does {p} like?", f"{p} likes {food}."), (f"Who likes {food}?", f"{p} likes {food}.")]
    thing = r.thing()
    if kind == 8:
        place = r.choice(PLACES)
        return (f"The {thing} is in the {place}.", [(f"Where is the {thing}?", f"The {thing} is in the {place}."),
                                                   (f"What is in the {place}?", f"The {thing} is in the {place}.")])
    price = r.randint(2, 999)
    return (f"The {thing} costs {price} coins.", [(f"How much is the {thing}?", f"The {thing} costs {price} coins."),
                                                 (f"What does the {thing} cost?", f"The {thing} costs {price} coins.")])


def statements(r, number):
    """Facts that do not contradict each other: nothing is said twice of one person, thing or place."""
    found, used = [], set()
    while len(found) < number:
        said, asked = statement(r)
        words = {w for w in said.rstrip(".").replace("'s", "").split() if w[0].isupper() and w != "The"}
        nouns = {q for q, _ in asked}
        if words & used or nouns & used:
            continue
        used |= words | nouns
        found.append((said, asked))
    return found


def facts(r, questions=1):
    """Facts in the prompt, then questions about some of them."""
    found = statements(r, r.choice([1, 1, 2, 3, 4, 5, 6, 8]))
    text = r.choice([" ", " ", " ", "\n"]).join(said for said, _ in found)
    if r.chance(0.06):
        name = r.name()
        question, answer = r.choice([(f"Where does {name} live?", "The text does not say."), (f"How old is {name}?", "The text does not say.")])
        if name in text:
            question, answer = r.choice(r.choice(found)[1])
    else:
        question, answer = r.choice(r.choice(found)[1])
    shape = r.random()
    if shape < 0.75:
        messages = [user(f"{text} {question}")]
    elif shape < 0.85:
        messages = [user(f"{text}\n\n{question}")]
    elif shape < 0.93:
        messages = [user(f"{question}\n\n{text}")]
    else:
        messages = [{"role": "system", "content": text}, user(question)]
    messages.append(assistant(answer))
    asked = [pairs for _, pairs in found if all(answer != a for _, a in pairs)]
    for pairs in r.sample(asked, min(questions - 1, len(asked))):
        question, answer = r.choice(pairs)
        messages += [user(question), assistant(answer)]
    return messages


def several_facts(r):
    """As a conversation about one text: more to learn from one reading."""
    return facts(r, questions=r.choice([1, 2, 2, 3, 4]))


def subject(said):
    """The first word of a fact that is not "The": whom or what it is said of."""
    return re.compile(r"\w+").match(said, 4 if said.startswith("The ") else 0)


def lookups(r):
    """Questions about every fact of a text, most of them from what is said to whom it is said of ("Who has the kite?"): the answer
    begins with what stands before the word asked about, which copying what follows a word does not teach. With hints (batches.Sample)."""
    found = statements(r, r.choice([1, 2, 3, 4, 5, 6, 7, 8]))
    text, ends, gap = "", [], r.choice([" ", " ", " ", "\n"])
    for said, _ in found:
        text += gap if text else ""
        ends.append((len(text) + len(said) - 2, len(text) + subject(said).start()))
        text += said
    messages = []
    for number in r.sample(range(len(found)), len(found)):
        pairs = found[number][1]
        backward = [pair for pair in pairs if pair[0].startswith(("Who", "What is in"))]
        question, answer = r.choice(backward if backward and r.chance(0.85) else pairs)
        after = True
        if messages:
            asks = {**user(question), "asks": len(question) - 2}
        elif r.chance(0.2):
            shift = len(question) + 2
            asks = {**user(f"{question}\n\n{text}"), "asks": len(question) - 2, "ends": [(end + shift, begin + shift) for end, begin in ends]}
            after = False
        elif r.chance(0.1):
            messages.append({"role": "system", "content": text, "ends": ends})
            asks = {**user(question), "asks": len(question) - 2}
        else:
            asks = user(f"{text}{r.choice([' ', ' ', ' ', chr(10) * 2])}{question}")
            asks = {**asks, "asks": len(asks["content"]) - 2, "ends": ends}
        says = assistant(answer)
        if (question, answer) in backward:
            whom = re.search(rf"\b{subject(found[number][0])[0]}\b", answer)
            says |= {"found": number, "begins": whom.start(), "after": after}
        messages += [asks, says]
    return messages


def filler(r):
    kind = r.random()
    if kind < 0.35:
        return r.choice(wordnet.examples())
    if kind < 0.6:
        return statement(r)[0]
    if kind < 0.75:
        return f"The {r.choice(ADJECTIVES)} {r.animal()} is in the {r.choice(PLACES)}."
    if kind < 0.9:
        entry = r.choice(wordnet.learned())
        return f"{sentence(entry.word)}: {entry.definition}."
    return r.choice([f"On {r.choice(DAYS)} {r.name()} went to the {r.choice(PLACES)}.", f"{r.name()} likes {r.choice(SUBJECTS)}.",
                     f"Nobody saw the {r.animal()} near the {r.thing()}.", f"{r.name()} and {r.name()} ate {r.food()}."])


SECRETS = [
    ("The code is {}.", ["What is the code?", "Which code did I give you?", "Repeat the code."], "The code is {}."),
    ("The secret code is {}.", ["What is the secret code?", "Tell me the secret code."], "The secret code is {}."),
    ("Remember this number: {}.", ["Which number should you remember?", "What is the number to remember?"], "The number is {}."),
    ("The password is {}.", ["What is the password?", "Tell me the password."], "The password is {}."),
    ("The secret name is {}.", ["What is the secret name?", "Tell me the secret name."], "The secret name is {}."),
    ("The name of the ship is {}.", ["What is the name of the ship?", "What is the ship called?"], "The name of the ship is {}."),
    ("The code for the {thing} is {}.", ["What is the code for the {thing}?"], "The code for the {thing} is {}."),
]


def secret(r):
    """(sentence, question, answer) around a number or a made-up name."""
    said, questions, answer = r.choice(SECRETS)
    if "name" in said or ("password" in said and r.chance(0.5)):
        value = r.made_up()
    else:
        value = r.digits(6 if r.chance(0.7) else r.randint(3, 8))
    said, question, answer = (t.replace("{thing}", "\0") for t in (said, r.choice(questions), answer))
    thing = r.thing()
    return tuple(t.replace("{}", value).replace("\0", thing) for t in (said, question, answer))


def recall(r, sentences=None):
    """A code or a name hidden anywhere between `sentences` other sentences."""
    said, question, answer = secret(r)
    number = r.choice([0, 1, 2, 3, 4, 6, 8, 12]) if sentences is None else sentences
    text = [filler(r) for _ in range(number)]
    if r.chance(0.3):  # another secret of another kind beside it
        other = secret(r)
        if not any(word in other[0] and word in said for word in ("code", "number", "password", "name")):
            text.insert(r.randint(0, len(text)), other[0])
    text.insert(r.randint(0, len(text)), said)
    body = r.choice([" ", " ", " ", "\n"]).join(text)
    shape = r.random()
    if shape < 0.7:
        return [user(f"{body} {question}"), assistant(answer)]
    if shape < 0.8:
        return [user(f"{body}\n\n{question}"), assistant(answer)]
    if shape < 0.9:
        return [{"role": "system", "content": body}, user(question), assistant(answer)]
    return [user(body), assistant("I will remember that."), user(question), assistant(answer)]


def long_recall(r, sentences):
    """A long text with several secrets and facts, then several questions about it: more to learn from one reading."""
    said = [filler(r) for _ in range(sentences)]
    asked, names = [], set()
    for _ in range(r.randint(2, 5)):
        sentence_, question, answer = secret(r)
        key = question.split()[-1]
        if key not in names and not ("code" in question and any("code" in q for q, _ in asked)):
            names.add(key)
            said.insert(r.randint(0, len(said)), sentence_)
            asked.append((question, answer))
    text = " ".join(said)
    for sentence_, pairs in statements(r, r.randint(1, 4)):
        if not any(w in text for w in sentence_.rstrip(".").split() if w[0].isupper() and w != "The") and sentence_[:4] != "The ":
            said.insert(r.randint(0, len(said)), sentence_)
            asked.append(r.choice(pairs[:3]))
    r.shuffle(asked)
    body = r.choice([" ", " ", "\n"]).join(said)
    shape = r.random()
    if shape < 0.7:
        messages = [user(f"{body}{r.choice([' ', ' ', chr(10) * 2])}{asked[0][0]}"), assistant(asked[0][1])]
        asked = asked[1:]
    elif shape < 0.85:
        messages = [user(body), assistant("I will remember that.")]
    else:
        messages = [{"role": "system", "content": body}]
    for question, answer in asked:
        messages += [user(question), assistant(answer)]
    return messages


def repeat(r):
    """Word for word: what copying anything else begins with."""
    kind = r.random()
    if kind < 0.35:
        text = " ".join(r.any_noun() for _ in range(r.randint(1, 12)))
    elif kind < 0.45:
        text = r.digits(r.randint(3, 8))
    elif kind < 0.85:
        text = " ".join(r.choice([r.made_up, r.any_noun, r.name, lambda: r.digits(r.randint(2, 5))])() for _ in range(r.randint(1, 10)))
    else:
        text = r.choice(wordnet.examples())
    return [user(r.choice([f"Repeat: {text}", f"Say: {text}", f"Repeat after me: {text}", f"Please repeat: {text}"])), assistant(text)]


def about_me(r):
    """Something the user says of themself: (statement, acknowledgement, question, answer)."""
    kind = r.randrange(10)
    if kind <= 2:
        name = r.name()
        return (r.choice([f"My name is {name}.", f"I am {name}.", f"Hi, my name is {name}.", f"Call me {name}."]),
                f"Nice to meet you, {name}!", r.choice(["What is my name?", "Who am I?", "Do you remember my name?"]),
                f"Your name is {name}.")
    key, value = [("favourite colour", r.choice(COLOURS)), ("favourite food", r.food()), ("favourite animal", r.animal()),
                  ("home town", r.city()), ("locker code", r.digits(r.randint(4, 6))), ("favourite day", r.choice(DAYS)),
                  ("job", r.job()), (f"{r.animal()}'s name", r.made_up()), ("age", str(r.randint(5, 99))),
                  ("favourite subject", r.choice(SUBJECTS))][r.randrange(10)]
    return (f"My {key} is {value}.", f"Noted: your {key} is {value}.",
            r.choice([f"What is my {key}?", f"What was my {key}?", f"Do you remember my {key}?"]), f"Your {key} is {value}.")


def remember(r, between=None):
    """The user says something, talks of other things, then asks back."""
    said, noted, question, answer = about_me(r)
    messages = [user(said), assistant(noted)]
    key = question.split("my ")[-1]
    for _ in range(r.choice([0, 1, 2, 2, 3]) if between is None else between):
        if r.chance(0.3):
            other = about_me(r)
            if other[2].split("my ")[-1] == key or other[2] == "Who am I?" or question == "Who am I?":
                continue
            messages += [user(other[0]), assistant(other[1])]
        else:
            messages += r.choice([fact, definition, make_list, count, capital])(r)
    return messages + [user(question), assistant(answer)]
