"""What serving costs, whether it holds, and how it compares: real servers on the loopback, asked by another process.

    python benchmarks/serving.py overhead [--target DIR]                  # HTTP against engine.generate, in turns
    python benchmarks/serving.py soak [--requests 1000 --streams 64]      # many clients, cancellations, mixed options
    python benchmarks/serving.py clients --server NAME=URL ... --prompts FILE   # TTFT and time per token by clients
    python benchmarks/serving.py turns --server NAME=URL ...              # the second turn of a long conversation
    python benchmarks/serving.py beside [--target DIR]                    # a stream while long prompts are read

`overhead`, `soak` and `beside` start the server themselves. `clients` and `turns` ask servers that run already, ours or
others that speak OpenAI's interface, one after the other in every round. Speeds on a busy machine say little; ratios
within a round say more.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import httpx2
from provenance import Provenance
from rich.console import Console
from rich.progress import track
from rich.table import Table

import headstart as hs
from headstart.commands.demo import PROMPTS
from headstart.commands.prompts import read_prompts

CONSOLE = Console(width=120)
WORDS = "The quick brown fox jumps over the lazy dog and runs along the river until evening comes. "


# -- the server, in a process of its own ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Setup:
    """What is served."""

    target: str
    drafter: str
    dtype: str
    quantize: str | None
    rule: str
    slots: int
    max_length: int
    tokens: int | None = None
    """K of drafts, fixed; None leaves it to the pacing."""


def serve(setup: Setup, pipe: Connection) -> None:
    """Serve until told to stop; asked to, generate directly instead, or say how the engine stands."""
    import threading

    from headstart.serve.api.app import Application
    from headstart.serve.api.listening import Server, bound_socket
    from headstart.serve.api.service import Served
    from headstart.serve.options import Limits, ServerOptions
    from headstart.serve.worker import ThreadBridge

    engine = hs.load(
        setup.target, setup.drafter, dtype=setup.dtype, quantize=setup.quantize, rule=setup.rule,
        max_batch_size=setup.slots, max_length=setup.max_length, prefix_cache=True,
        num_speculative_tokens=setup.tokens, pacing="adaptive" if setup.tokens is None else "fixed",
    )  # fmt: skip
    limits = Limits(max_waiting_requests=100_000, max_waiting_prompt_tokens=100_000_000)
    options = replace(ServerOptions(served_model_name=("model",)), port=0)
    app = Application(Served(ThreadBridge(engine, limits)), options)
    url: list[str] = []
    ready = threading.Event()

    def started(found: str) -> None:
        url.append(found)
        ready.set()

    server = Server(app, options, grace_seconds=0.0, on_started=started)
    thread = threading.Thread(target=server.run, args=([bound_socket(options)],), daemon=True)
    thread.start()
    ready.wait()
    pipe.send(url[0])
    while (asked := pipe.recv()) is not None:
        kind, *rest = asked
        if kind == "generate":
            prompts, samplings = rest
            start = time.perf_counter()
            outs = engine.generate(prompts, samplings)
            pipe.send((time.perf_counter() - start, [list(out.tokens) for out in outs]))
        else:
            free, total = engine.cache.free_slots, len(engine.cache.lengths)
            engine.cache.check()
            pipe.send((free == total and not engine.scheduler.requests(), _resident()))
    server.should_exit = True
    thread.join()


def _resident() -> float:
    """Megabytes of this process in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6


class Served:
    """A server that runs in a process of its own."""

    def __init__(self, setup: Setup) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(setup, theirs), daemon=True)
        self._process.start()
        self.url: str = self._pipe.recv()

    def generate(self, prompts: Sequence[Any], samplings: Sequence[hs.Sampling]) -> tuple[float, list[list[int]]]:
        self._pipe.send(("generate", list(prompts), list(samplings)))
        return self._pipe.recv()  # type: ignore[no-any-return]

    def state(self) -> tuple[bool, float]:
        """Whether the engine rests with every slot free, and the megabytes of the process."""
        self._pipe.send(("state",))
        return self._pipe.recv()  # type: ignore[no-any-return]

    def stop(self) -> None:
        self._pipe.send(None)
        self._process.join(20)
        self._process.kill()


