"""The parameters of the open constructed model, and a State on the model of others."""

from __future__ import annotations

import dataclasses
from dataclasses import replace
from typing import Any

from circuitlab.model.constructed import RopeInduction, named
from circuitlab.model.constructed.tokenizer import letter_tokenizer
from circuitlab.model.origin import Constructed
from circuitlab.model.subject import ModelRef
from circuitlab.state.state import Selection, State

TEXT = "A B C D A B C D A"


def parameters(state: State) -> RopeInduction | None:
    """The parameters of the open model; None if it is not a constructed one."""
    return parameters_of(state.model)


def parameters_of(ref: ModelRef) -> RopeInduction | None:
    """The parameters of a model; None if it is not a constructed one."""
    origin = ref.origin
    return RopeInduction.parse(origin.where) if isinstance(origin, Constructed) and named(origin.where) else None


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
    old, ref = parameters(state), ModelRef.of(Constructed(str(p)))
    if old is None:
        fresh = replace(state, model=ref, bos=p.bos, front="", edits=(), selection=Selection())
        return fresh.with_text(TEXT, letter_tokenizer(p.letters).encode(TEXT, p.bos)[: p.n_ctx])
    if (old.letters, old.bos, old.n_ctx) == (p.letters, p.bos, p.n_ctx):
        return replace(state, model=ref)
    bos = state.bos if old.bos == p.bos else p.bos
    state = replace(state, model=ref, bos=bos)
    if not state.text:  # typed ids
        return state.with_tokens(tuple(t for t in state.tokens if t <= p.letters)[: p.n_ctx])
    return state.with_text(*letter_tokenizer(p.letters).cut(state.text, p.n_ctx, *state.reading))
