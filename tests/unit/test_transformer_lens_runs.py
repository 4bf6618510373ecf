"""What heads do in a prompt against TransformerLens on the same weights, kept in `tests/reference`, at 1e-4."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from circuitlab.analysis.attention.head_scores import HeadScoresParams
from circuitlab.analysis.attention.pattern import AttentionParams
from circuitlab.analysis.attribution.direct_attribution import DirectAttributionParams
from circuitlab.analysis.attribution.logit_lens import LogitLensParams
from circuitlab.analysis.behaviour.token_loss import TokenLossParams
from circuitlab.analysis.interventions.ablation import AblationParams
from circuitlab.analysis.interventions.patching import PatchingParams
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.model.config import ModelConfig
from circuitlab.model.saving import save_directory
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject, Target
from tests.reference.make_transformer_lens import FILE, MODELS, OTHER, PAIR, STATES, TOKENS, weights
from tests.rounding import check_ranks

REFERENCE = np.load(FILE)
EVERY = [(name, state, dtype) for name in MODELS for state in STATES for dtype in ("float32", "float64")]


def said(what: str) -> list[tuple[str, str, str]]:
    """The cases of which the library says this."""
    return [(name, state, dtype) for name, state, dtype in EVERY if f"{name} {state} {what}" in REFERENCE]


class Asker:
    """One of the reference's models, under the conventions of one of its states, with the reference's prompt."""

    def __init__(self, path: Path, name: str, state: str, dtype: Any = "float64") -> None:
        tensors = {n: torch.from_numpy(v) for n, v in weights(name).items()}
        self.config = ModelConfig(**MODELS[name])
        save_directory(path / "m", self.config, tensors)
        self.engine, processed = Engine(ModelStore()), state == "processed"
        self.name, self.state, self.dtype = name, state, dtype
        self.subject = Subject(ModelRef(f"file:{path / 'm'}"), TOKENS, (), Conventions(processed, processed, dtype))

    def __call__(self, name: str, params: Any) -> Any:
        return self.engine.answer(Request.named(name, params, self.subject)).result

    def theirs(self, what: str, state: str = "") -> np.ndarray:
        return REFERENCE[f"{self.name} {state or self.state} {what}"]

    def same(self, ours: np.ndarray, theirs: np.ndarray) -> None:
        """To 1e-4 of a logit or nat; in float32 of the largest number there is, where that is more than 1."""
        size = max(1.0, float(np.abs(theirs).max())) if self.dtype == "float32" else 1.0
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-4 * size)


@pytest.fixture(params=EVERY, ids="-".join)
def ask(request: pytest.FixtureRequest, tmp_path: Path) -> Asker:
    return Asker(tmp_path, *request.param)


def test_patterns_and_losses(ask: Asker) -> None:
    """The ground everything else stands on."""
    found = ask("attention", AttentionParams()).values.reshape(ask.theirs("patterns").shape)
    ask.same(np.nan_to_num(found), ask.theirs("patterns"))
    ask.same(ask("token_loss", TokenLossParams()).loss[1:], ask.theirs("loss"))


# -- direct attribution ----------------------------------------------------------------------------------------------------


def parts(ask: Asker, found: Any) -> dict[str, np.ndarray]:
    """[pos] of every part under the library's names; our attention biases are its one "bias"."""
    made = {str(Head(i, h)): found.heads[i, h] for i in range(ask.config.n_layers) for h in range(ask.config.n_heads)}
    ours = dict(zip(found.names, found.others, strict=True))
    made |= {"embed": ours["embedding"], "bias": sum(v for k, v in ours.items() if k.startswith("attention bias"))}
    made["pos_embed"] = ours.get("position", np.zeros(()))
    return made | {f"{k[5:]}_mlp_out": v for k, v in ours.items() if k.startswith("MLP L")}


def test_direct_attribution_of_a_logit_difference_at_every_position(ask: Asker) -> None:
    """Where the library says nothing, a gain not being folded in, the heads are those of the folded model."""
    result = ask("direct_attribution", DirectAttributionParams(Target(PAIR), "all"))
    state = ask.state if ask.config.norm == "none" else "processed"
    ours, names = parts(ask, result), ask.theirs("attribution names", state).tolist()
    theirs = dict(zip(names, ask.theirs("attribution", state), strict=True))
    for name in names:
        if state == ask.state or name.startswith("L"):
            ask.same(np.broadcast_to(ours[name], theirs[name].shape), theirs[name])
    assert max(np.abs(theirs[str(Head(0, h))]).max() for h in range(4)) > 0.05


@pytest.mark.parametrize("ask", said("attribution own"), indirect=True, ids="-".join)
def test_direct_attribution_of_the_token_that_follows(ask: Asker) -> None:
    """A single logit hangs on whether W_U is centred: only where the library says something of this very state."""
    ours = parts(ask, ask("direct_attribution", DirectAttributionParams(positions="all")))
    for name, theirs in zip(ask.theirs("attribution names").tolist(), ask.theirs("attribution own"), strict=True):
        ask.same(np.broadcast_to(ours[name], theirs.shape)[:-1], theirs[:-1])


def test_direct_attribution_at_one_position_is_a_column_of_all(ask: Asker) -> None:
    result = ask("direct_attribution", DirectAttributionParams(Target(PAIR), position=5))
    theirs = ask.theirs("attribution", ask.state if ask.config.norm == "none" else "processed")
    n = ask.config.n_layers * ask.config.n_heads
    ask.same(result.heads[..., 0].ravel(), theirs[:n, 5])