# -- the client -------------------------------------------------------------------------------------------------------


@dataclass
class Got:
    """One answer, as a client saw it."""

    text: str = ""
    tokens: list[int] = field(default_factory=list)
    first: float = 0.0
    """Seconds to the first text."""
    seconds: float = 0.0
    count: int = 0
    """Output tokens, by the server's usage."""
    prompt: int = 0
    """Prompt tokens, the same."""
    cached: int = 0
    error: str = ""
    finished: bool = False
    wall: float = 0.0
    """Seconds of the round that it belongs to, from the first request to the last answer."""


async def ask(
    client: httpx2.AsyncClient, url: str, body: dict[str, Any], leave_after: float | None = None, *, chat: bool = False
) -> Got:
    """Stream one answer. leave_after: the share of the output tokens after which the client goes away."""
    got = Got()
    start = time.perf_counter()
    path = "/v1/chat/completions" if chat else "/v1/completions"
    body = {**body, "stream": True, "stream_options": {"include_usage": True}}
    async with client.stream("POST", url + path, json=body) as response:
        if response.status_code != 200:
            got.error = f"{response.status_code} {(await response.aread()).decode()[:200]}"
            return got
        async for line in response.aiter_lines():
            if not line.startswith("data: ") or line == "data: [DONE]":
                continue
            event = json.loads(line[6:])
            if "error" in event:
                got.error = str(event["error"])
                return got
            for choice in event.get("choices", ()):
                piece = choice.get("text") or (choice.get("delta") or {}).get("content") or ""
                if piece and not got.first:
                    got.first = time.perf_counter() - start
                got.text += piece
                got.tokens += choice.get("token_ids") or []
                got.finished |= choice.get("finish_reason") is not None
            if usage := event.get("usage"):
                got.count, got.prompt = usage["completion_tokens"], usage["prompt_tokens"]
                got.cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
            if leave_after is not None and len(got.tokens) >= leave_after * body["max_tokens"]:
                return got
    got.seconds = time.perf_counter() - start
    return got


def client() -> httpx2.AsyncClient:
    limits = httpx2.Limits(max_connections=2000, max_keepalive_connections=200)
    return httpx2.AsyncClient(timeout=600.0, limits=limits)


# -- overhead ---------------------------------------------------------------------------------------------------------


async def overhead(args: argparse.Namespace) -> dict[str, Any]:
    """HTTP with streaming against `engine.generate`, the same prompts in turns; equal texts are checked."""
    found: dict[str, Any] = {}
    shown = Table(title=f"tokens/s, {args.pairs} pairs of {args.max_tokens} tokens a request")
    for name in ("batch", "engine.generate", "over HTTP", "HTTP / direct", "same text"):
        shown.add_column(name, justify="right")
    for batch in args.batches:
        served = Served(setup_of(args, slots=batch))
        try:
            found[str(batch)] = await _overhead(args, served, batch)
        finally:
            served.stop()
        row = found[str(batch)]
        shown.add_row(
            str(batch),
            f"{row['direct']:.1f}",
            f"{row['http']:.1f}",
            f"{row['ratio']:.3f}",
            f"{row['same']} of {row['of']}",
        )
    CONSOLE.print(shown)
    return found


