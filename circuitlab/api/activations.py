"""The activations of a prompt by name, each computed by the engine when it is first read: `model.run(text)["layers.1.z"]`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from circuitlab.analysis.behaviour.activations import OF_NO_LAYER, ActivationsParams, activations, axes_of, names_in
from circuitlab.api.long_work import working
from circuitlab.counting import number_of
from circuitlab.engine.engine import Engine
from circuitlab.engine.request import Answer, Request
from circuitlab.errors import UsageError, quoted
from circuitlab.model.config import ModelConfig
from circuitlab.model.subject import Subject


class Activations(Mapping[str, np.ndarray]):
    """What one forward pass has of one prompt, interventions included. Arrays are read-only; `axes` names what they are over.

        acts = model.run("a b c a b")
        acts["layers.1.z"]                # [head, position, d_head]
        acts.axes("layers.1.pattern")     # ("head", "destination", "source")
        list(acts)                        # every name

    Each is one answer of the engine (`answer`), estimated against the memory budget before it is computed, and cached; nothing is
    computed that is not read.
    """

    def __init__(self, engine: Engine, subject: Subject, config: ModelConfig) -> None:
        self.subject, self._engine, self._names = subject, engine, names_in(config)

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids that the positions are those of."""
        return self.subject.tokens

    def axes(self, name: str) -> tuple[str, ...]:
        """The names of an activation's axes. Raises `UsageError` for one that is not there."""
        return axes_of(self._params(name).name)

    def answer(self, name: str) -> Answer[Any]:
        """The answer that has an activation, with its conventions and where it came from. Raises as `Engine.answer` does."""
        with working(name) as ctx:
            return self._engine.answer(Request(activations, self._params(name), self.subject), ctx)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.answer(name).result.values

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __repr__(self) -> str:
        tokens, names = number_of(len(self.tokens), "token"), number_of(len(self._names), "name")
        return f"<Activations {tokens} · {names}, {self._names[0]} to {self._names[-1]}>"

    def _params(self, name: str) -> ActivationsParams:
        if name not in self._names:
            expected = f"{' '.join(self._names[:14])} … {' '.join(OF_NO_LAYER)}"
            remedy = "list(...) of the activations gives every name; layers are counted from 0."
            raise UsageError("There is no such activation.", expected=expected, got=quoted(name), remedy=remedy)
        match = re.fullmatch(r"layers\.(\d{1,9})\.(\w+)", name)
        return ActivationsParams(match[2], int(match[1])) if match else ActivationsParams(name)  # type: ignore[arg-type]
