"""The parameters of `rope-induction`, their limits, and their text in a reference."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any, Literal, get_args
from urllib.parse import parse_qsl, urlencode

from circuitlab.counting import number_of
from circuitlab.errors import BadModel, UsageError

Variant = Literal["one-hot", "sinusoidal", "rank-one"]
Frequencies = Literal["geometric", "equal"]

NAME = "rope-induction"
KIND = "construct:"
SHORT: dict[str, Variant] = {"K": "one-hot", "S": "sinusoidal"}
STEP = math.pi / 13  # between neighbouring letters of the sinusoidal embedding: 26 of them go round once
NEAREST = 1 - math.cos(STEP)  # how far below a match its nearest rival scores there, in units of β
_MOST_LETTERS = {"one-hot": 52, "sinusoidal": 26, "rank-one": 26}
_LARGEST = 1e6


@dataclass(frozen=True)
class RopeInduction:
    """Parameters of the constructed model; the defaults are the variant that provably completes A B … A → B.

    variant: "one-hot" letters; "sinusoidal" ones, all in one plane; "rank-one", whose second layer has one direction on each
    side and looks for its own letter rather than for what followed it. `preset` has the values that fit each.
    alpha: sharpness of layer 0. beta: of layer 1. gamma: size of the logits. sigma: score of the resting place, in units of beta.
    d_head: columns that turn, in pairs: the clock hands. A large alphabet needs more columns: those do not turn.
    offset: how many positions layer 0 looks back. letters: the alphabet. bos: whether a prompt begins with BOS.
    frequencies: "geometric", base^(−2i/d_head), or all "equal", 2π/period. n_ctx: the longest prompt.
    token_in_key: share of the token in the key of layer 0, 0 … 1. rank: of what layer 1 compares; 0 is full rank.
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
                "The parameter d_head is odd.", expected="an even number: each pair is one clock hand", got=str(self.d_head)
            )
        _between("letters", self.letters, 2, _MOST_LETTERS[self.variant])
        _between("rank", self.rank, 0, self.full_rank)
        self._check_offset()

    def _check_type(self, name: str, kind: type) -> None:
        value = getattr(self, name)
        if kind is float and type(value) is int:
            object.__setattr__(self, name, float(value))  # frozen: only inside the constructor
        elif type(value) is not kind or (kind is float and not math.isfinite(value)):
            words = {float: "a finite number", int: "a whole number", bool: "true or false", str: "a word"}
            raise BadModel(f"The parameter {name} cannot have this value.", expected=words[kind], got=repr(value)[:80])

    def _check_offset(self) -> None:
        if not 1 <= self.offset < self.n_ctx:
            raise BadModel(
                f"Layer 0 cannot look {number_of(self.offset, 'position')} back.",
                expected=f"an offset of 1 … {self.n_ctx - 1}",
                got=str(self.offset),
                remedy="Positions at and behind the destination's own hold nothing of the past, and later ones are masked.",
            )

    @property
    def full_rank(self) -> int:
        """Of what layer 1 compares: a direction a letter, the plane of the sinusoids, or the one direction of rank one."""
        return {"one-hot": self.letters, "sinusoidal": 2, "rank-one": 1}[self.variant]

    @property
    def d_vocab(self) -> int:
        """BOS (id 0) and the letters."""
        return self.letters + 1

    def theta(self) -> tuple[float, ...]:
        """[pair] radians a position, one a clock hand."""
        pairs = self.d_head // 2
        if self.frequencies == "equal":
            return (2 * math.pi / self.period,) * pairs
        return tuple(self.base ** (-2 * i / self.d_head) for i in range(pairs))

    @classmethod
    def preset(cls, variant: Variant = "one-hot", **given: Any) -> RopeInduction:
        """The values at which a variant works, with some of them replaced. Raises `BadModel`."""
        _one_of("variant", variant, get_args(Variant))
        plane = {"alpha": 19.5, "beta": 615.0, "gamma": 400.0, "sigma": 1 - NEAREST / 2}
        values: dict[str, Any] = {} if variant == "one-hot" else plane
        return cls(variant=variant, **{**values, **given})

    @classmethod
    def parse(cls, text: str) -> RopeInduction:
        """Of `rope-induction?alpha=20&variant=S`, with or without `construct:`. Raises `UsageError` and `BadModel`."""
        name, _, query = text.removeprefix(KIND).partition("?")
        if name != NAME:
            raise UsageError("There is no such constructed model.", expected=NAME, got=name[:80])
        try:
            pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=True) if query else []
        except ValueError as error:
            raise UsageError("The parameters cannot be read.", expected="alpha=20&beta=30", got=query[:120]) from error
        defaults = {f.name: f.default for f in dataclasses.fields(cls)}
        values: dict[str, Any] = {}
        for key, value in pairs:
            if key not in defaults or key in values:
                what = f"A parameter of {NAME} is given twice." if key in values else f"There is no such parameter of {NAME}."
                raise UsageError(what, expected=" ".join(defaults), got=f"{key[:40]} in {query[:120]}")
            values[key] = _read(key, value, type(defaults[key]))
        if "variant" in values:
            values["variant"] = SHORT.get(values["variant"], values["variant"])
        return cls.preset(**values)

    def __str__(self) -> str:
        """The canonical text: what differs from the variant's preset, in the order of the fields."""
        usual = {**dataclasses.asdict(self.preset(self.variant)), "variant": "one-hot"}
        own = {n: _written(v) for n, v in dataclasses.asdict(self).items() if v != usual[n]}
        return NAME + ("?" + urlencode(own) if own else "")


def _read(name: str, text: str, kind: type) -> Any:
    switches = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
    try:
        return switches[text.lower()] if kind is bool else text if kind is str else kind(text)
    except (ValueError, KeyError) as error:
        words = {float: "a number", int: "a whole number", bool: "true or false"}
        raise UsageError(f"The parameter {name} cannot be read.", expected=words[kind], got=repr(text)[:80]) from error


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value).removesuffix(".0")


def _one_of(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadModel(f"The parameter {name} is not a known one.", expected=" or ".join(choices), got=repr(value)[:80])


def _between(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise BadModel(f"The parameter {name} is out of range.", expected=f"{low:g} … {high:g}", got=f"{value:g}")
