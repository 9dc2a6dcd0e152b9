"""LangChain's standard tests of chat models, over one of its packages. Run by test_servers.py in their environment."""

from __future__ import annotations

import os
from typing import Any

from langchain_tests.integration_tests import ChatModelIntegrationTests

URL, PACKAGE = os.environ["HEADSTART_URL"], os.environ["HEADSTART_PACKAGE"]


class TestModel(ChatModelIntegrationTests):
    @property
    def chat_model_class(self) -> type[Any]:
        if PACKAGE == "anthropic":
            from langchain_anthropic import ChatAnthropic

            return ChatAnthropic
        from langchain_openai import ChatOpenAI

        return ChatOpenAI

    @property
    def chat_model_params(self) -> dict[str, Any]:
        shared = {"model": "local", "api_key": "none", "max_retries": 0, "temperature": 0.0, "max_tokens": 512}
        if PACKAGE == "anthropic":
            return {**shared, "base_url": URL}
        # at addresses that are not OpenAI's, ChatOpenAI asks for usage in streams only where it is told to
        more = {"stream_usage": True} if PACKAGE == "openai" else {"use_responses_api": True}
        return {**shared, "base_url": f"{URL}/v1", **more}

    @property
    def supports_json_mode(self) -> bool:
        return PACKAGE == "openai"

    @property
    def supports_anthropic_inputs(self) -> bool:
        return PACKAGE == "anthropic"
