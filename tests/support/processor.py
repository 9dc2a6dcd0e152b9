"""What the row kernels of this processor compute with: tests of what depends on it say why they skip."""

from __future__ import annotations

import pytest

from headstart.model import native

INT8 = native.available() and bool(native.kernels().supported(native.INT8))
"""Whether there are row kernels that multiply rows of int8, as draft models run on by default."""

needs_int8 = pytest.mark.skipif(not INT8, reason="the row kernels of this processor have no int8 products")
