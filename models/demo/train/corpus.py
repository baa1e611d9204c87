"""Generates the demo model's conversations: everything the model has ever read is made here, from a seed.

Each sample is a list of (role, text) pairs. The skills are small on purpose: the model has to answer sensibly to a
first visitor, copy from its context, and stop.
"""

import random

NAMES = """Mia Tom Anna Ben Lena Paul Nora Max Ella Finn Ida Oscar Ruth Leo Clara Hugo Emma Noah Alma Felix Greta Karl
Lucy Sam Rosa Ivan Olga Peter Maria Jack Helen Victor Sofia David Julia Adam Eva Simon Laura Martin""".split()
COLOURS = "red blue green yellow white black brown orange purple pink grey golden silver".split()
THINGS = """kite ball boat book lamp chair hat coat cup bike drum flute clock basket blanket ring key box bag map
table mirror candle bottle guitar piano telescope umbrella ladder hammer wagon bell""".split()
ANIMALS = "cat dog horse rabbit fox owl mouse bear hen duck goat sheep frog turtle parrot swan".split()
PLACES = """garden forest village river hill market harbour school castle bridge meadow lake library island mill
mountain kitchen station park""".split()
ADJECTIVES = "small brave quiet kind clever old young happy curious gentle proud lazy friendly careful".split()
FOODS = "apples bread honey soup cheese berries cake plums nuts pears rice milk carrots tea".split()

LISTS = {
    "fruits": "apple pear plum cherry banana orange grape peach lemon melon".split(),
    "colours": COLOURS,
    "animals": ANIMALS,
    "vegetables": "carrot potato onion pea bean cabbage tomato leek radish spinach".split(),
    "tools": "hammer saw drill wrench ladder pliers screwdriver file axe shovel".split(),
    "birds": "owl swan duck parrot robin crow eagle sparrow hen goose".split(),
    "places": PLACES,
    "foods": FOODS,
    "instruments": "guitar piano drum flute violin trumpet harp cello organ horn".split(),
    "rooms": "kitchen bedroom bathroom hall study cellar attic nursery pantry library".split(),
}

# Questions in several wordings with one answer each. Facts about Bunting must be true.
FACTS = [
    (["Who are you?", "What are you?", "What is your name?", "Tell me who you are.", "Introduce yourself."],
     "I am the demo model of Bunting, a tiny language model that runs on your own machine."),
    (["What can you do?", "What are you able to do?", "How can you help me?", "What are your skills?", "Help"],
     "I can greet you, answer questions about Bunting, tell a short story, make a list, count, add small numbers, "
     "repeat what you say and find facts in your message."),
    (["What is Bunting?", "Tell me about Bunting.", "Explain Bunting.", "What does Bunting do?"],
     "Bunting is an inference server: it runs language models on one machine and serves them over an "
     "OpenAI-compatible API."),
    (["How big are you?", "How many parameters do you have?", "Are you a large model?", "What size are you?"],
     "I am tiny: about three million parameters. Load a larger model for real work."),
    (["How do I use my own model?", "How do I serve another model?", "Can I load a bigger model?",
      "How do I run a real model?"],
     "Give the folder of a Hugging Face model to bunting serve, for example: bunting serve ./my-model"),
    (["Which API do you speak?", "Is Bunting compatible with OpenAI?", "Can I use the OpenAI client?",
      "How do I connect a client?"],
     "Bunting speaks the OpenAI API. Change the base URL of your client to this server and it works."),
    (["What is a KV cache?", "Explain the KV cache.", "What does the KV cache do?"],
     "The KV cache keeps the keys and values of tokens already read, so that they are not computed again."),
    (["What is prefix caching?", "Explain prefix caching.", "What does the prefix cache do?"],
     "Prefix caching lets requests that begin with the same text share the work done for it."),
    (["What is chunked prefill?", "Explain chunked prefill.", "Why do you chunk prompts?"],
     "Chunked prefill splits a long prompt into pieces, so that other answers keep flowing while it is read."),
    (["Which models does Bunting run?", "What models are supported?", "Which model families do you support?"],
     "Bunting runs Llama, Mistral, Qwen2 and Qwen3 models from safetensors files."),
    (["Do you need a GPU?", "Does Bunting need a GPU?", "Can Bunting run on a CPU?"],
     "No. Bunting runs on the CPU when there is no GPU."),
    (["Do you need Python?", "Is Bunting written in Python?", "What is Bunting written in?"],
     "No Python is needed: Bunting is written in TypeScript on Bun and in C++."),
    (["Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hey", "Good morning", "Good evening", "Hello there!"],
     "Hello! How can I help you?"),
    (["How are you?", "How are you doing?", "Are you well?"], "I am fine, thank you. How can I help you?"),
    (["Thanks", "Thank you", "Thank you!", "Thanks a lot!", "Thank you very much."], "You are welcome!"),
    (["Goodbye", "Bye", "Bye!", "See you later", "Good night"], "Goodbye! Come back soon."),
    (["Are you a human?", "Are you a person?", "Are you real?"],
     "No, I am a small language model running on this machine."),
    (["What is the capital of France?"], "The capital of France is Paris."),
    (["What is the capital of Germany?"], "The capital of Germany is Berlin."),
    (["What is the capital of Italy?"], "The capital of Italy is Rome."),
    (["What is the capital of Spain?"], "The capital of Spain is Madrid."),
    (["What is the capital of Japan?"], "The capital of Japan is Tokyo."),
    (["What is the capital of England?"], "The capital of England is London."),
    (["Tell me a joke.", "Do you know a joke?", "Make me laugh."],
     "Why did the token cross the page? To get to the next step!"),
]

