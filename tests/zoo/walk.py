"""One analysis on one model and prompt: what it came to, and which laws it breaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from circuitlab.analysis.base import Result, find_analysis
from circuitlab.errors import CircuitLabError, Refused
from circuitlab.model.intervention import Intervention, Site
from tests.zoo import invariances, known, laws
from tests.zoo.asked import Asked, Bench, Tokens
from tests.zoo.references import REFERENCES

Broken = tuple[str, str]  # the law, and how it is broken


def answered(bench: Bench, asked: Asked, tokens: Tokens, edits: tuple[Intervention, ...] = ()) -> Result | None:
    """The result; None where it is refused: in the words that its `refuse` has, or for a reason in `known.REFUSED_IN_RUN`."""
    reason = find_analysis(asked.name).refuse(bench.config, asked.params)
    try:
        found = bench.answer(asked, tokens, edits).result
    except CircuitLabError as error:
        allowed = known.REFUSED_IN_RUN.get(asked.name, ())
        said = reason is not None and isinstance(error, Refused) and reason[1:] in error.what
        if said or any(part in error.what for part in allowed):
            return None
        raise AssertionError(f"{asked} refuses in words that nobody expects: {error}") from error
    assert reason is None, f"{asked} answers what it says that it refuses: {reason}"
    return found


def broken(bench: Bench, asked: Asked, tokens: Tokens) -> tuple[Result | None, list[Broken]]:
    """The answer, and the laws that it breaks: "answers", "finite", "adds up", "reference", "left alone", "earlier"."""
    failures = list[Broken]()
    try:
        found = answered(bench, asked, tokens)
    except Exception as error:
        return None, [("answers", f"{type(error).__name__}: {error}")]
    if found is None:
        return None, []
    for law, check in (
        ("finite", lambda: _finite(asked, found)),
        ("adds up", lambda: laws.check_remainder(found)),
        ("reference", lambda: _reference(bench, asked, tokens, found)),
        ("left alone", lambda: _left_alone(bench, asked, tokens, found)),
        ("earlier", lambda: _earlier(bench, asked, tokens)),
    ):
        try:
            check()
        except Exception as error:  # a crash of a reference is a failure of it, too
            failures.append((law, f"{type(error).__name__}: {error}"))
    return found, failures


def _finite(asked: Asked, found: Result) -> None:
    for field in laws.not_computed(found):
        assert field in known.NOT_COMPUTED.get(asked.name, ()), f"{asked}: {field} has NaN for no reason that is known"


def _reference(bench: Bench, asked: Asked, tokens: Tokens, found: Result) -> None:
    if asked.name in REFERENCES:
        REFERENCES[asked.name](bench.own, bench.pass_of(tokens), asked.params, found)


def nothing(bench: Bench, tokens: Tokens) -> tuple[Intervention, ...]:
    """Interventions that leave everything as it is: times one, and patches that have no partner for any position."""
    other = tuple((t + 1) % bench.config.d_vocab for t in tokens)
    sites = [Site("result", 0)] + [Site("mlp_out", 0)] * bool(bench.config.d_mlp)
    patches = [Intervention("patch", site, source=other, align=(-1,) * len(tokens)) for site in sites]
    return (Intervention("scale", Site("z", bench.config.n_layers - 1), (1.0,)), *patches)


def _left_alone(bench: Bench, asked: Asked, tokens: Tokens, found: Result) -> None:
    if find_analysis(asked.name).needs != "tokens" or not bench.config.n_layers or asked.name in known.OF_RUNS_OF_THEIR_OWN:
        return
    again = answered(bench, asked, tokens, nothing(bench, tokens))
    assert again is not None, "refused where nothing is changed"
    assert not (moved := laws.differences(found, again, known.rounding_of(asked.name))), (
        f"{asked}: {moved} move where nothing is changed"
    )


def at_the_end(bench: Bench, tokens: Tokens) -> tuple[Intervention, ...]:
    """Interventions at the last position alone: in the stream, in a head, in an MLP, from another prompt."""
    last, layer = (len(tokens) - 1,), bench.config.n_layers - 1
    other = tuple((t + 1) % bench.config.d_vocab for t in tokens)
    cuts = [Intervention("zero", Site("z", 0, positions=last)), Intervention("scale", Site("v", layer, positions=last), (-2.0,))]
    cuts += [Intervention("zero", Site("mlp_out", layer, positions=last))] * bool(bench.config.d_mlp)
    return (Intervention("patch", Site("resid_pre", 0, positions=last), source=other), *cuts)


def _earlier(bench: Bench, asked: Asked, tokens: Tokens) -> None:
    """What is said of positions before the last is what is said without interventions at the last."""
    at, n = len(tokens) - 2, len(tokens)
    if find_analysis(asked.name).needs != "tokens" or not bench.config.n_layers or at < 0 or asked.name in known.OF_ALL_POSITIONS:
        return
    asked = laws.about(asked, at)
    before, after = answered(bench, asked, tokens), answered(bench, asked, tokens, at_the_end(bench, tokens))
    assert (before is None) == (after is None), "refused with or without interventions at the last position alone"
    if before is not None and after is not None:
        apart = known.rounding_of(asked.name) | known.all_positions_of(asked.name)
        assert not (moved := laws.differences_before(n - 1, before, after, n, apart)), (
            f"{asked}: {moved} move at earlier positions where the last one is changed"
        )


def moved(folder: Path, bench: Bench, change: str, names: tuple[str, ...], tokens: Tokens) -> Iterator[tuple[str, str]]:
    """(analysis, the fields that move) under a change of the weights that no logit notices."""
    tensors = invariances.changed(change, bench.config, bench.tensors)
    if tensors is None:
        return
    other = Bench(folder, bench.config, tensors, mapped=True)
    np.testing.assert_allclose(other.pass_of(tokens).log_probs, bench.pass_of(tokens).log_probs, atol=1e-9)
    for name in names:
        for asked, there in zip(bench.ways(name, tokens), other.ways(name, tokens), strict=True):
            try:
                one, two = answered(bench, asked, tokens), answered(other, there, tokens)
            except Exception:  # what does not answer at all is found by `broken`
                continue
            assert (one is None) == (two is None), (asked, change)
            if one is None or two is None:
                continue
            if fields := laws.differences(one, two, known.basis_of(name, change)):
                yield name, f"{asked}: {', '.join(fields)}"
