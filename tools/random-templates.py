"""Writes random small templates and what transformers makes of them, to be compared with ours.

    python tools/random-templates.py 10000 1 >random.json
    npx bun tools/compare-templates.ts random.json

The numbers are how many, and the seed.
"""

import json
import random
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "reference" / "templates"))
from environment import rendered  # noqa: E402
from probes import VARIABLES  # noqa: E402

NAMES = [*VARIABLES, "missing", "x", "y"]
TEXTS = ["", "a", "b", ",", " ", "ab", "A b", "\\n", "  a\\n b ", "x=1", "1", "2.5", "é", "🐦", "<b>", "a,b,,c", "%s", "{}", "Straße"]
INTEGERS = ["0", "1", "2", "3", "-1", "10", "100"]
FLOATS = ["0.5", "2.0", "-1.5", "1e3", "0.1", "1e-7"]
FILTERS = [
    "upper", "lower", "title", "capitalize", "trim", "length", "count", "first", "last", "join", "join({t})", "list", "sort", "sort(reverse=true)", "unique | list",
    "reverse | list", "reverse", "string", "int", "int({i})", "float", "abs", "round", "round({i})", "round(1, 'floor')", "default({e})", "default({e}, true)", "d",
    "replace({t}, {t})", "replace({t}, {t}, {i})", "indent", "indent({i})", "indent({i}, true)", "truncate(5)", "truncate(7, true, '..')", "center({i})", "tojson", "tojson(indent={i})", "tojson(ensure_ascii=true)",
    "map('upper') | list", "map('string') | join({t})", "map('length') | list", "map(attribute='name') | list", "map(attribute='age', default={e}) | list", "select | list", "select('string') | list",
    "select('odd') | list", "reject('none') | list", "selectattr('age') | list", "selectattr('age', 'equalto', 31) | map(attribute='name') | list", "rejectattr('home', 'defined') | list", "sum", "sum(start={i})", "min", "max",
    "batch({i}) | list", "slice({i}) | list", "items | list", "dictsort", "dictsort(by='value')", "groupby('age') | list", "wordcount", "striptags", "e", "safe", "format({e})", "urlencode", "filesizeformat", "trim({t})", "attr('upper')",
]
TESTS = ["defined", "undefined", "none", "string", "number", "integer", "float", "mapping", "sequence", "iterable", "odd", "even", "true", "false", "boolean", "lower", "upper", "in {e}", "eq {a}", "sameas {a}", "divisibleby {i}", "gt {a}", "callable"]
METHODS = [
    "upper()", "lower()", "title()", "strip()", "strip({t})", "lstrip({t})", "rstrip({t})", "split()", "split({t})", "split({t}, {i})", "rsplit({t}, {i})", "splitlines()", "splitlines(true)", "replace({t}, {t})", "replace({t}, {t}, {i})",
    "startswith({t})", "endswith({t})", "find({t})", "rfind({t})", "find({t}, {i})", "count({t})", "index({t})", "join({e})", "partition({t})", "rpartition({t})", "removeprefix({t})", "removesuffix({t})", "center({i})", "ljust({i}, '*')", "zfill({i})", "format({e})",
    "isdigit()", "isalpha()", "isupper()", "isspace()", "capitalize()", "swapcase()", "expandtabs({i})", "items()", "keys()", "values()", "get({t})", "get({t}, {e})", "copy()", "append(1)", "index({e})", "count({e})", "name", "a", "age", "missing", "0", "x.y",
]
OPERATORS = ["+", "-", "*", "/", "//", "%", "**", "~", "==", "!=", "<", "<=", ">", ">=", "in", "not in", "and", "or"]


class TooLong(BaseException):
    """Raised when a template runs too long, such as a power of a power."""


def stop(*_: object) -> None:
    raise TooLong


