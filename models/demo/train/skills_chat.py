"""Skills that answer from what the model has learned by heart: definitions, questions about itself and Bunting, lists, stories.

A skill takes a Draw and returns a list of messages that ends with the assistant's answer.
"""

import wordnet
from words import ADJECTIVES, ANIMALS, CHARACTERS, COLOURS, FOODS, HEROES, NUMBER_WORDS, PLACES, THINGS, article


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


LISTS = {
    "fruits": "apple pear plum cherry banana orange grape peach lemon melon",
    "colours": "red blue green yellow white black brown orange purple pink",
    "animals": "cat dog horse rabbit fox owl mouse bear duck goat",
    "vegetables": "carrot potato onion pea bean cabbage tomato leek radish spinach",
    "tools": "hammer saw drill wrench ladder pliers screwdriver file axe shovel",
    "birds": "owl swan duck parrot robin crow eagle sparrow hen goose",
    "places": "garden forest village river hill market harbour school castle bridge",
    "foods": "bread cheese soup rice honey cake butter eggs milk noodles",
    "instruments": "guitar piano drum flute violin trumpet harp cello organ horn",
    "rooms": "kitchen bedroom bathroom hall study cellar attic nursery pantry library",
    "cities": "Rome Paris London Berlin Madrid Vienna Oslo Lisbon Prague Dublin",
    "countries": "Italy France England Germany Spain Austria Norway Portugal Japan Egypt",
    "planets": "Mercury Venus Earth Mars Jupiter Saturn Uranus Neptune",
    "seasons": "spring summer autumn winter",
    "months": "January February March April May June July August September October",
    "days": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday",
    "flowers": "rose tulip daisy lily violet poppy daffodil orchid sunflower lilac",
    "trees": "oak pine birch willow maple beech elm ash cedar palm",
    "insects": "ant bee wasp fly beetle moth butterfly cricket ladybird mosquito",
    "drinks": "water tea coffee milk juice lemonade cocoa cider wine beer",
    "clothes": "coat shirt hat scarf glove sock shoe skirt jacket belt",
    "sports": "football tennis swimming running cycling chess rowing skating boxing golf",
    "jobs": "teacher doctor baker farmer painter pilot sailor nurse writer cook",
    "vehicles": "car bus train bicycle boat ship truck tram plane rocket",
    "metals": "iron gold silver copper tin lead zinc steel bronze nickel",
    "shapes": "circle square triangle star oval diamond cube cone ring heart",
    "furniture": "table chair bed sofa desk shelf bench wardrobe stool cupboard",
    "fish": "salmon trout tuna cod herring carp pike eel shark perch",
}
LISTS = {topic: items.split() for topic, items in LISTS.items()}
# "A short list about X": things that belong to X rather than kinds of it.
ABOUT = {
    "the sea": "waves ships fish sand islands shells harbours storms",
    "the forest": "trees foxes mushrooms owls paths leaves berries deer",
    "the kitchen": "knives pots spoons bread plates kettles ovens cups",
    "winter": "snow ice coats skates frost scarves fires soup",
    "summer": "sun beaches holidays cherries swimming tents thunderstorms lemonade",
    "spring": "flowers rain birds seeds blossoms bees lambs sunshine",
    "autumn": "leaves apples wind fog pumpkins mushrooms harvests chestnuts",
    "school": "teachers books lessons pencils friends homework blackboards exams",
    "music": "songs violins drums concerts singers rhythm melodies pianos",
    "travel": "trains maps suitcases tickets hotels mountains passports cameras",
    "the city": "streets buses towers markets bridges crowds lights museums",
    "the farm": "cows barns hay tractors hens fields pigs milk",
    "space": "stars planets rockets moons comets galaxies satellites astronauts",
    "the garden": "flowers spades seeds worms roses bees grass watering",
    "computers": "keyboards screens programs memory files networks printers robots",
    "cooking": "recipes salt pans onions soup ovens spices tasting",
    "sport": "balls teams races goals medals training stadiums referees",
    "the weather": "rain clouds wind snow sunshine fog thunder rainbows",
    "night": "stars dreams owls lamps silence beds moonlight shadows",
    "the office": "desks meetings coffee letters telephones printers reports chairs",
}
ABOUT = {topic: items.split() for topic, items in ABOUT.items()}

