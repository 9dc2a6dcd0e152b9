"""A real vLLM, for the slow tests that need one: from HEADSTART_TEST_VLLM, else wherever headstart finds one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headstart.base.errors import EngineNotFound
from headstart.fleet.vllm import find

VARIABLE = "HEADSTART_TEST_VLLM"


@pytest.fixture(scope="session")
def vllm_python() -> Path:
    """The python of an environment that holds a vLLM; where there is none, the test skips and says so."""
    given = os.environ.get(VARIABLE)
    try:
        return find(None if given is None else Path(given)).python
    except EngineNotFound as error:
        if given is not None:
            raise
        pytest.skip(f"{error.message}; name an environment in {VARIABLE}")
