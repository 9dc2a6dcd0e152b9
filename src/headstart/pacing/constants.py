"""Every number that was chosen for adaptive pacing, with its unit. Nobody has to choose them again: none depends on a
model, a drafter or a machine, which are all measured.

What follows from these is computed where it is needed. A share lies between 0 and 1, a logarithm is that of measured
over expected seconds, and a plain step is one row with nothing drafted.
"""

from __future__ import annotations

# -- what is believed of guesses --------------------------------------------------------------------------------------

RATES = {
    0.02: 1.0,
    0.15: 1.0,
    0.3: 1.2,
    0.45: 1.5,
    0.6: 1.8,
    0.72: 2.0,
    0.82: 2.0,
    0.9: 1.6,
    0.95: 1.0,
    0.985: 0.6,
}
"""Acceptance rates between which a belief is spread, and how it is spread while nothing is known: 0.6 on average."""
MAX_DEPTH = 32
"""Guesses beyond this depth are not told apart."""
CHANGE = 1 / 50
"""Chance that a source's acceptance is drawn anew from the prior with a token of the text, and share of the prior that
a round replaces once there have been many."""
EVEN_SHARE = 0.05
"""Share of the prior that stays evenly spread, so that nothing is ever thought impossible."""
PRIOR_ROUNDS = 8
"""Rounds that a prior counts as. Of a drafter that is the target at a lower precision, as many guesses in a row are
taken to have been right, which makes 0.9 on average: at 0.6, what its drafts take could keep it from being tried."""
DOUBT_ROUNDS = 20
"""Rounds' worth of doubt about depths that behave otherwise than the rates say."""

# -- what is known of costs -------------------------------------------------------------------------------------------

RUNNING_SHARE = 0.1
"""Share of a running mean that the newest value replaces."""
MAX_LOG = 2.5
"""Logarithm: most that one step may say of a cost, since machines hiccup, and most that a cost is ever corrected by."""
DOUBT = 0.04
"""Variance of a logarithm: that of a cost in a profile, which is right within a fifth or so, and at first that of
errors. Steps of an idle machine differ by a tenth (0.01), those that wait for other work by a factor of several (1)."""
DRIFT = 1e-5
"""Variance that a cost gains with each step that meets it. With a scatter of 0.01, costs known for long take up 0.03 of
an error; with a scatter of 1, 0.003."""
WARM_UP_STEPS = 6
"""Steps that only set the level of all costs, because they warm caches."""
UNKNOWN_COST = 0.2
"""Share of a plain step: a drafted token that could not be timed, and most that the first decision is believed to
take."""

# -- what is decided, and for how long --------------------------------------------------------------------------------

PRECISION = 0.02
"""Share of a step, or tokens: costs and gains are known no better, so less decides nothing. A draft must promise so
much more than plain decoding."""
PRICES = 16
"""Prices of a node that are tried for a batch."""
NEW_SOURCE_SHARE = 0.8
"""Share of its expected gain that a new source must have to be tried: what its first rounds teach is of use for long,
and one that just misses paying by the prior would hardly ever be met. Also how often a source is taken to have a draft
before it has been asked: were it always, those asked after it in a list would seem useless at first."""
FIRST_ROUNDS = 3
"""Rounds after which a source is no longer new, and drafts after which its costs have been seen."""
SETTLED_STEPS = 4
"""Steps for which a decision stands where it may be a little late: "no drafts" at least, and a batch's drafts at most,
but where deciding takes so much time that they stand for longer (`MIN_TIME_SHARE`, up to `REFRESH_STEPS`). Also the
judged drafts for which a decision on a lone row stands at most. Costs are learnt from every so many decisions, and
steps of a batch, or fewer where that takes too much time."""
REFRESH_STEPS = 16
"""Steps between two tables of what was learnt. Drafts stand for at most so many, and "no drafts" of a lone row, where a
guess could pay and deciding takes little time."""
HORIZON_STEPS = 64
"""Steps for which what has been found out or paid for is taken to be of use: that no draft could pay, and what a source
has read of a text. "No drafts" of a batch stands for at most so many, and costs are learnt from each of so many
decisions at first."""
MIN_TIME_SHARE = 0.005
"""Share of plain decoding's time that trials of a source may take that was never good, and that decisions take, and
learning of costs: what takes longer is done in fewer steps."""
MAX_TIME_SHARE = 0.02
"""The same of a source that was."""

# -- what is measured before the first prompt -------------------------------------------------------------------------

MEASURING_SECONDS = 1.0
"""Seconds of measuring, about; twice as many where the machine is not steady."""
CHECKING_SECONDS = 0.1
"""Seconds of forwards after which a profile that is known has been compared enough."""
MOST_RUNS = 40
"""Runs of each action at most."""
STEADY = 1.4
"""Ratio of the second quickest run of an action over the quickest, at most, where the machine is steady; also of a
profile's forward over one now, at most, where the profile holds."""
FEW_ROWS = (1, 2, 4, 8, 16)
"""Rows of the forwards that are always timed."""
MANY_ROWS = (32, 64)
"""Rows of those that are timed where forwards are quick and there are several requests at a time."""
LONG_DRAFT = 5
"""Tokens of the longer one of the two drafts that are timed."""
MOST_REQUESTS = 4
"""Requests that are timed at a time, at most."""
TEXT_TOKENS = 40
"""Tokens of the texts that are made up for it."""
