"""The prompts of parity where the user gives none: beginnings of small Python files."""

from __future__ import annotations

MAX_TOKENS = 96
"""New tokens for each prompt."""

PROMPTS = (
    'def median(numbers):\n    """Return the median of a list of numbers."""\n',
    'import csv\n\n\ndef read_rows(path):\n    """Read a CSV file and return its rows as dictionaries."""\n',
    'class Stack:\n    """A stack of items, the last one on top."""\n\n    def __init__(self):\n',
    'def is_palindrome(text):\n    """Whether the text reads the same from both ends."""\n',
    'import argparse\n\n\ndef main():\n    parser = argparse.ArgumentParser(description="Count the words of a file")\n',
    'def fibonacci(n):\n    """Return the first n Fibonacci numbers."""\n',
    "class Account:\n    def __init__(self, owner, balance=0):\n        self.owner = owner\n"
    "        self.balance = balance\n\n    def deposit(self, amount):\n",
    "import unittest\n\n\nclass TestParser(unittest.TestCase):\n    def setUp(self):\n",
    'def merge(left, right):\n    """Merge two sorted lists into one sorted list."""\n    result = []\n',
    "from dataclasses import dataclass\n\n\n@dataclass\nclass Point:\n    x: float\n    y: float\n\n"
    "    def distance(self, other):\n",
    "def count_words(path):\n    counts = {}\n    with open(path) as file:\n        for line in file:\n",
    "import logging\n\nlogger = logging.getLogger(__name__)\n\n\ndef retry(function, attempts=3):\n"
    '    """Call the function again if it raises an error."""\n',
)
