"""Tool calls: from definitions in the request to a call, and from its result to an answer.

Messages and tools have the shape of the OpenAI API: {"type": "function", "function": {name, description, parameters}}.
"""

import json

from skills_chat import assistant, definition, fact, user
from skills_context import facts
from words import DAYS, held_out, listed, sentence

VERBS = "get find read check look_up fetch show search measure load query request tell ask".split()
ACTIONS = "set change update write store send book order delete open close start stop print move".split()
NOUNS = """price weight size colour owner author date status length height score level title age address number name rating stock
temperature distance speed balance total rank version limit capital population language currency deadline budget origin grade
quality duration volume depth area pressure share value count""".split()
ENTITIES = """item product book city country person order room file song ship train account project user device page street
river word ticket table team student planet animal""".split()
TARGETS = "alarm timer reminder order ticket table room message note light door report label task file event".split()
SKIES = "sunny cloudy rainy windy foggy clear stormy snowy".split()


class Tool:
    def __init__(self, name, description, parameters):
        self.name, self.description, self.parameters = name, description, parameters  # {name: "string" | "number"}

    @property
    def subject(self):
        """What the tool is about: of two tools for "the price of" something, a question could mean either."""
        return self.description.lower().removeprefix("get ").removeprefix("returns ").split(" of ")[0]

    def definition(self):
        return {"type": "function", "function": {
            "name": self.name, "description": self.description,
            "parameters": {"type": "object", "properties": {k: {"type": t} for k, t in self.parameters.items()},
                           "required": list(self.parameters)}}}


def call(name, arguments):
    return {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "function": {"name": name, "arguments": arguments}}]}


def result(value):
    return {"role": "tool", "content": value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}


def said(value):
    """A tool's result as a sentence: "The price is 12." """
    return " ".join(f"The {key.replace('_', ' ')} is {v}." for key, v in value.items())


def tool_name(r, verb, noun):
    """get_price, getPrice, now and then a name that says nothing."""
    while True:
        kind = r.random()
        name = f"{verb}_{noun}" if kind < 0.7 else f"{verb}{sentence(noun)}" if kind < 0.85 else r.made_up().lower()
        if held_out(name, 5) == r.held:
            return name


def weather(r):
    city = r.city()
    t, sky = r.randint(-9, 35), r.choice(SKIES)
    tool = Tool("get_weather", r.choice(["Get the weather in a city", "Current weather of a city", "Get the current weather for a city"]),
                {r.choice(["city", "city", "location"]): "string"})
    ask = r.choice([f"What is the weather in {city}?", f"How is the weather in {city}?", f"What is the weather like in {city}?",
                    f"Tell me the weather in {city}.", f"Weather in {city}?", f"What's the weather in {city}?"])
    return tool, ask, {next(iter(tool.parameters)): city}, {"temperature": t, "sky": sky}, f"It is {t} degrees and {sky} in {city}."


def add(r):
    a, b = r.randint(2, 9999), r.randint(2, 9999)
    tool = Tool("add", r.choice(["Add two numbers", "Adds two numbers"]), {"a": "number", "b": "number"})
    ask = r.choice([f"Add {a} and {b}.", f"What is {a} plus {b}?", f"Use the tool to add {a} and {b}.", f"{a} + {b} = ?", f"What is {a} + {b}?"])
    value = a + b
    return tool, ask, {"a": a, "b": b}, r.choice([{"sum": value}, {"result": value}, str(value)]), f"{a} + {b} = {value}"


def lookup(r):
    word = r.word() if r.chance(0.5) else r.made_up()
    value = r.made_up()
    key = r.choice(["word", "key", "query", "name"])
    tool = Tool("lookup", r.choice(["Look up a word", "Look up an entry", "Look something up"]), {key: "string"})
    ask = r.choice([f"Look up {word}.", f"Please look up {word}.", f"Use lookup for {word}.", f"Look {word} up."])
    return tool, ask, {key: word}, {"entry": value}, f"The entry is {value}."


def question(r):
    """get_price(item): a property of something."""
    verb, noun, entity = r.choice(VERBS), r.choice(NOUNS), r.choice(ENTITIES)
    value = r.choice([r.made_up, r.thing, r.city, r.name])()
    tool = Tool(tool_name(r, verb, noun), r.choice([f"Get the {noun} of a {entity}", f"Returns the {noun} of the given {entity}", f"The {noun} of a {entity}"]),
                {entity: "string"})
    ask = r.choice([f"What is the {noun} of {value}?", f"Get the {noun} of {value}.", f"Tell me the {noun} of {value}.",
                    f"Find the {noun} of {value}, please.", f"I need the {noun} of the {entity} {value}."])
    out = {noun: r.choice([r.randint(1, 9999), r.made_up(), r.choice(DAYS)])}
    return tool, ask, {entity: value}, out, said(out)


