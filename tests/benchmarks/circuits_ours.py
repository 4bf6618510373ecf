"""Our side of the benchmarks of activation circuits: each function is run in a process of its own and returns numbers as JSON."""

from __future__ import annotations

import json
import random
import sys
import time
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from circuitlab.analysis.attention.head_scores import scores_on
from circuitlab.analysis.base import NullContext, analyses
from circuitlab.errors import Cancelled, CircuitLabError
from circuitlab.model.run import Run
from circuitlab.model.subject import Head, Subject, Target
from tests.benchmarks.weights_ours import QUESTIONS, RAW, Asker, peak_extra, timed
from tests.benchmarks.weights_ours import _Stop as Stop


class Bench(Asker):
    """An `Asker` with the prompts that the other side is given."""

    def __init__(self, o: dict[str, Any]) -> None:
        super().__init__(o["path"])
        self.tokens, self.other, self.pair = tuple(o["tokens"]), tuple(o["other"]), Target(tuple(o["pair"]))
        self.heads = tuple(Head(*head) for head in o["heads"])

    def ask(self, name: str, ctx: Any = None, **params: Any) -> Any:
        """An analysis of the first prompt."""
        return self(name, ctx, self.tokens, **params)

    def run(self) -> Run:
        """The first prompt's forward pass, into the engine's cache."""
        return self.engine.run_of(self.store.open(self.ref), Subject(self.ref, self.tokens, (), RAW), NullContext())

    def fresh_with_run(self) -> None:
        """An engine that has the forward pass and no answer."""
        self.fresh()
        self.run()

    def forward_seconds(self, rounds: int) -> float:
        """Median of forward passes with the logits of every position."""
        return timed(lambda: self.run().logits(), rounds, self.fresh)


class First(NullContext):
    """Remembers when the first partial result came, and the first with a value for every head."""

    def __init__(self) -> None:
        self.seconds, self.estimated, self._began = float("nan"), float("nan"), time.perf_counter()

    def partial(self, result: Any) -> None:
        """The first one of each kind counts."""
        now = time.perf_counter() - self._began
        if self.seconds != self.seconds:
            self.seconds = now
        if self.estimated != self.estimated and np.isfinite(result.effect).all():
            self.estimated = now


def ablation(o: dict[str, Any]) -> dict[str, Any]:
    """Zero-ablation of `heads` one by one, forward pass and estimates included: seconds, and to the first partial result."""
    b = Bench(o)
    effect = "second_half" if o["half"] else "loss"
    b.ask("ablation", heads=b.heads[:1], effect=effect)
    b.fresh()
    first = First()
    result = b.ask("ablation", first, heads=b.heads, effect=effect)
    seconds = time.perf_counter() - first._began
    change = np.stack([result.token_change[head] for head in b.heads])
    losses = b.run().losses().numpy()
    np.save(o["out"], (change[:, 1:] + losses)[:, -int((~np.isnan(change[0])).sum()) :])
    return {
        "seconds": seconds,
        "first": first.seconds,
        "estimated": first.estimated,
        "forward": b.forward_seconds(3),
        "largest": float(np.nanmax(np.abs(change))),
    }


def attribution(o: dict[str, Any]) -> dict[str, Any]:
    """Every head at every position on a run that is there already: seconds, extra memory."""
    b = Bench(o)
    once = lambda: b.ask("direct_attribution", target=b.pair, positions="all")
    found = once()
    np.save(o["out"], found.heads.reshape(-1, len(b.tokens)))
    seconds = timed(once, o["rounds"], b.fresh_with_run)
    b.fresh_with_run()
    return {"seconds": seconds, "extra": peak_extra(once)}


def patching(o: dict[str, Any]) -> dict[str, Any]:
    """The whole head × position grid, both forward passes included."""
    b = Bench(o)
    once = lambda: b.ask("patching", source=b.other, what="head", target=b.pair)
    b.ask("patching", source=b.other, what="head", target=b.pair, heads=(Head(0, 0),))
    b.fresh()
    began = time.perf_counter()
    found = once()
    seconds = time.perf_counter() - began
    rows = [Head(*map(int, row)) for row in found.rows]
    np.save(o["out"], np.stack([found.values[rows.index(head)] for head in b.heads]))
    return {"seconds": seconds, "inside": float(found.inside.mean())}


