"""Our side of the benchmarks of weight analyses: each function is run in a process of its own and returns numbers as JSON."""

from __future__ import annotations

import json
import random
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from circuitlab.analysis.base import NullContext, Result, find_analysis
from circuitlab.analysis.composition._frobenius import by_grams_is_cheaper
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.errors import Cancelled
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject

RAW = Conventions(fold_norm=False, centre=False)  # what the peers are given


class Asker:
    """One open model; an engine without a kept answer for every question."""

    def __init__(self, path: str, memory: int = 4 << 30) -> None:
        self.store, self.ref, self.memory = ModelStore(), ModelRef(f"file:{path}"), memory
        self.engine = self.fresh()
        self.config = self.store.open(self.ref).opened.weights.config

    def fresh(self) -> Engine:
        """An engine that has answered nothing yet."""
        self.engine = Engine(self.store, self.memory)
        return self.engine

    def __call__(self, name: str, ctx: Any = None, tokens: tuple[int, ...] = (), **params: Any) -> Result:
        made = find_analysis(name).params(**params)
        return self.engine.answer(Request.named(name, made, Subject(self.ref, tokens, (), RAW)), ctx).result


def timed(call: Callable[[], Any], rounds: int, before: Callable[[], Any] = lambda: None) -> float:
    """Median seconds of `call`; `before` each is not counted."""
    times: list[float] = []
    for _ in range(rounds):
        before()
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return statistics.median(times)


def status(name: str) -> int:
    """Bytes of one line of this process' status."""
    return next(int(line.split()[1]) * 1024 for line in Path("/proc/self/status").open() if line.startswith(name))


def peak_extra(call: Callable[[], Any]) -> int:
    """Bytes of resident memory that a call needs at most beyond what stood before."""
    import ctypes
    import gc

    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    base = status("VmRSS")
    call()
    return status("VmHWM") - base


def peak_anonymous(call: Callable[[], Any]) -> int:
    """The same without pages of mapped files, which the system may drop: sampled every 5 ms."""
    found, over = [base := status("RssAnon")], threading.Event()

    def watch() -> None:
        while not over.wait(0.005):
            found.append(status("RssAnon"))

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        call()
    finally:
        over.set()
        watcher.join()
    return max(found) - base


def matmul_rate() -> float:
    """Float32 operations a second of a large product, the best of five."""
    n = 1536
    a, b = torch.randn(n, n), torch.randn(n, n)
    return max(2 * n**3 / timed(lambda: a @ b, 1) for _ in range(5))


def composition(path: str, rounds: str, kept: str) -> dict[str, Any]:
    """Q, K and V composition of all pairs."""
    ask = Asker(path)
    result: Any = ask("composition")
    np.save(kept, np.nan_to_num(result.scores))
    c = ask.config
    sources, readers = (c.n_layers - 1) * c.n_heads, (c.n_layers - 1) * 3 * c.n_heads
    pairs = c.n_layers * (c.n_layers - 1) // 2 * 3 * c.n_heads**2
    grams = by_grams_is_cheaper(sources, readers, pairs, c.d_model, c.d_head)
    by_pair = c.d_model**2 / 2 if grams else c.d_head**2 * c.d_model
    once = (sources + readers) * c.d_head * c.d_model**2 / 2 if grams else 0
    seconds = timed(lambda: ask("composition"), int(rounds), ask.fresh)
    ask.fresh()
    return {
        "seconds": seconds,
        "extra": peak_extra(lambda: ask("composition")),
        "flops": 2 * (once + pairs * by_pair),
        "rate": matmul_rate(),
    }


def spectra(path: str, rounds: str, kept: str) -> dict[str, Any]:
    """Copying scores of all heads, and the eigenvalues themselves with singular values, cold and with W_U W_E at hand."""
    ask = Asker(path)
    scores = lambda: ask("copying_scores", diagonal="none", qk=False)
    eigenvalues = lambda: ask("ov_spectrum", heads=())
    found: Any = scores()
    np.save(kept, found.copying_raw)

    def products() -> None:
        ask.fresh()
        ask("embedding_products")

    def both() -> None:
        products()
        ask("embedding_gram")
        ask("unembedding_gram")

    c = ask.config
    return {
        "cold": timed(scores, int(rounds), ask.fresh),
        "warm": timed(scores, int(rounds), products),
        "eigenvalues_cold": timed(eigenvalues, int(rounds), ask.fresh),
        "eigenvalues_warm": timed(eigenvalues, int(rounds), both),
        "flops": 2 * c.d_vocab * c.d_model**2,
        "rate": matmul_rate(),
    }