# Questions in several wordings with one answer each. What is said about Bunting must be true.
FACTS = [
    (["Who are you?", "What are you?", "What is your name?", "Tell me who you are.", "Introduce yourself.", "Tell me about yourself."],
     "I am the demo model of Bunting, a tiny language model that runs on your own machine."),
    (["What can you do?", "What are you able to do?", "How can you help me?", "What are your skills?", "Help", "What can I ask you?"],
     "I can define common words, tell a short story, make lists, add and subtract, find facts and codes in a long text, "
     "answer in JSON, call tools and summarise simple reports."),
    (["What can you not do?", "What are your limits?", "Are you smart?", "Do you make mistakes?", "Can I trust you?"],
     "I am very small: outside of a few skills I am often wrong. Load a larger model for real work."),
    (["What is Bunting?", "Tell me about Bunting.", "Explain Bunting.", "What does Bunting do?", "What is the Bunting server?"],
     "Bunting is an inference server: it runs language models on one machine and serves them over an OpenAI-compatible API."),
    (["How big are you?", "How many parameters do you have?", "Are you a large model?", "What size are you?"],
     "I am tiny: about six million parameters. Load a larger model for real work."),
    (["How do I use my own model?", "How do I serve another model?", "Can I load a bigger model?", "How do I run a real model?",
      "How do I load another model in Bunting?"],
     "Give the folder of a Hugging Face model to bunting serve, for example: bunting serve ./my-model"),
    (["Which API do you speak?", "Is Bunting compatible with OpenAI?", "Can I use the OpenAI client?", "How do I connect a client?",
      "Does Bunting have an API?"],
     "Bunting speaks the OpenAI API. Change the base URL of your client to this server and it works."),
    (["What is a KV cache?", "Explain the KV cache.", "What does the KV cache do?", "What is the KV cache?"],
     "The KV cache keeps the keys and values of tokens already read, so that they are not computed again."),
    (["What is prefix caching?", "Explain prefix caching.", "What does the prefix cache do?", "How does prefix caching work?"],
     "Prefix caching lets requests that begin with the same text share the work done for it."),
    (["What is chunked prefill?", "Explain chunked prefill.", "Why do you chunk prompts?", "What does chunked prefill do?"],
     "Chunked prefill splits a long prompt into pieces, so that other answers keep flowing while it is read."),
    (["What is continuous batching?", "Explain continuous batching.", "How does Bunting batch requests?"],
     "Continuous batching lets requests join and leave the batch at every step, so that nobody waits for the slowest one."),
    (["What is a token?", "Explain tokens.", "What are tokens?"],
     "A token is a piece of text, often a word or part of one, that a language model reads and writes as one unit."),
    (["What is paged attention?", "Explain paged attention.", "How is the KV cache stored?"],
     "Paged attention keeps the KV cache in pages of fixed size, so that memory is not wasted and pages can be shared."),
    (["Which models does Bunting run?", "What models are supported?", "Which model families do you support?",
      "What models can Bunting serve?"],
     "Bunting runs Llama, Mistral, Qwen2 and Qwen3 models from safetensors and GGUF files."),
    (["Do you need a GPU?", "Does Bunting need a GPU?", "Can Bunting run on a CPU?", "Can I use Bunting without a GPU?"],
     "No GPU is needed: Bunting has a fast engine for the CPU."),
    (["Do you need Python?", "Is Bunting written in Python?", "What is Bunting written in?", "Which language is Bunting written in?"],
     "No Python is needed: Bunting is written in TypeScript on Bun and in C++."),
    (["Is Bunting free?", "What licence does Bunting have?", "Is Bunting open source?", "What is the license of Bunting?"],
     "Bunting is open source under the Apache 2.0 licence."),
    (["Does Bunting send my data anywhere?", "Is Bunting private?", "Do you send my data to the cloud?", "Where does my data go?"],
     "Nothing leaves your machine: Bunting runs locally and sends no data anywhere."),
    (["How do I start Bunting?", "How do I run Bunting?", "How do I start the server?", "How do I install Bunting?"],
     "Run bunting serve and open the address it prints in your browser."),
    (["Can Bunting serve several users?", "How many users can Bunting serve?", "Can many people use Bunting at once?"],
     "Yes. Bunting batches the requests of many users in one scheduler and streams every answer."),
    (["Why is it called Bunting?", "Why the name Bunting?", "Where does the name Bunting come from?"],
     "A bunting is a small bird. The server is small too, and it sings in streams."),
    (["What were you trained on?", "How were you trained?", "Where does your knowledge come from?"],
     "I was trained on WordNet definitions and on text made by a generator."),
    (["Hello", "Hello!", "Hi", "Hi!", "Hi there", "Hey", "Good morning", "Good evening", "Hello there!", "Good afternoon", "Hey there!"],
     "Hello! How can I help you?"),
    (["How are you?", "How are you doing?", "Are you well?", "How is it going?"], "I am fine, thank you. How can I help you?"),
    (["Thanks", "Thank you", "Thank you!", "Thanks a lot!", "Thank you very much.", "Thanks!", "Great, thanks."], "You are welcome!"),
    (["Goodbye", "Bye", "Bye!", "See you later", "Good night", "Goodbye!"], "Goodbye! Come back soon."),
    (["Are you a human?", "Are you a person?", "Are you real?", "Are you alive?"],
     "No, I am a small language model running on this machine."),
    (["Tell me a joke.", "Do you know a joke?", "Make me laugh.", "Tell me another joke."],
     "Why did the token cross the page? To get to the next step!"),
]
CAPITALS = {"France": "Paris", "Germany": "Berlin", "Italy": "Rome", "Spain": "Madrid", "Japan": "Tokyo", "England": "London",
            "Austria": "Vienna", "Norway": "Oslo", "Portugal": "Lisbon", "Egypt": "Cairo", "Greece": "Athens", "Ireland": "Dublin",
            "Poland": "Warsaw", "Peru": "Lima", "Kenya": "Nairobi", "India": "Delhi", "Finland": "Helsinki", "Cuba": "Havana"}

