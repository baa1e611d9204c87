"""Clients in Python: a structured answer, a tool's call and its result, a stream and a refusal through each. BUNTING_URL is the
address of the scripted server (its model answers by words.ts)."""

import os
import time

import pytest
from pydantic import BaseModel

URL = os.environ["BUNTING_URL"]
V1 = f"{URL}/v1"
HELLO = "Hello. I am a scripted model, and this is all that I have to say."
WEATHER = "What is the weather like in San Francisco?"
ANSWERED = "The tool has answered: sunny."
JOKE = "Tell me a joke about cats."
TOO_LONG = "Hey " * 80_000


class Joke(BaseModel):
    setup: str
    punchline: str


def is_told(joke: Joke) -> None:
    assert isinstance(joke, Joke)
    assert "cat" in joke.setup and "mouse" in joke.punchline


class Asked:
    """Tool that records the requested places."""

    def __init__(self):
        self.places = []

    def get_weather(self, location: str) -> str:
        """The weather of a place."""
        self.places.append(location)
        return "sunny"


@pytest.fixture
def asked():
    noted = Asked()
    yield noted
    assert noted.places == ["San Francisco, CA"]


def weather_tool(**more) -> dict:
    parameters = {"type": "object", "properties": {"location": {"type": "string"}}, "required": ["location"]}
    return {"name": "get_weather", "description": "The weather of a place", **more, "parameters": parameters}


class TestOpenAI:
    @pytest.fixture
    def client(self):
        from openai import OpenAI

        return OpenAI(base_url=V1, api_key="none", max_retries=0)

    def test_structured(self, client):
        messages = [{"role": "user", "content": JOKE}]
        chat = client.chat.completions.parse(model="demo", messages=messages, response_format=Joke)
        is_told(chat.choices[0].message.parsed)
        is_told(client.responses.parse(model="demo", input=JOKE, text_format=Joke).output_parsed)

    def test_tool_in_chats(self, client):
        tools = [{"type": "function", "function": weather_tool()}]
        messages = [{"role": "user", "content": WEATHER}]
        first = client.chat.completions.create(model="demo", messages=messages, tools=tools).choices[0]
        assert first.finish_reason == "tool_calls"
        call = first.message.tool_calls[0]
        assert call.function.name == "get_weather"
        messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        second = client.chat.completions.create(model="demo", messages=messages, tools=tools).choices[0]
        assert second.message.content == ANSWERED

    def test_tool_in_responses(self, client):
        tools = [{"type": "function", **weather_tool()}]
        first = client.responses.create(model="demo", input=WEATHER, tools=tools)
        call = first.output[0]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
        kept = client.responses.create(model="demo", input=[result], previous_response_id=first.id, tools=tools)
        told = [{"role": "user", "content": WEATHER}, call, result]
        assert (kept.output_text, client.responses.create(model="demo", input=told).output_text) == (ANSWERED, ANSWERED)

    def test_stream(self, client):
        messages = [{"role": "user", "content": "Hey"}]
        with client.chat.completions.stream(model="demo", messages=messages) as stream:
            texts = [event.delta for event in stream if event.type == "content.delta"]
        assert "".join(texts) == HELLO
        with client.responses.stream(model="demo", input="Hey") as stream:
            texts = [event.delta for event in stream if event.type == "response.output_text.delta"]
            assert stream.get_final_response().output_text == "".join(texts) == HELLO

    def test_error(self, client):
        from openai import BadRequestError

        with pytest.raises(BadRequestError) as refused:
            client.chat.completions.create(model="demo", messages=[{"role": "user", "content": TOO_LONG}])
        assert refused.value.code == "context_length_exceeded"
        with pytest.raises(BadRequestError, match="max"):
            client.responses.create(model="demo", input=TOO_LONG)


    def test_conversation(self, client):
        conversation = client.conversations.create(metadata={"about": "rain"})
        client.responses.create(model="demo", input="Hey", conversation=conversation.id)
        client.responses.create(model="demo", input=WEATHER, conversation=conversation.id)
        items = list(client.conversations.items.list(conversation.id, order="asc", limit=1))
        assert [item.role for item in items] == ["user", "assistant", "user", "assistant"]
        client.conversations.items.delete(items[0].id, conversation_id=conversation.id)
        assert len(list(client.conversations.items.list(conversation.id))) == 3
        assert client.conversations.delete(conversation.id).deleted

    def test_compaction(self, client):
        told = [{"role": "user", "content": "Hey"}, {"role": "assistant", "content": HELLO}]
        compacted = client.responses.compact(model="demo", input=told)
        assert [item.type for item in compacted.output] == ["message", "compaction"]
        asked = [*compacted.output, {"role": "user", "content": "Hey"}]
        assert client.responses.create(model="demo", input=asked).output_text == HELLO


