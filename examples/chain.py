"""A chain of three calls in plain Python, with nothing but the standard library."""

import json
import os
import urllib.request

url = os.environ.get("BUNTING_URL", "http://127.0.0.1:8000")


def ask(content, output):
    return {"messages": [{"role": "user", "content": content}], "output": output, "temperature": 0}


program = {
    "variables": {"subject": "the sea"},
    "calls": [
        ask("Make a short list about {{subject}}.", "list"),
        ask("Join these items with commas:\n{{list}}", "items"),
        ask("Pick the longest item: {{items}}", "pick"),
    ],
    "await": ["items", "pick"],
}
request = urllib.request.Request(
    url + "/v1/programs",
    data=json.dumps(program).encode(),
    headers={
        "content-type": "application/json",
        "authorization": "Bearer " + os.environ.get("BUNTING_API_KEY", "none"),
    },
)
with urllib.request.urlopen(request) as response:
    variables = json.load(response)["variables"]
for name in ("items", "pick"):
    print(f"{name}: {variables[name]['value']}")
