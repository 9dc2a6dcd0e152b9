"""Shared fixtures. No network, no weights from anywhere else; every engine made here has its cache audited."""

from __future__ import annotations

import gc
import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"  # commands that tests start are as frugal as the tests: see _one_thread
# No test asks for a certificate. To read all of the system's takes a client longer than its requests.
os.environ.pop("SSL_CERT_FILE", None)
os.environ["SSL_CERT_DIR"] = os.path.dirname(__file__)

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from support.browser import close_browser, looks_at_pages, opened
from support.rotation import spread
from support.vllm import vllm_python  # noqa: F401  # a fixture

from headstart.base.files import cache_directory

if TYPE_CHECKING:  # the process that only hands out tests needs no torch, and its workers wait for it
    import headstart as hs

gc.disable()  # while modules are imported and tests collected; see pytest_collection_finish

settings.register_profile("suite", deadline=None, derandomize=True)  # a busy machine, or chance, must not decide
settings.load_profile("suite")

LONG = (Path(__file__).parent / "long_tests.txt").read_text().splitlines()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The tests of `long_tests.txt` are slow, but for one of N cases where N stands after the name."""
    turns = {name: int(count or 0) for name, _, count in (line.partition(" ") for line in LONG if line[:1] != "#")}
    long: dict[str, list[pytest.Item]] = {}
    for item in items:
        name = item.nodeid.split("[")[0]
        if name in turns and not item.get_closest_marker("slow"):
            long.setdefault(name, []).append(item)
    for name, cases in long.items():
        fast = spread([case.callspec.params for case in cases], turns[name]) if turns[name] else ()
        for place, case in enumerate(cases):
            if place not in fast:
                case.add_marker("slow")


def pytest_collection_finish() -> None:
    """What is there now stays, so no collection of garbage need walk through it."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> Iterator[None]:
    """The browser stays for the tests of the next file, if they look at pages."""
    try:
        return (yield)
    finally:
        if nextitem is None or not looks_at_pages(nextitem.path):
            close_browser()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    """Tiny models gain nothing from threads, and the suite runs in parallel."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def _own_profiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Measured costs are kept, but not in anybody's home. Compiled kernels are the user's: they are named after their
    sources, and to compile them takes longer than most tests."""
    kernels, cache = cache_directory("kernels"), tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        kernels.mkdir(parents=True, exist_ok=True)
        cache_directory("kernels").parent.mkdir(parents=True, exist_ok=True)
        cache_directory("kernels").symlink_to(kernels, target_is_directory=True)
        yield


@pytest.fixture(scope="session", autouse=True)
def _short_measurements() -> Iterator[None]:
    """Adaptive pacing measures a model for a second or two at load, which is longer than most tests take: here for a
    twentieth."""
    from headstart.pacing.measuring import measure

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(measure.__kwdefaults__, "seconds", 0.05)
        yield


@pytest.fixture(scope="session")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("models")


@pytest.fixture(scope="session")
def tiny(root: Path) -> Callable[..., str]:
    """tiny(name, seed=0, noise=0.0): the directory of a tiny random checkpoint."""
    from support.tiny import ARCHITECTURES, checkpoint

    def make(name: str = "llama", **options: Any) -> str:
        assert name in ARCHITECTURES
        return checkpoint(root, name, **options)

    return make


@pytest.fixture
def load(tiny: Callable[..., str]) -> Iterator[Callable[..., hs.Engine]]:
    """hs.load in float32; target and drafter may be given as names of `tiny`. Caches are checked afterwards."""
    from support.tiny import ARCHITECTURES

    import headstart as hs

    engines: list[hs.Engine] = []

    def make(target: str = "llama", drafter: Any = "none", **options: Any) -> hs.Engine:
        target = tiny(target) if target in ARCHITECTURES else target
        options.setdefault("dtype", "float32")
        options.setdefault("max_length", 128)
        options.setdefault("pacing", "fixed")  # most tests are about what becomes of drafts, so there must be some
        engines.append(hs.load(target, drafter, **options))
        return engines[-1]

    yield make
    for engine in engines:
        engine.cache.check()
        assert not engine.scheduler.requests(), "a request was left behind"
        assert engine.cache.free_slots == len(engine.cache.lengths), "a slot was not given back"
        drafter = engine.drafter
        for member in getattr(drafter, "members", [drafter]):
            drafter_cache = getattr(member, "cache", None)
            if drafter_cache is not None:
                drafter_cache.check()
                assert drafter_cache.free_slots == len(drafter_cache.lengths), "the drafter kept a slot"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A browser without a network."""
    with opened() as found:
        yield found
