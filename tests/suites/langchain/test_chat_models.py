"""LangChain's standard tests of chat models, through its own clients. BUNTING_URL is the server's address."""

import os

from langchain_anthropic import ChatAnthropic
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import ChatModelIntegrationTests

URL = os.environ["BUNTING_URL"]


class Chats(ChatModelIntegrationTests):
    """Only text goes in; the words do not matter, so that a model of random tokens will do."""

    supports_image_inputs = False
    supports_audio_inputs = False

    @property
    def chat_model_params(self) -> dict:
        return {**self.where, "model": "demo", "max_tokens": 100, "max_retries": 0}


class TestChatCompletions(Chats):
    where = {"base_url": f"{URL}/v1", "api_key": "none", "stream_usage": True}

    @property
    def chat_model_class(self):
        return ChatOpenAI


class TestResponses(Chats):
    where = {"base_url": f"{URL}/v1", "api_key": "none", "use_responses_api": True}

    @property
    def chat_model_class(self):
        return ChatOpenAI


class TestMessages(Chats):
    where = {"base_url": URL, "api_key": "none"}

    @property
    def chat_model_class(self):
        return ChatAnthropic
