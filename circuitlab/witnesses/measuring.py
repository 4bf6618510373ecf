"""Measuring a model: everything of the table, in order; what cannot be measured of it leaves its reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from circuitlab.api.model import Model
from circuitlab.errors import BadInput, CircuitLabError, OverBudget
from circuitlab.training.corpus import Stream
from circuitlab.witnesses import heads, prose
from circuitlab.witnesses.estimate import mean_of
from circuitlab.witnesses.prompt_sets import NAMES, SETS, OnSet, names_to_the_end, on_set
from circuitlab.witnesses.prose import PIECE, Prose, Resting, SaidTwice
from circuitlab.witnesses.record import Witnesses, named, rows_of

USED_TEXTS, USED_LENGTH = 32, 128  # pieces in which skip-trigrams are looked for, at most, and their tokens
NOTHING = mean_of([])
Say = Callable[[str], None]
_T = TypeVar("_T")


def witnesses_of(
    model: Model,
    streams: tuple[Stream, ...] | None = None,
    control: str | None = None,
    pieces: int = prose.PIECES,
    say: Say = lambda line: None,
) -> Witnesses:
    """Everything of the table. `control`: the source of a model without layers and with the same tokenizer.

    `streams`: the texts it was trained on, whose held-out parts are read; None: the passages that ship. What cannot be measured
    of this model is NaN in the result, with its reason in `absent`.
    """
    with prose.temporary() as folder:
        return _Measuring(model, control, pieces, say).all(
            lambda: prose.passages(model, pieces) if streams is None else prose.held_out_prose(model, streams, pieces, folder)
        )


class _Measuring:
    """Asks for one part after the other."""

    def __init__(self, model: Model, control: str | None, pieces: int, say: Say) -> None:
        self.model, self.control, self.pieces, self.say = model, control, pieces, say
        self.absent: dict[str, str] = {}

    def part(self, name: str, ask: Callable[[], _T], otherwise: _T) -> _T:
        """What `ask` says; where it refuses, `otherwise`, and why in `absent`."""
        self.say(name.replace("_", " "))
        try:
            return ask()
        except (BadInput, OverBudget) as error:
            self.absent[name] = _why(error)
            return otherwise

    def all(self, read: Callable[[], Prose]) -> Witnesses:
        """Every part."""
        model = self.model
        nowhere = np.full((model.config.n_layers, model.config.n_heads), np.nan)
        sets = {name: self.part(name, lambda name=name: on_set(model, name), OnSet(NOTHING, NOTHING, NOTHING)) for name in SETS}
        to_the_end = self.part("names_to_the_end", lambda: names_to_the_end(model), NOTHING)
        random = self.part("random_blocks", lambda: heads.random_blocks(model), heads.RandomBlocks(NOTHING, None, NOTHING))
        own = self.part("own_tokens", lambda: heads.own_tokens(model), nowhere)
        by_weights = self.part("by_weights", lambda: heads.sources_by_weights(model), nowhere)
        twice, resting = SaidTwice(NOTHING, NOTHING, NOTHING, NOTHING, None, NOTHING), Resting(nowhere, ())
        score, controlled, split, in_use, described = NOTHING, NOTHING, NOTHING, nowhere, {}
        text = self.part("prose", read, None)
        used, length = min(USED_TEXTS, self.pieces), min(USED_LENGTH, model.config.n_ctx)
        if text is not None:
            described = text.described
            twice = self.part("said_twice", lambda: prose.said_twice(model, text.pieces, text.front), twice)
            resting = self.part("dead", lambda: prose.resting(model, text.windows, text.pieces, text.front), resting)
            score, controlled = self.part(
                "in_context", lambda: prose.in_context(model, text.file, self.control, self.pieces), (score, controlled)
            )
            split = self.part("words_split", lambda: prose.words_split(model, text.file), split)
            in_use = self.part("in_use", lambda: heads.sources_in_use(model, text.file, used, length), in_use)
        protocol: dict[str, object] = {
            **described,
            "pieces": 0 if text is None else len(text.pieces),
            "piece": PIECE,
            "windows": 0 if text is None else text.windows.shape[1] + len(text.front),
            "length": min(prose.CONTEXT, model.config.n_ctx),
            "used": [used, length],
            "control": self.control is not None,
        }
        return Witnesses(
            model=model.ref.name,
            step=None,
            sets={name: one._asdict() for name, one in sets.items()},
            names={NAMES: to_the_end},
            said_twice={name: getattr(twice, name) for name in ("first", "once", "second", "mass", "bos")},
            random={"prefix_matching": random.prefix_matching, "saved": random.saved},
            in_context={"score": score, "controlled": controlled if self.control else NOTHING},
            words={"split": split},
            heads={
                "on_bos": rows_of(resting.bos),
                "own_tokens": rows_of(own),
                "by_weights": rows_of(by_weights),
                "in_use": rows_of(in_use),
            },
            dead=tuple(map(str, resting.dead)),
            best=named(text=twice.best, random=random.best),
            protocol=protocol,
            absent=self.absent,
        )


def _why(error: CircuitLabError) -> str:
    """What an error says, without its advice: as the end of a sentence."""
    what = error.what.strip().rstrip(".")
    return f"{what[:1].lower()}{what[1:]}"
