"""Requests of the Open Responses compliance tests, without images and files; checked against types generated from its specification.
BUNTING_URL is the address of the scripted server."""

import json
import os

import httpx
import openresponses_types.types as types
import pytest

URL = f"{os.environ['BUNTING_URL']}/v1/responses"
HELLO = "Hello. I am a scripted model, and this is all that I have to say."
WEATHER = "What's the weather like in San Francisco?"
TOOL = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a place",
    "parameters": {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]},
}


def event_types() -> dict:
    """Returns the specification's event types, by their names on the wire."""
    found = [model for name, model in vars(types).items() if name.endswith("StreamingEvent")]
    return {next(iter(model.model_fields["type"].annotation)).value: model for model in found}


EVENTS = event_types()


def message(role: str, text: str) -> dict:
    return {"type": "message", "role": role, "content": text}


def whole(body: dict) -> dict:
    answer = httpx.post(URL, json={"model": "demo", **body})
    assert answer.status_code == 200, answer.text
    return answer.json()


def streamed(body: dict) -> dict:
    """Returns the response of the last event. Checks that each event follows the specification, in order, with consistent items."""
    answer = httpx.post(URL, json={"model": "demo", **body, "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    frames = [frame.split("\n") for frame in answer.text.strip().split("\n\n") if not frame.startswith(":")]
    events = []
    for name, data in frames:
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        EVENTS[event["type"]].model_validate(event)
        events.append(event)
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    told = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert (events[-1]["type"], events[-1]["response"]["output"]) == ("response.completed", told)
    return events[-1]["response"]


@pytest.fixture(params=[whole, streamed])
def ask(request):
    def asked(**body) -> dict:
        response = request.param(body)
        types.ResponseResource.model_validate(response)
        assert response["status"] == "completed" and response["output"]
        return response

    return asked


def text_of(response: dict) -> str:
    [item] = response["output"]
    return "".join(part["text"] for part in item["content"])


def test_there_are_events():
    assert len(EVENTS) == 24


def test_text(ask):
    assert text_of(ask(input=[message("user", "Say it in three words.")])) == HELLO
    assert text_of(ask(input="Say it in three words.")) == HELLO


def test_system_prompt(ask):
    assert text_of(ask(input=[message("system", "You are a pirate."), message("user", "Hey.")])) == HELLO


def test_several_turns(ask):
    turns = [message("user", "I am Alice."), message("assistant", "Hello Alice!"), message("user", "Who am I?")]
    assert text_of(ask(input=turns)) == HELLO


def test_function_call_and_its_result(ask):
    question = [message("user", WEATHER)]
    [call] = ask(input=question, tools=[TOOL])["output"]
    assert (call["type"], call["name"]) == ("function_call", "get_weather")
    assert json.loads(call["arguments"]) == {"location": "San Francisco, CA"}
    result = {"type": "function_call_output", "call_id": call["call_id"], "output": "sunny"}
    assert text_of(ask(input=[*question, call, result], tools=[TOOL])) == "The tool has answered: sunny."


def test_previous_response(ask):
    first = ask(input=WEATHER, tools=[TOOL])
    result = {"type": "function_call_output", "call_id": first["output"][0]["call_id"], "output": "sunny"}
    second = ask(input=[result], previous_response_id=first["id"], tools=[TOOL])
    assert (text_of(second), second["previous_response_id"]) == ("The tool has answered: sunny.", first["id"])


def test_refusal():
    refused = httpx.post(URL, json={"model": "demo", "input": "Hey", "max_output_tokens": 0})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "max_output_tokens"