def paths(o: dict[str, Any]) -> dict[str, Any]:
    """Path expansion of order 2 at the last position, on a run that is there already and with its own; forward passes."""
    b = Bench(o)
    once = lambda: b.ask("path_expansion", target=b.pair, order=2)
    found = once()
    return {
        "seconds": timed(once, o["rounds"], b.fresh_with_run),
        "with_run": timed(once, o["rounds"], b.fresh),
        "forward": b.forward_seconds(o["rounds"]),
        "stream": timed(b.run, o["rounds"], b.fresh),
        "remainder": found.remainder.size / found.remainder.of,
    }


def head_scores(o: dict[str, Any]) -> dict[str, Any]:
    """Scores of every head on the batch of the file: patterns and scores; and the whole analysis, its control included."""
    b = Bench(o)
    batch = torch.from_numpy(np.load(o["batch"]))
    seen: Any = SimpleNamespace(weights=b.store.open(b.ref).weights(RAW))  # all that this part of the analysis looks at
    once = lambda: scores_on(seen, batch, batch, NullContext(), "").mean(axis=1)
    np.save(o["out"], once())
    samples, length = batch.shape
    whole = lambda: b.ask("head_scores", block=length // 2, repeats=2, samples=samples)
    return {
        "seconds": timed(once, o["rounds"]),
        "extra": peak_extra(once),
        "whole": timed(whole, max(1, o["rounds"] // 2), b.fresh),
    }


PARAMS: dict[str, dict[str, Any]] = {
    "direct_attribution": {"positions": "all"},
    "logit_lens": {"mid": True},
    "head_scores": {"block": 50, "repeats": 2, "samples": 16},
    "in_context": {"length": 128},
}


def questions(b: Bench) -> dict[str, dict[str, Any]]:
    """Parameters of every analysis of a prompt that applies to this model; the weight analyses have a benchmark of their own."""
    found = {}
    for name, one in analyses().items():
        given = PARAMS.get(name, {})
        given |= {"source": b.other} if name in ("patching", "path_patching") else {}
        if one.needs == "tokens" and name not in QUESTIONS and not one.refuse(b.config, one.params(**given)):
            found[name] = given
    return found


def cancelling(o: dict[str, Any]) -> dict[str, Any]:
    """Of each analysis: seconds from a random moment of it until it answered `Cancelled`; moments of its first `cap` seconds."""
    b, chance = Bench(o), random.Random(0)
    out: dict[str, Any] = {}
    for name, params in questions(b).items():
        try:
            out[name] = _latencies(b, name, params, o["times"], o["cap"], chance)
        except CircuitLabError as error:
            out[name] = {"error": error.what}
    return out


def _latencies(b: Bench, name: str, params: dict[str, Any], times: int, cap: float, chance: random.Random) -> dict[str, Any]:
    def late(after: float) -> float | None:
        """Seconds beyond `after` seconds of the analysis; None where it was over by then."""
        b.fresh()
        at = time.perf_counter() + after
        with suppress(Cancelled):
            b.ask(name, Stop(at), **params)
        return seconds if (seconds := time.perf_counter() - at) > 0 else None

    late(min(cap, 0.5))  # what is imported and allocated once
    began = time.perf_counter()
    late(cap)
    whole = min(cap, time.perf_counter() - began)
    found = [late(chance.random() * whole) for _ in range(times)]
    return {"seconds": whole, "latencies": [seconds for seconds in found if seconds is not None]}


if __name__ == "__main__":
    options = json.loads(Path(sys.argv[1]).read_text()) if sys.argv[1].endswith(".json") else json.loads(sys.argv[1])
    torch.set_num_threads(options["threads"])
    print(json.dumps(globals()[options["what"]](options)))