# What a tiny model cannot know: it says so.
UNKNOWN = [
    "What is the weather like today?", "Will it rain tomorrow?", "What time is it?", "What day is it today?",
    "Who won the match yesterday?", "Who is the president?", "How tall is the highest mountain?",
    "Write a poem.", "Translate this into French.", "Write a program that sorts numbers.",
    "Explain quantum physics.", "How do I bake bread?", "What is the news?", "Solve this equation for me.",
    "Who wrote this book?", "How far away is the moon?", "What should I eat tonight?", "Which film should I watch?",
    "How much does a car cost?", "Where can I buy a ticket?", "What is the best phone?", "Do you like music?",
]
UNKNOWN_ANSWER = "I do not know that. I am only a tiny demo model: ask me what I can do."


def wording(r, question):
    """Now and then as people type: without capitals, without the final mark."""
    if r.chance(0.15):
        question = question.lower()
    if r.chance(0.15):
        question = question.rstrip(".?!")
    return question


def ask_for_word(r, word, part):
    a = f"{article(word)} {word}"
    if part == "noun":
        forms = [f"What is {a}?"] * 3 + [f"What is {word}?", f"What's {a}?"]
    elif part == "verb":
        forms = [f"What does it mean to {word}?", f"What does to {word} mean?"]
    else:
        forms = [f"What does it mean to be {word}?", f"What is {word}?"]
    forms += [f"Define {word}."] * 3 + [f"Define {word}", f"Define the word {word}.", f"What does {word} mean?",
              f"What does the word {word} mean?", f"What is the meaning of {word}?", f"Explain {word}.", f"Meaning of {word}?",
              f"Give me a definition of {word}.", f"Explain the word {word}.", f"Definition of {word}"]
    return r.choice(forms)


def definition(r, entry=None):
    if entry is None and r.chance(0.02):
        return unknown_word(r)
    entry = entry or r.choice(wordnet.learned())
    question = ask_for_word(r, entry.word, entry.part)
    return [user(question.lower() if r.chance(0.1) else question), assistant(entry.line)]


def unknown_word(r):
    word = r.made_up().lower()
    return [user(ask_for_word(r, word, r.choice(["noun", "verb", "adj"]))), assistant(f"I do not know the word {word}.")]


def fact(r):
    questions, answer = r.choice(FACTS)
    return [user(wording(r, r.choice(questions))), assistant(answer)]


def capital(r):
    country, city = r.choice(list(CAPITALS.items()))
    ask = r.choice([f"What is the capital of {country}?", f"Name the capital of {country}.", f"Which city is the capital of {country}?"])
    return [user(wording(r, ask)), assistant(f"The capital of {country} is {city}.")]


