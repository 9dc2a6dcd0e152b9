"""Drafting for what a round may come to, while the target still judges it.

An outcome of a round is a node of its draft (or x0) after which nothing is accepted, and the bonus token there. The
text that it would leave is known, and so is the noise that the next draft would be drawn with: that depends on the
request's seed and on places in the text alone. A draft made now for an outcome that comes true is therefore the very
draft that would be made then, token by token and distribution by distribution; only the time differs.

All outcomes of a request are one tree behind its text, in the drafter's own cache: what was read of the last draft,
then a branch for each outcome, which begins with its bonus token. One forward adds a level to every branch.

Source: Saguaro (arXiv:2603.03251) for drafting after each likely outcome.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from headstart.drafters import FanOut, Foreseen, Row
from headstart.drafters.growing.grow import GrowingChain, extend_chains, extend_trees
from headstart.drafters.growing.tree import GrowingTree
from headstart.model.packed import Segment
from headstart.rule.distribution import SamplingRow, process
from headstart.types import Draft, Sampling

if TYPE_CHECKING:
    from headstart.drafters.growing.own_model import DraftedText, GrowingModel

RANKED = 16
"""Bonus tokens that are ranked after each node; one that is not among them counts as not foreseeable."""
_TEMPERATURE_1 = Sampling(temperature=1.0)


@dataclass(eq=False)
class _Branch:
    """The draft after one outcome."""

    row: Row
    """The request as its next step would see it."""
    growing: GrowingChain | GrowingTree
    path: tuple[int, ...]
    """The scratch nodes of the outcome's tokens, the bonus token last."""
    nodes: list[int] = field(default_factory=list)
    """The scratch node of each of its own tokens that has been fed, or is about to be."""
    fresh: list[int] = field(default_factory=list)
    """The scratch nodes whose logits come next."""


class _Request:
    """One request in a round: what lies behind its text in the drafter's cache."""

    def __init__(self, row: Row, draft: Draft, memory: DraftedText, room: int) -> None:
        self.row, self.draft, self.memory = row, draft, memory
        self.tokens = list(memory.tree.tokens)
        self.parents = list(memory.tree.parents)
        self.held = len(self.tokens)
        self.branches: dict[tuple[int, ...], _Branch] = {}
        self.foreseen = 0
        """How many outcomes have a branch."""
        self.ranked: dict[int, list[int]] = {}
        """By node of the draft, the likeliest bonus tokens after it."""
        self._room = room
        fed = memory.grown.fed()
        self.scratch = {-1: -1, **{node: at for node, at in enumerate(fed) if 0 <= at < self.held}}
        """The scratch node of each node of the draft that has been read, or is about to be."""
        logits = torch.cat(memory.grown.logits) if memory.grown.logits else None
        self.logits: dict[int, Tensor] = {}
        """By node of the draft, the drafter's logits [V] after it."""
        if logits is not None:
            for node in range(-1, len(draft)):
                at = -1 if node < 0 else fed[node]
                if (node < 0 or at >= 0) and at + 1 < len(logits):
                    self.logits[node] = logits[at + 1]

    def add(self, token: int, parent: int) -> int | None:
        """A further scratch node, still to be fed; None if the slot has no room."""
        if len(self.tokens) >= self._room:
            return None
        self.tokens.append(token)
        self.parents.append(parent)
        return len(self.tokens) - 1

    def settle(self) -> None:
        """Say what lies behind the text, so that it is of use whatever comes."""
        self.memory.tree = Draft(tuple(self.tokens[: self.held]), tuple(self.parents[: self.held]))

    def outcome(self, tokens: tuple[int, ...]) -> tuple[int, int | None]:
        """The node after which nothing was accepted, and the bonus token, of a text that is this long now. The token
        is None where the text went on in another way."""
        new = tokens[len(self.row.tokens) :]
        node = -1
        for token in new[:-1]:
            found = next((each for each in self.draft.children[node + 1] if self.draft.tokens[each] == token), None)
            if found is None:
                return -1, None
            node = found
        return node, new[-1] if new else None


