"""Rows that are decided on together: what they believe, what they share, and their budgets for the next step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from headstart.pacing.beliefs import DEEPEST, Belief, Pool
from headstart.pacing.choice import Choice, Offer, can_pay, choose_for_one, worth
from headstart.pacing.costs import Prices
from headstart.pacing.grid import choose_for_many
from headstart.pacing.reasons import MEASURING, drafting, probing, resting
from headstart.row import Row
from headstart.types import Budget, Draft, Step

ALLOWANCE = 0.005, 0.02
"""Share of plain decoding's time that may be spent on trying a source that does not seem to pay: the least, for one
that never did, and the most."""
NAP = 3
"""Steps for which the lengths of a batch stand at most before they are thought over, because thinking costs time too;
those of one row are thought over in every step."""
REST, LONG_REST, HOPELESS = 3, 15, 63
"""The same for "no drafts": the least; the most until the next probe; where no source could pay if always right."""
OPTIMISM = 0.8
"""Exponent on the chances of a source of which only a few rounds are known, and divisor of what its trees should bring:
what these rounds teach is of use for long."""
_HORIZON = 64  # steps over which reading a long context for a draft is spread


@dataclass(frozen=True, slots=True)
class Source:
    """A drafter that can be turned up and down by itself. limit: most nodes it is worth asking for. sizes: (nodes,
    depth) of the trees it can draft, smallest first; empty for chains."""

    name: str
    limit: int
    sizes: tuple[tuple[int, int], ...] = ()

    @property
    def depth(self) -> int:
        """Of its deepest draft."""
        return max((depth for _, depth in self.sizes), default=self.limit)

    @property
    def least(self) -> tuple[int, int]:
        """Nodes and depth of its smallest draft."""
        return self.sizes[0] if self.sizes else (1, 1)

    def levels(self, nodes: int) -> int:
        """Depth of a draft for which so many nodes were asked: what drafting it costs grows with that."""
        if not self.sizes:
            return nodes
        return max((size for size in self.sizes if size[0] <= nodes), default=(0, 0))[1]


class RowState:
    """One request: what is believed of each source, and how much of the text each has read."""

    def __init__(self, group: Group) -> None:
        self.group = group
        self.beliefs = [Belief(pool) for pool in group.pools]
        self.read = [0] * len(self.beliefs)
        self.caps: Sequence[int] = ()
        self.asked: Sequence[int] = ()
        self.behind = 0  # tokens that a source asked in the last step had to read first

    def learn(self, step: Step, source: int | None) -> None:
        """Judge the source that drafted; those asked before it had nothing to say."""
        asked = []
        self.behind = 0
        for place, cap in enumerate(self.caps):
            if cap == 0:
                continue
            asked.append(place)
            self.behind = max(self.behind, step.position - self.read[place] - 2)
            spoke = place == source and len(step.draft) > 0
            self.beliefs[place].heard(spoke)
            self.read[place] = step.position
            if spoke and self.group.pools[place].trees is not None:
                self.beliefs[place].learn_tree(step.draft, step.path, cap)
            elif spoke:
                self.beliefs[place].learn(len(step.path), max(step.draft.depths))
            if spoke:
                break
        self.asked, self.caps = asked, ()
        self.drift(len(step.tokens))

    def overhear(self, place: int, draft: Draft, tokens: Sequence[int]) -> None:
        """A source that was passed over would have drafted this chain (or nothing), and these tokens came."""
        belief = self.beliefs[place]
        belief.heard(len(draft) > 0)
        if not len(draft) or self.group.pools[place].trees is not None:
            return
        right = next((i for i, (a, b) in enumerate(zip(draft.tokens, tokens, strict=False)) if a != b), None)
        if right is None:  # of the rest, if there is one, nobody knows
            right = tested = min(len(draft), len(tokens))
        else:
            tested = len(draft)
        belief.learn(right, tested)

    def drift(self, tokens: int) -> None:
        """The text went on by so many tokens."""
        for belief in self.beliefs:
            belief.drift(tokens)


class Group:
    """Prices, experience with each source, an allowance for probing, and the decision."""

    def __init__(self, sources: Sequence[Source], prices: Prices) -> None:
        self.prices = prices
        self.pools = [Pool(min(source.depth, DEEPEST), source.sizes) for source in sources]
        self._sources = sources
        self._credit = 0.0
        self._rate = 0.0
        self._useful: dict[tuple[int, int], bool] = {}
        self._version = -1
        self._last: tuple[object, list[Budget], list[list[int]]] | None = None
        self._patience = self._nap = 0
        self._due = 0.0  # steps until there may be a probe
        self._resting: list[int] = []
        self.rest: list[Budget] = []

    def rests(self, rows: Sequence[Row]) -> bool:
        """Whether these rows, all of a step, still draft nothing, as decided not long ago: `rest` is their budgets."""
        if self._nap >= self._patience or not self._resting or [row.request for row in rows] != self._resting:
            return False
        if any(row.room <= 0 for row in rows):
            return False
        self._nap += 1
        return True

    def plan(self, rows: Sequence[tuple[Row, RowState]], batch: int, extra: int = 0) -> list[Budget]:
        """Budgets of `rows`, of a step of `batch` requests in which others draft `extra` nodes."""
        if not rows:
            return []
        self._resting = []
        if self.prices.doubtful:
            return [Budget(0, MEASURING) for _ in rows]
        asked = batch, [row.request for row, _ in rows]
        if self._last is None or self._nap >= self._patience or self._last[0] != asked:
            budgets, caps = self._think(rows, batch, extra)
            self._last = asked, budgets, caps
            self._nap = 0
        else:
            self._nap += 1
        _, budgets, caps = self._last
        still = batch == len(rows) and not any(budget.nodes for budget in budgets)
        self._resting, self.rest = (asked[1], budgets) if still else ([], [])
        for (row, state), budget, mine in zip(rows, budgets, caps, strict=True):
            if not budget.nodes:
                state.caps = ()
            else:
                state.caps = mine if budget.nodes <= row.room else [min(cap, row.room) for cap in mine]
        return [budget.within(row.room) for (row, _), budget in zip(rows, budgets, strict=True)]

    def _think(
        self, rows: Sequence[tuple[Row, RowState]], batch: int, extra: int
    ) -> tuple[list[Budget], list[list[int]]]:
        """Budgets, and the caps of each row by place of the source."""
        offers = [self._offers(row, state) for row, state in rows]
        choice = self._choose(offers, batch, extra)
        self._rate = choice.rate
        idle = {place for mine in choice.caps for place, cap in enumerate(mine) if cap == 0}
        probed, every = self._probe(offers, choice, idle, batch) if idle else (None, 0.0)
        budgets = []
        for each, mine in zip(offers, choice.caps, strict=True):
            tried = probed if probed is not None and mine[probed] == 0 else None
            if tried is not None and each[tried].survival:
                mine[tried] = self._sources[tried].least[0]
            budgets.append(self._budget(each, mine, tried, every, batch))
        if probed is not None:
            self._patience = 0
        elif any(budget.nodes for budget in budgets):
            self._patience = min(NAP, len(rows) // 4)
        else:  # nothing is learnt about a source that is not asked, so the next probe is soon enough
            self._patience = HOPELESS if math.isinf(self._due) else int(min(max(REST, self._due), LONG_REST))
        return budgets, choice.caps

    def _choose(self, offers: Sequence[Sequence[Offer]], batch: int, extra: int) -> Choice:
        if len(offers) > 1:
            return choose_for_many(offers, self.prices, batch, extra=extra, rate=self._rate)
        return choose_for_one(offers[0], self.prices, others=batch - 1, extra=extra, rate=self._rate)

    def _offers(self, row: Row, state: RowState) -> list[Offer]:
        offers = []
        steps = min(row.room + 1, _HORIZON)
        for place, (source, belief) in enumerate(zip(self._sources, state.beliefs, strict=True)):
            young = self.pools[place].young  # a source that just misses paying by the prior would hardly ever be met
            unread = max(0, len(row.tokens) - state.read[place] - 2)  # a draft always has a token or two to read
            backlog = self.prices.read(place) * unread
            sizes = tuple(size for size in source.sizes if size[0] <= row.room)
            if self.pools[place].trees is not None:
                gains = [gain / OPTIMISM if young else gain for gain in belief.gains()[: len(sizes)]]
                chances = [belief.chance] if sizes else []
                offers.append(Offer(place, belief.speaks, chances, backlog, steps, sizes, gains))
                continue
            survival = belief.survival()
            if young:
                survival = [chance**OPTIMISM for chance in survival]
            deepest = max((depth for _, depth in sizes), default=0) if source.sizes else min(source.limit, row.room)
            offers.append(Offer(place, belief.speaks, survival[:deepest], backlog, steps, sizes))
        return offers

    def _probe(
        self, offers: Sequence[Sequence[Offer]], choice: Choice, idle: set[int], batch: int
    ) -> tuple[int | None, float]:
        """The source to try in this step although it does not seem to pay, if the allowance covers what that may
        lose; and in how many steps it will."""
        losses = {place: self._loss(place, offers, choice, batch) for place in idle if self._can_pay(place, batch)}
        if not losses:
            self._due = math.inf
            return None, 0.0
        place = min(losses, key=lambda each: losses[each])
        loss = losses[place]
        least, most = ALLOWANCE
        allowance = self.prices.forward(batch, batch) * (least + (most - least) * self.pools[place].promise)
        self._credit += allowance * (1 + self._nap)
        if self._credit < loss:
            self._due = (loss - self._credit) / allowance - 1  # the step that asks counts, too
            return None, loss / allowance
        self._credit -= loss
        return place, loss / allowance

    def _loss(self, place: int, offers: Sequence[Sequence[Offer]], choice: Choice, batch: int) -> float:
        """Seconds that trying its smallest draft costs at most: draft, rows, and the drafts that it displaces."""
        prices, caps = self.prices, choice.caps
        tried = [number for number, mine in enumerate(caps) if mine[place] == 0]
        nodes = batch + sum(sum(mine) for mine in caps)
        least, depth = self._sources[place].least
        seconds = prices.draft(place, depth, len(tried))
        seconds += prices.forward(batch, nodes + least * len(tried)) - prices.forward(batch, nodes)
        for number in tried:
            offer = offers[number][place]
            seconds += offer.backlog
            for later in offers[number][place + 1 :]:
                if caps[number][later.source]:
                    seconds += offer.speaks * worth(later, prices, batch, choice.rate) / choice.rate
        return seconds

    def _can_pay(self, place: int, batch: int) -> bool:
        if self._version != self.prices.version:
            self._useful.clear()
            self._version = self.prices.version
        key = place, batch
        if key not in self._useful:
            source = self._sources[place]
            sizes = source.sizes or [(k, k) for k in range(1, source.limit + 1)]
            self._useful[key] = can_pay(place, self.prices, batch, sizes)
        return self._useful[key]

    def _worth(self, offers: Sequence[Offer], caps: Sequence[int]) -> dict[str, float]:
        """What each source that may draft should bring, where there are several."""
        if len(caps) == 1:
            return {}
        found = {}
        for source, offer, cap in zip(self._sources, offers, caps, strict=True):
            time = self.prices.draft(offer.source, source.levels(cap), 1) if cap else 0.0
            found[source.name] = offer.gain(cap) - self._rate * time
        return found

    def _budget(
        self, offers: Sequence[Offer], caps: Sequence[int], tried: int | None, every: float, batch: int
    ) -> Budget:
        nodes = max(caps)
        named = {source.name: cap for source, cap in zip(self._sources, caps, strict=True)}
        chances = [offer.survival[0] if offer.survival else 0.0 for offer in offers]
        if tried is not None:
            return Budget(nodes, probing(nodes, self._sources[tried].name, chances[tried]), named)
        if nodes:
            return Budget(nodes, drafting(named, chances), named, self._worth(offers, caps))
        useful = [chances[place] for place in range(len(caps)) if self._can_pay(place, batch)]
        step = self.prices.forward(batch, batch)
        cost = min(self.prices.draft(place, 1, batch) for place in range(len(caps))) / step
        return Budget(0, resting(useful, cost, every), named)
