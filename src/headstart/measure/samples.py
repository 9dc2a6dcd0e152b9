"""Prompts to measure the bundled target with, where the user gives none: Python, which is what it writes."""

from __future__ import annotations

from headstart.base.prompt_sets import PromptItem

_FUNCTIONS = (
    "def parse_date(text):\n    ",
    'def moving_average(values, window):\n    """Mean of each run of `window` values."""\n    ',
    "def find_files(directory, suffix):\n    found = []\n    for name in os.listdir(directory):",
    "def retry(function, attempts=3, delay=1.0):\n    for attempt in range(attempts):\n        try:",
)
_CLASSES = (
    "class Account:\n    def __init__(self, owner, balance=0):\n        self.owner = owner\n",
    'class Matrix:\n    """A matrix of numbers, row by row."""\n\n    def __init__(self, rows):',
    "class LRUCache:\n    def __init__(self, capacity):\n        self.capacity = capacity\n",
    "class Node:\n    def __init__(self, value, left=None, right=None):\n        self.value = value\n",
)
_TESTS = (
    "import unittest\n\n\nclass TestStack(unittest.TestCase):\n    def test_push(self):\n"
    "        stack = Stack()\n        stack.push(1)\n        self.assertEqual(stack.pop(), 1)\n\n    def test_",
    "def test_add():\n    assert add(1, 2) == 3\n    assert add(0, 0) == 0\n\n\ndef test_subtract():\n    ",
    "import pytest\n\n\n@pytest.mark.parametrize(",
    "def test_round_trip(tmp_path):\n    path = tmp_path / 'data.json'\n    save(path, {'a': 1})\n    ",
)


def sample_prompts() -> list[PromptItem]:
    """Twelve prompts in three categories."""
    kinds = {"functions": _FUNCTIONS, "classes": _CLASSES, "tests": _TESTS}
    return [
        PromptItem(text, kind, f"{kind} {number}")
        for kind, texts in kinds.items()
        for number, text in enumerate(texts, start=1)
    ]
