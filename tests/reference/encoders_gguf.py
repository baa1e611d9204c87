"""Converts reference encoders to GGUF files by llama.cpp's own converter.

    python tests/reference/encoders_gguf.py <llama.cpp> [names]

For each model: encoders/<name>/f16.gguf. The converter knows tokenizers by their hashes, and not those of random models;
llama.cpp does not read what it would write for them. The committed files come from the llama.cpp in PyPI's llama-cpp-python 0.3.36.
"""

import sys
from pathlib import Path

HERE = Path(__file__).parent / "encoders"
NAMES = ["bert-mean", "bert-cls-cased", "roberta-cls", "nomic-bert-mean", "modern-bert-mean", "embedding-gemma"]


def main():
    llama = Path(sys.argv[1])
    sys.path[:0] = [str(llama), str(llama / "gguf-py")]
    import convert_hf_to_gguf as converter
    from conversion import base

    base.TextModel.get_vocab_base_pre = lambda self, _: "roberta-bpe" if "roberta" in str(self.dir_model) else "default"
    for name in sys.argv[2:] or NAMES:
        out = HERE / name / "f16.gguf"
        sys.argv = ["convert", str(HERE / name), "--outtype", "f16", "--outfile", str(out)]
        if name == "embedding-gemma":
            sys.argv.append("--sentence-transformers-dense-modules")
        converter.main()


if __name__ == "__main__":
    main()