async def _overhead(args: argparse.Namespace, served: Served, batch: int) -> dict[str, Any]:
    direct, over, same, total = [], [], 0, 0
    async with client() as http:
        for pair in track(range(-1, args.pairs), f"batch {batch}", console=CONSOLE, transient=True):
            prompts = [PROMPTS[(pair + i) % len(PROMPTS)] for i in range(batch)]
            salts = [f"{pair} {i}" for i in range(batch)]  # so that no side finds the other's text in the cache
            bodies = [
                {**_body(prompt, "model", args.max_tokens, chat=False), "return_token_ids": True,
                 "cache_salt": f"http {salt}"}
                for prompt, salt in zip(prompts, salts, strict=True)
            ]  # fmt: skip
            samplings = [hs.Sampling(max_tokens=args.max_tokens, ignore_eos=True, cache_salt=salt) for salt in salts]

            async def by_http(bodies: list[dict[str, Any]] = bodies) -> tuple[float, list[list[int]]]:
                start = time.perf_counter()
                found = await asyncio.gather(*(ask(http, served.url, body) for body in bodies))
                seconds = time.perf_counter() - start
                assert all(got.finished for got in found), found
                return seconds, [got.tokens for got in found]

            if pair % 2:
                seconds, wanted = served.generate(prompts, samplings)
                waited, seen = await by_http()
            else:
                waited, seen = await by_http()
                seconds, wanted = served.generate(prompts, samplings)
            if pair < 0:
                continue
            tokens = sum(map(len, wanted))
            direct.append(tokens / seconds)
            over.append(sum(map(len, seen)) / waited)
            same += sum(a == b for a, b in zip(wanted, seen, strict=True))
            total += batch
    ratio = median(b / a for a, b in zip(direct, over, strict=True))
    return {"direct": median(direct), "http": median(over), "ratio": ratio, "same": same, "of": total}


# -- beside long prompts ----------------------------------------------------------------------------------------------


