"""Records the renderings of templates by transformers. Run by hand when a probe is added, or with the published templates to
renew golden.json; the results are committed, the published templates are not.

    python tests/reference/templates/make.py probes
    python tests/reference/templates/make.py golden build/templates
"""

import json
import sys
from pathlib import Path

from environment import rendered
from probes import PROBES, VARIABLES

HERE = Path(__file__).parent


def write(name: str, value: object) -> None:
    (HERE / name).write_text(json.dumps(value, ensure_ascii=False, indent=0, separators=(",", ":")) + "\n")


def make_probes() -> None:
    groups = {
        rule: [{"template": template, **rendered(template, VARIABLES)} for template in templates]
        for rule, templates in PROBES.items()
    }
    write("probes.json", {"variables": VARIABLES, "groups": groups})
    print(sum(len(group) for group in groups.values()), "probes")


if __name__ == "__main__":
    if sys.argv[1] == "probes":
        make_probes()
    else:
        from golden import make_golden

        write("golden.json", make_golden(Path(sys.argv[2])))
