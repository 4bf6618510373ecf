"""Measuring a model: held-out prose from texts or from a run's own tokens, then everything of the table."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from circuitlab.api.model import Model
from circuitlab.errors import BadInput
from circuitlab.model.text.tokenizer import Tokenizer
from circuitlab.training.corpus import Stream
from circuitlab.training.measured_texts import held_out_of
from circuitlab.training.series_measuring import bos_of
from circuitlab.witnesses import heads, prose
from circuitlab.witnesses.estimate import mean_of
from circuitlab.witnesses.prompt_sets import SETS, on_set
from circuitlab.witnesses.prose import PIECE, WINDOW, Prose
from circuitlab.witnesses.record import Witnesses, named, rows_of

USED_TEXTS, USED_LENGTH = 32, 128  # pieces in which skip-trigrams are looked for, at most, and their tokens
Say = Callable[[str], None]


def held_out_prose(streams: tuple[Stream, ...], tokenizer: Tokenizer, bos: int, n_ctx: int, pieces: int, folder: str) -> Prose:
    """Evenly spaced pieces and windows of the held-out text by its shares; its whole text in a file of `folder`."""
    cut = lambda length, n: np.concatenate([held_out_of(s, bos, length + 1, n).numpy()[:, 1:] for s in streams])
    if n_ctx < 2 * PIECE + 1:
        raise BadInput(
            "The context has no room for a piece said twice.",
            expected=f"{2 * PIECE + 1} tokens",
            got=str(n_ctx),
            remedy="Measure a model with a longer context.",
        )
    text = "\n\n".join(tokenizer.decode(s.held_out.tolist()) for s in streams)
    return Prose(cut(PIECE, pieces), cut(min(WINDOW, n_ctx) - 1, pieces), prose.written(text, folder))


def witnesses_of(
    model: Model,
    streams: tuple[Stream, ...],
    control: str | None = None,
    pieces: int = prose.PIECES,
    say: Say = lambda line: None,
) -> Witnesses:
    """Everything of the table. `control`: the source of a model without layers and with the same tokenizer.

    Raises `BadModel`, `BadInput` for a model or texts that cannot be measured.
    """
    weights = model.engine.store.open(model.ref).opened.weights
    bos, n_ctx, tokenizer = bos_of(weights.tokenizer, weights.config.d_vocab), weights.config.n_ctx, weights.tokenizer
    assert tokenizer is not None  # else refused
    with prose.temporary() as folder:
        text = held_out_prose(streams, tokenizer, bos, n_ctx, pieces, folder)
        say("prompt sets")
        sets = {name: on_set(model, name)._asdict() for name in SETS}
        say("prose said twice")
        twice = prose.said_twice(model, text.pieces, bos)
        say("where heads rest")
        resting = prose.resting(model, text.windows, text.pieces, bos)
        say("random blocks")
        random = heads.random_blocks(model)
        say("in context")
        score, controlled = prose.in_context(model, text.file, control, pieces)
        say("own tokens, skip-trigrams")
        own = heads.own_tokens(model)
        used, length = min(USED_TEXTS, pieces), min(USED_LENGTH, n_ctx)
        sources = heads.trigram_sources(model, text.file, used, length)
    protocol: dict[str, object] = {
        "text": [s.label for s in streams],
        "shares": [round(s.share, 6) for s in streams],
        "held_out": [len(s.held_out) for s in streams],
        "pieces": pieces,
        "piece": PIECE,
        "windows": text.windows.shape[1] + 1,
        "length": n_ctx,
        "used": [used, length],
        "control": control is not None,
    }
    return Witnesses(
        model=model.ref.name,
        step=None,
        sets=sets,
        said_twice={"first": twice.first, "second": twice.second, "mass": twice.mass, "bos": twice.bos},
        random={"prefix_matching": random.prefix_matching, "saved": random.saved},
        in_context={"score": score, "controlled": controlled if control else mean_of([])},
        heads={
            "on_bos": rows_of(resting.bos),
            "own_tokens": rows_of(own),
            "by_weights": rows_of(sources.by_weights),
            "in_use": rows_of(sources.in_use),
        },
        dead=tuple(map(str, resting.dead)),
        best=named(text=twice.best, random=random.best),
        protocol=protocol,
    )