# -- logit lens ------------------------------------------------------------------------------------------------------------


def lens_is(ask: Asker, found: Any, theirs: np.ndarray) -> None:
    """Every number of our lens from the library's log-probabilities [layer + 1, pos, d_vocab]."""
    p, n = np.exp(theirs.astype(float)), len(TOKENS)
    stage, pos = np.ogrid[: len(theirs), :n]
    ours = np.zeros_like(p)
    ours[stage[..., None], pos[..., None], found.ids] = found.probs
    ask.same(ours, p)
    assert (np.diff(found.probs, axis=-1) <= 0).all()
    ask.same(found.log_prob[:, :-1], theirs[stage, pos[:, :-1], TOKENS[1:]])
    check_ranks(found.rank[:, :-1], theirs[:, :-1], theirs[stage, pos[:, :-1], TOKENS[1:]], rtol=1e-4, atol=1e-5)
    ask.same(found.entropy, -(p * theirs).sum(-1))
    ask.same(found.kl, (p[-1] * (theirs[-1] - theirs.astype(float))).sum(-1))
    ask.same(found.value, theirs[..., PAIR[0]] - theirs[..., PAIR[1]])


def test_logit_lens(ask: Asker) -> None:
    result = ask("logit_lens", LogitLensParams(k=60, target=Target(PAIR)))
    lens_is(ask, result, ask.theirs("lens"))
    assert np.ptp(ask.theirs("lens")[..., 0], axis=0).max() > 0.5


@pytest.mark.parametrize("ask", said("lens at the last scale"), indirect=True, ids="-".join)
def test_logit_lens_at_the_last_scale(ask: Asker) -> None:
    result = ask("logit_lens", LogitLensParams(k=60, target=Target(PAIR), statistics="the final layer's"))
    lens_is(ask, result, ask.theirs("lens at the last scale"))


# -- ablation --------------------------------------------------------------------------------------------------------------


def test_losses_of_every_token_without_each_head(ask: Asker) -> None:
    result = ask("ablation", AblationParams())
    loss, without = ask.theirs("loss"), ask.theirs("ablated")
    assert result.exact.all()
    ask.same(result.token_change[..., 1:], without - loss)
    ask.same(result.effect, (without - loss).mean(-1))
    ask.same(np.array(result.baseline), loss.mean())
    half = ask("ablation", AblationParams(effect="second_half"))
    computed = ~np.isnan(half.token_change[0, 0])
    assert 0 < computed.sum() < len(TOKENS) - 1
    ask.same(half.token_change[..., computed], (without - loss)[..., computed[1:]])


def test_losses_without_two_heads(ask: Asker) -> None:
    last = ask.config.n_layers - 1
    for h in range(ask.config.n_heads):
        result = ask("ablation", AblationParams(what="set", heads=(Head(0, h), Head(last, h))))
        ask.same(result.set_change[0, 1:], ask.theirs("ablated pairs")[h] - ask.theirs("loss"))


# -- patching --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("what", "theirs"), [("head", "patched z"), ("resid_pre", "patched resid_pre")])
def test_patching_grids(ask: Asker, what: Any, theirs: str) -> None:
    """The library patches z, here what a head writes is exchanged: the same number, by W_O."""
    result = ask("patching", PatchingParams(OTHER, what, target=Target(PAIR)))
    grid = ask.theirs(theirs)
    wanted = grid.transpose(0, 2, 1).reshape(-1, len(TOKENS)) if what == "head" else grid
    assert result.exact.all()
    ask.same(result.values, wanted)
    ask.same(np.array([result.clean, result.other]), np.array([ask.theirs("difference"), ask.theirs("difference other")]))
    ask.same(result.values[~result.inside], np.broadcast_to(ask.theirs("difference"), (~result.inside).sum()))
    assert np.ptp(wanted) > 0.05


# -- head scores, by their definitions on the library's patterns -----------------------------------------------------------


def slow_scores(A: np.ndarray) -> dict[str, float]:
    """One head's scores from its pattern [dest, src], in loops."""
    n, t = len(TOKENS), TOKENS
    mean = lambda values: sum(values) / len(values)
    prefix = {d: [s for s in range(1, d + 1) if t[s - 1] == t[d]] for d in range(n)}
    again = {d: [s for s in range(d) if t[s] == t[d]] for d in range(n)}
    return {
        "prefix_matching": mean([sum(A[d, s] for s in prefix[d]) for d in range(n) if prefix[d]]),
        "duplicate_token": mean([sum(A[d, s] for s in again[d]) for d in range(n) if again[d]]),
        "previous_token": mean([A[d, d - 1] for d in range(1, n)]),
        "first_token": mean([A[d, 0] for d in range(1, n)]),
        "current_token": mean([A[d, d] for d in range(1, n)]),
        "entropy": mean([-sum(a * math.log(a) for a in row if a > 0) for row in A.tolist()]),
        "mean_distance": mean([sum(A[d, s] * (d - s) for s in range(n)) for d in range(n)]),
    }


def test_head_scores(ask: Asker) -> None:
    result = ask("head_scores", HeadScoresParams(on="text"))
    for (layer, head), _ in np.ndenumerate(result.mean[0]):
        theirs = slow_scores(ask.theirs("patterns")[layer, head].astype(float))
        for name, value in theirs.items():
            assert result.of(name)[layer, head] == pytest.approx(value, abs=1e-4), (name, layer, head)
    assert set(result.names) == set(theirs)
