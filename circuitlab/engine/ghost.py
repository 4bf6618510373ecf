"""Ghosts: models whose weights are not on this machine, known by what a session file carries of them.

A ghost is an `OpenModel` with configuration, tokenizer and notes, as panels and stories ask for, and without weights: whatever
would read them raises `BadModel`. So the answers that are held are shown (`held.Held`), and everything else says why it is not.

A session carries three files of a model:

    config.json     the configuration, as `ModelConfig.to_json`
    tokenizer.json  the tokenizer, where there is one
    about.json      notes, training steps, dtypes and counts, which other files of the model said

None of them says where the model lay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from circuitlab.counting import number_of
from circuitlab.disk.paths import base_name
from circuitlab.engine.open_model import BESIDES, OpenModel
from circuitlab.errors import BadModel, UsageError
from circuitlab.model.config import ModelConfig
from circuitlab.model.files.strict_json import parse
from circuitlab.model.loading import Opened
from circuitlab.model.loading.assumptions import Assumption
from circuitlab.model.plain import from_json, to_json
from circuitlab.model.subject import Conventions, ModelRef
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.model.weights import Embed, Layer, Unembed, Weights, parameters_of

CONFIG, TOKENIZER, ABOUT = "config.json", "tokenizer.json", "about.json"
LARGEST = {CONFIG: 2**20, TOKENIZER: 64 * 2**20, ABOUT: 2**20}  # bytes of each
_REMEDY = "Open the session where its models are, or one that was saved without results."
MISSING = "The weights are not on this machine."
_PART = r"[^\s\\/:;,'\"]"
_PATH = re.compile(rf"(?<![\w\\/])(?:[A-Za-z]:)?(?!//)[\\/]+(?:{_PART}+[\\/]+)+({_PART}*)")  # an absolute one, and no URL
_WHOLE = re.compile(r"(?:~|[A-Za-z]:)?[\\/].*[\\/]([^\\/]+)", re.DOTALL)


@dataclass(frozen=True)
class AboutModel:
    """What `about.json` says. `trained`: optimiser steps of the final weights; `bos`, `adds_bos` as in `Tokenizer`; `measured`:
    whether the training series was measured; the rest as in `Opened` and `OpenModel`."""

    notes: tuple[str, ...] = ()
    steps: tuple[int, ...] = ()
    trained: int | None = None
    family: str = ""
    n_parameters: int = 0
    dtypes: tuple[str, ...] = ()
    bos: int | None = None
    adds_bos: bool = False
    measured: bool = False
    assumptions: tuple[Assumption, ...] = ()


class AbsentWeights:
    """`Weights` of which only the configuration, the tokenizer and the number of parameters are known."""

    resident = False

    def __init__(self, config: ModelConfig, tokenizer: Tokenizer | None, n_parameters: int, missing: BadModel) -> None:
        self.config, self.tokenizer, self.n_parameters, self._missing = config, tokenizer, n_parameters, missing
        self._damaged: tuple[str, ...] = ()

    def embed(self) -> Embed:
        """Raises `BadModel`."""
        self.refuse()

    def layer(self, i: int, mlp: bool = True) -> Layer:
        """Raises `BadModel`."""
        self.refuse()

    def unembed(self) -> Unembed:
        """Raises `BadModel`."""
        self.refuse()

    def lacks(self, analyses: Sequence[str]) -> None:
        """As in `Ghost`."""
        self._damaged = tuple(analyses)

    def refuse(self, analysis: str = "") -> NoReturn:
        """Raises `BadModel`: a new one each time, as an error keeps where it was raised."""
        error, names = self._missing, ", ".join(dict.fromkeys(self._damaged))
        got = f"{error.got}; {number_of(len(self._damaged), 'answer')} damaged: {names}" if names else error.got
        if analysis not in self._damaged:
            raise BadModel(error.what, expected=error.expected, got=got, remedy=error.remedy)
        what = f"A stored answer of {analysis.replace('_', ' ')} is damaged, and the weights are not on this machine."
        raise BadModel(what, expected=error.expected, got=got, remedy=f"{error.remedy} Or take an undamaged copy of the session.")


@dataclass(eq=False)
class Ghost(OpenModel):
    """A model without its weights; `about`: what its session says of it. Place it with `ModelStore.place`."""

    absent: ClassVar[bool] = True
    about: AboutModel = AboutModel()

    def weights(self, conventions: Conventions, device: str = "cpu") -> Weights:
        """Raises `BadModel`."""
        self.need_weights()

    def need_weights(self, analysis: str = "") -> NoReturn:
        """Raises `BadModel`."""
        weights = self.opened.weights
        assert isinstance(weights, AbsentWeights)
        weights.refuse(analysis)

    def lacks(self, analyses: Sequence[str]) -> None:
        """Say wherever weights are missed that stored answers could not be read; `analyses`: the name of that of each."""
        weights = self.opened.weights
        assert isinstance(weights, AbsentWeights)
        weights.lacks(analyses)

    def of_checkpoint(self, ref: ModelRef) -> Ghost:
        """The ghost of another checkpoint, whose hash is not known."""
        return replace(self, ref=ref, identity=_identity(ref, ""), sha256="")

    @property
    def nbytes(self) -> int:
        """What stays of a model without weights, roughly."""
        return BESIDES

    @property
    def held_bytes(self) -> int:
        """As `nbytes`."""
        return BESIDES

    @property
    def dtypes(self) -> tuple[str, ...]:
        """As in the session."""
        return self.about.dtypes

    @property
    def steps_trained(self) -> int | None:
        """As in the session."""
        at, steps = self.ref.checkpoint, self.opened.steps
        if at is None:
            return self.about.trained
        return steps[at] if -len(steps) <= at < len(steps) else None

    @property
    def measured(self) -> bool:
        """As in the session."""
        return self.about.measured


def ghost_members(model: OpenModel) -> dict[str, bytes]:
    """What a session carries of an open model, by file name; equal models give equal bytes."""
    opened, weights = model.opened, model.opened.weights
    tokenizer, final = weights.tokenizer, replace(model.ref, checkpoint=None)
    about = AboutModel(
        notes=tuple(map(placeless, opened.notes)),
        steps=opened.steps,
        trained=replace(model, ref=final).steps_trained,
        family=opened.family,
        n_parameters=parameters_of(weights),
        dtypes=model.dtypes,
        bos=None if tokenizer is None else tokenizer.bos,
        adds_bos=tokenizer is not None and tokenizer.adds_bos,
        measured=model.measured,
        assumptions=tuple(replace(a, value=base_name(a.value) if a.free else a.value) for a in opened.assumptions),
    )
    members = {CONFIG: _json(weights.config.to_json()), ABOUT: _json(to_json(about))}
    return members if tokenizer is None else {**members, TOKENIZER: tokenizer.file_text().encode()}


def ghost(ref: ModelRef, members: Mapping[str, bytes], sha256: str) -> Ghost:
    """The ghost of a model, of what a session carries of it. `sha256`: of its weights, "" where the session does not say.

    Raises `BadModel` where the files cannot be read.
    """
    config = config_of(members)
    about = _about(parse(members.get(ABOUT, b"{}"), ABOUT))
    tokenizer = Tokenizer.from_bytes(members[TOKENIZER]) if TOKENIZER in members else None
    if tokenizer is not None:
        inside = about.bos is not None and 0 <= about.bos < tokenizer.n_tokens
        tokenizer.bos, tokenizer.adds_bos = about.bos if inside else None, about.adds_bos and inside
    weights = AbsentWeights(config, tokenizer, about.n_parameters or config.n_parameters(), _missing(ref, sha256))
    opened = Opened(weights, about.notes, (), "", about.family, about.assumptions, about.steps)
    return Ghost(ref, Path(ref.source), opened, _identity(ref, sha256), sha256, about=about)


def config_of(members: Mapping[str, bytes]) -> ModelConfig:
    """The configuration in what a session carries of a model. Raises `BadModel` for a file that is too large or unreadable."""
    for name, most in LARGEST.items():
        if (size := len(members.get(name, b""))) > most:
            raise BadModel(f"{name} is too large.", expected=f"at most {number_of(most, 'byte')}", got=str(size), remedy=_REMEDY)
    return ModelConfig.from_json(parse(members.get(CONFIG, b""), CONFIG))


def _missing(ref: ModelRef, sha256: str) -> BadModel:
    return BadModel(
        MISSING,
        expected=f"the weights of {ref.name}" + (f", sha256 {sha256[:12]}…" if sha256 else ""),
        got="its configuration and the results stored with the session",
        remedy="Copy the model to this machine, and open the session again.",
    )


def _identity(ref: ModelRef, sha256: str) -> tuple[tuple[str, int, int], ...]:
    """In place of files: no two ghosts of different weights are one."""
    return ((f"ghost {sha256} {ref.source} {ref.checkpoint}", 0, 0),)


def _about(data: Mapping[str, Any]) -> AboutModel:
    try:
        return from_json(AboutModel, data, ABOUT)
    except UsageError as error:
        got = f"{error.what} {error.got}"
        raise BadModel(
            "What a session says of a model cannot be read.", expected=error.expected, got=got, remedy=_REMEDY
        ) from error


def _json(value: Any) -> bytes:
    return (json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode("utf-8", "backslashreplace")


def placeless(text: str) -> str:
    """A text without the folders of the absolute paths in it: a session says nothing of the machine that it was saved on."""
    whole = _WHOLE.fullmatch(text)
    return whole[1] if whole is not None else _PATH.sub(lambda match: match[1], text)