def action(r):
    """set_timer(minutes), send_message(to, text), book_table(day, people)."""
    kind = r.randrange(4)
    verb, target = r.choice(ACTIONS), r.choice(TARGETS)
    name = tool_name(r, verb, target)
    if kind == 0:
        unit, n = r.choice(["minutes", "hours", "seconds", "degrees", "percent"]), r.randint(1, 99)
        return (Tool(name, f"{sentence(verb)} the {target}", {unit: "number"}), f"{sentence(verb)} the {target} to {n} {unit}.", {unit: n},
                {"status": "done"}, "Done.")
    if kind == 1:
        to, text = r.name(), r.choice([f"I like {r.food()}", f"see you on {r.choice(DAYS)}", f"the {r.thing()} is ready", f"my code is {r.digits(4)}"])
        return (Tool(name, f"{sentence(verb)} a {target} to a person", {"to": "string", "text": "string"}),
                f"{sentence(verb)} a {target} to {to}: {text}", {"to": to, "text": text}, {"status": "done"}, "Done.")
    if kind == 2:
        day, people = r.choice(DAYS), r.randint(1, 20)
        return (Tool(name, f"{sentence(verb)} a {target}", {"day": "string", "people": "number"}),
                f"{sentence(verb)} a {target} on {day} for {people} people.", {"day": day, "people": people}, {"number": r.randint(100, 999)}, None)
    city = r.city()
    return (Tool(name, f"{sentence(verb)} a {target} in a city", {"city": "string"}), f"{sentence(verb)} a {target} in {city}.", {"city": city},
            {"status": "done"}, "Done.")


def direct(r):
    """The user names the tool and every argument."""
    names = r.sample(["x", "y", "key", "value", "id", "name", "text", "level", "mode", "city", "count", "size", "word", "start", "end"], r.randint(1, 3))
    arguments = {n: r.choice([r.randint(0, 999), r.made_up(), r.word()]) for n in names}
    tool = Tool(tool_name(r, r.choice(VERBS + ACTIONS), r.choice(NOUNS + TARGETS)), r.choice(["A tool", "Runs the tool", f"Handles the {r.choice(NOUNS)}"]),
                {n: "number" if isinstance(v, int) else "string" for n, v in arguments.items()})
    shown = listed([f"{n} {v}" for n, v in arguments.items()]) if r.chance(0.5) else ", ".join(f"{n} = {v}" for n, v in arguments.items())
    out = {"result": r.choice([r.randint(0, 9999), r.made_up()])}
    return tool, r.choice([f"Use {tool.name} with {shown}.", f"Call {tool.name} with {shown}.", f"Run {tool.name}: {shown}"]), arguments, out, said(out)


def tools(r, kind=None):
    """(messages, definitions): a call, a call and its result put into words, a failed call, or a question that needs no tool."""
    make = r.choices([weather, add, lookup, question, action, direct], [3, 2, 2, 5, 4, 3])[0]
    tool, ask, arguments, out, answer = make(r)
    answer = answer or said(out)
    others = []
    for _ in range(r.choice([0, 0, 1, 1, 2, 3])):
        other = r.choices([weather, add, lookup, question, action, direct], [2, 2, 2, 4, 3, 2])[0](r)[0]
        if all(other.name != o.name and other.subject != o.subject for o in [tool, *others]):
            others.append(other)
    offered = [tool, *others]
    r.shuffle(offered)
    definitions = [t.definition() for t in offered]
    messages = [{"role": "system", "content": "You are a helpful assistant."}] if r.chance(0.2) else []
    kind = kind or r.choices(["call", "use", "fail", "none"], [45, 40, 5, 10])[0]
    if kind == "none":
        return messages + r.choice([fact, definition, facts])(r), definitions
    messages += [user(ask), call(tool.name, arguments)]
    if kind == "call":
        return messages, definitions
    if kind == "fail":
        reason = r.choice(["not found", "no connection", "too many requests", "wrong key", "timeout"])
        return messages + [result({"error": reason}), assistant(f"The tool failed: {reason}.")], definitions
    return messages + [result(out), assistant(answer)], definitions
