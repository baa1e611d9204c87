"""Standard chat model tests of LangChain, through its own clients. BUNTING_URL is the address of the scripted server."""

import os

from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

URL = os.environ["BUNTING_URL"]


class Chats(ChatModelIntegrationTests):
    """Configuration of the tests: text input only."""

    supports_image_inputs = False
    supports_audio_inputs = False
    supports_anthropic_inputs = True
    model_override_value = "another-name"
    supported_usage_metadata_details = {"invoke": ["cache_read_input"], "stream": ["cache_read_input"]}

    @property
    def chat_model_params(self) -> dict:
        return {**self.where, "model": "demo", "max_tokens": 100, "max_retries": 0}

    def invoke_with_cache_read_input(self, *, stream: bool = False) -> AIMessage:
        """Invokes the model twice: the second time, the prompt's beginning is cached."""
        model = self.chat_model_class(**self.chat_model_params)
        prompt = "Hello. " * 50
        model.invoke(prompt)
        if not stream:
            return model.invoke(prompt)
        chunks = list(model.stream(prompt))
        whole = chunks[0]
        for chunk in chunks[1:]:
            whole += chunk
        assert whole.usage_metadata["input_token_details"]["cache_read"] > 0
        return whole


class TestChatCompletions(Chats):
    where = {"base_url": f"{URL}/v1", "api_key": "none", "stream_usage": True}
    supports_json_mode = True

    @property
    def chat_model_class(self):
        return ChatOpenAI


class TestResponses(Chats):
    where = {"base_url": f"{URL}/v1", "api_key": "none", "use_responses_api": True}
    supports_json_mode = True

    @property
    def chat_model_class(self):
        return ChatOpenAI


class TestMessages(Chats):
    where = {"base_url": URL, "api_key": "none"}

    @property
    def chat_model_class(self):
        return ChatAnthropic
