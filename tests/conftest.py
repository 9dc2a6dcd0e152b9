"""Tiny random models, made once per run; no network, no weights from anywhere else."""

from __future__ import annotations

import os

os.environ["HF_HUB_OFFLINE"] = "1"
