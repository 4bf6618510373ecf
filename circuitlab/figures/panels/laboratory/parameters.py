"""The controls of the induction laboratory: they are the parameters of the open constructed model, not settings of a panel."""

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
_USUAL = RopeInduction()
_PARAMETERS = tuple(f.name for f in dataclasses.fields(RopeInduction))


def _open(facts: Facts) -> bool:
    """Whether there are parameters to move."""
    return named(facts.config.family)


def _slider(name: str, label: str, tip: str, low: float, high: float, pages: tuple[Page, ...], **more: Any) -> Any:
    """The slider of a parameter, on the pages where it shows what it does."""
    usual, said = getattr(_USUAL, name), {"low": low, "high": high, "kind": "slider", "only": _open, **more}
    return control(usual, label=label, tip=tip, when="page", values=pages, **said)


def _geometric(view: Any) -> bool:
    return view.frequencies == "geometric"


def _equal(view: Any) -> bool:
    return view.frequencies == "equal"


@dataclass(frozen=True)
class LaboratoryView:
    """The page, and every parameter of `RopeInduction` under its own name; `far`: a Δ that no source of this prompt has."""

    page: Page = control("clock", label="Page", kind="tabs", only=_open)
    variant: Variant = control(
        "one-hot", label="Variant", tip="What letters are to layer 1; choosing one takes the values that fit it", only=_open
    )
    alpha: float = _slider(
        "alpha", "α", "Sharpness of layer 0", 0.1, 50, ("clock", "layer 0", "stream"), step=0.1, typed=(0, 1e6)
    )
    beta: float = _slider(
        "beta", "β", "Sharpness of layer 1", 1, 1000, ("layer 1", "prediction", "rank one"), step=0.1, typed=(0, 1e6)
    )
    gamma: float = _slider("gamma", "γ", "Size of the logits", 1, 1000, ("stream", "prediction"), step=0.1, typed=(0, 1e6))
    sigma: float = _slider(
        "sigma", "σ", "Score of the resting place, BOS, in units of β", 0, 1, ("layer 1", "prediction"), step=0.001
    )
    d_head: int = _slider(
        "d_head", "d_head", "Columns that turn: two a clock hand", 2, 128, ("clock", "layer 0"), step=2, typed=(2, 512)
    )
    offset: int = _slider(
        "offset", "o", "How many positions layer 0 looks back", 1, 16, ("clock", "layer 0", "layer 1", "stream"), typed=(1, 4095)
    )
    frequencies: Frequencies = control(
        "geometric",
        label="θ",
        tip="Speeds of the hands: base^(−2i/d_head), or all the same",
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
        "Positions in which every hand comes round",
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
    rank: int = _slider("rank", "rank", "Of what layer 1 compares; 0 is full rank", 0, 26, ("layer 1", "rank one"), typed=(0, 52))
    letters: int = _slider("letters", "letters", "Size of the alphabet", 2, 52, ("stream", "prediction", "rank one"))
    bos: bool = control(
        True,
        label="BOS",
        tip="A resting place in front: the prompt begins with BOS",
        when="page",
        values=("layer 1", "prediction"),
        only=_open,
    )
    n_ctx: int = _slider(
        "n_ctx", "N", "The longest prompt: rivals may stand that far", 4, 512, ("clock", "layer 0"), typed=(2, 4096)
    )
    after: Literal["all", "embedding", "layer 0", "layer 1"] = control(
        "all", label="After", tip="Which steps of the stream are shown", when="page", values=("stream",), only=_open
    )
    far: int | None = control(None, label="", hidden=True)


def parameters(state: State) -> RopeInduction | None:
    """Of the open model, None where it is no constructed one."""
    source = state.model.source
    return RopeInduction.parse(source) if source.startswith(KIND) and named(source.removeprefix(KIND)) else None


def reads(state: State) -> LaboratoryView:
    """What the controls show: the parameters of the open model."""
    view, p = state.view(NAME, LaboratoryView), parameters(state)
    return view if p is None else replace(view, **dataclasses.asdict(p))


def writes(state: State, view: LaboratoryView) -> State:
    """The State whose model has these parameters. Raises `BadModel` where no model can have them."""
    shown = reads(state)
    moved = {n: getattr(view, n) for n in _PARAMETERS if getattr(view, n) != getattr(shown, n)}
    usual = {n: getattr(_USUAL, n) for n in _PARAMETERS}  # parameters are the model's: they are not kept twice
    state = state.with_view(NAME, replace(view, **usual))
    if not moved:
        return state
    return with_parameters(state, changed(parameters(state) or _USUAL, moved))


def changed(p: RopeInduction, moved: dict[str, Any]) -> RopeInduction:
    """`p` with some parameters moved, and with what that leaves no room for. Raises `BadModel`.

    Another variant takes its own sharpness, resting place and rank; a smaller alphabet a smaller rank; a shorter context a
    nearer offset.
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
    """This state on the model of `p`: the text is kept where it is one of letters, its tokens are the new alphabet's."""
    old, ref = parameters(state), ModelRef(f"{KIND}{p}")
    if old is None:
        fresh = replace(state, model=ref, bos=p.bos, edits=(), selection=Selection())
        return fresh.with_text(TEXT, letter_tokenizer(p.letters).encode(TEXT, p.bos)[: p.n_ctx])
    if (old.letters, old.bos, old.n_ctx) == (p.letters, p.bos, p.n_ctx):
        return replace(state, model=ref)
    bos = state.bos if old.bos == p.bos else p.bos
    state = replace(state, model=ref, bos=bos)
    if not state.text:  # ids that were typed
        return state.with_tokens(tuple(t for t in state.tokens if t <= p.letters)[: p.n_ctx])
    tokenizer = letter_tokenizer(p.letters)
    whole = tokenizer.encode(state.text, bos)
    text = state.text if len(whole) <= p.n_ctx else tokenizer.decode(whole[: p.n_ctx])
    return state.with_text(text, whole[: p.n_ctx])
