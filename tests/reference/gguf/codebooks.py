"""Writes csrc/model/codebooks.cpp: the codebooks of GGUF's types IQ1 to IQ3, constants of the format, from the Python package
`gguf`. Run by hand; the result is committed.

    pip install gguf==0.19.0
    python tests/reference/gguf/codebooks.py
"""

from pathlib import Path

from gguf import quants

FILE = Path(__file__).parents[3] / "csrc/model/codebooks.cpp"
HEAD = """// codebooks.cpp - written by tests/reference/gguf/codebooks.py; codebooks.h tells how it is laid out.
// clang-format off
#include "model/codebooks.h"

namespace bunting {

"""
BOOKS = {
    "kBook1": (quants.IQ1_S, "IQ1_S and IQ1_M: -1, 0, 1"),
    "kBook2Xxs": (quants.IQ2_XXS, "IQ2_XXS: 8, 25, 43"),
    "kBook2Xs": (quants.IQ2_XS, "IQ2_XS: 8, 25, 43"),
    "kBook2S": (quants.IQ2_S, "IQ2_S: 8, 25, 43"),
    "kBook3Xxs": (quants.IQ3_XXS, "IQ3_XXS: 4, 12, 20, 28, 36, 44, 52, 62"),
    "kBook3S": (quants.IQ3_S, "IQ3_S: 1, 3, 5, 7, 9, 11, 13, 15"),
}


def main() -> None:
    text = HEAD
    for name, (kind, about) in BOOKS.items():
        kind.init_grid()
        rows = kind.grid.reshape(kind.grid_shape).astype(int).tolist()
        places = {value: place for place, value in enumerate(kind.grid_map)}
        bits = 2 if len(places) <= 4 else 3
        words = [sum(places[value] << (bits * i) for i, value in enumerate(row)) for row in rows]
        lines = [", ".join(f"0x{word:04x}" for word in words[at : at + 14]) for at in range(0, len(words), 14)]
        text += f"// {about}\nuint16_t const {name}[{len(words)}] = {{\n  " + ",\n  ".join(lines) + "};\n\n"
    FILE.write_text(text + "}  // namespace bunting\n")


if __name__ == "__main__":
    main()
