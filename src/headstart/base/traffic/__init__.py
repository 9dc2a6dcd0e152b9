"""Served traffic in one private file: prompts and outputs, in tokens, so that a drafter can be adapted to it.

`format` is the file, `writer` appends to it, keeps it small, and makes pseudonyms of its users. The file
holds what people wrote, in tokens that anybody can turn back into text: it is made with mode 600, and only when asked
for.
"""

from headstart.base.traffic.format import Exchange, Tokens, Traffic, is_header, read, write
from headstart.base.traffic.writer import TrafficWriter, forget

__all__ = ["Exchange", "Tokens", "Traffic", "TrafficWriter", "forget", "is_header", "read", "write"]
