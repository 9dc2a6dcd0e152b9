"""Parity: whether a running vLLM accepts of its drafter exactly what headstart's own engine would accept of it.

A head that is loaded wrongly (other layers, a shifted vocabulary, a norm too many, biases dropped) changes no text. It
is only accepted less, and no server says so. So headstart runs the same head over the text that the server wrote, and
predicts the server's own counters: in float32 they must be equal, elsewhere the differences must lie within the noise.
"""

from headstart.fleet.parity.plan import Plan
from headstart.fleet.parity.report import ParityReport
from headstart.fleet.parity.run import parity
from headstart.fleet.parity.verify import verify_export

__all__ = ["ParityReport", "Plan", "parity", "verify_export"]
