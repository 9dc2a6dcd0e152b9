"""A small fleet on one machine: engines from an export, a router before them, and their checks at the start.

`fleet.Fleet` starts and keeps them; `checks` asks whether they write and accept what they should.
"""
