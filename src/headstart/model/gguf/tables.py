"""Tables of numbers that some types of tensors look their codes up in."""

from __future__ import annotations

import numpy as np

IQ4 = (
    np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int16) + 128
).astype(np.uint8)  # fmt: skip
"""What the 16 codes of IQ4_NL and IQ4_XS stand for, counted from -128 (kvalues_iq4nl of ggml-common.h)."""
