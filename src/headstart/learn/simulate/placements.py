"""Where target and drafter may run, with the figures of each: published runs to check the simulator by, and guesses.

Times are milliseconds. `known` says which figures come from where, `assumed` which are not measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from headstart.learn.simulate.ssd import SsdRun, simulate_ssd
from headstart.learn.simulate.ssd_inputs import LaneCosts, SsdPlan
from headstart.theory import StepCosts, expected_tokens
from headstart.theory.statistics import bisect

FORESEEN = (0.0, 0.0, 0.85)
"""Hit rate at a fan-out of 3: the middle of the 80 to 90% that Saguaro reports. Fewer branches are not asked about."""
_HALVINGS = 50


@dataclass(frozen=True)
class Placement:
    """A target, a drafter, and where they run."""

    name: str
    plan: SsdPlan
    costs: LaneCosts
    known: str
    assumed: str
    in_turn_k: int | None = None
    """The draft length when drafting in turn, where it is another."""
    published: float | None = None
    """Its speedup over drafting in turn as somebody measured it."""

    def ahead(self, rounds: int, seed: int = 0, keep: int = 6) -> SsdRun:
        return simulate_ssd(self.plan, self.costs, rounds=rounds, seed=seed, keep=keep)

    def in_turn(self, rounds: int, seed: int = 0, keep: int = 6) -> SsdRun:
        plan = replace(self.plan, k=self.in_turn_k or self.plan.k, fan_out=(0,))
        return simulate_ssd(plan, self.costs, rounds=rounds, seed=seed, keep=keep, ahead=False)

    @property
    def plain(self) -> float:
        """The time of a plain step of the batch."""
        return StepCosts(tuple(self.costs.verify.items())).forward(self.plan.batch)


def acceptance_of(tokens: float, k: int) -> float:
    """The alpha at which rounds of K draft tokens emit so many tokens: `theory.expected_tokens` read backwards."""
    return bisect(lambda alpha: float(expected_tokens(alpha, k)), tokens, 0.0, 1.0, _HALVINGS)[0]


def placements() -> tuple[Placement, ...]:
    """All of them: two published ones, then predictions."""
    return (llama_70b(), qwen_32b(), *predictions())


def llama_70b(tokens_per_second: float = 161.8, published: float = 1.58, level: float = 2.1) -> Placement:
    """Saguaro's main result. tokens_per_second: of drafting in turn, which gives alpha; by default the paper's mean."""
    verify = 19.5
    alpha = acceptance_of(tokens_per_second / 1000 * (verify + 6 * level), 6)
    return Placement(
        "70B + 1B, 4 + 1 H100",
        SsdPlan((alpha,), 7, (3,), FORESEEN, late="wait"),
        LaneCosts({1: 18.28, 2: verify, 8: verify}, {1: level}, {1: level + 0.3}, hand_over=0.76),
        "arXiv:2603.03251, Llama 3, greedy, batch 1: plain 54.7 tokens/s (18.28 ms), in turn 161.8, ahead 255.8; "
        "K = 6 in turn, 7 ahead, F = 3 (its code's README). Alpha is what 161.8 tokens/s take.",
        f"a level of the draft {level:g} ms (K = 7 just fits a verification), verification and messages as measured "
        f"with the 32B pair, 85% foreseen (80 to 90% reported).",
        in_turn_k=6,
        published=published,
    )


def qwen_32b(k: int = 4, published: float = 1.49) -> Placement:
    """The published engine as others measured it: the one run whose lanes were timed. k: of drafting ahead."""
    verify, level = 11.45, 2.54
    alpha = acceptance_of(141.4 / 1000 * (verify + 6 * level), 6)
    return Placement(
        "32B + 0.6B, 4 + 1 H100",
        SsdPlan((alpha,), k, (3,), FORESEEN, late="wait"),
        LaneCosts({1: 10.27, 2: verify, 8: verify}, {1: level}, {1: 2.83}, hand_over=0.76),
        "github.com/Weili-0234/ssd-wl, Qwen 3, greedy, batch 1, timed by lane: verification 11.45 ms, a level 2.54, "
        "glue 2.83, messages 0.76; plain 97.4 tokens/s, in turn (K = 6) 141.4. Alpha is what 141.4 tokens/s take.",
        "85% foreseen.",
        in_turn_k=6,
        published=published,
    )


def predictions() -> tuple[Placement, ...]:
    """Not measured. The figures are estimates from memory bandwidth unless `known` says more."""
    h200 = "8B in bf16 is 15 GB a forward, 4.2 ms on an H200 at 0.83 of its copy bandwidth."
    small = SsdPlan((0.8,), 5, (3,), FORESEEN)
    level = {1: 0.8, 18: 0.9}
    light = SsdPlan((0.7,), 5, (3,), FORESEEN)
    cores = {1: 0.8, 24: 1.6}
    tiny = SsdPlan((0.6,), 5, (3,), FORESEEN)
    two = LaneCosts({1: 53, 6: 56}, {1: 0.74, 18: 3.0}, slow=0.1, draft_slow=0.3, split=True)
    cpu = "two cores of a server, int8: 53 ms a forward of the 1.0B target, 0.74 ms a step of the draft."
    weak = "a level of 18 rows 3.0 ms, alpha 0.6, 85% foreseen; the target left with one core takes"
    return (
        Placement(
            "8B + 1B, two H200", small, LaneCosts({1: 4.2}, level, hand_over=0.05), h200,
            "a step of the 1B draft 0.8 ms, alpha 0.8, 85% foreseen.",
        ),
        Placement(
            "8B + 1B, one H200, two streams", small,
            LaneCosts({1: 4.2}, level, slow=0.54, draft_slow=0.54), h200,
            "the same draft; both lanes read one memory, and together take what their bytes take: each is 1.54 times "
            "slower meanwhile.",
        ),
        Placement(
            "8B on a 1 TB/s card, draft on 16 cores", light, LaneCosts({1: 16.0}, cores, hand_over=0.1),
            "15 GB a forward at 0.94 TB/s take 16 ms.",
            "a 150M draft: 0.8 ms a step, 1.6 ms for 24 rows; alpha 0.7, 85% foreseen.",
        ),
        Placement(
            "8B on an H200, draft on 16 cores", light, LaneCosts({1: 4.2}, cores, hand_over=0.1), h200,
            "the same draft; five levels do not fit 4.2 ms, so shorter drafts are served.",
        ),
        Placement("1.0B + 35M, two CPU cores, s = 0.1", tiny, two, cpu, f"{weak} 1.1 times as long."),
        Placement(
            "1.0B + 35M, two CPU cores, s = 0.8", tiny, replace(two, slow=0.8), cpu, f"{weak} 1.8 times as long.",
        ),
    )  # fmt: skip
