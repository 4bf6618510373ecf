"""A decomposition that is made wrong on purpose says so by its remainder; the same one left alone has none but rounding."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from circuitlab.analysis.base import analyses
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Request
from circuitlab.engine.store import ModelStore
from circuitlab.model.constructed import SOURCES
from circuitlab.model.subject import Conventions, Head, ModelRef, Subject
from circuitlab.testing import check_remainder
from tests.models import CONFIGS, directory

TOKENS = (0, 5, 4, 5, 3, 5, 1, 2, 5)
DOUBLE = Conventions(dtype="float64")
LATE = Head(1, 0)
Broken = Callable[[pytest.MonkeyPatch, Any], None]


def times(name: str) -> Broken:
    """What the module's function of that name returns is a tenth too large."""

    def apply(patch: pytest.MonkeyPatch, module: Any) -> None:
        whole = getattr(module, name)
        patch.setattr(module, name, lambda *args, **more: whole(*args, **more) * 1.1)

    return apply


def without_the_first_part(patch: pytest.MonkeyPatch, module: Any) -> None:
    """A part of what query and key read is forgotten."""
    every = module._side
    patch.setattr(module, "_side", lambda *args: every(*args)[1:])


def another_row(patch: pytest.MonkeyPatch, module: Any) -> None:
    """The score is another one than that whose terms are added up."""
    recorded = module._recorded_row
    patch.setattr(module, "_recorded_row", lambda *args: (recorded(*args)[0] + 1, *recorded(*args)[1:]))


def a_part_too_large(patch: pytest.MonkeyPatch, module: Any) -> None:
    """One part of the stream counts for more than it wrote."""
    fill = module._Sweep.fill
    patch.setattr(module._Sweep, "fill", lambda self, name, values: fill(self, name, values + 1.0))


def heads_read_too_much(patch: pytest.MonkeyPatch, module: Any) -> None:
    """With patterns held, heads read another stream than the one that was written."""
    heads = module.FrozenAttentionPass.heads
    patch.setattr(module.FrozenAttentionPass, "heads", lambda self, layer, x: heads(self, layer, x * 1.1))


def values_too_large(patch: pytest.MonkeyPatch, module: Any) -> None:
    """Heads move more than the values they read."""
    owner = next(c for c in vars(module).values() if isinstance(c, type) and "values_of" in vars(c))
    values = owner.values_of
    patch.setattr(owner, "values_of", lambda self, *args: values(self, *args) * 1.1)


def other_singular_values(patch: pytest.MonkeyPatch, module: Any) -> None:
    """Components that do not make the losses again."""
    svd = np.linalg.svd

    def apply(*args: Any, **more: Any) -> Any:
        u, s, vt = svd(*args, **more)
        return u, s * 1.1, vt

    patch.setattr(module.np.linalg, "svd", apply)


def sources_gain_too_much(patch: pytest.MonkeyPatch, module: Any) -> None:
    """Sources gain more than the head's output does."""
    read = module._read
    patch.setattr(module, "_read", lambda *args: replace(reading := read(*args), gain=reading.gain * 1.1))


# analysis -> (its parameters, the model, how it is made wrong)
ON_TEXT: dict[str, tuple[dict[str, Any], str, Broken]] = {
    "path_expansion": ({"order": 1}, "attention-only", times("contributions_by_order")),
    "direct_attribution": ({}, "gpt2", a_part_too_large),
    "token_attribution": ({}, "gpt2", values_too_large),
    "neurons": ({}, "gpt2", times("activations")),
    "score_parts": ({"head": LATE}, "gpt2", without_the_first_part),
    "score_expansion": ({"head": LATE}, "gpt2", another_row),
    "term_importance": ({}, "attention-only", heads_read_too_much),
    "skip_trigrams_in_text": ({"head": LATE}, "gpt2", sources_gain_too_much),
    "tensor_identity": ({"head": LATE}, "gpt2", times("_kronecker")),
}
ELSEWHERE = {"training_pca", "rotation_clock"}  # of a series, and of the constructed model: below


def answered(tmp_path: Path, name: str, params: dict[str, Any], model: str) -> Any:
    path = directory(tmp_path, CONFIGS[model], tokenizer=False)
    analysis = analyses()[name]
    subject = Subject(ModelRef(f"file:{path}"), TOKENS, (), DOUBLE)
    return Engine(ModelStore()).answer(Request.named(name, analysis.params(**params), subject)).result


@pytest.mark.parametrize("name", ON_TEXT)
def test_what_is_made_wrong_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    params, model, broken = ON_TEXT[name]
    module, folders = importlib.import_module(analyses()[name].run.__module__), iter((tmp_path / "right", tmp_path / "wrong"))
    check_remainder(lambda: answered(next(folders), name, params, model), lambda: broken(monkeypatch, module))


def test_components_that_do_not_make_the_losses_again_show(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(analyses()["training_pca"].run.__module__)
    losses = np.random.default_rng(0).normal(size=(5, 12))
    right = module.components(losses, np.arange(5))[2]
    other_singular_values(monkeypatch, module)
    wrong = module.components(losses, np.arange(5))[2]
    assert right.size < 1e-12 < 1e-3 * wrong.of < wrong.size


def test_a_formula_that_the_constructed_model_does_not_follow_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    module = importlib.import_module(analyses()["rotation_clock"].run.__module__)
    ask: Callable[[], Any] = lambda: Engine(ModelStore()).answer(
        Request.named("rotation_clock", module.RotationClockParams(), Subject(ModelRef(SOURCES[0]), (0, 1, 2, 1), (), DOUBLE))
    )
    assert ask().result.remainder.size < 1e-12
    times("attention_1")(monkeypatch, module.closed_forms)
    assert ask().result.remainder.size == pytest.approx(0.1, rel=0.05)  # a tenth of an attention of nearly one


def test_every_decomposition_is_here() -> None:
    sources = {name: Path(importlib.import_module(a.run.__module__).__file__ or "").read_text() for name, a in analyses().items()}
    assert {name for name, source in sources.items() if "Remainder(" in source} == set(ON_TEXT) | ELSEWHERE
