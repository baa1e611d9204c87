"""OpenAI's own client: a streamed chat, and an answer that is held to a JSON Schema."""

import json
import os

from openai import OpenAI

client = OpenAI(
    base_url=os.environ.get("BUNTING_URL", "http://127.0.0.1:8000") + "/v1",
    api_key=os.environ.get("BUNTING_API_KEY", "none"),
)
model = client.models.list().data[0].id

stream = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": "What is 47 plus 38?"}],
    temperature=0,
    stream=True,
)
for chunk in stream:
    print(chunk.choices[0].delta.content or "" if chunk.choices else "", end="")
print()

schema = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
sentence = "Nora is 34 years old, lives in Lisbon and works as a baker."
answer = client.chat.completions.create(
    model=model,
    messages=[{"role": "user", "content": f"Extract name and age as JSON: {sentence}"}],
    temperature=0,
    response_format={"type": "json_schema", "json_schema": {"name": "person", "schema": schema, "strict": True}},
)
print(json.loads(answer.choices[0].message.content))