class TestAnthropic:
    @pytest.fixture
    def client(self):
        from anthropic import Anthropic

        return Anthropic(base_url=URL, api_key="none", max_retries=0)

    def test_structured(self, client):
        messages = [{"role": "user", "content": JOKE}]
        is_told(client.messages.parse(model="demo", max_tokens=200, messages=messages, output_format=Joke).parsed_output)

    def test_tool(self, client):
        parameters = weather_tool()["parameters"]
        asking = {
            "model": "demo",
            "max_tokens": 200,
            "tools": [{"name": "get_weather", "description": "The weather of a place", "input_schema": parameters}],
        }
        messages = [{"role": "user", "content": WEATHER}]
        first = client.messages.create(messages=messages, **asking)
        assert (first.stop_reason, first.content[0].input) == ("tool_use", {"location": "San Francisco, CA"})
        result = {"type": "tool_result", "tool_use_id": first.content[0].id, "content": "sunny"}
        messages += [{"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
        assert client.messages.create(messages=messages, **asking).content[0].text == ANSWERED

    def test_stream(self, client):
        messages = [{"role": "user", "content": "Hey"}]
        with client.messages.stream(model="demo", max_tokens=200, messages=messages) as stream:
            assert "".join(stream.text_stream) == stream.get_final_text() == HELLO

    def test_error(self, client):
        from anthropic import BadRequestError

        messages = [{"role": "user", "content": "Hey"}]
        with pytest.raises(BadRequestError, match="there are no tools"):
            client.messages.create(model="demo", max_tokens=200, messages=messages, tool_choice={"type": "any"})


    def test_batch(self, client):
        params = {"model": "demo", "max_tokens": 200, "messages": [{"role": "user", "content": "Hey"}]}
        requests = [{"custom_id": "good", "params": params}, {"custom_id": "bad", "params": {**params, "temperature": 9}}]
        batches = client.messages.batches
        made = batches.create(requests=requests)
        while batches.retrieve(made.id).processing_status != "ended":
            time.sleep(0.05)
        good, bad = batches.results(made.id)
        assert (good.custom_id, good.result.type, good.result.message.content[0].text) == ("good", "succeeded", HELLO)
        assert (bad.custom_id, bad.result.error.error.type) == ("bad", "invalid_request_error")
        assert [batch.id for batch in batches.list(limit=1)] == [made.id]
        assert batches.delete(made.id).type == "message_batch_deleted"


class TestAgents:
    """Agents SDK of OpenAI, over the Responses API (its default) and over chat completions."""

    @pytest.fixture(params=["responses", "chats"])
    def model(self, request):
        import agents
        from openai import AsyncOpenAI

        agents.set_tracing_disabled(True)
        client = AsyncOpenAI(base_url=V1, api_key="none", max_retries=0)
        kind = agents.OpenAIResponsesModel if request.param == "responses" else agents.OpenAIChatCompletionsModel
        return kind(model="demo", openai_client=client)

    async def test_structured(self, model):
        from agents import Agent, Runner

        is_told((await Runner.run(Agent(name="a", model=model, output_type=Joke), JOKE)).final_output)

    async def test_tool(self, model, asked):
        from agents import Agent, Runner, function_tool

        agent = Agent(name="a", instructions="Be brief.", model=model, tools=[function_tool(asked.get_weather)])
        assert (await Runner.run(agent, WEATHER)).final_output == ANSWERED

    async def test_stream(self, model, asked):
        from agents import Agent, Runner, function_tool

        agent = Agent(name="a", model=model, tools=[function_tool(asked.get_weather)])
        run = Runner.run_streamed(agent, WEATHER)
        events = [event async for event in run.stream_events()]
        deltas = [e.data.delta for e in events if e.type == "raw_response_event" and e.data.type == "response.output_text.delta"]
        assert "".join(deltas) == run.final_output == ANSWERED

    async def test_error(self, model):
        from agents import Agent, Runner
        from openai import BadRequestError

        agent = Agent(name="a", model=model)
        with pytest.raises(BadRequestError):
            await Runner.run(agent, TOO_LONG)


    async def test_sessions(self):
        from agents import Agent, OpenAIConversationsSession, OpenAIResponsesModel, Runner, SQLiteSession
        from agents.memory import OpenAIResponsesCompactionSession
        from openai import AsyncOpenAI

        client = AsyncOpenAI(base_url=V1, api_key="none", max_retries=0)
        agent = Agent(name="a", model=OpenAIResponsesModel(model="demo", openai_client=client))
        session = OpenAIConversationsSession(openai_client=client)
        for _ in range(2):
            assert (await Runner.run(agent, "Hey", session=session)).final_output == HELLO
        assert [item["role"] for item in await session.get_items()] == ["user", "assistant"] * 2
        await session.pop_item()
        assert len(await session.get_items()) == 3
        await session.clear_session()
        compacting = OpenAIResponsesCompactionSession("s", SQLiteSession("s"), client=client, model="gpt-5")
        await Runner.run(agent, "Hey", session=compacting)
        await compacting.run_compaction({"force": True})
        assert [item["type"] for item in await compacting.get_items()][-1] == "compaction"
        assert (await Runner.run(agent, "Hey", session=compacting)).final_output == HELLO


class TestInstructor:
    @pytest.fixture(params=["TOOLS", "JSON_SCHEMA", "JSON", "MD_JSON", "RESPONSES_TOOLS"])
    def client(self, request):
        import instructor
        from openai import OpenAI

        openai = OpenAI(base_url=V1, api_key="none", max_retries=0)
        return instructor.from_openai(openai, mode=instructor.Mode[request.param])

    def test_structured(self, client):
        messages = [{"role": "user", "content": JOKE}]
        is_told(client.create(model="demo", messages=messages, response_model=Joke, max_retries=0))

    def test_stream(self, client):
        messages = [{"role": "user", "content": JOKE}]
        partial = client.create_partial(model="demo", messages=messages, response_model=Joke, max_retries=0)
        told = list(partial)
        assert len(told) > 2 and "mouse" in told[-1].punchline

    def test_error(self, client):
        messages = [{"role": "user", "content": TOO_LONG}]
        with pytest.raises(Exception, match="context length"):
            client.create(model="demo", messages=messages, response_model=Joke, max_retries=0)


class TestPydanticAI:
    @pytest.fixture(params=["chats", "responses", "messages"])
    def model(self, request):
        from pydantic_ai.models.anthropic import AnthropicModel
        from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
        from pydantic_ai.providers.anthropic import AnthropicProvider
        from pydantic_ai.providers.openai import OpenAIProvider

        if request.param == "messages":
            return AnthropicModel("demo", provider=AnthropicProvider(base_url=URL, api_key="none"))
        kind = OpenAIChatModel if request.param == "chats" else OpenAIResponsesModel
        return kind("demo", provider=OpenAIProvider(base_url=V1, api_key="none"))

    async def test_structured(self, model):
        from pydantic_ai import Agent, NativeOutput

        is_told((await Agent(model, output_type=Joke).run(JOKE)).output)
        if "Anthropic" not in type(model).__name__:
            is_told((await Agent(model, output_type=NativeOutput(Joke)).run(JOKE)).output)

    async def test_tool(self, model, asked):
        from pydantic_ai import Agent

        assert (await Agent(model, tools=[asked.get_weather]).run(WEATHER)).output == ANSWERED

    async def test_stream(self, model, asked):
        from pydantic_ai import Agent

        async with Agent(model, tools=[asked.get_weather]).run_stream(WEATHER) as run:
            assert "".join([text async for text in run.stream_text(delta=True)]) == ANSWERED

    async def test_error(self, model):
        from pydantic_ai import Agent
        from pydantic_ai.exceptions import ModelHTTPError

        with pytest.raises(ModelHTTPError) as refused:
            await Agent(model).run(TOO_LONG)
        assert refused.value.status_code == 400


class TestLlamaIndex:
    def model(self, **more):
        from llama_index.llms.openai_like import OpenAILike

        capable = {"is_chat_model": True, "is_function_calling_model": True, "context_window": 65_536}
        return OpenAILike(model="demo", api_base=V1, api_key="none", max_retries=0, **capable, **more)

    def test_structured(self):
        is_told(self.model().as_structured_llm(Joke).complete(JOKE).raw)

    def test_tool(self, asked):
        from llama_index.core.tools import FunctionTool

        tool = FunctionTool.from_defaults(fn=asked.get_weather)
        assert str(self.model().predict_and_call([tool], WEATHER)) == "sunny"

    def test_stream(self):
        assert "".join(part.delta for part in self.model().stream_complete("Hey")) == HELLO
        assert self.model().complete("Hey").text == HELLO

    def test_error(self):
        from openai import BadRequestError

        with pytest.raises(BadRequestError):
            self.model().complete(TOO_LONG)


class TestLiteLLM:
    @pytest.fixture(params=["openai", "hosted_vllm", "anthropic"])
    def asking(self, request):
        base = URL if request.param == "anthropic" else V1
        return {"model": f"{request.param}/demo", "api_base": base, "api_key": "none", "num_retries": 0}

    def test_structured(self, asking):
        from litellm import completion

        answer = completion(messages=[{"role": "user", "content": JOKE}], response_format=Joke, **asking)
        is_told(Joke.model_validate_json(answer.choices[0].message.content))

    def test_tool(self, asking):
        from litellm import completion

        asking["tools"] = [{"type": "function", "function": weather_tool()}]
        messages = [{"role": "user", "content": WEATHER}]
        first = completion(messages=messages, **asking).choices[0]
        assert first.finish_reason == "tool_calls"
        call = first.message.tool_calls[0]
        messages += [first.message, {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
        assert completion(messages=messages, **asking).choices[0].message.content == ANSWERED

    def test_stream(self, asking):
        from litellm import completion

        chunks = list(completion(messages=[{"role": "user", "content": "Hey"}], stream=True, **asking))
        assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == HELLO
        assert chunks[-1].choices[0].finish_reason == "stop"

    def test_error(self, asking):
        from litellm import completion
        from litellm.exceptions import BadRequestError

        with pytest.raises(BadRequestError):
            completion(messages=[{"role": "user", "content": TOO_LONG}], **asking)


class TestLLM:
    """Tool `llm` by Simon Willison, configured as its documentation says."""

    @pytest.fixture
    def model(self, tmp_path, monkeypatch):
        monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
        able = "supports_tools: true\n  supports_schema: true\n"
        (tmp_path / "extra-openai-models.yaml").write_text(
            f"- model_id: bunting\n  model_name: demo\n  api_base: {V1}\n  {able}"
        )
        import llm

        model = llm.get_model("bunting")
        model.key = "none"
        return model

    def test_structured(self, model):
        is_told(Joke.model_validate_json(model.prompt(JOKE, schema=Joke, stream=False).text()))

    def test_tool(self, model, asked):
        assert model.chain(WEATHER, tools=[asked.get_weather], stream=False).text() == ANSWERED

    def test_stream(self, model, asked):
        assert "".join(model.chain(WEATHER, tools=[asked.get_weather])) == ANSWERED

    def test_error(self, model):
        with pytest.raises(Exception, match="context length"):
            model.prompt(TOO_LONG).text()
