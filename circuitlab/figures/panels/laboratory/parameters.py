"""The controls of the induction laboratory, which are the parameters of the open constructed model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from typing import Any, Literal

from circuitlab.figures.contracts.panel import Facts, control
from circuitlab.model.constructed import KIND, RopeInduction, named
from circuitlab.model.constructed.parameters import Frequencies, Variant
from circuitlab.model.constructed.tokenizer import letter_tokenizer
from circuitlab.model.subject import ModelRef
from circuitlab.session.state import Selection, State

NAME = "laboratory"
TEXT = "A B C D A B C D A"
Page = Literal["clock", "layer 0", "layer 1", "stream", "prediction", "rank one"]
_DEFAULTS = RopeInduction()
_PARAMETERS = tuple(f.name for f in dataclasses.fields(RopeInduction))


def _open(facts: Facts) -> bool:
    """Whether a constructed model is open."""
    return named(facts.config.family)


def _slider(name: str, label: str, tip: str, low: float, high: float, pages: tuple[Page, ...], **more: Any) -> Any:
    """The slider of a parameter, on the pages where it has an effect."""
    settings = {"low": low, "high": high, "kind": "slider", "only": _open, **more}
    return control(getattr(_DEFAULTS, name), label=label, tip=tip, when="page", values=pages, **settings)


def _geometric(view: Any) -> bool:
    return view.frequencies == "geometric"


def _equal(view: Any) -> bool:
    return view.frequencies == "equal"


@dataclass(frozen=True)
class LaboratoryView:
    """The page, and every parameter of `RopeInduction` under its own name; `far`: a Δ that the prompt does not reach."""

    page: Page = control("clock", label="Page", kind="tabs", only=_open)
    variant: Variant = control(
        "one-hot", label="Variant", tip="How layer 1 represents letters; a variant comes with parameters that suit it", only=_open
    )
    alpha: float = _slider(
        "alpha", "α", "Sharpness of layer 0", 0.1, 50, ("clock", "layer 0", "stream"), step=0.1, typed=(0, 1e6)
    )
    beta: float = _slider(
        "beta", "β", "Sharpness of layer 1", 1, 1000, ("layer 1", "prediction", "rank one"), step=0.1, typed=(0, 1e6)
    )
    gamma: float = _slider("gamma", "γ", "Size of the logits", 1, 1000, ("stream", "prediction"), step=0.1, typed=(0, 1e6))
    sigma: float = _slider(
        "sigma", "σ", "Score of BOS, the resting position, in units of β", 0, 1, ("layer 1", "prediction"), step=0.001
    )
    d_head: int = _slider(
        "d_head", "d_head", "Columns that rotate, two for each clock hand", 2, 128, ("clock", "layer 0"), step=2, typed=(2, 512)
    )
    offset: int = _slider(
        "offset", "o", "How many positions layer 0 looks back", 1, 16, ("clock", "layer 0", "layer 1", "stream"), typed=(1, 4095)
    )
    frequencies: Frequencies = control(
        "geometric",
        label="θ",
        tip="Speeds of the hands: base^(−2i/d_head), or all equal",
        when="page",
        values=("clock",),
        only=_open,
    )
    base: float = _slider(
        "base",
        "base",
        "The slowest hand turns about once in 2π · base positions",
        10,
        1e6,
        ("clock",),
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
        ("clock",),
        step=0.1,
        typed=(1, 1e6),
        also=_equal,
    )
    token_in_key: float = _slider(
        "token_in_key", "token in key", "Share of the token in the key of layer 0", 0, 1, ("layer 0", "stream"), step=0.01
    )
    rank: int = _slider(
        "rank", "rank", "Rank of layer 1’s comparison; 0 is full rank", 0, 26, ("layer 1", "rank one"), typed=(0, 52)
    )
    letters: int = _slider("letters", "letters", "Size of the alphabet", 2, 52, ("stream", "prediction", "rank one"))
    bos: bool = control(
        True,
        label="BOS",
        tip="Begin the prompt with BOS, on which layer 1 rests where nothing matches",
        when="page",
        values=("layer 1", "prediction"),
        only=_open,
    )
    n_ctx: int = _slider(
        "n_ctx", "N", "The longest prompt, and how far away a rival can be", 4, 512, ("clock", "layer 0"), typed=(2, 4096)
    )
    after: Literal["all", "embedding", "layer 0", "layer 1"] = control(
        "all", label="After", tip="Which steps of the stream to show", when="page", values=("stream",), only=_open
    )
    far: int | None = control(None, label="", hidden=True)


def parameters(state: State) -> RopeInduction | None:
    """The parameters of the open model; None if it is not a constructed one."""
    return parameters_of(state.model)


def parameters_of(ref: ModelRef) -> RopeInduction | None:
    """The parameters of a model; None if it is not a constructed one."""
    source = ref.source
    return RopeInduction.parse(source) if source.startswith(KIND) and named(source.removeprefix(KIND)) else None


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


def changed(p: RopeInduction, moved: dict[str, Any]) -> RopeInduction:
    """`p` with some parameters changed, and others fitted to them. Raises `BadModel`.

    Another variant brings its own sharpness, BOS score and rank; a smaller alphabet limits the rank, a shorter context the
    offset.
    """
    values = dataclasses.asdict(p) | moved
    if moved.get("variant", p.variant) != p.variant:
        preset = RopeInduction.preset(values["variant"])
        values |= {n: getattr(preset, n) for n in ("alpha", "beta", "gamma", "sigma", "rank")}
        values["letters"] = min(values["letters"], 52 if values["variant"] == "one-hot" else 26)
    if "rank" not in moved:
        values["rank"] = min(values["rank"], values["letters"])
    if "offset" not in moved:
        values["offset"] = min(values["offset"], max(1, values["n_ctx"] - 1))
    return RopeInduction(**values)


def with_parameters(state: State, p: RopeInduction) -> State:
    """This state on the model of `p`; a text of letters stays, with its tokens from the new alphabet."""
    old, ref = parameters(state), ModelRef(f"{KIND}{p}")
    if old is None:
        fresh = replace(state, model=ref, bos=p.bos, edits=(), selection=Selection())
        return fresh.with_text(TEXT, letter_tokenizer(p.letters).encode(TEXT, p.bos)[: p.n_ctx])
    if (old.letters, old.bos, old.n_ctx) == (p.letters, p.bos, p.n_ctx):
        return replace(state, model=ref)
    bos = state.bos if old.bos == p.bos else p.bos
    state = replace(state, model=ref, bos=bos)
    if not state.text:  # typed ids
        return state.with_tokens(tuple(t for t in state.tokens if t <= p.letters)[: p.n_ctx])
    tokenizer = letter_tokenizer(p.letters)
    whole = tokenizer.encode(state.text, bos)
    text = state.text if len(whole) <= p.n_ctx else tokenizer.decode(whole[: p.n_ctx])
    return state.with_text(text, whole[: p.n_ctx])
