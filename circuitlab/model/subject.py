"""The subject of a request: model, checkpoint, tokens, interventions, conventions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from circuitlab.errors import UsageError
from circuitlab.model.intervention import Intervention

_HEAD = re.compile(r"^\s*L(\d+)H(\d+)\s*$", re.IGNORECASE)

# folders that training writes into the folder of a run -> the parts that follow the run's name in theirs
IN_A_RUN: dict[str, tuple[str, ...]] = {"model": (), "so-far": ("so far",)}


class Head(NamedTuple):
    """An attention head, written `L1H4`, layer and head counted from 0."""

    layer: int
    head: int

    def __str__(self) -> str:
        return f"L{self.layer}H{self.head}"

    @classmethod
    def parse(cls, text: str) -> Head:
        """`"L1H4"` -> `Head(1, 4)`. Raises `UsageError`."""
        match = _HEAD.match(text)
        if not match:
            raise UsageError("A head could not be read.", expected="a head such as L1H4", got=repr(text))
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True)
class ModelRef:
    """Where a model comes from: `"file:PATH"`, `"builtin:NAME"`, `"hub:OWNER/NAME@REVISION"`, `"construct:NAME?…"`.

    `checkpoint` is an index into the model's checkpoint series, `None` the final weights. `assume`: (name, value) pairs, sorted,
    that the person gave where no file states a value.
    """

    source: str
    checkpoint: int | None = None
    assume: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """Its name in titles: its parts in one line."""
        return " · ".join(self.name_parts)

    @property
    def name_parts(self) -> tuple[str, ...]:
        """The parts of its name: the last part of its path or its name, "so far" for an unfinished run, its checkpoint.

        The model folder of a run has the same name in every run (`IN_A_RUN`), so that model is named like the run's folder.
        """
        return (*self._stem(1), *(() if self.checkpoint is None else (f"checkpoint {self.checkpoint}",)))

    def named(self, parts: int) -> str:
        """The name by the last `parts` of the path, to tell two of one name apart; without the checkpoint."""
        return " · ".join(self._stem(parts))

    def _stem(self, parts: int) -> tuple[str, ...]:
        """`named` in its parts: the folder or name, and "so far" for an unfinished run."""
        kind, _, where = self.source.partition(":")
        names, more = where.replace("\\", "/").rstrip("/").split("/"), ()
        if kind == "file" and names[-1] in IN_A_RUN and names[-2:-1] not in ([], [""]) and not names[-2].endswith(":"):
            more = IN_A_RUN[names.pop()]
        return ("/".join(names[-parts:]), *more) if names[-1] else (self.source,)


@dataclass(frozen=True)
class Conventions:
    """How weights are presented. None of these changes a log-probability.

    `fold_norm`: norm gains and biases are folded into the weights that read after them, where that is exact.
    `centre`: writing weights are centred over `d_model` where a LayerNorm makes that exact, `W_U` over the vocabulary.
    `dtype`: what is computed in.
    """

    fold_norm: bool = True
    centre: bool = True
    dtype: Literal["float32", "float64"] = "float32"

    def words(self) -> tuple[str, ...]:
        """The convention strip, for captions and exports."""
        return (
            "norm folded" if self.fold_norm else "norm not folded",
            "centred" if self.centre else "not centred",
            self.dtype,
        )


@dataclass(frozen=True)
class Subject:
    """Everything an answer depends on besides the analysis and its parameters."""

    model: ModelRef
    tokens: tuple[int, ...] = ()
    edits: tuple[Intervention, ...] = ()
    conventions: Conventions = Conventions()


@dataclass(frozen=True)
class Target:
    """What attributions, patches, lenses and sweeps measure: a token, a pair (difference), or the token that follows.

    `tokens` () means the token that really follows; one id: that token's logit; two: the first minus the second. `direction`
    [d_model], in the normalised final stream, overrides both.
    """

    tokens: tuple[int, ...] = ()
    direction: tuple[float, ...] = ()

    def __str__(self) -> str:
        if self.direction:
            return "direction:" + ";".join(map(repr, self.direction))
        return "-".join(map(str, self.tokens)) or "next"

    @classmethod
    def parse(cls, text: str) -> Target:
        """`"next"`, `"12"`, `"12-34"` or `"direction:0.1;0.2;…"`. Raises `UsageError`."""
        text = text.strip()
        try:
            if text.startswith("direction:"):
                direction = tuple(float(x) for x in text.removeprefix("direction:").split(";"))
                if all(map(math.isfinite, direction)):
                    return cls(direction=direction)
                raise ValueError(text)
            tokens = () if text in ("", "next") else tuple(int(x) for x in text.split("-"))
        except ValueError:
            tokens = (0, 0, 0)
        if len(tokens) > 2:
            raise UsageError("A target could not be read.", expected="next, an id such as 12, or a pair 12-34", got=repr(text))
        return cls(tokens)
