from __future__ import annotations

from collections.abc import Iterator

import pytest
from support.twins import Twin, twin


@pytest.fixture(scope="module")
def js() -> Iterator[Twin]:
    with twin() as found:
        yield found
