"""The controls of the induction laboratory, which are the parameters of the open constructed model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any, Literal

from circuitlab.figures.contracts.panel import Facts, control
from circuitlab.model.constructed import RopeInduction, named
from circuitlab.model.constructed.parameters import Frequencies, Variant
from circuitlab.state.constructed import changed, parameters, with_parameters
from circuitlab.state.state import State

NAME = "laboratory"
Page = Literal["clock", "layer 0", "layer 1", "stream", "prediction", "rank one", "equations"]
_DEFAULTS = RopeInduction()
_PARAMETERS = tuple(f.name for f in dataclasses.fields(RopeInduction))


def _open(facts: Facts) -> bool:
    """Whether a constructed model is open."""
    return named(facts.config.family)


def _slider(name: str, label: str, tip: str, low: float, high: float, pages: tuple[Page, ...], **more: object) -> Any:
    """The slider of a parameter, on the pages where it has an effect."""
    settings = {"low": low, "high": high, "kind": "slider", "only": _open, **more}
    return control(getattr(_DEFAULTS, name), label=label, tip=tip, when="page", values=pages, **settings)


def _geometric(view: LaboratoryView) -> bool:
    return view.frequencies == "geometric"


def _equal(view: LaboratoryView) -> bool:
    return view.frequencies == "equal"


@dataclass(frozen=True)
class LaboratoryView:
    """The page, and every parameter of `RopeInduction` under its own name; `far`: a Δ that the prompt does not reach;
    `equation`: the one that is explained, from 0."""

    page: Page = control("clock", label="Page", kind="tabs", only=_open)
    variant: Variant = control(
        "one-hot", label="Variant", tip="How layer 1 represents letters; a variant comes with parameters that suit it", only=_open
    )
    alpha: float = _slider(
        "alpha", "α", "Sharpness of layer 0", 0.1, 50, ("clock", "layer 0", "stream", "equations"), step=0.1, typed=(0, 1e6)
    )
    beta: float = _slider(
        "beta", "β", "Sharpness of layer 1", 1, 1000, ("layer 1", "prediction", "rank one", "equations"), step=0.1, typed=(0, 1e6)
    )
    gamma: float = _slider(
        "gamma", "γ", "Size of the logits", 1, 1000, ("stream", "prediction", "equations"), step=0.1, typed=(0, 1e6)
    )
    sigma: float = _slider(
        "sigma",
        "σ",
        "Score of BOS, the resting position, in units of β",
        0,
        1,
        ("layer 1", "prediction", "equations"),
        step=0.001,
    )
    d_head: int = _slider(
        "d_head",
        "d_head",
        "Columns that rotate, two for each clock hand",
        2,
        128,
        ("clock", "layer 0", "equations"),
        step=2,
        typed=(2, 512),
    )
    offset: int = _slider(
        "offset",
        "o",
        "How many positions layer 0 looks back",
        1,
        16,
        ("clock", "layer 0", "layer 1", "stream", "equations"),
        typed=(1, 4095),
    )
    frequencies: Frequencies = control(
        "geometric",
        label="θ",
        tip="Speeds of the hands: base^(−2i/d_head), or all equal",
        when="page",
        values=("clock", "equations"),
        only=_open,
    )
    base: float = _slider(
        "base",
        "base",
        "The slowest hand turns about once in 2π · base positions",
        10,
        1e6,
        ("clock", "equations"),
        step=1,
        typed=(1, 1e12),
        also=_geometric,
    )
    period: float = _slider(
        "period",
        "2π/θ",
        "Positions after which every hand has come full circle",
        2,
        64,
        ("clock", "equations"),
        step=0.1,
        typed=(1, 1e6),
        also=_equal,
    )
    token_in_key: float = _slider(
        "token_in_key",
        "token in key",
        "Share of the token in the key of layer 0",
        0,
        1,
        ("layer 0", "stream", "equations"),
        step=0.01,
    )
    rank: int = _slider(
        "rank", "rank", "Rank of layer 1’s comparison; 0 is full rank", 0, 26, ("layer 1", "rank one", "equations"), typed=(0, 52)
    )
    letters: int = _slider("letters", "letters", "Size of the alphabet", 2, 52, ("stream", "prediction", "rank one", "equations"))
    bos: bool = control(
        True,
        label="BOS",
        tip="Begin the prompt with BOS, on which layer 1 rests where nothing matches",
        when="page",
        values=("layer 1", "prediction", "equations"),
        only=_open,
    )
    n_ctx: int = _slider(
        "n_ctx", "N", "The longest prompt, and how far away a rival can be", 4, 512, ("clock", "layer 0"), typed=(2, 4096)
    )
    after: Literal["all", "embedding", "layer 0", "layer 1"] = control(
        "all", label="After", tip="Which steps of the stream to show", when="page", values=("stream",), only=_open
    )
    far: int | None = control(None, label="", hidden=True)
    equation: int = control(0, label="", hidden=True)


def reads(state: State) -> LaboratoryView:
    """The view that the controls show: with the parameters of the open model."""
    view, p = state.view(NAME, LaboratoryView), parameters(state)
    return view if p is None else replace(view, **dataclasses.asdict(p))


def writes(state: State, view: LaboratoryView) -> State:
    """The state whose model has the parameters of `view`. Raises `BadModel` if no model can have them."""
    current = reads(state)
    moved = {n: getattr(view, n) for n in _PARAMETERS if getattr(view, n) != getattr(current, n)}
    defaults = {n: getattr(_DEFAULTS, n) for n in _PARAMETERS}  # parameters belong to the model: the view stores none
    state = state.with_view(NAME, replace(view, **defaults))
    if not moved:
        return state
    return with_parameters(state, changed(parameters(state) or _DEFAULTS, moved))
