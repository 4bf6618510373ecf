"""The parameters of `rope-induction`, their limits, and their form in a model reference."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, urlencode

from circuitlab.counting import number_of
from circuitlab.errors import BadModel, UsageError, quoted
from circuitlab.model.origin import Constructed

Variant = Literal["one-hot", "sinusoidal", "rank-one"]
Frequencies = Literal["geometric", "equal"]

NAME = "rope-induction"
SHORT: dict[str, Variant] = {"K": "one-hot", "S": "sinusoidal"}
STEP = math.pi / 13  # angle between neighbouring letters of the sinusoidal embedding: 26 steps are a full turn
NEAREST = 1 - math.cos(STEP)  # how far its nearest rival is below a match, in units of β
_MOST_LETTERS = {"one-hot": 52, "sinusoidal": 26, "rank-one": 26}
_LARGEST = 1e6
_REMEDY = f"Correct it in the model's name: {NAME}?alpha=20&beta=30."


@dataclass(frozen=True)
class RopeInduction:
    """Parameters of the constructed model; the defaults are the variant that provably completes A B … A → B.

    variant: "one-hot" letters; "sinusoidal": all letters in one plane; "rank-one": the QK circuit of layer 1 has rank one and
    matches the destination's letter itself rather than the letter before the source. `preset` has suitable values for each.
    alpha, beta: sharpness of layer 0, of layer 1. gamma: scale of the logits. sigma: score of the resting place (BOS), in units
    of beta.
    d_head: rotary columns, in pairs (clock hands). A large alphabet needs further columns, which do not rotate.
    offset: how many positions back layer 0 attends. letters: size of the alphabet. bos: whether prompts begin with BOS.
    frequencies: "geometric", base^(−2i/d_head), or all "equal", 2π/period. n_ctx: the longest prompt.
    token_in_key: share of the token in the key of layer 0, 0 … 1. rank: of the codes that layer 1 compares; 0 means full rank.
    """

    variant: Variant = "one-hot"
    alpha: float = 12.8
    beta: float = 17.9
    gamma: float = 20.0
    sigma: float = 0.5
    d_head: int = 32
    offset: int = 1
    letters: int = 26
    bos: bool = True
    frequencies: Frequencies = "geometric"
    base: float = 10000.0
    period: float = 8.0
    token_in_key: float = 0.0
    rank: int = 0
    n_ctx: int = 64

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):
            self._check_type(field.name, type(field.default))
        _one_of("variant", self.variant, get_args(Variant))
        _one_of("frequencies", self.frequencies, get_args(Frequencies))
        for name in ("alpha", "beta", "gamma"):
            _between(name, getattr(self, name), 0, _LARGEST)
        for name in ("sigma", "token_in_key"):
            _between(name, getattr(self, name), 0, 1)
        _between("base", self.base, 1, 1e12)
        _between("period", self.period, 1, 1e6)
        _between("n_ctx", self.n_ctx, 2, 4096)
        _between("d_head", self.d_head, 2, 512)
        if self.d_head % 2:
            raise BadModel(
                "The parameter d_head is odd.",
                expected="an even number, as columns rotate in pairs",
                got=str(self.d_head),
                remedy=_REMEDY,
            )
        _between("letters", self.letters, 2, _MOST_LETTERS[self.variant])
        _between("rank", self.rank, 0, self.full_rank)
        self._check_offset()

    def _check_type(self, name: str, kind: type) -> None:
        value = getattr(self, name)
        if kind is float and type(value) is int:
            object.__setattr__(self, name, float(value))  # frozen: only inside the constructor
        elif type(value) is not kind or (kind is float and not math.isfinite(value)):
            type_names = {float: "a finite number", int: "a whole number", bool: "true or false", str: "a word"}
            raise BadModel(
                f"The parameter {name} cannot have this value.", expected=type_names[kind], got=quoted(value), remedy=_REMEDY
            )

    def _check_offset(self) -> None:
        if not 1 <= self.offset < self.n_ctx:
            raise BadModel(
                f"Layer 0 cannot look {number_of(self.offset, 'position')} back.",
                expected=f"an offset of 1 … {self.n_ctx - 1}",
                got=str(self.offset),
                remedy="Choose an offset in this range: it must point to an earlier position of the prompt.",
            )

    @property
    def full_rank(self) -> int:
        """Rank of the codes that layer 1 compares: one direction per letter, the plane of the sinusoids, or one direction."""
        return {"one-hot": self.letters, "sinusoidal": 2, "rank-one": 1}[self.variant]

    @property
    def d_vocab(self) -> int:
        """BOS (id 0) and the letters."""
        return self.letters + 1

    def theta(self) -> tuple[float, ...]:
        """[pair] radians per position, one for each rotary pair."""
        pairs = self.d_head // 2
        if self.frequencies == "equal":
            return (2 * math.pi / self.period,) * pairs
        return tuple(self.base ** (-2 * i / self.d_head) for i in range(pairs))

    @classmethod
    def preset(cls, variant: Variant = "one-hot", **changes: Any) -> RopeInduction:
        """The values at which a variant works, with `changes` to some of them. Raises `BadModel`."""
        _one_of("variant", variant, get_args(Variant))
        plane = {"alpha": 19.5, "beta": 615.0, "gamma": 400.0, "sigma": 1 - NEAREST / 2}
        values: dict[str, Any] = {} if variant == "one-hot" else plane
        return cls(variant=variant, **{**values, **changes})

    @classmethod
    def parse(cls, text: str) -> RopeInduction:
        """Parse `rope-induction?alpha=20&variant=S`, with or without `construct:`. Raises `UsageError` and `BadModel`."""
        name, _, query = text.removeprefix(str(Constructed(""))).partition("?")
        if name != NAME:
            raise UsageError(
                "There is no such constructed model.",
                expected=NAME,
                got=name[:80],
                remedy=f"Write {NAME}, with parameters after a question mark.",
            )
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
        except ValueError as error:
            raise UsageError(
                "The parameters cannot be read.", expected="alpha=20&beta=30", got=query[:120], remedy=_REMEDY
            ) from error
        defaults = {f.name: f.default for f in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for key, value in pairs:
            if key not in defaults or key in values:
                what = f"A parameter of {NAME} is given twice." if key in values else f"There is no such parameter of {NAME}."
                raise UsageError(what, expected=" ".join(defaults), got=f"{key[:40]} in {query[:120]}", remedy=_REMEDY)
            values[key] = _read(key, value, type(defaults[key]))
        if "variant" in values:
            values["variant"] = SHORT.get(values["variant"], values["variant"])
        return cls.preset(**values)

    def __str__(self) -> str:
        """The canonical form: the values that differ from the variant's preset, in the order of the fields."""
        preset = {**dataclasses.asdict(self.preset(self.variant)), "variant": "one-hot"}
        own = {n: _written(v) for n, v in dataclasses.asdict(self).items() if v != preset[n]}
        return NAME + ("?" + urlencode(own) if own else "")


def _read(name: str, text: str, kind: type) -> object:
    switches = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
    try:
        return switches[text.lower()] if kind is bool else text if kind is str else kind(text)
    except (ValueError, KeyError) as error:
        type_names = {float: "a number", int: "a whole number", bool: "true or false"}
        raise UsageError(
            f"The parameter {name} cannot be read.", expected=type_names[kind], got=quoted(text), remedy=_REMEDY
        ) from error


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadModel(
            f"The parameter {name} has an unknown value.", expected=" or ".join(choices), got=quoted(value), remedy=_REMEDY
        )


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise BadModel(f"The parameter {name} is out of range.", expected=f"{low:g} … {high:g}", got=f"{value:g}", remedy=_REMEDY)
