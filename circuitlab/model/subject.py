"""The subject of a request: model, checkpoint, tokens, interventions, conventions."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from circuitlab.caption_parts import About, Part, Sense
from circuitlab.errors import UsageError, quoted
from circuitlab.model.config import ModelConfig
from circuitlab.model.intervention import Intervention
from circuitlab.model.origin import File, Origin, origin_of

_HEAD = re.compile(r"^\s*L(\d{1,9})H(\d{1,9})\s*$", re.IGNORECASE)

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
            raise UsageError(
                "A head could not be read.",
                expected="a head such as L1H4",
                got=quoted(text),
                remedy="Write layer and head, both counted from 0, as in L1H4.",
            )
        return cls(int(match[1]), int(match[2]))


@dataclass(frozen=True)
class ModelRef:
    """Where a model comes from: `"file:PATH"`, `"builtin:NAME"`, `"hub:OWNER/NAME@REVISION"`, `"construct:NAME?…"`; of a model
    that is not here, and of which a session has results, `"stored:HASH/NAME"`. `origin` is the same as a value.

    `checkpoint` is an index into the model's checkpoint series, `None` the final weights. `assume`: (name, value) pairs, sorted,
    that the person gave where no file states a value.
    """

    source: str
    checkpoint: int | None = None
    assume: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, origin: Origin, checkpoint: int | None = None, assume: tuple[tuple[str, str], ...] = ()) -> ModelRef:
        """The reference of a model that comes from there."""
        return cls(str(origin), checkpoint, assume)

    @property
    def origin(self) -> Origin:
        """Where it comes from."""
        return origin_of(self.source)

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
        origin = self.origin
        names, more = origin.where.replace("\\", "/").rstrip("/").split("/"), ()
        in_a_run = (
            isinstance(origin, File) and names[-1] in IN_A_RUN and names[-2:-1] not in ([], [""]) and not names[-2].endswith(":")
        )
        if in_a_run and "/".join(names[:-1]) != os.path.expanduser("~").replace("\\", "/"):  # whose name is a person's
            more = IN_A_RUN[names.pop()]
        return ("/".join(names[-parts:]), *more) if names[-1] else (self.source,)


_READING = Sense(About.READING)
# whether everything that writes to the stream is centred over d_model, and W_U over the vocabulary -> the word for it
CENTRED = {
    (True, True): "centred",
    (True, False): "writing weights centred",
    (False, True): "W_U centred",
    (False, False): "not centred",
}


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

    def folds_sublayers(self, config: ModelConfig) -> bool:
        """Whether the norm before each sublayer is folded into what reads after it."""
        return self.fold_norm and config.norm != "none" and config.norm_placement in ("pre", "both")

    def folds_final(self, config: ModelConfig) -> bool:
        """Whether the norm before the unembedding is folded into it."""
        return self.fold_norm and config.norm != "none" and config.final_norm

    def centres_writes(self, config: ModelConfig) -> bool:
        """Whether everything that writes to the stream loses its mean over d_model: exact where every reader is a LayerNorm."""
        reads_centred = config.norm == "layer" and config.norm_placement == "pre" and config.final_norm
        return self.centre and reads_centred

    def centres_logits(self, config: ModelConfig) -> bool:
        """Whether W_U is centred over the vocabulary: not before a soft cap, where that would not be exact."""
        return self.centre and config.logit_soft_cap == 0

    def words(self, config: ModelConfig | None) -> tuple[str, ...]:
        """The convention strip, for captions and exports: what is done to a model of this configuration.

        A model without norms has no word on them, and nothing is called folded or centred that is not; dequantised weights
        are said first. None: of a model that is not known, each as it is chosen.
        """
        if config is None:
            folded, normed, centred = self.fold_norm, True, "centred" if self.centre else "not centred"
        else:
            folded = self.folds_sublayers(config) or self.folds_final(config)
            centred = CENTRED[self.centres_writes(config), self.centres_logits(config)]
            normed = config.norm != "none"
        norm = ("norm folded" if folded else "norm not folded",) if normed else ()
        made = (f"weights dequantised from {config.dequantised}",) if config is not None and config.dequantised else ()
        return (*made, *(Part(word, _READING) for word in (*norm, centred, self.dtype)))

    def unlike(self, other: Conventions, config: ModelConfig | None) -> tuple[str, ...]:
        """Those of its words that are not the other's, for one configuration."""
        pairs = zip(self.words(config), other.words(config), strict=True)
        return tuple(mine for mine, theirs in pairs if mine != theirs)


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
    [d_model], in the final stream behind its norm (gain and bias included, whatever is folded), overrides both.
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
            raise UsageError(
                "A target could not be read.",
                expected="next, an id such as 12, or a pair 12-34",
                got=quoted(text),
                remedy="Write next, an id, or two ids with a - between them.",
            )
        return cls(tokens)
