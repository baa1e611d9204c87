"""Clients of several models that take turns in memory: `first` and `second` write, one at a time; `embed` gives vectors. OLLAMA_HOST
is the server's address."""

import asyncio
import json
import os
from datetime import datetime, timedelta, timezone

import ollama
import pytest

URL = os.environ["OLLAMA_HOST"]
MODELS = ["first", "second", "embed"]
MESSAGES = [{"role": "user", "content": "Who are you?"}]
SHORT = {"num_predict": 4, "temperature": 0}


def present() -> list[str]:
    return [model.model for model in ollama.ps().models]


def chat(model: str, **more) -> ollama.ChatResponse:
    return ollama.chat(model, MESSAGES, options=SHORT, **more)


def minutes_left() -> float:
    (model,) = ollama.ps().models
    return (model.expires_at - datetime.now(timezone.utc)) / timedelta(minutes=1)


class TestOllama:
    def test_list_and_show(self):
        models = ollama.list().models
        assert [model.model for model in models] == MODELS
        assert len({model.digest for model in models}) == 3
        for model in models:
            shown = ollama.show(model.model)
            assert (model.details.family, model.details.quantization_level) == ("qwen3", "BF16")
            assert model.size > 1_000_000
            assert shown.capabilities == (["embedding"] if model.model == "embed" else ["completion", "tools"])
            assert shown.modelinfo["qwen3.context_length"] == (512 if model.model == "embed" else 2048)

    def test_turns(self):
        whole = {model: chat(model) for model in ["first", "second"]}
        for model in ["first", "second", "first", "second:latest"]:
            parts = list(chat(model, stream=True))
            assert {part.model for part in parts} == {model}
            assert "".join(part.message.content for part in parts) == whole["first"].message.content
            assert parts[-1].load_duration > 0
            (running,) = ollama.ps().models
            assert running.model == model.removesuffix(":latest")
            assert running.size > 11_000_000 and running.size_vram == 0 and running.context_length == 2048
            assert chat(model).load_duration == 0

    def test_all_at_once(self):
        async def ask():
            client = ollama.AsyncClient()
            chats = [client.chat(model, MESSAGES, options=SHORT) for model in ["first", "second"] * 4]
            embeds = [client.embed("embed", ["a", "b"]) for _ in range(4)]
            return await asyncio.gather(*chats, *embeds)

        answers = asyncio.run(ask())
        assert [answer.model for answer in answers] == ["first", "second"] * 4 + ["embed"] * 4

    def test_keep_alive(self):
        chat("first", keep_alive="5m")
        assert 4 < minutes_left() <= 5
        chat("first", keep_alive=90)
        assert 1 < minutes_left() <= 1.5
        chat("first", keep_alive=-1)
        (model,) = ollama.ps().models
        assert model.expires_at.astimezone(timezone(timedelta(hours=14))).year > 2200
        chat("first", keep_alive=0)
        while present():
            pass
        with pytest.raises(ollama.ResponseError, match='"soon" was given'):
            chat("first", keep_alive="soon")

    def test_load_and_unload(self):
        assert ollama.generate("second", keep_alive="1m").done_reason == "load"
        assert present() == ["second"]
        assert ollama.generate("second", keep_alive=0).done_reason == "unload"
        while present():
            pass
        assert ollama.chat("first", keep_alive=0).done_reason == "unload"
        assert present() == []

    def test_embed(self):
        both = ollama.embed("embed", ["a", "b"], keep_alive="5m")
        assert [len(vector) for vector in both.embeddings] == [96, 96]
        assert ollama.embed("embed", "a").embeddings == both.embeddings[:1]
        assert len(ollama.embeddings("embed", "a").embedding) == 96
        assert "embed" in present()
        with pytest.raises(ollama.ResponseError, match="writes no text"):
            chat("embed")

    def test_pull(self):
        parts = list(ollama.pull("Tiny/Demo", stream=True))
        assert (parts[0].status, parts[-1].status) == ("pulling manifest", "success")
        largest = max((part for part in parts if part.total), key=lambda part: part.total)
        seen = [part.completed for part in parts if part.digest == largest.digest]
        assert seen == sorted(seen) and len(seen) > 1 and seen[-1] == largest.total
        assert ollama.pull("Tiny/Demo").status == ollama.pull("first").status == "success"
        for name, said in [("Tiny/None", "does not exist"), ("third", "names no model")]:
            for stream in [False, True]:
                with pytest.raises(ollama.ResponseError, match=said):
                    list(ollama.pull(name, stream=stream))

    @pytest.mark.parametrize(
        "ask",
        [
            lambda: chat("third"),
            lambda: list(chat("third", stream=True)),
            lambda: ollama.generate("third", "Hi"),
            lambda: ollama.embed("third", "Hi"),
            lambda: ollama.show("third"),
        ],
    )
    def test_unknown_model(self, ask):
        with pytest.raises(ollama.ResponseError) as refused:
            ask()
        assert refused.value.status_code == 404
        assert refused.value.error == 'model "third" not found; served here: first, second, embed'

    @pytest.mark.parametrize(
        "ask",
        [
            lambda: ollama.copy("first", "other"),
            lambda: ollama.delete("first"),
            lambda: ollama.push("first"),
            lambda: ollama.create("other", from_="first"),
            lambda: list(ollama.create("other", from_="first", stream=True)),
            lambda: ollama.Client().create_blob(__file__),
        ],
    )
    def test_store_is_fixed(self, ask):
        with pytest.raises(ollama.ResponseError, match="models are not made, copied, sent or deleted here") as refused:
            ask()
        assert refused.value.status_code == 501


class TestLLM:
    """Tool `llm`: its plugin for Ollama finds the models; its own configuration names them for the OpenAI API."""

    @pytest.fixture
    def llm(self, tmp_path, monkeypatch):
        monkeypatch.setenv("LLM_USER_PATH", str(tmp_path))
        named = [f"- model_id: v1-{name}\n  model_name: {name}\n  api_base: {URL}/v1\n" for name in ["first", "second", "third"]]
        (tmp_path / "extra-openai-models.yaml").write_text("".join(named))
        import llm

        return llm

    def test_models_are_found(self, llm):
        found = [model.model_id for model in llm.get_models()]
        assert [name for name in found if name.startswith("ollama/")] == ["ollama/first", "ollama/second"]
        assert "ollama/embed" in [model.model.model_id for model in llm.get_embedding_models_with_aliases()]

    @pytest.mark.parametrize("stream", [False, True])
    def test_turns(self, llm, stream):
        for name in ["ollama/first", "v1-second", "v1-first", "ollama/second"]:
            limit = {"num_predict": 4} if name.startswith("ollama") else {"max_tokens": 4}
            model = llm.get_model(name)
            model.key = "none"
            answer = model.prompt("Who are you?", stream=stream, temperature=0, **limit)
            assert "".join(answer) == chat("first").message.content
            assert answer.usage().output == 4

    def test_schema(self, llm):
        schema = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}
        text = llm.get_model("ollama/second").prompt("A dog", schema=schema, num_predict=60).text()
        assert list(json.loads(text)) == ["age"]

    def test_embed(self, llm):
        assert len(llm.get_embedding_model("ollama/embed").embed("the sea")) == 96

    def test_unknown_model(self, llm):
        model = llm.get_model("v1-third")
        model.key = "none"
        with pytest.raises(Exception, match="served here: first, second, embed"):
            model.prompt("Hi").text()
