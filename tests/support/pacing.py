"""An engine that goes on with a pacing of the test's own."""

from __future__ import annotations

import headstart as hs
from headstart.engine.guards import GuardedPacing
from headstart.pacing import Pacing


def give(engine: hs.Engine, pacing: Pacing) -> None:
    """As `Engine.paced`, but for good."""
    assert not engine.scheduler.requests()
    engine._loop.pacing = GuardedPacing(pacing)
