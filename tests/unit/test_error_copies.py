"""Every error can be copied, and pickled as it comes back from another process: what it says and what it carries stays."""

from __future__ import annotations

import importlib
import inspect
import pickle
import pkgutil
from collections.abc import Iterator
from copy import copy, deepcopy

import pytest

import circuitlab
from circuitlab.draw.look.paper import Paper
from circuitlab.errors import CircuitLabError

SAMPLES = {"str": "words", "int": 7, "float": 3.5, "Paper": Paper(), "tuple[str, ...]": ("a: 2 × 3",)}


def _kinds(kind: type[CircuitLabError] = CircuitLabError) -> Iterator[type[CircuitLabError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _kinds(below)


def _every_kind() -> list[type[CircuitLabError]]:
    """Of all modules, also of those that no other test has imported."""
    for module in pkgutil.walk_packages(circuitlab.__path__, "circuitlab."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    return [kind for kind in dict.fromkeys(_kinds()) if kind.__module__.startswith("circuitlab.")]


def _raised(kind: type[CircuitLabError]) -> CircuitLabError:
    """One with something other than its default for all that it can be given."""
    given = {}
    for name, parameter in inspect.signature(kind).parameters.items():
        declared = str(parameter.annotation)
        given[name] = {"family": ("gpt2", "neox")} if declared.startswith("Mapping") else SAMPLES[declared]
    positional = [given.pop(n) for n, p in inspect.signature(kind).parameters.items() if p.kind is not p.KEYWORD_ONLY]
    error = kind(*positional, **given)
    error.title = "Of this one alone"
    return error


@pytest.mark.parametrize(
    "again", (copy, deepcopy, lambda error: pickle.loads(pickle.dumps(error))), ids=("copy", "deep", "pickle")
)
def test_every_error_stays_what_it_is(again) -> None:
    kinds = _every_kind()
    assert len(kinds) >= 10
    for kind in kinds:
        error = _raised(kind)
        other = again(error)
        assert other is not error and type(other) is kind
        assert str(other) == str(error) and vars(other) == vars(error) and other.args == error.args
        other.what = "Something else"
        assert error.what != other.what, "a copy shares nothing that is set"
