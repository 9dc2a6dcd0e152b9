"""EAGLE-1, -2, -3 and P-EAGLE: a head of one or a few layers drafts from the target's own hidden states.

The states of a text tell far more of what comes next than its tokens do. The head's row t is the pair (token x_{t+1},
the target's states h_t); the last one has the distribution of the first draft token. From there EAGLE goes on step by
step with the head's own states (`stepwise`), and P-EAGLE guesses the other tokens in the same forward (`drafter`). In
every round the rows of newly committed tokens are read with the target's states, which are a guess or two and the
bonus; what the head made of its own guesses is scratch and is overwritten.

Drafts are chains (`tree="none"`), EAGLE-2's dynamic trees ("top-k"), static trees whose shape is learnt ("sampled"), or
the last two by what a request asks for ("mixed", see `growing.policy`). A head may know only a part of the vocabulary:
the other tokens have probability 0 in its distribution, which keeps the rule exact.

Sources: EAGLE (arXiv:2401.15077), EAGLE-2 (2406.16858), EAGLE-3 (2503.01840), P-EAGLE (2602.01469).
"""

from __future__ import annotations

from headstart.drafters import Weights
from headstart.drafters.eagle.drafter import EagleDrafter, build
from headstart.model.heads.eagle_checkpoint import is_eagle as recognises

WEIGHTS: Weights = "head"

__all__ = ["WEIGHTS", "EagleDrafter", "build", "recognises"]