async def beside(args: argparse.Namespace) -> dict[str, Any]:
    """How long a stream stands still, alone and while prompts of thousands of tokens are read and answered, one after
    the other."""
    served = Served(replace(setup_of(args, slots=2), tokens=args.k))
    gaps: dict[str, list[float]] = {"alone": [], "beside": []}
    phase, first, counts, speeds = "alone", list[float](), list[int](), list[float]()
    try:
        async with client() as http:

            async def stream() -> None:
                within = phase
                while True:
                    body = _body(PROMPTS[0], "model", args.max_length // 2, chat=False)
                    last = 0.0  # the first text of a request is no gap: it waits for a piece that began before it
                    async with http.stream(
                        "POST", f"{served.url}/v1/completions", json={**body, "stream": True}
                    ) as response:
                        response.raise_for_status()
                        async for line in response.aiter_lines():
                            if line.startswith("data: {") and json.loads(line[6:])["choices"][0]["text"]:
                                now = time.perf_counter()
                                if last:
                                    gaps["beside" if "beside" in (within, phase) else "alone"].append(now - last)
                                last, within = now, phase

            writing = asyncio.create_task(stream())
            await asyncio.sleep(args.seconds)
            for number in range(args.prompts):
                text = f"Story {number}: " + WORDS * (args.prompt_tokens // 20)
                phase = "beside"
                got = await ask(http, served.url, _body(text, "model", args.max_tokens, chat=False))
                phase = "alone"
                if got.error:
                    raise SystemExit(got.error)
                first.append(got.first)
                speeds.append((got.count - 1) / (got.seconds - got.first))
                counts.append(got.prompt)
                await asyncio.sleep(1)
            if writing.done():
                writing.result()  # it ends only by an error
            writing.cancel()
    finally:
        served.stop()
    shown = Table("", "pieces", "P50 ms", "P99 ms", "most ms", title=f"{args.prompts} prompts of {counts[-1]} tokens")
    found: dict[str, Any] = {"drafter": Path(args.drafter).name, "k": args.k}
    found |= {"first": first, "prompt_tokens": counts, "tokens_per_second": speeds}
    for name, each in gaps.items():
        found[name] = {"count": len(each), "p50": median(each), "p99": _high(each), "most": max(each)}
        shown.add_row(name, str(len(each)), *(f"{1000 * found[name][key]:.1f}" for key in ("p50", "p99", "most")))
    CONSOLE.print(shown)
    CONSOLE.print(f"first token of the prompts after {', '.join(f'{each:.1f}' for each in first)} s")
    CONSOLE.print(f"then {', '.join(f'{each:.0f}' for each in speeds)} tokens/s")
    return found


# -- soak -------------------------------------------------------------------------------------------------------------


async def soak(args: argparse.Namespace) -> dict[str, Any]:
    """Many clients at once, who join, leave and ask for different things: every answer must be the one of its own."""
    served = Served(setup_of(args, slots=args.slots, rule="coupled"))
    rng = random.Random(0)
    kinds = [_mixed(rng, number) for number in range(args.kinds)]
    alone = [served.generate([prompt], [sampling])[1][0] for prompt, sampling, _ in kinds]
    counts = {"whole": 0, "left": 0, "wrong": 0, "lost": 0, "refused": 0}
    waiting = asyncio.Semaphore(args.streams)
    memory = [served.state()[1]]

    async def one(http: httpx2.AsyncClient, number: int) -> None:
        kind = rng.randrange(len(kinds))
        _, _, body = kinds[kind]
        leaves = rng.random() if rng.random() < args.leaving else None
        async with waiting:
            await asyncio.sleep(rng.random() * 0.05)
            got = await ask(http, served.url, body, leaves)
        if got.error:
            counts["refused"] += 1
        elif leaves is not None and not got.finished:
            counts["left"] += 1
            counts["wrong"] += got.tokens != alone[kind][: len(got.tokens)]
        else:
            counts["whole"] += got.finished
            counts["lost"] += not got.finished
            counts["wrong"] += got.tokens != alone[kind]
        if number % 100 == 99:
            memory.append(served_memory(served))

    def served_memory(served: Served) -> float:
        return served.state()[1]

    start = time.perf_counter()
    async with client() as http:
        await asyncio.gather(*(one(http, number) for number in range(args.requests)))
    seconds = time.perf_counter() - start
    await asyncio.sleep(1.0)
    free, last = served.state()
    served.stop()
    result = {
        **counts, "requests": args.requests, "streams": args.streams, "seconds": seconds, "all slots free": free,
        "memory at first, MB": memory[0], "memory after a tenth, MB": memory[min(1, len(memory) - 1)],
        "memory at last, MB": last,
    }  # fmt: skip
    shown = Table("figure", "value", title="soak")
    for name, value in result.items():
        shown.add_row(name, f"{value:.1f}" if isinstance(value, float) else str(value))
    CONSOLE.print(shown)
    if counts["wrong"] or counts["lost"] or not free:
        raise SystemExit("answers were wrong or lost, or a slot was not given back")
    return result


def _mixed(rng: random.Random, number: int) -> tuple[str, hs.Sampling, dict[str, Any]]:
    """A prompt with options of every kind; the engine's and the interface's form of them."""
    options: dict[str, Any] = {"max_tokens": rng.choice([4, 16, 32]), "ignore_eos": True, "seed": number}
    options["temperature"] = rng.choice([0.0, 0.7, 1.0])
    if rng.random() < 0.3:
        options["top_p"] = 0.9
    if rng.random() < 0.3:
        options["frequency_penalty"] = 0.5
    if rng.random() < 0.2:
        options["top_k"] = 20
    if rng.random() < 0.2:
        options["stop_token_ids"] = [rng.randrange(300)]
    prompt = PROMPTS[number % len(PROMPTS)] + "#" * rng.randrange(8)
    body = {**options, "model": "model", "prompt": prompt, "return_token_ids": True}
    if rng.random() < 0.2:
        body["speculation"] = {"enabled": False}
    return prompt, hs.Sampling(**options), body


# -- against others ---------------------------------------------------------------------------------------------------


async def clients(args: argparse.Namespace) -> dict[str, Any]:
    """Time to the first token and per token of so many clients at once, each server in turn."""
    items = read_prompts(None, args.prompts) if args.prompts else []
    # Of a conversation, its first message
    texts = [str(item.prompt if item.chat is None else item.chat.messages[0]["content"]) for item in items] or PROMPTS
    chat = bool(items) and not args.raw
    servers = dict(each.split("=", 1) for each in args.server)
    names = await models(servers)
    found: dict[str, dict[str, list[Got]]] = {name: {} for name in servers}
    async with client() as http:
        for turn in range(-1, args.rounds):
            for count in args.clients:
                order = list(servers)
                order = order[turn % len(order) :] + order[: turn % len(order)]
                for name in order:
                    # With a number of its own, so that no cache holds more of a prompt than its template
                    asked = [f"({turn}/{count}/{i}) {texts[(turn * count + i) % len(texts)]}" for i in range(count)]
                    bodies = [_body(text, names[name], args.max_tokens, chat=chat) for text in asked]
                    start = time.perf_counter()
                    got = await asyncio.gather(*(ask(http, servers[name], b, chat=chat) for b in bodies))
                    wall = time.perf_counter() - start
                    if wrong := [one.error for one in got if one.error]:
                        raise SystemExit(f"{name}: {wrong[0]}")
                    if turn >= 0:
                        found[name].setdefault(str(count), []).extend(replace(one, wall=wall) for one in got)
    result = {name: {count: _figures(got, int(count)) for count, got in by.items()} for name, by in found.items()}
    shown = Table(title=f"{args.rounds} rounds, {args.max_tokens} tokens a request")
    for heading in ("clients", "server", "tokens/s", "TTFT P50 ms", "P99", "ms per token P50", "P99"):
        shown.add_column(heading, justify="left" if heading == "server" else "right")
    for count in args.clients:
        for name in servers:
            row = result[name][str(count)]
            waits = [f"{1000 * row[key]:.0f}" for key in ("ttft", "ttft_p99")]
            gaps = [f"{1000 * row[key]:.1f}" for key in ("tpot", "tpot_p99")]
            shown.add_row(str(count), name, f"{row['tokens_per_second']:.1f}", *waits, *gaps)
    CONSOLE.print(shown)
    return result


def _figures(got: list[Got], count: int) -> dict[str, float]:
    rounds = [got[i : i + count] for i in range(0, len(got), count)]
    per = [(one.seconds - one.first) / max(1, one.count - 1) for one in got]
    first = [one.first for one in got]
    return {
        "tokens_per_second": median(sum(one.count for one in each) / each[0].wall for each in rounds),
        "ttft": median(first), "ttft_p99": _high(first), "tpot": median(per), "tpot_p99": _high(per),
    }  # fmt: skip


def _high(values: Sequence[float]) -> float:
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


def _body(text: str, model: str, tokens: int, *, chat: bool) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": text}]} if chat else {"prompt": text}
    return {**asked, "model": model, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


async def models(servers: dict[str, str]) -> dict[str, str]:
    async with client() as http:
        return {name: (await http.get(f"{url}/v1/models")).json()["data"][0]["id"] for name, url in servers.items()}


async def turns(args: argparse.Namespace) -> dict[str, Any]:
    """Time to the first token of a long first turn, and of a second one that begins with it."""
    servers = dict(each.split("=", 1) for each in args.server)
    names = await models(servers)
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in servers}
    async with client() as http:
        for turn in range(-1, args.rounds):
            for name, url in servers.items():
                text = f"Story {turn} {time.time():.0f}: " + WORDS * args.repeats
                one = await ask(http, url, _body(text, names[name], 24, chat=not args.raw), chat=not args.raw)
                if args.raw:
                    body = _body(text + one.text + " Go on.", names[name], 24, chat=False)
                else:
                    body = _body("", names[name], 24, chat=True)
                    body["messages"] = [
                        {"role": "user", "content": text}, {"role": "assistant", "content": one.text},
                        {"role": "user", "content": "Go on."},
                    ]  # fmt: skip
                two = await ask(http, url, body, chat=not args.raw)
                if one.error or two.error:
                    raise SystemExit(f"{name}: {one.error or two.error}")
                if turn >= 0:
                    found[name].append((one.first, two.first, two.cached))
    shown = Table("server", "first turn TTFT ms", "second turn TTFT ms", "first / second", "cached tokens")
    result = {}
    for name, rows in found.items():
        one_, two_ = median(a for a, _, _ in rows), median(b for _, b, _ in rows)
        ratio = median(a / b for a, b, _ in rows)
        result[name] = {"first": one_, "second": two_, "ratio": ratio, "cached": rows[-1][2]}
        shown.add_row(name, f"{1000 * one_:.0f}", f"{1000 * two_:.0f}", f"{ratio:.1f}", str(rows[-1][2]))
    CONSOLE.print(shown)
    return result


# -- the command line -------------------------------------------------------------------------------------------------


def setup_of(args: argparse.Namespace, *, slots: int, rule: str = "exact") -> Setup:
    return Setup(args.target, args.drafter, args.dtype, args.quantize, rule, slots, args.max_length)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parts = parser.add_subparsers(dest="part", required=True)
    for name in ("overhead", "soak", "beside"):
        part = parts.add_parser(name)
        part.add_argument("--target", default="bundled")
        part.add_argument("--drafter", default="ngram")
        part.add_argument("--dtype", default="auto")
        part.add_argument("--quantize", choices=["int8"])
        part.add_argument("--max-length", type=int, default=8192 if name == "beside" else 1024)
        if name == "beside":
            part.add_argument("--prompts", type=int, default=3)
            part.add_argument("--prompt-tokens", type=int, default=4000, help="of each, about")
            part.add_argument("--seconds", type=float, default=5, help="that the stream is alone at first")
            part.add_argument("--max-tokens", type=int, default=64, help="of each answer")
            part.add_argument("-k", type=int, help="tokens of each draft, instead of as pacing decides")
        elif name == "overhead":
            part.add_argument("--batches", nargs="+", type=int, default=[1, 8])
            part.add_argument("--pairs", type=int, default=10)
            part.add_argument("--max-tokens", type=int, default=96)
        else:
            part.add_argument("--slots", type=int, default=8)
            part.add_argument("--requests", type=int, default=1000)
            part.add_argument("--streams", type=int, default=64)
            part.add_argument("--kinds", type=int, default=60, help="different requests")
            part.add_argument("--leaving", type=float, default=0.3, help="share of the clients that go away")
    for name in ("clients", "turns"):
        part = parts.add_parser(name)
        part.add_argument("--server", action="append", required=True, metavar="NAME=URL")
        part.add_argument("--rounds", type=int, default=5)
        part.add_argument("--raw", action="store_true", help="completions, where a model has no chat template")
        if name == "clients":
            part.add_argument("--prompts", type=Path)
            part.add_argument("--clients", nargs="+", type=int, default=[1, 4, 8, 16])
            part.add_argument("--max-tokens", type=int, default=64)
        else:
            part.add_argument("--repeats", type=int, default=50, help="of a sentence of about 20 tokens")
    for part in parts.choices.values():
        part.add_argument("--json", type=Path, help="write the figures there")
    return parser.parse_args(argv)


def main(argv: Sequence[str] | None = None) -> None:
    args = parse(argv)
    provenance = Provenance.now()
    work = {"overhead": overhead, "soak": soak, "beside": beside, "clients": clients, "turns": turns}[args.part]
    found = asyncio.run(work(args))
    for line in provenance.lines():
        CONSOLE.print(line, style="dim", soft_wrap=True)
    if args.json:
        args.json.write_text(
            json.dumps({"part": args.part, "figures": found, "provenance": provenance.rows()}, indent=1)
        )


if __name__ == "__main__":
    main()