class Maker:
    def __init__(self, source: random.Random) -> None:
        self.random = source

    def fill(self, pattern: str, depth: int) -> str:
        for mark, make in (("{t}", self.text), ("{i}", self.integer), ("{a}", self.atom), ("{e}", lambda: self.expression(depth - 1))):
            while mark in pattern:
                pattern = pattern.replace(mark, make().replace("{", "\0").replace("}", "\1"), 1)
        return pattern.replace("\0", "{").replace("\1", "}")

    def text(self) -> str:
        return "'" + self.random.choice(TEXTS) + "'"

    def integer(self) -> str:
        return self.random.choice(INTEGERS)

    def atom(self) -> str:
        kind = self.random.random()
        if kind < 0.5:
            return self.random.choice(NAMES)
        if kind < 0.7:
            return self.text()
        if kind < 0.85:
            return self.integer()
        return self.random.choice([*FLOATS, "true", "false", "none"])

    def expression(self, depth: int) -> str:
        if depth <= 0:
            return self.atom()
        again = lambda: self.expression(depth - 1)  # noqa: E731
        kind = self.random.randrange(14)
        if kind < 3:
            return self.atom()
        if kind < 6:
            return f"{again()} | {self.fill(self.random.choice(FILTERS), depth)}"
        if kind < 8:
            return f"({again()}).{self.fill(self.random.choice(METHODS), depth)}"
        if kind == 8:
            return f"{again()} is {self.random.choice(['', 'not '])}{self.fill(self.random.choice(TESTS), depth)}"
        if kind < 11:
            return f"{self.random.choice(['', 'not ', '-'])}({again()}) {self.random.choice(OPERATORS)} ({again()})"
        if kind == 11:
            bounds = [self.random.choice(["", self.integer()]) for _ in range(self.random.choice([2, 2, 3]))]
            chosen = self.random.choice([":".join(bounds), self.integer(), self.text()])
            # A constant that cannot be sliced is undefined in Jinja, and other objects raise an error;
            # neither is worth testing.
            return f"({self.random.choice(NAMES) if ':' in chosen else again()})[{chosen}]"
        if kind == 12:
            items = ", ".join(again() for _ in range(self.random.choice([0, 1, 2])))
            return self.random.choice([f"[{items}]", f"({items},)" if items else "()", f"{{{self.text()}: {again()}}}"])
        return f"{again()} if {again()}{self.random.choice(['', ' else ' + again()])}"

    def tag(self, inside: str) -> str:
        return "{%" + self.random.choice(["", "", "-", "+"]) + f" {inside} " + self.random.choice(["", "", "-"]) + "%}"

    def statement(self, depth: int) -> str:
        gap = self.random.choice(["", " ", "\n", "\n  ", " t ", " \n\n"])
        body = lambda: gap + self.statements(depth - 1) + gap  # noqa: E731
        value = lambda: self.expression(self.random.choice([0, 1, 1, 2]))  # noqa: E731
        kind = self.random.randrange(16 if depth > 0 else 6)
        if kind < 5:
            return "{{" + self.random.choice(["", "-"]) + f" {self.expression(self.random.choice([1, 1, 1, 2, 2, 3]))} " + self.random.choice(["", "-"]) + "}}"
        if kind == 5:
            return self.tag(f"set {self.random.choice(['x', 'y', 'x, y'])} = {value()}")
        if kind < 8:
            return self.tag(f"if {value()}") + body() + self.random.choice(["", self.tag("else") + body(), self.tag(f"elif {value()}") + body()]) + self.tag("endif")
        if kind < 11:
            inside = self.random.choice(["", "{{ loop.index }}", "{{ loop.last }}{{ loop.previtem }}", self.tag(f"if {value()}") + self.tag(self.random.choice(["break", "continue"])) + self.tag("endif")])
            target = self.random.choice(["x", "x", "x, y"])
            return self.tag(f"for {target} in {value()}{self.random.choice(['', f' if {value()}'])}") + body() + inside + self.random.choice(["", self.tag("else") + body()]) + self.tag("endfor")
        if kind == 11:
            return self.tag("set y") + body() + self.tag("endset") + "{{ y }}"
        if kind == 12:
            return self.tag("set n2 = namespace(v=0)") + self.tag("for q in li") + self.tag(f"set n2.v = {value()}") + "{{ n2.v }}" + self.tag("endfor")
        if kind == 13:
            return self.tag(f"macro m(x, y={value()})") + body() + self.random.choice(["", "{{ caller() }}"]) + self.tag("endmacro") + self.random.choice(["{{ m(" + value() + ") }}", self.tag("call m(1)") + body() + self.tag("endcall")])
        if kind == 14:
            return self.tag(f"filter {self.random.choice(['upper', 'trim', 'length', 'title'])}") + body() + self.tag("endfilter")
        return self.random.choice([self.tag("raw") + "{{ x }}" + self.tag("endraw"), "{#" + self.random.choice(["", "-"]) + " c " + "#}", self.tag(f"with x = {value()}") + body() + self.tag("endwith"), self.tag("generation") + body() + self.tag("endgeneration")])

    def statements(self, depth: int) -> str:
        return self.random.choice(["", " ", "\n", "t\n "]).join(self.statement(depth) for _ in range(self.random.choice([1, 1, 2, 3])))


def main() -> None:
    signal.signal(signal.SIGALRM, stop)
    count, seed = int(sys.argv[1]), int(sys.argv[2])
    maker = Maker(random.Random(seed))
    probes = []
    while len(probes) < count:
        template = maker.statements(maker.random.choice([0, 1, 2]))
        signal.alarm(1)
        try:
            outcome = rendered(template, VARIABLES)
        except TooLong:
            continue
        finally:
            signal.alarm(0)
        # Excludes object addresses and very long texts, which cannot be compared.
        if " at 0x" in outcome.get("text", "") or len(outcome.get("text", "")) > 20_000:
            continue
        probes.append({"template": template, **outcome})
    json.dump({"variables": VARIABLES, "groups": {"random": probes}}, sys.stdout, ensure_ascii=False)


if __name__ == "__main__":
    main()