class GrowingForesight:
    """Drafts after the likely outcomes of a round. `advance` costs one forward; see `headstart.drafters.Foresight`.

    Args:
        drafter: has just drafted `drafts` for `rows`.
        fan_out: says how many bonus tokens are foreseen after each node.
    """

    def __init__(self, drafter: GrowingModel, rows: Sequence[Row], drafts: Sequence[Draft], fan_out: FanOut) -> None:
        self._drafter = drafter
        self._fan_out = fan_out
        self._requests: dict[int, _Request] = {}
        self._begun = False
        for row, draft in zip(rows, drafts, strict=True):
            memory = drafter.memory_of(row.request)
            # where a row's bits depend on its neighbours, a prepared draft may differ from one made in turn by rounding
            same = drafter.runner.width_invariant or not row.reproducible
            if same and memory is not None and memory.grown is not None and len(draft):
                memory.uncover(len(row.tokens), drafter.cache)
                if len(memory.cached) == len(row.tokens):
                    self._requests[row.request] = _Request(
                        row, draft, memory, min(drafter.runner.max_length - len(row.tokens), drafter.cache.most_drafted)
                    )

    # -- while the target judges --------------------------------------------------------------------------------------

    def advance(self) -> bool:
        """Run one forward; returns whether there is more to do."""
        if not self._begun:
            self._begun = True
            unread = self._unread()
            self._branch_out((request, node) for request in self._requests.values() for node in request.logits)
        else:
            unread = []
        return self._level([branch for each in self._requests.values() for branch in each.branches.values()], unread)

    def _unread(self) -> list[tuple[_Request, int]]:
        """The nodes of the drafts that nothing has been read of yet: a chain's last, a tree's leaves. They are fed."""
        found = []
        for request in self._requests.values():
            draft = request.draft
            for node in range(len(draft)):
                if node in request.logits:
                    continue
                parent = request.scratch.get(draft.parents[node])
                at = None if parent is None else request.add(draft.tokens[node], parent)
                if at is not None:
                    request.scratch[node] = at
                    found.append((request, node))
        return found

    def _branch_out(self, nodes: Iterable[tuple[_Request, int]]) -> None:
        """Begin the branches after these nodes, whose logits are known."""
        found = list(nodes)
        if not found:
            return
        rows = []
        for request, node in found:
            path = tuple(request.draft.tokens[each] for each in request.draft.path(node))
            rows.append(SamplingRow(request.row.sampling_state.filtered(_TEMPERATURE_1), path))
        logits = process(torch.stack([request.logits[node] for request, node in found]), rows)
        most = RANKED + max(len(request.draft.children[node + 1]) for request, node in found)
        values, ids = logits.topk(min(most, logits.shape[1]))
        for (request, node), tokens, scores in zip(found, ids.tolist(), values.tolist(), strict=True):
            below = {request.draft.tokens[child] for child in request.draft.children[node + 1]}
            ranked = [t for t, score in zip(tokens, scores, strict=True) if score > float("-inf") and t not in below]
            request.ranked[node] = ranked[:RANKED]
        for request in {id(request): request for request, _ in found}.values():
            fan_outs = self._fan_out.fan_outs(request.draft)
            for node in [node for other, node in found if other is request]:
                for token in request.ranked[node][: fan_outs[node + 1]]:
                    self._begin(request, node, token)

    def _begin(self, request: _Request, node: int, token: int) -> None:
        draft, scratch = request.draft, request.scratch
        nodes = draft.path(node)
        after = (*(draft.tokens[each] for each in nodes), token)
        row = request.row
        row = replace(row, tokens=row.tokens + after, sampling_state=row.sampling_state.after(after))
        growing = self._drafter.begun(row)
        at = None if growing.done else request.add(token, scratch[node])
        if at is not None:
            path = (*(scratch[each] for each in nodes), at)
            request.branches[after] = _Branch(row, growing, path, fresh=[at])
            request.foreseen += 1

    def _level(self, branches: Sequence[_Branch], unread: Sequence[tuple[_Request, int]] = ()) -> bool:
        """One forward over all that is to be read, and a level more for each of the branches."""
        requests = [each for each in self._requests.values() if each.held < len(each.tokens)]
        if not requests:
            return False
        segments = []
        places: dict[tuple[int, int], int] = {}  # the row of each request's scratch node among the logits
        for request in requests:
            draft = Draft(tuple(request.tokens), tuple(request.parents))
            fed = len(draft) - request.held
            segments.append(Segment(request.memory.slot, (), draft, judged=fed, held=request.held))
            places.update({(request.row.request, request.held + i): len(places) + i for i in range(fed)})
        logits = self._drafter.read_nodes(segments)
        for request in requests:
            request.held = len(request.tokens)
        live = [branch for branch in branches if branch.fresh]
        self._extend(live, logits, places)
        for request, node in unread:
            request.logits[node] = logits[places[request.row.request, request.scratch[node]]]
        self._branch_out(unread)
        return any(branch.fresh for each in self._requests.values() for branch in each.branches.values())

    def _extend(self, live: Sequence[_Branch], logits: Tensor, places: dict[tuple[int, int], int]) -> None:
        for kind, extend in ((GrowingChain, extend_chains), (GrowingTree, extend_trees)):
            some: Any = [branch for branch in live if isinstance(branch.growing, kind)]
            if some:
                rows = [places[branch.row.request, node] for branch in some for node in branch.fresh]
                extend([branch.growing for branch in some], logits[rows])
        for branch in live:
            self._feed(branch)

    def _feed(self, branch: _Branch) -> None:
        """Put the tokens whose children come next behind the text. Where there is no room, the branch ends here."""
        request = self._requests[branch.row.request]
        branch.fresh = []
        if branch.growing.done:
            return
        for token, parent in branch.growing.growing:
            node = request.add(token, branch.path[-1] if parent < 0 else branch.nodes[parent])
            if node is None:
                branch.fresh = []
                return
            branch.nodes.append(node)
            branch.fresh.append(node)

    # -- once it has judged -------------------------------------------------------------------------------------------

    def take(self, rows: Sequence[Row], *, partial: bool) -> list[Foreseen]:
        """What was foreseen of these rows, which come next; see `headstart.drafters.Foresight`."""
        chosen = {row.request: branch for row in rows if (branch := self._branch(row)) is not None}
        for request in self._requests.values():
            self._stop(request, chosen.get(request.row.request))
        waiting = [branch for branch in chosen.values() if branch.growing.row.reproducible or not partial]
        while any(branch.fresh for branch in waiting):
            self._level(waiting)
        for branch in waiting:
            if not branch.growing.done:  # there was no room
                del chosen[branch.row.request]
        found = [self._foreseen(row, chosen.get(row.request)) for row in rows]
        for request in self._requests.values():
            request.settle()
        for branch in chosen.values():
            self._adopt(branch)
        return found

    def forget(self, request: int) -> None:
        """The request has ended."""
        self._requests.pop(request, None)

    def _branch(self, row: Row) -> _Branch | None:
        """The draft that was made for this row, in part or whole; None if there is none."""
        request = self._requests.get(row.request)
        if request is None or row.tokens[: len(request.row.tokens)] != request.row.tokens:
            return None
        branch = request.branches.get(row.tokens[len(request.row.tokens) :])
        if branch is None or not branch.growing.logits:
            return None
        wanted, growing = self._drafter.begun(row), branch.growing
        if isinstance(growing, GrowingChain):
            growing.resize(wanted.budget)
        elif not isinstance(wanted, GrowingTree) or not growing.is_like(wanted):
            return None
        growing.row, growing.memory = row, request.memory
        return branch

    def _stop(self, request: _Request, chosen: _Branch | None) -> None:
        """Feed no branch any more but the chosen one."""
        del request.tokens[request.held :], request.parents[request.held :]
        request.branches = {} if chosen is None else {(): chosen}
        if chosen is not None:
            chosen.nodes = [node for node in chosen.nodes if node < request.held]
            self._feed(chosen)

    def _foreseen(self, row: Row, branch: _Branch | None) -> Foreseen:
        request = self._requests.get(row.request)
        if request is None:
            return Foreseen()
        node, token = request.outcome(row.tokens)
        ranked = request.ranked.get(node, []) if token is not None else []
        rank = next((place for place, each in enumerate(ranked) if each == token), None)
        draft = None if branch is None else branch.growing.draft()
        return Foreseen(draft, request.draft, None if token is None else node, rank, request.foreseen)

    def _adopt(self, branch: _Branch) -> None:
        request, growing = self._requests[branch.row.request], branch.growing
        nodes = [node for node in branch.nodes[: len(growing.tokens)] if node < request.held]
        tokens = growing.tokens[: len(nodes)]
        parents = range(-1, len(nodes) - 1) if isinstance(growing, GrowingChain) else growing.parents[: len(nodes)]
        tree = Draft(tuple(tokens), tuple(parents))
        request.memory.adopt(growing.row.tokens, (*branch.path, *nodes), tree, self._drafter.cache)
        request.memory.grown = growing
