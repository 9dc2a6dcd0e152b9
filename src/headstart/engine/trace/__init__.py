"""Traces: what every step of a run drafted, what the rule made of it and why, as lines of JSON.

from headstart.engine.trace import read_trace
for step in read_trace("run.jsonl").requests[0].steps:
    print(step.source, step.accepted, "of", len(step.tokens))

`Engine.trace` and `headstart generate --trace` make them; docs/guides/read-a-trace.md says what they hold.
"""

from __future__ import annotations

from headstart.base.lazy import lazily

__all__ = ["Recording", "StepLine", "Trace", "TracedRequest", "read_trace", "schema"]

__getattr__ = lazily(
    __name__,
    reader="Trace TracedRequest read_trace",
    format="StepLine schema",
    recording="Recording",
)