def top_tokens(path: str, rounds: str) -> dict[str, Any]:
    """The ten largest out tokens of every source against a product in tiles and torch.topk."""
    ask = Asker(path)
    raw = ask.store.open(ask.ref).opened.weights
    W_E, W_U, layer = raw.embed().W_E, raw.unembed().W_U, raw.layer(1, mlp=False)
    n, k = len(W_E), 10
    ids = torch.empty(n, k, dtype=torch.int64)
    values = torch.empty(n, k)

    def peer() -> None:
        left, right = W_E @ layer.W_V[1], layer.W_O[1] @ W_U
        for start in range(0, n, 256):
            found = torch.topk(left[start : start + 256] @ right, k)
            ids[start : start + 256], values[start : start + 256] = found.indices, found.values

    ours = lambda: ask("ov_top_tokens", head=Head(1, 1), k=k)
    found: Any = ours()
    peer()
    differs = torch.from_numpy(found.ids.astype(np.int64)) != ids
    off = values - torch.from_numpy(found.values.copy())  # a mean a row, the same in all of its columns
    close = (off - off.median(1, keepdim=True).values).abs() <= 1e-5 * values.abs().max()
    ratios = [timed(ours, 1, ask.fresh) for _ in range(int(rounds))], [timed(peer, 1) for _ in range(int(rounds))]
    ask.fresh()
    return {
        "ours": statistics.median(ratios[0]),
        "peer": statistics.median(ratios[1]),
        "visible": timed(lambda: ask("ov_top_tokens", head=Head(1, 1), k=k, first=n // 2, count=100), 5, ask.fresh),
        "differ": int((differs & ~close).sum()),
        "extra": peak_extra(ours),
        "result": found.nbytes,
        "flops": 2 * n * W_U.shape[1] * layer.W_V.shape[2],
        "rate": matmul_rate(),
    }


def one_row(path: str, rounds: str) -> dict[str, Any]:
    """One token's OV and QK rows through the engine, and the bare products of both."""
    ask = Asker(path)
    raw = ask.store.open(ask.ref).opened.weights
    W_E, W_U, layer = raw.embed().W_E, raw.unembed().W_U, raw.layer(1, mlp=False)
    ids = iter(range(1, ask.config.d_vocab))

    def rows() -> None:
        token = next(ids)
        ask("ov_table", head=Head(1, 1), token=token)
        ask("qk_table", head=Head(1, 1), token=token)

    def bare() -> None:
        x = W_E[next(ids)]
        _ = ((x @ layer.W_V[1]) @ layer.W_O[1]) @ W_U
        _ = W_E @ (layer.W_K[1] @ (x @ layer.W_Q[1]))

    rows()
    bare()
    return {"ours": timed(rows, 4 * int(rounds)), "bare": timed(bare, 4 * int(rounds))}


def largest(path: str, trained: str) -> dict[str, Any]:
    """Shares of the product that the 100 largest entries of a circuit did not need: random weights, heads of a trained model."""
    share = lambda ask, head: [float(ask("largest_entries", head=head, circuit=c).skipped) for c in ("OV", "QK")]
    ask = Asker(trained)
    heads = [Head(i, h) for i in range(ask.config.n_layers) for h in range(ask.config.n_heads)]
    return {"random": share(Asker(path), Head(1, 1)), "trained": [share(ask, head) for head in heads]}


def mapped(path: str, budget: str) -> dict[str, Any]:
    """Composition of a model read from disk: its peak memory, without the file's own pages."""
    ask = Asker(path, int(budget))
    weights = ask.store.open(ask.ref).opened.weights
    began = time.perf_counter()
    extra = peak_anonymous(lambda: ask("composition", kinds=("Q", "K", "V")))
    return {"extra": extra, "seconds": time.perf_counter() - began, "resident": weights.resident}


QUESTIONS: dict[str, dict[str, Any]] = {
    "composition": {},
    "embedding_products": {},
    "copying_scores": {},
    "ov_spectrum": {"heads": ()},
    "previous_head_spectrum": {"p": "one"},
    "ov_top_tokens": {"head": Head(1, 1)},
    "largest_entries": {"head": Head(1, 1)},
    "subspace_overlap": {},
    "privileged_basis": {},
    "rotation_check": {},
    "virtual_weight": {"across": True},
}


class _Stop(NullContext):
    """Cancels at the first tick after `at`; remembers when it was asked to."""

    def __init__(self, at: float) -> None:
        self._at = at

    def tick(self, done: int, total: int, text: str = "") -> None:
        if time.perf_counter() >= self._at:
            raise Cancelled


def cancelling(path: str, name: str, times: str) -> dict[str, Any]:
    """Seconds from a random moment of an analysis until it has answered `Cancelled`."""
    ask, tokens = Asker(path), tuple(range(1, 33))
    ask(name, tokens=tokens, **QUESTIONS[name])
    whole = timed(lambda: ask(name, tokens=tokens, **QUESTIONS[name]), 1, ask.fresh)
    chance, found = random.Random(0), []
    for _ in range(int(times)):
        ask.fresh()
        at = time.perf_counter() + chance.random() * whole
        try:
            ask(name, _Stop(at), tokens, **QUESTIONS[name])
        except Cancelled:
            found.append(time.perf_counter() - at)
        else:  # over before the next tick: it took as long as the rest did, if the moment came at all
            found += [late] if (late := time.perf_counter() - at) > 0 else []
    return {"latencies": found, "seconds": whole}


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[2]))
    print(json.dumps(globals()[sys.argv[1]](*sys.argv[3:])))
