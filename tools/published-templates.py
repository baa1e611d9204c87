"""Fetches published chat templates beside the project: from packages that carry them, each at the version that
tests/reference/templates/golden.json was made with. They are other people's and are not committed.

    python tools/published-templates.py [folder]

They come to build/templates, or to the folder; each file is named by the SHA-256 of its text. BUNTING_TEMPLATES names the
folder to the tests that read them (published.test.ts in text/jinja/ and text/formats/, text/conversation/writer.test.ts).
Nothing of a package is run.
"""

import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

# Packages with templates of models, and of trainers that copy them.
WHEELS = ["trl==1.16.0", "axolotl==0.19.0", "unsloth==2026.10.9", "xinference==4.1.0"]
# Package that vendors llama.cpp with its folder of models' templates.
SOURCES = ["llama-cpp-python==0.3.36"]


def download(into: Path) -> None:
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(into)]
    subprocess.run([*pip, "--only-binary", ":all:", *WHEELS], check=True)
    subprocess.run([*pip, "--no-binary", ":all:", *SOURCES], check=True)


def members(archive: Path) -> Iterator[tuple[str, bytes]]:
    """Files that are or may hold templates."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                if may_hold(name):
                    yield name, opened.read(name)
    else:
        with tarfile.open(archive) as opened:
            for member in opened:
                if member.isfile() and may_hold(member.name):
                    yield member.name, opened.extractfile(member).read()


def may_hold(name: str) -> bool:
    return name.endswith(".jinja") or (name.endswith(".json") and "/model/llm/models/" in name)


def templates(name: str, content: bytes) -> Iterator[str]:
    text = content.decode("utf-8")
    if name.endswith(".jinja"):
        yield text
        return
    families = json.loads(text)
    for family in families if isinstance(families, list) else [families]:
        template = family.get("chat_template") if isinstance(family, dict) else None
        if isinstance(template, str) and "{%" in template:
            yield template


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent / "build" / "templates")
    folder.mkdir(parents=True, exist_ok=True)
    found = set()
    with tempfile.TemporaryDirectory() as scratch:
        download(Path(scratch))
        for archive in sorted(Path(scratch).iterdir()):
            before = len(found)
            for name, content in members(archive):
                for template in templates(name, content):
                    encoded = template.encode("utf-8")
                    key = hashlib.sha256(encoded).hexdigest()
                    found.add(key)
                    (folder / f"{key}.jinja").write_bytes(encoded)
            print(f"{archive.name}: {len(found) - before} templates that the others lack")
    print(f"{len(found)} templates in {folder}")


if __name__ == "__main__":
    main()