# What a tiny model cannot know: it says so.
UNKNOWN = [
    "What is the weather like today?", "Will it rain tomorrow?", "What time is it?", "What day is it today?",
    "Who won the match yesterday?", "Who is the president?", "How tall is the highest mountain?", "What is love?",
    "Write a poem.", "Translate this into French.", "Write a program that sorts numbers.", "What is the meaning of life?",
    "Explain quantum physics.", "How do I bake bread?", "What is the news?", "Solve this equation for me.",
    "Who wrote this book?", "How far away is the moon?", "What should I eat tonight?", "Which film should I watch?",
    "How much does a car cost?", "Where can I buy a ticket?", "What is the best phone?", "Do you like music?",
]
UNKNOWN_ANSWER = "I do not know that. I am only a tiny demo model: ask me what I can do."

STORY_OPENINGS = ["Tell me a story.", "Tell me a short story.", "Write a short story.", "Can you tell me a story?"]


def article(word):
    return "an" if word[0] in "aeiou" else "a"


def fact(r):
    questions, answer = r.choice(FACTS)
    question = r.choice(questions)
    if r.random() < 0.3:
        question = question.lower()
    if r.random() < 0.2:
        question = question.rstrip(".?!")
    return [("user", question), ("assistant", answer)]


def unknown(r):
    kind = r.random()
    if kind < 0.6:
        question = r.choice(UNKNOWN)
    elif kind < 0.8:
        question = f"{r.choice(['What is', 'Where is', 'Who is', 'Explain', 'Describe'])} {made_up_word(r)}?"
    else:
        question = (f"{r.choice(['How do I', 'Can you', 'Should I', 'Why should I'])} "
                    f"{r.choice(['buy', 'draw', 'find', 'build', 'paint', 'sell', 'fix', 'clean'])} "
                    f"{r.choice(['a', 'the', 'my'])} {r.choice(THINGS + ANIMALS)}?")
    if r.random() < 0.3:
        question = question.lower()
    return [("user", question), ("assistant", UNKNOWN_ANSWER)]


def story(r):
    name, animal, place, adjective = r.choice(NAMES), r.choice(ANIMALS), r.choice(PLACES), r.choice(ADJECTIVES)
    colour, thing, food, other = r.choice(COLOURS), r.choice(THINGS), r.choice(FOODS), r.choice(ADJECTIVES)
    kind = r.random()
    if kind < 0.4:
        ask = r.choice(STORY_OPENINGS)
    elif kind < 0.7:
        ask = r.choice([f"Tell me a story about {article(animal)} {animal}.", f"Write a story about {article(animal)} {animal}."])
    else:
        ask = r.choice([f"Tell me a story about {name}.", f"Write a short story about {name}."])
    text = (f"Once upon a time there was {article(adjective)} {adjective} {animal} named {name}. "
            f"{name} lived near the {place} and loved {food}. "
            f"One day {name} found {article(colour)} {colour} {thing} by the {place}. "
            + r.choice([f"Nobody knew whose {thing} it was, so {name} asked everyone in the village. ",
                        f"The {thing} was too heavy to carry, so {name} asked a friend for help. ",
                        f"{name} looked at the {thing} for a long time and smiled. "])
            + r.choice([f"In the end they shared the {food} and were {other} together.",
                        f"From that day on {name} took good care of the {thing}.",
                        f"That evening they all ate {food}, and {name} slept well."]))
    return [("user", ask), ("assistant", text)]


NUMBER_WORDS = "one two three four five six seven eight".split()