def unknown(r):
    if r.chance(0.6):
        question = r.choice(UNKNOWN)
    else:
        question = (f"{r.choice(['How do I', 'Can you', 'Should I', 'Why should I'])} "
                    f"{r.choice(['buy', 'draw', 'find', 'build', 'paint', 'sell', 'fix', 'clean'])} "
                    f"{r.choice(['a', 'the', 'my'])} {r.thing()}?")
    return [user(wording(r, question)), assistant(UNKNOWN_ANSWER)]


def numbered(items):
    return "\n".join(f"{i + 1}. {item}" for i, item in enumerate(items))


def make_list(r):
    """A list asked for twice is the same list: the first so many of the topic."""
    if r.chance(0.5):
        topic = r.choice(list(ABOUT))
        if r.chance(0.5):
            return [user(r.choice([f"Make a short list about {topic}.", f"Write a short list about {topic}.",
                                   f"Give me a short list about {topic}."])), assistant(numbered(ABOUT[topic][:4]))]
        count = r.randint(2, 6)
        shown = r.choice([str(count), NUMBER_WORDS[count - 1]])
        return [user(r.choice([f"Make a list of {shown} things about {topic}.", f"List {shown} things about {topic}."])),
                assistant(numbered(ABOUT[topic][:count]))]
    topic = r.choice(list(LISTS))
    if r.chance(0.2):
        return [user(r.choice([f"Make a short list of {topic}.", f"List some {topic}.", f"Give me a short list of {topic}."])),
                assistant(numbered(LISTS[topic][:4]))]
    count = r.randint(2, min(8, len(LISTS[topic])))
    shown = r.choice([str(count), NUMBER_WORDS[count - 1]])
    return [user(r.choice([f"List {shown} {topic}.", f"Name {shown} {topic}.", f"Give me a list of {shown} {topic}.",
                           f"Give me {shown} {topic}."])), assistant(numbered(LISTS[topic][:count]))]


def count(r):
    a = r.randint(1, 40)
    b = a + r.randint(2, 12)
    return [user(r.choice([f"Count from {a} to {b}.", f"Please count from {a} to {b}."])),
            assistant(", ".join(str(i) for i in range(a, b + 1)))]


def story(r):
    """What the question does not name comes from short lists: a greedy answer has to be a story, not a stutter of syllables."""
    (name, friend), place, adjective = r.sample(HEROES, 2), r.choice(PLACES), r.choice(ADJECTIVES)
    animal, food = r.choice(CHARACTERS) if r.chance(0.3) else r.of(ANIMALS), r.of(FOODS)
    colour, thing, other = r.choice(COLOURS), r.of(THINGS), r.choice(ADJECTIVES)
    kind = r.random()
    if kind < 0.3:
        ask = r.choice(["Tell me a story.", "Tell me a short story.", "Write a short story.", "Can you tell me a story?"])
    elif kind < 0.55:
        animal = animal if r.chance(0.5) else r.animal()
        ask = r.choice([f"Tell me a story about {article(animal)} {animal}.", f"Write a story about {article(animal)} {animal}.",
                        f"Tell me a short story about {article(animal)} {animal}."])
    elif kind < 0.75:
        name = r.name()
        ask = r.choice([f"Tell me a story about {name}.", f"Write a short story about {name}.",
                        f"Tell me a story about {name} the {animal}."])
    else:
        thing = r.thing()
        ask = r.choice([f"Tell me a story about {article(thing)} {thing}.", f"Write a short story about {article(thing)} {thing}."])
    text = (f"Once upon a time there was {article(adjective)} {adjective} {animal} named {name}. "
            f"{name} lived near the {place} and loved {food}. "
            + r.choice([f"One day {name} found {article(colour)} {colour} {thing} by the {place}. ",
                        f"One morning {friend} brought {article(colour)} {colour} {thing} to the {place}. ",
                        f"One night the {colour} {thing} from the {place} was gone. "])
            + r.choice([f"Nobody knew whose {thing} it was, so {name} asked everyone in the village. ",
                        f"The {thing} was too heavy to carry, so {name} asked {friend} for help. ",
                        f"{name} looked for a long time and thought about the {thing}. ",
                        f"{friend} was sad about it, but {name} had an idea. "])
            + r.choice([f"In the end they shared the {food} and were {other} together.",
                        f"From that day on {name} took good care of the {thing}.",
                        f"That evening they all ate {food}, and {name} slept well.",
                        f"And so {name} and {friend} became friends."]))
    return [user(ask), assistant(text)]