def make_list(r):
    topic = r.choice(list(LISTS))
    count = r.randint(2, 6)
    items = LISTS[topic][:count]  # always the same ones: a list that is asked for twice should not change
    shown = r.choice([str(count), NUMBER_WORDS[count - 1]])
    ask = r.choice([f"List {shown} {topic}.", f"Name {shown} {topic}.", f"Give me a list of {shown} {topic}.",
                    f"Give me {shown} {topic}."])
    return [("user", ask), ("assistant", "\n".join(f"{i + 1}. {item}" for i, item in enumerate(items)))]


def count(r):
    a = r.randint(1, 10)
    b = a + r.randint(2, 10)
    return [("user", r.choice([f"Count from {a} to {b}.", f"Please count from {a} to {b}."])),
            ("assistant", ", ".join(str(i) for i in range(a, b + 1)))]


def add(r):
    a, b = r.randint(0, 20), r.randint(0, 20)
    if r.random() < 0.6:
        ask = r.choice([f"What is {a} plus {b}?", f"{a} + {b} = ?", f"What is {a} + {b}?"])
        return [("user", ask), ("assistant", f"{a} + {b} = {a + b}")]
    a, b = max(a, b), min(a, b)
    ask = r.choice([f"What is {a} minus {b}?", f"{a} - {b} = ?", f"What is {a} - {b}?"])
    return [("user", ask), ("assistant", f"{a} - {b} = {a - b}")]


def made_up_word(r):
    return "".join(r.choice("bdfgklmnprstvz") + r.choice("aeiou") for _ in range(r.randint(2, 3))).capitalize()


def words(r):
    pool = THINGS + ANIMALS + PLACES + COLOURS + FOODS
    return [r.choice(pool) for _ in range(r.randint(1, 6))]


def repeat(r):
    kind = r.random()
    if kind < 0.4:
        text = " ".join(words(r))
    elif kind < 0.7:
        text = "".join(r.choice("0123456789") for _ in range(r.randint(3, 6)))
    else:
        text = " ".join(made_up_word(r) for _ in range(r.randint(1, 3)))
    return [("user", r.choice([f"Repeat: {text}", f"Say: {text}", f"Repeat after me: {text}"])), ("assistant", text)]


def belongings(r):
    people = r.sample(NAMES, r.randint(1, 4))
    owned = {p: (r.choice(COLOURS), r.choice(THINGS)) for p in people}
    said = " ".join(f"{p} has {article(c)} {c} {t}." for p, (c, t) in owned.items())
    person = r.choice(people)
    colour, thing = owned[person]
    if r.random() < 0.5:
        return [("user", f"{said} What colour is {person}'s {thing}?"), ("assistant", f"{person}'s {thing} is {colour}.")]
    return [("user", f"{said} What does {person} have?"),
            ("assistant", f"{person} has {article(colour)} {colour} {thing}.")]


def code(r):
    digits = "".join(r.choice("0123456789") for _ in range(r.randint(3, 6)))
    noise = [f"The {r.choice(ADJECTIVES)} {r.choice(ANIMALS)} is in the {r.choice(PLACES)}." for _ in range(r.randint(0, 12))]
    noise.insert(r.randint(0, len(noise)), f"The code is {digits}.")
    return [("user", " ".join(noise) + " What is the code?"), ("assistant", f"The code is {digits}.")]


def remember(r):
    name = r.choice(NAMES + [made_up_word(r)])
    first = r.choice([f"My name is {name}.", f"I am {name}.", f"Hi, my name is {name}."])
    middle = r.choice([fact, add, make_list])(r) if r.random() < 0.6 else []
    return [("user", first), ("assistant", f"Nice to meet you, {name}!"), *middle,
            ("user", "What is my name?"), ("assistant", f"Your name is {name}.")]


SKILLS = [(fact, 4), (story, 3), (make_list, 2), (count, 1), (add, 2), (repeat, 3), (belongings, 3), (code, 3), (remember, 2),
          (unknown, 2)]
SYSTEMS = ["You are a helpful assistant.", "You are the demo model of Bunting.", "Answer briefly.", "Be kind."]


def conversation(r):
    """One sample: sometimes a system message, one to three exchanges."""
    out = []
    if r.random() < 0.25:
        out.append(("system", r.choice(SYSTEMS)))
    for _ in range(r.choice([1, 1, 1, 2, 3])):
        out += r.choices([s for s, _ in SKILLS], [w for _, w in SKILLS])[0](r)
    return out


def render(messages):
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in messages)


def stream(seed):
    r = random.Random(seed)
    while True:
        yield conversation(r)
